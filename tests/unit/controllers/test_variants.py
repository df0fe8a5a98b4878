"""Concurrent admission: what becomes of a parent and its variants, beside Kueue's recorded cases."""

import json
from typing import Any

from tests.unit.controllers.worlds import NOW, decode, world
from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import timestamp
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Create, Emit, Patch, RequeueAfter
from turnstile.controllers.workloads import variants
from turnstile.engine.queue.admissible import PARENT_LABEL
from turnstile.jobs.options import JobOptions

Body = dict[str, Any]
POD_SETS = [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]


def queue(**migration: Any) -> list[Any]:
    """A ClusterQueue with two flavors, and a LocalQueue for it."""
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "better", "resources": []}, {"name": "spot", "resources": []}],
        }
    ]
    policy = {"migration": {"mode": "TryPreferredFlavors", **migration}}
    spec = {"resourceGroups": groups, "concurrentAdmissionPolicy": policy}
    local = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    return [decode(ClusterQueue, {"metadata": {"name": "cq"}, "spec": spec}), decode(LocalQueue, local)]


def workload(name: str, *said: str, **meta: Any) -> Body:
    """A Workload with these conditions, since now."""
    at = timestamp(NOW)
    conditions = [
        {"type": each, "status": "True", "reason": "ByTest", "message": "", "lastTransitionTime": at} for each in said
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "spot"}, "count": 1}]}
    status: Body = {"conditions": conditions, **({"admission": admission} if "QuotaReserved" in said else {})}
    metadata = {"name": name, "namespace": "ns", "uid": name, **meta}
    return {"metadata": metadata, "spec": {"podSets": POD_SETS, "queueName": "lq"}, "status": status}


def parent(*said: str, **meta: Any) -> Body:
    """The parent."""
    return workload("job-1", *said, labels={PARENT_LABEL: "true"}, **meta)


def variant(flavor: str, *said: str, **meta: Any) -> Body:
    """A variant of it."""
    owner = {"apiVersion": "v", "kind": "Workload", "name": "job-1", "uid": "job-1", "controller": True}
    return workload(flavor, *said, annotations={variants.ALLOWED_FLAVORS: flavor}, ownerReferences=[owner], **meta)


def decided(*workloads: Body, **migration: Any) -> list[Any]:
    """What is written for the parent."""
    options = JobOptions(concurrent_admission=True)
    cluster = world(*queue(**migration), *(decode(Workload, each) for each in workloads), options=options)
    return variants.decide("ns/job-1", cluster).actions


def told(actions: list[Any]) -> list[str]:
    """Reasons of events."""
    return [each.reason for each in actions if isinstance(each, Emit)]


def test_a_workload_is_marked_before_it_has_variants() -> None:
    """By Kueue's label; one that holds quota since before is left alone."""
    (patch,) = decided(workload("job-1"))
    assert json.loads(patch.body)["metadata"]["labels"] == {PARENT_LABEL: "true"}
    assert decided(workload("job-1", "QuotaReserved", "Admitted")) == []


def test_a_slice_of_an_elastic_job_has_none() -> None:
    """It may have one flavor only."""
    assert decided(workload("job-1", annotations={names.SLICE_NAME: "job-1"})) == []


def test_a_variant_keeps_its_quota_until_its_pods_are_gone() -> None:
    """It has a finalizer, and its own metadata."""
    made = [each for each in decided(parent()) if isinstance(each, Create)]
    assert len(made) == 2
    for each in made:
        meta = json.loads(each.body)["metadata"]
        assert meta["finalizers"] == [names.RESOURCE_IN_USE]
        assert PARENT_LABEL not in meta.get("labels", {})


def test_the_job_stops_when_its_variant_is_deleted() -> None:
    """No variant runs any more."""
    gone = variant("spot", "QuotaReserved", "Admitted", deletionTimestamp=timestamp(NOW), finalizers=["x"])
    (patch,) = decided(parent("QuotaReserved", "Admitted"), variant("better"), gone)
    assert isinstance(patch, Patch)
    found = {each["type"]: each for each in json.loads(patch.body)["status"]["conditions"]}
    assert (found["Evicted"]["reason"], found["Evicted"]["message"]) == ("ConcurrentAdmission", "No variant is running")


def test_a_job_does_not_move_before_it_has_run_as_long_as_the_policy_says() -> None:
    """Better variants do not compete until then."""
    running = variant("spot", "QuotaReserved", "Admitted")
    family = (parent("QuotaReserved", "Admitted"), variant("better"), running)
    assert told(decided(*family)) == []
    actions = decided(*family, constraints={"minRunSeconds": 600})
    assert told(actions) == ["DeactivatedVariant"]
    assert RequeueAfter(600.0) in actions
