"""What cannot be decided does not run: such a job is not started, and what was not admitted is stopped.

The kinds of these tests fail on purpose, as a fault in a kind's module would.
"""

from typing import Any

import pytest

from tests.unit.controllers.group_cluster import GROUP, GroupCluster
from tests.unit.controllers.job_cluster import JOB, POD, Cluster
from turnstile.api.core import Job, Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.charging.patience import SHORT_SECONDS
from turnstile.controllers.jobs import frameworks
from turnstile.controllers.runtime.actions import Delete, Emit, Patch, ReconcileResult
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.pod.group import PodGroups
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.kinds.statefulset import StatefulSet, StatefulSets
from turnstile.jobs.naming import job_key
from turnstile.jobs.registry import Registry
from turnstile.kube.slices import in_slices


class BrokenJob(BatchJob):
    """Jobs whose pod sets cannot be worked out."""

    def pod_sets(self, job: Job) -> Any:
        """Fail."""
        raise OverflowError("date value out of range")


class BrokenGroups(PodGroups):
    """Groups that cannot be composed."""

    def compose(self, *_: Any, **__: Any) -> Any:
        """Fail."""
        raise OverflowError("date value out of range")


class BrokenPod(PlainPod):
    """Pods of which groups, and each Pod by itself, cannot be worked out."""

    @property
    def groups(self) -> PodGroups:
        """Groups that fail."""
        return BrokenGroups()

    def pod_sets(self, job: Pod) -> Any:
        """Fail."""
        raise OverflowError("date value out of range")


class BrokenSet(StatefulSets):
    """Sets whose gangs cannot be worked out."""

    def components(self, job: StatefulSet) -> Any:
        """Fail."""
        raise OverflowError("date value out of range")


def broken() -> Cluster:
    """A namespace in which nothing can be decided about Jobs and Pods."""
    cluster = Cluster(registry=Registry(kinds=(BrokenJob(), BrokenPod())))
    cluster.fails = True
    return cluster


def test_a_job_that_runs_is_suspended_and_told() -> None:
    """A queued Job without an admission is suspended, has the error as an event, and fails for its back-off."""
    cluster = broken()
    cluster.job(suspend=False)
    decision = cluster.step()
    assert isinstance(decision.failure, OverflowError)
    assert cluster.events == [
        ("NotDecided", "It cannot be decided about, and is not started: OverflowError: date value out of range")
    ]
    job = cluster.get(Job, "team/train")
    assert job is not None
    assert job["spec"]["suspend"]
    assert not any(isinstance(each, Patch | Delete) for each in cluster.decide().actions)


def test_a_job_that_waits_is_not_started() -> None:
    """Nothing is written to a Job that is suspended."""
    cluster = broken()
    cluster.job()
    assert [type(each) for each in cluster.decide().actions] == [Emit]


def test_a_job_that_is_not_queued_is_left_alone() -> None:
    """A Job without a queue name is none of Turnstile's business, also when it cannot be decided about."""
    cluster = broken()
    cluster.job(suspend=False, labels={})
    assert not any(isinstance(each, Patch | Delete) for each in cluster.decide().actions)


@pytest.mark.parametrize(("gates", "deleted"), [(("kueue.x-k8s.io/admission",), []), ((), [SHORT_SECONDS])])
def test_a_pod_runs_only_if_it_was_admitted(gates: tuple[str, ...], deleted: list[int]) -> None:
    """A Pod that its gate does not hold, and that no admission has started, is deleted; one that is gated stays so."""
    cluster = broken()
    cluster.pod(gates=gates)
    found = [each.grace_seconds for each in cluster.decide(POD).actions if isinstance(each, Delete)]
    assert found == deleted


def test_members_that_were_not_started_are_deleted() -> None:
    """Of a group that was admitted, members that the admission has started run on and keep their quota; another one
    that runs is deleted."""
    working = GroupCluster(total=2)
    for name in ("p0", "p1"):
        working.member(name)
    working.settle(GROUP)
    working.admit_all()
    working.settle(GROUP)
    working.bind()
    working.member("late", held=False)
    cluster = broken()
    for pod in working.pods.values():
        cluster.put(Pod, pod)
    cluster.put(Workload, working.workload)
    decision = cluster.decide(GROUP)
    assert [each.name for each in decision.actions if isinstance(each, Delete)] == ["late"]
    assert not any(isinstance(each, Patch) for each in decision.actions)


def test_the_other_jobs_are_decided_about() -> None:
    """A failure is of one object: the next job of the same kind is decided about as ever."""
    cluster = Cluster(registry=Registry(kinds=(BatchJob(), BrokenPod())))
    cluster.fails = True
    cluster.pod()
    cluster.job()
    assert cluster.decide(POD).failure is not None
    cluster.settle(JOB)
    assert len(cluster.workloads) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [Job, StatefulSet])
async def test_the_controllers_that_run_report_it(kind: type[Kind]) -> None:
    """A failure is the result of what a controller decides, whether it decides at once or in steps."""
    cluster = Cluster(registry=Registry(kinds=(BrokenJob(), BrokenPod(), BrokenSet())))
    cluster.job()
    template = {"spec": {"containers": [{"name": "c"}]}}
    meta = {
        "name": "train",
        "namespace": "team",
        "uid": "set",
        "resourceVersion": "1",
        "labels": {"kueue.x-k8s.io/queue-name": "main"},
    }
    cluster.put(StatefulSet, {"metadata": meta, "spec": {"replicas": 1, "template": template}})
    (controller,) = [each for each in frameworks.controllers(cluster.world) if each.kind is kind]
    key = job_key(controller.name, "team", "train")
    decided = controller.decide(key)
    result = decided if isinstance(decided, ReconcileResult) else await in_slices(decided)
    assert isinstance(result.failure, OverflowError)
