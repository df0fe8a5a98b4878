"""waitForPodsReady: what is said of a job's pods, and what becomes of a job whose pods do not get ready."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.job_cluster import JOB, Cluster
from tests.unit.controllers.test_multikueue_kinds import dispatch
from tests.unit.controllers.test_serving_sets import SET, put_set
from tests.unit.controllers.worlds import (
    ADMITTED,
    NOW,
    RESERVED,
    cluster_queue,
    condition,
    local_queue,
    workload,
    world,
)
from tests.unit.controllers.written import conditions, status
from turnstile.api.core import Job
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.runtime.actions import Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.status import podsready
from turnstile.controllers.workloads.workload import decide
from turnstile.jobs.options import JobOptions, PodsReadyOptions

RUNNING = (RESERVED, ADMITTED)  # since 245 seconds
NOT_READY = condition("PodsReady", "False", "WaitForStart", since="2026-01-02T03:04:00Z")
FAILED = condition("PodsReady", "False", "WaitForRecovery", since="2026-01-02T03:04:00Z")
READY = condition("PodsReady", "True", "Started")


def look(*conditions: dict[str, str], requeue_state: Any = None, spec: Any = None, **limits: Any) -> ReconcileResult:
    """What is decided about a Workload under these limits."""
    held = workload(*conditions, admission=True, spec=spec, more_status={"requeueState": requeue_state or {}})
    options = JobOptions(pods_ready=PodsReadyOptions(**{"timeout": 300.0, **limits}))
    return decide("ns/wl", world(held, local_queue(), cluster_queue(), options=options))


class TestTheCondition:
    @pytest.fixture
    def cluster(self) -> Cluster:
        """A Job of two pods that waits for quota."""
        made = Cluster(options=JobOptions(pods_ready=PodsReadyOptions()))
        made.flavor()
        made.job(parallelism=2)
        made.settle()
        return made

    def ready(self, cluster: Cluster, count: int) -> None:
        """So many pods of the running Job are ready."""
        cluster.patch(Job, "team/train", {"status": {"active": 2, "ready": count}})
        cluster.settle()

    def test_follows_the_pods(self, cluster: Cluster) -> None:
        """They wait for the start, are ready, fail, are ready again, and begin anew after an eviction."""
        assert cluster.condition("PodsReady") == ("False", "WaitForStart", "Not all pods are ready or succeeded")
        cluster.admit()
        cluster.settle()
        self.ready(cluster, 1)
        assert cluster.condition("PodsReady") == ("False", "WaitForStart", "Not all pods are ready or succeeded")
        self.ready(cluster, 2)
        told = "All pods reached readiness and the workload is running"
        assert cluster.condition("PodsReady") == ("True", "Started", told)
        self.ready(cluster, 1)
        failed = "At least one pod has failed, waiting for recovery"
        assert cluster.condition("PodsReady") == ("False", "WaitForRecovery", failed)
        self.ready(cluster, 2)
        assert cluster.condition("PodsReady") == ("True", "Recovered", told)
        cluster.evict()
        cluster.settle()
        cluster.patch(Job, "team/train", {"status": {"active": 0, "ready": 0}})
        cluster.settle()
        cluster.settle()
        assert cluster.condition("QuotaReserved") is not None
        assert (cluster.condition("PodsReady") or ())[:2] == ("False", "WaitForStart")

    def test_is_not_written_where_nobody_waits_for_it(self) -> None:
        """Every write costs the API server."""
        cluster = Cluster()
        cluster.flavor()
        cluster.job(parallelism=2)
        cluster.settle()
        cluster.admit()
        cluster.settle()
        self.ready(cluster, 2)
        assert cluster.condition("PodsReady") is None


class TestPatience:
    @pytest.mark.parametrize("told", [[], [NOT_READY], [condition("PodsReady", "False", "PodsReady")]])
    def test_the_start_is_waited_for_since_the_admission(self, told: list[dict[str, str]]) -> None:
        """Also before anything was said of the pods, and under the reason of older versions."""
        assert look(*RUNNING, *told).actions == [RequeueAfter(55.0)]

    def test_a_recovery_is_waited_for_since_the_failure(self) -> None:
        """With a limit of its own."""
        assert look(*RUNNING, FAILED, recovery_timeout=20.0).actions == [RequeueAfter(15.0)]

    @pytest.mark.parametrize("limit", [None, 0.0])
    def test_without_a_limit_a_recovery_is_waited_for_without_end(self, limit: float | None) -> None:
        """0s in the file switches it off."""
        assert look(*RUNNING, FAILED, recovery_timeout=limit, timeout=1.0).actions == []

    def test_pods_that_are_ready_have_all_the_time(self) -> None:
        """Nothing to do."""
        assert look(*RUNNING, READY, timeout=1.0).actions == []

    def test_the_first_of_several_limits_counts(self) -> None:
        """The time a job may run may end before its pods are given up."""
        assert look(*RUNNING, spec={"maximumExecutionTimeSeconds": 250}).actions == [RequeueAfter(5.0)]
        ended = look(*RUNNING, spec={"maximumExecutionTimeSeconds": 200})
        assert conditions(ended)["DeactivationTarget"][1] == "MaximumExecutionTimeExceeded"

    @pytest.mark.parametrize("told", [READY, FAILED], ids=["ready", "lost"])
    def test_what_was_said_of_an_earlier_run_does_not_count(self, told: dict[str, str]) -> None:
        """A Workload that is admitted again, before its job is looked at, has all the time for its pods to start."""
        again = condition("Admitted", "True", "Admitted", since="2026-01-02T03:04:03Z")
        admitted = workload(RESERVED, again, told, admission=True)
        assert podsready.condition(admitted, ready=False)[:2] == ("False", "WaitForStart")
        if told is FAILED:
            assert look(RESERVED, again, told, recovery_timeout=1.0).actions == [RequeueAfter(298.0)]


class TestTimeout:
    @pytest.mark.parametrize(
        ("told", "cause"), [(NOT_READY, "WaitForStart"), (FAILED, "WaitForRecovery")], ids=["start", "recovery"]
    )
    def test_it_is_evicted_and_waits(self, told: dict[str, str], cause: str) -> None:
        """The cause is counted; the wait doubles each time; quota stays until the job has stopped."""
        decision = look(*RUNNING, told, requeue_state={"count": 2}, timeout=60.0, recovery_timeout=3.0)
        message = "Exceeded the PodsReady timeout ns/wl"
        assert conditions(decision)["Evicted"] == ("True", "PodsReadyTimeout", message)
        assert conditions(decision)["QuotaReserved"][0] == "True"
        assert status(decision)["requeueState"] == {"count": 3, "requeueAt": "2026-01-02T03:08:05Z"}
        assert status(decision)["schedulingStats"]["evictions"] == [
            {"reason": "PodsReadyTimeout", "underlyingCause": cause, "count": 1}
        ]
        assert [(a.reason, a.note) for a in decision.actions if isinstance(a, Emit)] == [
            ("EvictedDueToPodsReadyTimeout", message)
        ]

    def test_pods_that_got_ready_while_no_leader_ran_stay(self) -> None:
        """The next leader may look at the Workload before it has looked at the job."""
        cluster = Cluster(options=JobOptions(pods_ready=PodsReadyOptions(timeout=300.0)))
        cluster.flavor()
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.settle()
        cluster.later(minutes=10)
        assert "Evicted" in conditions(decide(cluster.workload_key, cluster.world))
        cluster.patch(Job, "team/train", {"status": {"active": 1, "ready": 1}})
        assert decide(cluster.workload_key, cluster.world).actions == []
        cluster.settle()
        assert (cluster.condition("PodsReady") or ())[:2] == ("True", "Started")

    def test_it_waits_while_jobs_are_not_read(self) -> None:
        """Their pods may be ready."""
        cluster = Cluster(options=JobOptions(pods_ready=PodsReadyOptions(timeout=300.0)))
        cluster.flavor()
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.later(minutes=10)
        cluster.world.jobs[Job].complete = False
        assert decide(cluster.workload_key, cluster.world).actions == [RequeueAfter(RETRY_SECONDS)]

    def test_the_wait_has_an_end(self) -> None:
        """However often it was evicted."""
        decision = look(*RUNNING, requeue_state={"count": 2**31 - 2}, timeout=1.0, backoff_max=7200.0)
        assert status(decision)["requeueState"]["requeueAt"] == "2026-01-02T05:04:05Z"

    def test_after_the_last_attempt_it_is_deactivated(self) -> None:
        """The limit counts requeuings."""
        assert "Evicted" in conditions(look(*RUNNING, requeue_state={"count": 1}, timeout=1.0, backoff_limit=2))
        decision = look(*RUNNING, requeue_state={"count": 2}, timeout=1.0, backoff_limit=2)
        told = "exceeding the maximum number of re-queuing retries"
        assert conditions(decision)["DeactivationTarget"] == ("True", "RequeuingLimitExceeded", told)
        assert "requeueState" not in status(decision)

    def test_it_comes_back_when_its_back_off_is_over(self) -> None:
        """The count stays for the next time."""
        held = condition("Requeued", "False", "PodsReadyTimeout")
        waiting = workload(held, more_status={"requeueState": {"count": 3, "requeueAt": "2026-01-02T03:04:06Z"}})
        assert decide("ns/wl", world(waiting, local_queue(), cluster_queue())).actions == [RequeueAfter(1.0)]
        decision = decide("ns/wl", world(waiting, local_queue(), cluster_queue(), now=NOW + timedelta(seconds=1)))
        assert conditions(decision)["Requeued"][:2] == ("True", "BackoffFinished")
        assert status(decision)["requeueState"] == {"requeueAt": None}


@pytest.mark.parametrize(("kind", "evicted"), [("StatefulSet", False), ("Job", True)])
def test_a_job_on_another_cluster_waits_for_its_pods_by_the_status_that_comes_back(kind: str, *, evicted: bool) -> None:
    """The status of a StatefulSet does not: the other cluster waits for its pods."""
    cluster = Cluster(options=JobOptions(pods_ready=PodsReadyOptions(timeout=300.0)))
    cluster.flavor()
    if kind == "Job":
        cluster.job()
        cluster.settle()
    else:
        put_set(cluster)
        cluster.settle(SET)
    dispatch(cluster)
    cluster.admit()
    cluster.settle(JOB if kind == "Job" else SET)
    cluster.later(seconds=400)
    for action in decide(cluster.workload_key, cluster.world).actions:
        cluster.act(action)
    assert (cluster.condition("Evicted") is not None) == evicted
