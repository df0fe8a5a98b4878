"""A job of a kind that only the configuration file describes, from its Workload to its end."""

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE, Body, Cluster
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.registry import ALL, Registry

ENTRY = CustomKind.model_validate(
    {
        "framework": "example.com/simulation",
        "group": "example.com",
        "version": "v1",
        "kind": "Simulation",
        "plural": "simulations",
        "podSets": [{"name": "main", "template": "spec.template", "count": [{"path": "spec.workers"}]}],
        "finished": {"success": {"condition": "Succeeded"}, "failure": {"condition": "Succeeded", "status": "False"}},
        "active": {"counts": ["status.running"]},
    }
)
SIMULATIONS = ConfiguredJobs(ENTRY)
KEY = "example.com/simulation:team/train"


@pytest.fixture
def running() -> Cluster:
    """A Simulation of two pods that was admitted to a flavor with a node label and runs."""
    cluster = Cluster(registry=Registry(kinds=(*ALL, SIMULATIONS)))
    cluster.flavor(nodeLabels={"pool": "a"})
    meta = {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    cluster.put(SIMULATIONS.kind, {"metadata": meta, "spec": {"suspend": True, "workers": 2, "template": TEMPLATE}})
    cluster.settle(KEY)
    cluster.admit()
    cluster.settle(KEY)
    cluster.patch(SIMULATIONS.kind, "team/train", {"status": {"running": 2}})
    cluster.settle(KEY)
    return cluster


def simulation(cluster: Cluster) -> Body:
    """The object as it is."""
    found = cluster.get(SIMULATIONS.kind, "team/train")
    assert found is not None
    return found


def stopped_pods(cluster: Cluster) -> None:
    """Its operator has removed the pods."""
    cluster.patch(SIMULATIONS.kind, "team/train", {"status": {"running": 0}})


def evicted_early(*, observed: bool) -> Cluster:
    """A Simulation that was evicted three seconds after its admission, before its operator reported anything;
    `observed` if the entry says where the operator reports which generation it has read."""
    active = {"counts": ["status.running"], **({"observedGeneration": "status.observedGeneration"} if observed else {})}
    kind = ConfiguredJobs(CustomKind.model_validate({**ENTRY.model_dump(by_alias=True), "active": active}))
    cluster = Cluster(registry=Registry(kinds=(*ALL, kind)))
    cluster.flavor()
    meta = {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    cluster.put(kind.kind, {"metadata": meta, "spec": {"suspend": True, "workers": 2, "template": TEMPLATE}})
    cluster.settle(KEY)
    cluster.later(seconds=-2)
    cluster.admit()
    cluster.settle(KEY)
    cluster.evict()
    cluster.settle(KEY)
    assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")
    if observed:
        body = cluster.get(kind.kind, "team/train")
        assert body is not None
        cluster.patch(kind.kind, "team/train", {"status": {"observedGeneration": body["metadata"]["generation"]}})
        cluster.settle(KEY)
    return cluster


def test_pods_that_may_be_created_still_keep_its_quota() -> None:
    """Its operator may have read it before it was suspended, and says nothing; so some seconds are waited for."""
    cluster = evicted_early(observed=False)
    decision = cluster.decide(KEY)
    assert decision.why == "evicted, but pods may be created still"
    assert decision.actions == [RequeueAfter(5.0)]
    cluster.later(seconds=5)
    cluster.settle(KEY)
    assert cluster.condition("QuotaReserved") == ("False", "PendingEvaluation", "Preempted to make room")


def test_an_operator_that_says_what_it_has_read_is_believed() -> None:
    """No time is waited for then."""
    assert evicted_early(observed=True).condition("QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Preempted to make room",
    )


def test_it_runs_where_it_was_admitted(running: Cluster) -> None:
    """With one Workload of its pods, by Kueue's name, owned by it."""
    spec = simulation(running)["spec"]
    assert spec["suspend"] is False
    assert spec["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert running.workload["metadata"]["name"].startswith("simulation-train-")
    (owner,) = running.workload["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["controller"]) == ("example.com/v1", "Simulation", True)
    assert [(each["name"], each["count"]) for each in running.workload["spec"]["podSets"]] == [("main", 2)]


def test_evicted_it_gives_its_quota_back_when_no_pod_is_active(running: Cluster) -> None:
    """And its template is as its user wrote it."""
    running.evict()
    running.settle(KEY)
    assert simulation(running)["spec"] == {"suspend": True, "workers": 2, "template": TEMPLATE}
    assert running.condition("QuotaReserved") == ("True", "ByTest", "")
    stopped_pods(running)
    running.settle(KEY)
    condition = running.condition("QuotaReserved")
    assert condition is not None
    assert condition[0] == "False"


def test_its_workload_is_kept_until_the_pods_are_gone(running: Cluster) -> None:
    """Also one that is deleted, or that fits no longer: its quota is that of the pods."""
    running.delete(Workload, running.workload_key)
    running.settle(KEY)
    assert simulation(running)["spec"]["suspend"] is True
    assert running.workload["metadata"]["finalizers"]
    stopped_pods(running)
    running.settle(KEY)
    assert running.condition("QuotaReserved") is None


def test_a_workload_that_fits_no_longer_is_kept_until_the_pods_are_gone(running: Cluster) -> None:
    """The job is stopped for it, and then gets another Workload."""
    running.patch(SIMULATIONS.kind, "team/train", {"spec": {"workers": 3}})
    running.settle(KEY)
    assert simulation(running)["spec"]["suspend"] is True
    assert [each["count"] for each in running.workload["spec"]["podSets"]] == [2]
    stopped_pods(running)
    running.settle(KEY)
    assert [each["count"] for each in running.workload["spec"]["podSets"]] == [3]
    assert running.condition("QuotaReserved") is None


@pytest.mark.parametrize(("status", "reason"), [("True", "Succeeded"), ("False", "Failed")])
def test_its_end_is_that_of_the_workload(running: Cluster, status: str, reason: str) -> None:
    """Success or failure, by what the entry says."""
    conditions = [{"type": "Succeeded", "status": status, "message": "over"}]
    running.patch(SIMULATIONS.kind, "team/train", {"status": {"conditions": conditions, "running": 0}})
    running.settle(KEY)
    assert running.condition("Finished") == ("True", reason, "over")
