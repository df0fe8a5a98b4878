"""Two versions of the file say the same, each by its own rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.config.files import OLD_HEAD, loaded, told, warned
from turnstile.api.config import v1beta1, v1beta2
from turnstile.api.config.conversion import from_hub, to_hub


def test_an_old_file_is_told_to_be_deprecated() -> None:
    """v1beta1 is read, with a warning."""
    assert warned("", head=OLD_HEAD) == [
        "line 1: apiVersion: v1beta1 is deprecated: write config.kueue.x-k8s.io/v1beta2"
    ]


@pytest.mark.parametrize(
    ("body", "strategies"),
    [
        ("fairSharing: {enable: true}", ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]),
        ("fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}", ["LessThanInitialShare"]),
        ("fairSharing: {enable: false}", None),
        ("fairSharing: {}", None),
    ],
)
def test_an_old_switch_becomes_presence(body: str, strategies: list[str] | None) -> None:
    """`fairSharing.enable` decides in v1beta1; both strategies are its default."""
    sharing = loaded(body, head=OLD_HEAD).configuration.fair_sharing
    assert (sharing.preemption_strategies if sharing is not None else None) == strategies


def test_the_new_version_has_no_default_strategy() -> None:
    """`fairSharing: {}` is refused in v1beta2, where strategies are required, as by Kueue."""
    assert told("fairSharing: {}") == ["line 3: fairSharing.preemptionStrategies: Required value: must be specified"]


def test_only_the_new_version_waits_for_pods_by_itself() -> None:
    """Kueue's trap: without the section v1beta2 turns it on and v1beta1 leaves it off."""
    assert loaded("").configuration.wait_for_pods_ready is not None
    assert loaded("", head=OLD_HEAD).configuration.wait_for_pods_ready is None


def test_an_old_switch_alone_is_converted_with_the_times_of_its_version() -> None:
    """Also where no defaults were set before, v1beta1 waits five minutes and lets nobody else in meanwhile."""
    old = v1beta1.Configuration.model_validate({"waitForPodsReady": {"enable": True}})
    assert to_hub(old).plain()["waitForPodsReady"] == {"timeout": "5m0s", "blockAdmission": True}


@pytest.mark.parametrize("field", ["visibilityServer: {}", "resources: {quotaCheckStrategy: IgnoreUndeclared}"])
def test_an_old_file_does_not_know_new_fields(field: str) -> None:
    """What came with v1beta2 is unknown in v1beta1."""
    (fault,) = told(field, head=OLD_HEAD)
    assert "unknown field" in fault


def test_an_old_file_may_hold_what_is_ignored() -> None:
    """`queueVisibility` and `integrations.podOptions` were of use once."""
    body = """
        queueVisibility: {updateIntervalSeconds: 5, clusterQueues: {maxCount: 10}}
        integrations:
          podOptions: {namespaceSelector: {}}
    """
    ignored = [text for text in warned(body, head=OLD_HEAD) if "is ignored" in text]
    assert [text.split(": ")[1] for text in ignored] == ["queueVisibility", "integrations.podOptions"]


def _sections() -> st.SearchStrategy[dict[str, object]]:
    durations = st.integers(0, 10**6).map(lambda seconds: f"{seconds}s")
    texts = st.text("abc", min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "namespace": texts,
            "webhook": st.fixed_dictionaries({}, optional={"port": st.integers(1, 65535), "host": texts}),
            "fairSharing": st.fixed_dictionaries({"preemptionStrategies": st.lists(texts, min_size=1, max_size=2)}),
            "waitForPodsReady": st.fixed_dictionaries({"timeout": durations, "blockAdmission": st.booleans()}),
            "resources": st.fixed_dictionaries({}, optional={"excludeResourcePrefixes": st.lists(texts, max_size=2)}),
            "featureGates": st.dictionaries(texts, st.booleans(), max_size=2),
            "multiKueue": st.fixed_dictionaries({}, optional={"gcInterval": durations, "origin": texts}),
            "manageJobsWithoutQueueName": st.booleans(),
        },
    )


@settings(deadline=None)
@given(_sections())
def test_what_both_versions_know_survives_the_way_there_and_back(data: dict[str, object]) -> None:
    """Hub to spoke to hub loses nothing that v1beta1 can say."""
    config = v1beta2.Configuration.model_validate(data)
    assert to_hub(from_hub(config)) == config
