"""Quota that no pod uses for a while is given back, though the job was admitted and is not at fault by its status."""

import pytest

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_multikueue_kinds import dispatch
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.controllers.workloads.workload import decide
from turnstile.jobs.options import JobOptions

LIMIT = 1800.0


@pytest.fixture
def cluster() -> Cluster:
    """An admitted Job of which no pod runs."""
    made = Cluster(options=JobOptions(unused_after=LIMIT))
    made.flavor()
    made.job()
    made.settle()
    made.admit()
    made.settle()
    return made


def look(cluster: Cluster) -> list[object]:
    """What the Workload's reconcile decides and does."""
    decision = decide(cluster.workload_key, cluster.world)
    for action in decision.actions:
        cluster.act(action)
    return list(decision.actions)


def pod(cluster: Cluster, phase: str, **status: object) -> None:
    """The pod of the Job is in that phase; `status` is more of its status."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-1", "controller": True}
    job = next(iter(cluster.world.jobs.values())).get("team/train")
    assert job is not None
    meta = {
        "name": "train-1",
        "namespace": "team",
        "uid": "pod",
        "ownerReferences": [{**owner, "uid": job.metadata.uid}],
    }
    cluster.put(Pod, {"metadata": meta, "spec": {"nodeName": "node"}, "status": {"phase": phase, **status}})


def test_a_job_of_which_no_pod_runs_is_evicted(cluster: Cluster) -> None:
    """Pods that wait for a volume, a service account or a node use no quota; the Workload waits as after the timeout of
    waitForPodsReady."""
    assert look(cluster) == [RequeueAfter(LIMIT)]
    pod(cluster, "Pending")
    cluster.later(seconds=LIMIT)
    look(cluster)
    assert cluster.condition("Evicted") == ("True", "PodsReadyTimeout", "None of its pods has run for 1800s")
    assert cluster.workload["status"]["requeueState"]["count"] == 1


def test_a_job_that_runs_is_only_looked_at_again(cluster: Cluster) -> None:
    """Nothing is written about it."""
    pod(cluster, "Running")
    cluster.writes.clear()
    for _ in range(3):
        assert look(cluster) == [RequeueAfter(LIMIT)]
        cluster.later(seconds=LIMIT)
    assert cluster.writes == []


def test_an_init_container_that_runs_for_long_counts(cluster: Cluster) -> None:
    """It may load a data set for an hour, in which the pod is pending and uses all that it requests."""
    running = {"name": "load", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}
    pod(cluster, "Pending", initContainerStatuses=[running])
    for _ in range(3):
        assert look(cluster) == [RequeueAfter(LIMIT)]
        cluster.later(seconds=LIMIT)
    waiting = {"name": "load", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pod(cluster, "Pending", initContainerStatuses=[waiting])
    assert look(cluster) == [RequeueAfter(LIMIT)]
    cluster.later(seconds=LIMIT)
    look(cluster)
    assert cluster.condition("Evicted") == ("True", "PodsReadyTimeout", "None of its pods has run for 1800s")


def test_a_pod_that_ran_between_two_looks_counts(cluster: Cluster) -> None:
    """The time counts from the end of the last pod that ran."""
    assert look(cluster) == [RequeueAfter(LIMIT)]
    cluster.later(seconds=LIMIT - 60)
    pod(cluster, "Running")
    pod(cluster, "Failed")
    cluster.later(seconds=60)
    assert look(cluster) == [RequeueAfter(LIMIT - 60)]


def test_each_admission_has_the_whole_time(cluster: Cluster) -> None:
    """What is known of a Workload goes when it loses its quota."""
    look(cluster)
    cluster.later(seconds=LIMIT)
    look(cluster)
    assert len(cluster.world.idle) == 1
    cluster.evict()
    cluster.settle()
    cluster.later(seconds=60)
    cluster.settle()
    assert cluster.condition("Admitted")[0] == "False"  # type: ignore[index]
    assert len(cluster.world.idle) == 0


def test_without_the_option_nothing_is_looked_at() -> None:
    """The command's default is off; the chart's is half an hour."""
    cluster = Cluster()
    cluster.flavor()
    cluster.job()
    cluster.settle()
    cluster.admit()
    cluster.settle()
    assert look(cluster) == []


def test_pods_that_have_succeeded_do_not_run(cluster: Cluster) -> None:
    """A Job whose succeeded pods are as many as may run at a time is ready by its status, though the others are never
    made."""
    cluster.patch(Job, "team/train", {"spec": {"completions": 10}, "status": {"succeeded": 1}})
    look(cluster)
    cluster.later(seconds=LIMIT)
    look(cluster)
    assert cluster.condition("Evicted") == ("True", "PodsReadyTimeout", "None of its pods has run for 1800s")


def test_a_job_without_pods_is_left_alone() -> None:
    """A Job whose parallelism is 0 holds nothing that another Workload could use."""
    cluster = Cluster(options=JobOptions(unused_after=LIMIT))
    cluster.flavor()
    cluster.job(parallelism=0)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    assert look(cluster) == []


def test_a_workload_of_a_kind_that_is_not_known_is_left_alone(cluster: Cluster) -> None:
    """The pods of such a job are known only to who made the Workload."""
    reference = {"apiVersion": "example.com/v1", "kind": "Simulation", "name": "train", "uid": "other"}
    cluster.patch(Workload, cluster.workload_key, {"metadata": {"ownerReferences": [reference]}})
    assert look(cluster) == []


def test_a_job_on_another_cluster_is_not_judged_here(cluster: Cluster) -> None:
    """No pod of it is on this one: until now each was evicted after half an hour. The other cluster judges."""
    dispatch(cluster)
    cluster.later(seconds=LIMIT)
    assert look(cluster) == []
    cluster.later(seconds=LIMIT)
    assert look(cluster) == []
    assert cluster.condition("Evicted") is None
