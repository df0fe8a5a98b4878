"""Turnstile's own kinds get their finalizers on create and are checked on create and update."""

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, mutated, operations, refusal, request
from turnstile.api import names
from turnstile.api.timeannotations import MINIMUM_RUN_TIME
from turnstile.api.waitforroom import WAIT_FOR_ROOM
from turnstile.webhooks.review import ALLOWED
from turnstile.webhooks.routes import routes

ROUTES = routes(Cluster())


def handler(verb: str, kind: str):  # type: ignore[no-untyped-def]
    """The handler behind a path of ours."""
    return ROUTES[f"/{verb}-kueue-x-k8s-io-v1beta2-{kind.lower()}"]


def thing(kind: str, **fields: object) -> Json:
    """An object of one of our kinds."""
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "x"}, **fields}


@pytest.mark.parametrize("kind", ["ResourceFlavor", "ClusterQueue"])
def test_a_new_object_gets_the_finalizer(kind: str) -> None:
    """Once, beside those of others."""
    after = mutated(handler("mutate", kind), thing(kind, spec={}))
    assert after["metadata"]["finalizers"] == [names.RESOURCE_IN_USE]
    other = thing(kind, metadata={"name": "x", "finalizers": ["a/b"]})
    assert mutated(handler("mutate", kind), other)["metadata"]["finalizers"] == ["a/b", names.RESOURCE_IN_USE]


@pytest.mark.parametrize("kind", ["ResourceFlavor", "ClusterQueue", "Workload"])
def test_an_object_against_its_schema_may_still_be_mutated(kind: str) -> None:
    """It is defaulted before the API server checks it, so only what is needed is read."""
    answer = handler("mutate", kind)(request(thing(kind, spec="nonsense"), operation="UPDATE"))
    assert answer is ALLOWED
    if kind != "Workload":
        assert operations(handler("mutate", kind)(request(thing(kind, spec="nonsense"))))


def test_a_new_workload_is_left_as_it_is() -> None:
    """Partial admission is on, so a minimum stays."""
    wanted = thing(
        "Workload", spec={"podSets": [{"name": "main", "count": 3, "minCount": 1, "template": {"spec": {}}}]}
    )
    assert mutated(handler("mutate", "Workload"), wanted) == wanted


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("ResourceFlavor", {"nodeLabels": {"a b": "c"}}, "spec.nodeLabels"),
        ("ClusterQueue", {"namespaceSelector": {"matchLabels": {"a b": "c"}}}, "spec.namespaceSelector.matchLabels"),
        (
            "Cohort",
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "-1"}]}],
                    }
                ]
            },
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        ),
        (
            "Workload",
            {"podSets": [{"name": n, "count": 3, "minCount": 1, "template": {"spec": {}}} for n in "ab"]},
            "spec.podSets",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_field(kind: str, spec: Json, path: str) -> None:
    """On create and on update."""
    wrong, fine = thing(kind, spec=spec), thing(kind, spec={})
    assert refusal(handler("validate", kind), wrong).startswith(f"{path}: ")
    assert refusal(handler("validate", kind), wrong, old=fine).startswith(f"{path}: ")
    assert refusal(handler("validate", kind), fine) == ""


def test_the_status_of_a_workload_is_checked_too() -> None:
    """A reservation without an admission is refused through the sub-resource; other sub-resources pass."""
    before = thing("Workload", spec={"podSets": []})
    condition = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    after = {**before, "status": {"conditions": [condition]}}
    answer = handler("validate", "Workload")(request(after, old=before, sub_resource="status"))
    assert answer.code == 403
    assert "status.admission" in answer.message
    assert handler("validate", "Workload")(request(after, old=before, sub_resource="scale")) is ALLOWED


def test_the_pod_sets_of_an_admitted_workload_cannot_change_at_all() -> None:
    """Not even in a part that quota does not look at."""
    condition = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }

    def workload(image: str) -> Json:
        template = {"spec": {"containers": [{"name": "c", "image": image}]}}
        status = {
            "conditions": [condition],
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1}]},
        }
        return thing("Workload", spec={"podSets": [{"name": "main", "count": 1, "template": template}]}, status=status)

    assert refusal(handler("validate", "Workload"), workload("a"), old=workload("a")) == ""
    assert "field is immutable" in refusal(handler("validate", "Workload"), workload("b"), old=workload("a"))


@pytest.mark.parametrize("kind", ["ResourceFlavor", "ClusterQueue", "Cohort", "Workload"])
def test_what_is_being_deleted_passes(kind: str) -> None:
    """Nothing may stand in the way of taking a finalizer off."""
    leaving = thing(kind, spec={"resourceGroups": 7})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    leaving["spec"] = {}
    assert handler("validate", kind)(request(leaving, old=leaving)) is ALLOWED


@pytest.mark.parametrize("kind", ["ClusterQueue", "WorkloadPriorityClass"])
def test_a_minimum_run_time_that_cannot_be_read_is_refused(kind: str) -> None:
    """With the field, the value and what would do; an older fault does not refuse an update of something else."""
    fields: Json = {"value": 1} if kind == "WorkloadPriorityClass" else {"spec": {}}
    wrong = thing(kind, metadata={"name": "x", "annotations": {MINIMUM_RUN_TIME: "a while"}}, **fields)
    assert refusal(handler("validate", kind), wrong) == (
        'metadata.annotations[turnstile.dev/minimum-run-time]: Invalid value: "a while": is not a duration: write'
        " numbers with units, for example 30s, 5m or 1h30m"
    )
    assert refusal(handler("validate", kind), wrong, old=wrong) == ""
    right = thing(kind, metadata={"name": "x", "annotations": {MINIMUM_RUN_TIME: "30m"}}, **fields)
    assert refusal(handler("validate", kind), right) == ""


def test_an_annotation_for_room_is_true_or_false() -> None:
    """Anything else is refused, unless it was there before."""
    wrong = thing("ClusterQueue", metadata={"name": "x", "annotations": {WAIT_FOR_ROOM: "yes"}}, spec={})
    assert refusal(handler("validate", "ClusterQueue"), wrong) == (
        'metadata.annotations[turnstile.dev/wait-for-room]: Invalid value: "yes": must be "true" or "false"'
    )
    assert refusal(handler("validate", "ClusterQueue"), wrong, old=wrong) == ""
    right = thing("ClusterQueue", metadata={"name": "x", "annotations": {WAIT_FOR_ROOM: "false"}}, spec={})
    assert refusal(handler("validate", "ClusterQueue"), right) == ""
