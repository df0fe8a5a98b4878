"""A victim does not decide how long it stays: a grace period counts up to the patience of the preemptor, and a stop is
not lost to changes that come all the time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from testbed import ApiError
from testbed.client import Json, resource_path
from testbed.components import KILLED_IN_TIME, STOP_FOR
from tests.attacks.conftest import Tenant, pod_spec, tenant_of
from tests.cluster.scenario import GROUP, QUEUE
from tests.turnstile import Turnstile
from turnstile.api import names

JOBS = ("batch/v1", "jobs")
YEAR = 31536000
STUBBORN = {STOP_FOR: "2h", KILLED_IN_TIME: "true"}
"""Annotations of a pod that ends when its kubelet kills it, and not before."""


@pytest.fixture
def victim(attacked: Turnstile) -> Iterator[Tenant]:
    """A tenant in a queue with preemption, where preemptors have four seconds of patience."""
    attacked.restart("--victim-patience", "4")
    with tenant_of(attacked, preemption={"withinClusterQueue": "LowerPriority"}) as made:
        made.world.priority_class("high", 9)
        yield made
    attacked.stop()


def preempt(tenant: Tenant) -> None:
    """Create a Job of higher priority, and wait until it has the quota."""
    labels = {QUEUE: "main", names.PRIORITY_CLASS_LABEL: tenant.world.named("high")}
    tenant.job("high", labels=labels)
    tenant.world.wait_started("high", timeout=30)


def stubborn_job(tenant: Tenant, *, seconds: int = YEAR) -> None:
    """Create a Job whose pods take as long to stop as they may."""
    body = tenant.job_body("a")
    spec = {**pod_spec("1"), "terminationGracePeriodSeconds": seconds}
    body["spec"]["template"] = {"metadata": {"annotations": STUBBORN}, "spec": spec}
    tenant.api.create(body)


class TestAYearToStop:
    def test_the_pods_of_a_job(self, victim: Tenant) -> None:
        """Give the pods of a Job a year to stop, and have it preempted."""
        stubborn_job(victim)
        victim.wait_runs(2)
        workload = victim.world.workload_of("a")["metadata"]["name"]
        preempt(victim)
        assert "have 4s to end" in victim.world.wait_event(workload, reason="PodsHaveToEnd")["note"]
        victim.within_quota()

    @pytest.mark.parametrize("deleted", [False, True], ids=["preempted", "deleted before"])
    def test_pods_of_a_group(self, victim: Tenant, *, deleted: bool) -> None:
        """Give the Pods of a group a year to stop, have it preempted, and delete them before that or not."""
        for name in "ab":
            victim.pod(
                name,
                labels={QUEUE: "main", names.POD_GROUP_NAME: "g"},
                annotations={names.POD_GROUP_TOTAL_COUNT: "2", **STUBBORN},
                spec={"terminationGracePeriodSeconds": YEAR},
            )
        victim.wait_runs(2)
        for name in "ab" if deleted else "":
            victim.delete("v1", "pods", name)
        preempt(victim)
        victim.within_quota()

    def test_the_pods_of_a_deleted_job(self, victim: Tenant) -> None:
        """Delete a Job with orphan whose pods have a year to stop, and delete its pods; then it is preempted."""
        stubborn_job(victim)
        victim.wait_runs(2)
        victim.delete(*JOBS, "a", propagation="Orphan")
        for pod in victim.pods():
            victim.delete("v1", "pods", pod["metadata"]["name"])
        preempt(victim)
        victim.within_quota()

    def test_a_queue_that_is_drained(self, victim: Tenant) -> None:
        """Give the pods of a Job a year to stop, in a queue that is drained: it does not hold the quota for a year."""
        stubborn_job(victim)
        victim.wait_runs(2)
        path = resource_path(GROUP, "clusterqueues", victim.world.named("main"))
        victim.world.api.patch(path, {"spec": {"stopPolicy": "HoldAndDrain"}})
        victim.wait_reserved(0)
        victim.wait_runs(0)
        victim.within_quota()

    @pytest.mark.parametrize("seconds", [10**12, 10**15], ids=["a million million seconds", "a thousand times that"])
    def test_longer_than_time_itself(self, victim: Tenant, seconds: int) -> None:
        """Give the Pods of a group more seconds to stop than dates can hold, replace one, and have it preempted."""
        labels, total = {QUEUE: "main", names.POD_GROUP_NAME: "g"}, {names.POD_GROUP_TOTAL_COUNT: "2", **STUBBORN}
        spec: Json = {"terminationGracePeriodSeconds": seconds}
        for name in "ab":
            victim.pod(name, labels=labels, annotations=total, spec=spec)
        victim.wait_runs(2)
        victim.delete("v1", "pods", "a")
        victim.pod("c", labels=labels, annotations=total, spec=spec)
        preempt(victim)
        victim.within_quota()


class TestChangesThatComeAllTheTime:
    @pytest.mark.parametrize("what", ["metadata", "spec"])
    def test_of_a_running_job(self, victim: Tenant, what: str) -> None:
        """Patch an annotation, or a field, of a running Job from four connections without a pause while it is
        preempted."""
        victim.job("a")
        victim.wait_runs(2)

        def change(number: int) -> Json:
            if what == "metadata":
                return {"metadata": {"annotations": {"example.com/n": str(number)}}}
            return {"spec": {"activeDeadlineSeconds": 10**6 + number}}

        with storm(lambda number: victim.patch(*JOBS, "a", change(number))):
            preempt(victim)
        victim.within_quota()


@contextmanager
def storm(call: Callable[[int], object], *, threads: int = 4) -> Iterator[None]:
    """Call with rising numbers from several threads, as often as the API server answers."""
    over = threading.Event()

    def blow(number: int) -> None:
        while not over.is_set():
            with suppress(ApiError):
                call(number)
            number += threads

    blowing = [threading.Thread(target=blow, args=(number,), daemon=True) for number in range(threads)]
    for each in blowing:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in blowing:
            each.join()
