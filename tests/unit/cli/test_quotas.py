"""The compact forms that `create` takes."""

import pytest

from turnstile.api.errors import InvalidValue
from turnstile.cli.queues.quotas import NOMINAL, labels, resource_groups, taints, tolerations


def test_flavors_with_other_resources_are_another_group() -> None:
    """Each group covers resources of its own."""
    groups = resource_groups({NOMINAL: ["a:cpu=1", "b:nvidia.com/gpu=8,c:cpu=2"]})
    assert [each["coveredResources"] for each in groups] == [["cpu"], ["nvidia.com/gpu"]]
    assert [[flavor["name"] for flavor in each["flavors"]] for each in groups] == [["a", "c"], ["b"]]


def test_a_limit_alone_is_a_quota_of_nothing() -> None:
    """The API asks for a nominal quota."""
    [group] = resource_groups({"--borrowing-limit": ["a:cpu=1"]})
    assert group["flavors"][0]["resources"] == [{"name": "cpu", "borrowingLimit": "1", "nominalQuota": "0"}]


@pytest.mark.parametrize(
    ("texts", "cure"),
    [
        (["a"], "give FLAVOR:RESOURCE=AMOUNT"),
        (["a:cpu"], "give FLAVOR:RESOURCE=AMOUNT"),
        ([":cpu=1"], "give FLAVOR:RESOURCE=AMOUNT"),
        (["a:cpu=1;cpu=2"], "give FLAVOR:RESOURCE=AMOUNT"),
        (["a:cpu=many"], "many is no quantity"),
        (["a:cpu=1,a:cpu=2"], "flavor a is there twice"),
        (["a:cpu=1;memory=1Gi,b:cpu=1"], "cpu is in two groups"),
    ],
)
def test_quotas_that_cannot_be(texts: list[str], cure: str) -> None:
    """The error says what would do."""
    with pytest.raises(InvalidValue, match=cure):
        resource_groups({NOMINAL: texts})


def test_an_option_with_other_resources() -> None:
    """A flavor has the same resources in every option."""
    with pytest.raises(InvalidValue, match="name the same resources of flavor a everywhere: cpu"):
        resource_groups({NOMINAL: ["a:cpu=1"], "--lending-limit": ["a:memory=1Gi"]})


@pytest.mark.parametrize("text", ["", "a", "a=b", ":NoSchedule", "a:Never", "a=b=c:NoSchedule", "-:NoSchedule"])
def test_taints_that_cannot_be(text: str) -> None:
    """A taint has a key and an effect."""
    with pytest.raises(InvalidValue):
        taints("--node-taints", [text])


def test_a_taint_twice() -> None:
    """A key has an effect once."""
    with pytest.raises(InvalidValue, match="has this effect twice"):
        taints("--node-taints", ["a:NoSchedule,a=b:NoSchedule"])


@pytest.mark.parametrize("text", ["", "=b", "a:Sometimes", "a b"])
def test_tolerations_that_cannot_be(text: str) -> None:
    """A value needs a key, and effects are three."""
    with pytest.raises(InvalidValue):
        tolerations("--tolerations", [text])


@pytest.mark.parametrize("text", ["a", "a=b c", "/a=b"])
def test_labels_that_cannot_be(text: str) -> None:
    """A label has a key and a value."""
    with pytest.raises(InvalidValue, match="give KEY=VALUE"):
        labels("--node-labels", [text])
