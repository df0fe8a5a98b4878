"""Changes that no decision depends on wake nobody, and no other change is passed over."""

import functools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.examples import examples
from tests.unit.controllers.job_cluster import JOB, Body, Cluster
from tests.unit.controllers.test_jobs_histories import OneJob
from turnstile.api.core import Job, Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers import wakes
from turnstile.controllers.runtime.actions import Emit, ReconcileResult
from turnstile.controllers.workloads import workload
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.options import JobOptions, PodsReadyOptions


class Recorder:
    """Which changes of a cluster's Jobs, Pods and Workloads wake the job's look and the Workload's."""

    def __init__(self, cluster: Cluster) -> None:
        self.job: list[bool] = []
        self.owner: list[bool] = []
        self.workload: list[bool] = []
        for integration in (BatchJob(), PlainPod()):
            changed = functools.partial(self._job_changed, cluster, integration)
            cluster.world.jobs[integration.kind].subscribe(changed)
        cluster.world.workloads.subscribe(lambda _, old, new: self.owner.append(wakes.owner_concerned(old, new)))
        cluster.world.workloads.subscribe(lambda _, old, new: self.workload.append(wakes.workload_concerned(old, new)))

    def _job_changed(
        self, cluster: Cluster, integration: Integration[Any], _: str, old: Kind | None, new: Kind | None
    ) -> None:
        options = cluster.world.options
        self.job.append(wakes.job_concerned(old, new, integration=integration, options=options))


def running(**spec: Any) -> tuple[Cluster, Recorder]:
    """A Job that was admitted and runs, and what wakes from now on."""
    cluster = Cluster()
    cluster.flavor()
    cluster.job(**spec)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    return cluster, Recorder(cluster)


def status(cluster: Cluster, **fields: Any) -> None:
    """The Job controller writes."""
    cluster.patch(Job, "team/train", {"status": fields})


class TestJobThatRuns:
    """Counters of pods change often and decide little."""

    def test_pods_that_come_up_are_not_looked_at(self) -> None:
        """The start of a pod is nobody's news."""
        cluster, woken = running()
        status(cluster, active=1, startTime="2026-01-02T03:04:00Z")
        status(cluster, uncountedTerminatedPods={"failed": ["uid-1"]}, active=0, terminating=1)
        status(cluster, failed=1)
        assert woken.job == [False, False, False]

    @pytest.mark.parametrize("waits", [True, False])
    def test_pods_ready_is_looked_at_where_it_is_waited_for(self, *, waits: bool) -> None:
        """That all pods are ready is told once."""
        cluster, woken = running(parallelism=2, completions=2)
        cluster.world.options = JobOptions(pods_ready=PodsReadyOptions() if waits else None)
        status(cluster, active=2, ready=1)
        status(cluster, ready=2)
        assert woken.job == [False, waits]

    def test_reclaimable_pods_are_looked_at(self) -> None:
        """A pod that will not be made again gives its quota back."""
        cluster, woken = running(parallelism=2, completions=3)
        status(cluster, active=2, succeeded=1)
        status(cluster, active=1, succeeded=2)
        assert woken.job == [False, True]

    def test_the_end_is_looked_at(self) -> None:
        """Complete and Failed end it, other conditions do not."""
        cluster, woken = running()
        status(cluster, conditions=[{"type": "SuccessCriteriaMet", "status": "True"}])
        status(cluster, conditions=[{"type": "Complete", "status": "True"}])
        assert woken.job == [False, True]

    def test_any_change_of_spec_or_metadata_is_looked_at(self) -> None:
        """Whoever edits a Job has it looked at."""
        cluster, woken = running()
        cluster.patch(Job, "team/train", {"spec": {"parallelism": 3}})
        cluster.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
        cluster.delete(Job, "team/train")
        assert woken.job == [True, True, True]


class TestJobThatStops:
    """While it is suspended its pods are waited for."""

    def test_the_last_pod_gone_is_looked_at(self) -> None:
        """One more that still terminates is not."""
        cluster, _ = running(parallelism=2)
        status(cluster, active=2)
        cluster.patch(Job, "team/train", {"spec": {"suspend": True}})
        woken = Recorder(cluster)
        status(cluster, active=1, terminating=1)
        status(cluster, active=0, terminating=1)
        status(cluster, terminating=0)
        assert woken.job == [False, False, True]


