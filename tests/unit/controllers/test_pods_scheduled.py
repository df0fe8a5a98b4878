"""What kube-scheduler says of pods for which it finds no node is in their Workload, written once."""

from typing import Any

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE, Cluster
from tests.unit.controllers.test_runner import Diary
from turnstile.api.conditions import timestamp
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Admission
from turnstile.controllers.jobs import frameworks
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.controllers.runtime.runner import Runner
from turnstile.kube.gate import Rank

NO_NODES = "0/3 nodes are available: 3 Insufficient cpu."
SAID = ("False", "WaitForScheduling", f"1 pod(s) cannot be scheduled: {NO_NODES}")


@pytest.fixture
def cluster() -> Cluster:
    """A Job of three pods that was admitted and runs."""
    made = Cluster()
    made.flavor()
    made.job(parallelism=3, completions=3)
    made.settle()
    made.admit()
    made.settle()
    made.writes.clear()
    return made


def pod(cluster: Cluster, name: str, *, refused: str = "", reason: str = "Unschedulable", **metadata: Any) -> None:
    """A pod of the Job, bound to a node unless kube-scheduler refuses it, since now."""
    job = cluster.get(Job, "team/train")
    assert job is not None
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    meta = {"name": name, "namespace": "team", "ownerReferences": [{**owner, "controller": True}], **metadata}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(cluster.now)}
    if refused:
        scheduled |= {"status": "False", "reason": reason, "message": refused}
    spec = {**TEMPLATE["spec"], **({} if refused else {"nodeName": "n"})}
    cluster.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Pending", "conditions": [scheduled]}})


def test_it_is_written_after_some_seconds(cluster: Cluster) -> None:
    """A pod often waits for a moment, until others have terminated."""
    pod(cluster, "a", refused=NO_NODES)
    assert cluster.step().actions == [RequeueAfter(10.0)]
    cluster.later(seconds=10)
    decision = cluster.step()
    assert cluster.condition("PodsScheduled") == SAID
    assert decision.rank is Rank.REASON
    assert cluster.step().actions == [RequeueAfter(60.0)]


def test_it_is_written_once_for_all_pods(cluster: Cluster) -> None:
    """Neither another pod nor another number of nodes is worth a write; another reason is."""
    pod(cluster, "a", refused=NO_NODES)
    cluster.later(seconds=10)
    cluster.settle()
    pod(cluster, "b", refused="0/3 nodes are available: 3 node(s) were unschedulable.")
    pod(cluster, "a", refused="0/41 nodes are available: 41 Insufficient cpu.")
    cluster.later(seconds=20)
    cluster.settle()
    assert cluster.condition("PodsScheduled") == SAID
    pod(cluster, "a")
    cluster.settle()
    assert (cluster.condition("PodsScheduled") or ())[2] == (
        "1 pod(s) cannot be scheduled: 0/3 nodes are available: 3 node(s) were unschedulable."
    )
    assert cluster.writes == ["patch Workload status"] * 2


def test_what_is_said_of_the_pod_that_waits_longest_counts(cluster: Cluster) -> None:
    """Whatever the names of the pods are."""
    pod(cluster, "z", refused="first")
    cluster.later(seconds=1)
    pod(cluster, "a", refused="second")
    cluster.later(seconds=10)
    cluster.settle()
    assert cluster.condition("PodsScheduled") == (
        "False",
        "WaitForScheduling",
        "2 pod(s) cannot be scheduled: first",
    )


def test_it_is_removed_when_every_pod_has_a_node(cluster: Cluster) -> None:
    """Also a pod that is gone, or is being deleted, is not waited for."""
    for name in "abc":
        pod(cluster, name, refused=NO_NODES)
    cluster.later(seconds=10)
    cluster.settle()
    pod(cluster, "a")
    pod(cluster, "b", refused=NO_NODES, deletionTimestamp="2026-01-02T03:04:05Z", finalizers=["f"])
    cluster.settle()
    assert cluster.condition("PodsScheduled") == (*SAID[:2], f"3 pod(s) cannot be scheduled: {NO_NODES}")
    cluster.delete(Pod, "team/c")
    cluster.settle()
    assert cluster.condition("PodsScheduled") is None


@pytest.mark.parametrize("reason", ["SchedulingGated", "SchedulerError", ""])
def test_only_what_kube_scheduler_has_decided_counts(cluster: Cluster, reason: str) -> None:
    """Neither a gate, nor an error of kube-scheduler, nor a pod that kube-scheduler has not seen."""
    pod(cluster, "a", refused="no", reason=reason)
    cluster.later(seconds=100)
    assert not cluster.step().actions


def test_an_eviction_leaves_it_and_the_next_admission_removes_it(cluster: Cluster) -> None:
    """It may be the reason of the eviction; it is not about the pods of the next run."""
    pod(cluster, "a", refused=NO_NODES)
    cluster.later(seconds=10)
    cluster.settle()
    cluster.evict(reason="PodsReadyTimeout")
    cluster.settle()
    cluster.delete(Pod, "team/a")
    cluster.later(seconds=10)
    cluster.settle()
    assert (cluster.condition("QuotaReserved") or ())[0] == "False"
    assert cluster.condition("PodsScheduled") == SAID
    workload = cluster.world.workloads.get(cluster.workload_key)
    assert workload is not None
    draft = cluster.world.draft(workload)
    draft.reserve(Admission(cluster_queue="cq"), admitted=True)
    assert [each.type for each in draft.conditions if each.type == "PodsScheduled"] == []


def test_it_does_not_outlive_the_job(cluster: Cluster) -> None:
    """A Job may end while a pod of it waits for a node."""
    pod(cluster, "a", refused=NO_NODES)
    cluster.later(seconds=10)
    cluster.settle()
    cluster.delete(Pod, "team/a")
    cluster.patch(Job, "team/train", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    cluster.settle()
    assert (cluster.condition("Finished") or ())[0] == "True"
    assert cluster.condition("PodsScheduled") is None


def test_nothing_is_said_before_all_pods_were_read(cluster: Cluster) -> None:
    """After a restart what was written stays."""
    pod(cluster, "a", refused=NO_NODES)
    cluster.later(seconds=10)
    cluster.settle()
    cluster.delete(Pod, "team/a")
    cluster.world.pods.doubt()
    assert not cluster.step().actions
    cluster.world.pods.believe()
    cluster.settle()
    assert cluster.condition("PodsScheduled") is None


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_the_first_pod_without_a_node_and_the_last_reconcile_the_job(cluster: Cluster) -> None:
    """The others of a large gang change nothing, and pods that are bound at once neither."""
    runner = Runner(Diary(), frameworks.controllers(cluster.world), [frameworks.dispatch(cluster.world)])
    queue = runner.queues["batch/job"]

    async def woken() -> bool:
        if not len(queue):
            return False
        queue.done(await queue.get())
        return True

    with runner.subscribed():
        pod(cluster, "bound")
        assert not await woken()
        pod(cluster, "a", refused=NO_NODES)
        assert await woken()
        pod(cluster, "b", refused=NO_NODES)
        pod(cluster, "a", refused="0/4 nodes are available")
        pod(cluster, "a")
        assert not await woken()
        pod(cluster, "b")
        assert await woken()