class TestPod:
    """A plain pod."""

    def test_conditions_that_nothing_reads_are_passed_over(self) -> None:
        """Its way onto a node is the scheduler's affair; how it ends is told. Only a copy of a gated pod can run."""
        cluster = Cluster()
        cluster.pod(gates=())
        woken = Recorder(cluster)
        for conditions, phase in ((["PodScheduled"], "Pending"), (["Ready"], "Running"), ([], "Succeeded")):
            listed = [{"type": each, "status": "True"} for each in conditions]
            cluster.patch(Pod, "team/train", {"status": {"phase": phase, "conditions": listed}})
        assert woken.job == [False, False, True]


class TestWorkload:
    """What a Workload says is news to its job only if the job follows it."""

    def test_why_it_waits_is_no_news_to_its_job(self) -> None:
        """The Workload itself is looked at."""
        cluster = Cluster()
        cluster.job()
        cluster.settle()
        woken = Recorder(cluster)
        cluster.set_condition("QuotaReserved", status="False", reason="WaitingForQuota", message="no room")
        assert (woken.owner, woken.workload) == ([False], [True])

    def test_the_last_write_wakes_nobody(self) -> None:
        """A finished Workload without our finalizer is done with."""
        cluster, woken = running()
        status(cluster, conditions=[{"type": "Complete", "status": "True"}])
        cluster.settle()
        assert (woken.owner, woken.workload) == ([True, False], [True, False])


class Unlooked(OneJob):
    """Where nothing is left to write, a change that is passed over leaves nothing to write."""

    def __init__(self) -> None:
        super().__init__()
        self.missed: list[ReconcileResult] = []
        self.latest = (self.cluster.decide(), self.workload_look())
        world = self.cluster.world
        concerned = functools.partial(wakes.job_concerned, integration=BatchJob(), options=world.options)
        world.jobs[Job].subscribe(lambda _, *change: self.check((not concerned(*change), True)))
        world.workloads.subscribe(
            lambda _, old, new: self.check(
                (not wakes.owner_concerned(old, new), not wakes.workload_concerned(old, new))
            )
        )

    def workload_look(self) -> ReconcileResult:
        """What is decided about the one Workload."""
        only = self.only()
        return workload.decide(f"team/{only['metadata']['name']}", self.cluster.world) if only else ReconcileResult()

    def wait(self) -> None:
        """What is decided then was announced by `RequeueAfter`."""
        super().wait()
        self.latest = (self.cluster.decide(JOB), self.workload_look())

    def check(self, passed_over: tuple[bool, bool]) -> None:
        """Decide again about both after one change."""
        decided = (self.cluster.decide(JOB), self.workload_look())
        for passed, before, after in zip(passed_over, self.latest, decided, strict=True):
            if passed and not acts(before) and acts(after):
                self.missed.append(after)
        self.latest = decided

    @invariant()
    def nothing_is_missed(self) -> None:
        """A store does not let its subscribers fail, so what was missed is told here."""
        assert not self.missed

    @precondition(lambda self: self.job is not None)
    @rule(active=st.integers(0, 2), ready=st.integers(0, 2), terminating=st.integers(0, 1), succeeded=st.integers(0, 2))
    def count(self, **counters: int) -> None:
        """The Job controller counts."""
        self.change({"status": counters})

    @precondition(lambda self: self.only() is not None and not self.true("QuotaReserved"))
    @rule(message=st.sampled_from(["no room", "no room yet"]))
    def explain(self, message: str) -> None:
        """The scheduler says why a Workload waits."""
        self.cluster.set_condition("QuotaReserved", status="False", reason="WaitingForQuota", message=message)
        self.settled = False

    @precondition(lambda self: self.only() is not None)
    @rule(state=st.sampled_from([None, {"count": 1}]))
    def hold(self, state: Body | None) -> None:
        """Somebody notes a back-off."""
        self.cluster.patch(Workload, self.cluster.workload_key, {"status": {"requeueState": state}})
        self.settled = False


def acts(decision: ReconcileResult) -> bool:
    """Whether anything is to be done but telling."""
    return not all(isinstance(action, Emit) for action in decision.actions)


Unlooked.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=20, deadline=None)
TestUnlooked = Unlooked.TestCase
