"""Whatever happens, and however often the controller is killed, no queue ever runs more than its quota."""

import os
import random
from collections.abc import Callable

import pytest

from testbed.client import Json, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.scenario import GROUP, Scenario, resource_groups
from tests.faults.history import QUEUE, Limits, Observer, available, cpus, finished, running
from tests.turnstile import Turnstile

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

OPERATIONS = int(os.environ.get("HISTORY_OPERATIONS", "220"))
KILLS = int(os.environ.get("HISTORY_KILLS", "11"))
SEED = int(os.environ.get("HISTORY_SEED", "1"))
SETTLED_SECONDS = 10.0
PRIORITY = "kueue.x-k8s.io/priority-class"


class TestRandomHistory:
    def test_no_overshoot_and_settled_after_kills(self, scenario: Scenario, turnstile: Turnstile) -> None:
        """Everything users do, in any order, with SIGKILLs between: zero overshoot, then a fixed point.

        Jobs of three priorities are created, resized, moved, deleted, made anew and finished, and preempt each other;
        Workloads are deactivated and deleted by hand; quota is edited.
        """
        history = History(scenario, random.Random(SEED))
        observer = Observer(scenario.api, scenario.namespace, dict(history.limits))
        observer.start()
        try:
            kills = set(history.random.sample(range(10, OPERATIONS - 5), KILLS))
            for step in range(OPERATIONS):
                history.step(observer)
                if step in kills:
                    turnstile.kill()
                    turnstile.start()
            turnstile.kill()
            turnstile.start()
            history.check_settled(timeout=SETTLED_SECONDS - turnstile.startup_seconds)
        finally:
            observer.stop()
        assert observer.overshoots == []
        assert observer.observations > OPERATIONS
        print(f"{OPERATIONS} operations, {KILLS + 1} kills, {observer.observations} observations, 0 overshoots")


class History:
    """One random history on two queues of one cohort."""

    def __init__(self, scenario: Scenario, lots: random.Random) -> None:
        self.scenario = scenario
        self.random = lots
        self.flavor = scenario.flavor("plain")
        self.limits = {"a": Limits(6, borrowing=3), "b": Limits(4, lending=3)}
        preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        self.queues = {
            name: scenario.queue(name, {self.flavor: {"cpu": self._quota(limits)}}, cohort="all", preemption=preemption)
            for name, limits in self.limits.items()
        }
        self.priorities = [scenario.priority_class(f"priority-{value}", value) for value in (0, 10, 20)]
        self.names: list[str] = []
        self.created = 0

    @staticmethod
    def _quota(limits: Limits) -> dict[str, int]:
        quota = {"nominalQuota": limits.nominal}
        if limits.borrowing is not None:
            quota["borrowingLimit"] = limits.borrowing
        if limits.lending is not None:
            quota["lendingLimit"] = limits.lending
        return quota

    def step(self, observer: Observer) -> None:
        """One random operation. While the webhook is away a creation is refused; that is an operation too."""
        operation = self.random.choices(
            [
                self._create,
                self._delete,
                self._finish,
                self._edit_quota,
                self._deactivate,
                self._resize,
                self._move,
                self._make_anew,
                self._delete_workload,
            ],
            [10, 3, 4, 2, 2, 3, 2, 1, 1],
        )[0]
        try:
            operation(observer)
        except ApiError as error:
            if error.code not in (403, 404, 409, 422, 500):
                raise

    def _create(self, _: Observer) -> None:
        name = f"job-{self.created}"
        self.created += 1
        self._create_named(name)
        self.names.append(name)

    def _create_named(self, name: str) -> None:
        self.scenario.job(
            name,
            queue=self.random.choice(["a", "b"]),
            cpu=str(self.random.randint(1, 3)),
            pods=self.random.randint(1, 2),
            labels={PRIORITY: self.random.choice(self.priorities)},
        )

    def _make_anew(self, observer: Observer) -> None:
        """Another Job under a name that was just used."""
        name = self._pick()
        if name is not None:
            self.scenario.delete_job(name)
            self.names.remove(name)
            self._create_named(name)
            self.names.append(name)

    def _resize(self, _: Observer) -> None:
        """Change how many pods a waiting Job runs at a time, unless it starts just then."""
        self._change_waiting(lambda job: {"spec": {"parallelism": self.random.randint(1, job["spec"]["completions"])}})

    def _move(self, _: Observer) -> None:
        """Send a waiting Job to another queue, unless it starts just then."""
        self._change_waiting(lambda _: {"metadata": {"labels": {QUEUE: self.random.choice(["a", "b"])}}})

    def _change_waiting(self, change: Callable[[Json], Json]) -> None:
        name = self._pick()
        job = self.scenario.read_job(name) if name is not None else None
        if job is not None and not running(job) and not finished(job):
            body = change(job)
            body.setdefault("metadata", {})["resourceVersion"] = job["metadata"]["resourceVersion"]
            self.scenario.api.patch(self.scenario.api.path_of(job), body)

    def _delete_workload(self, _: Observer) -> None:
        workloads = self.scenario.api.items(resource_path(GROUP, "workloads", namespace=self.scenario.namespace))
        if workloads:
            self.scenario.api.delete(self.scenario.api.path_of(self.random.choice(workloads)))

    def _pick(self) -> str | None:
        return self.random.choice(self.names) if self.names else None

    def _delete(self, _: Observer) -> None:
        name = self._pick()
        if name is not None:
            self.names.remove(name)
            self.scenario.delete_job(name)

    def _finish(self, _: Observer) -> None:
        started = [name for name in self.names if running(self.scenario.read_job(name))]
        if started:
            self.scenario.finish(self.random.choice(started))

    def _edit_quota(self, observer: Observer) -> None:
        queue = self.random.choice(["a", "b"])
        old = self.limits[queue]
        nominal = self.random.randint(3, 8)
        new = Limits(
            nominal,
            borrowing=None if old.borrowing is None else self.random.randint(0, 4),
            lending=None if old.lending is None else self.random.randint(0, nominal),
        )
        observer.edit(queue, new)
        self.limits[queue] = new
        groups = resource_groups({self.flavor: {"cpu": self._quota(new)}})
        self.scenario.patch_queue(self.queues[queue], {"resourceGroups": groups})

    def _deactivate(self, _: Observer) -> None:
        workloads = self.scenario.api.items(resource_path(GROUP, "workloads", namespace=self.scenario.namespace))
        if workloads:
            chosen = self.random.choice(workloads)
            active = not chosen["spec"].get("active", True)
            self.scenario.api.patch(self.scenario.api.path_of(chosen), {"spec": {"active": active}})

    def check_settled(self, *, timeout: float) -> None:
        """Wait until nobody who fits is waiting, every inactive job is suspended, and nobody runs unadmitted."""
        problem = "not looked yet"

        def look() -> bool:
            nonlocal problem
            problem = self.unsettled()
            return not problem

        wait_until(look, timeout=timeout, describe=lambda: f"not settled: {problem}")

    def unsettled(self) -> str:
        """What is not as it should be at rest; empty if all is well."""
        namespace = self.scenario.namespace
        jobs = self.scenario.api.items(resource_path("batch/v1", "jobs", namespace=namespace))
        workloads = self.scenario.api.items(resource_path(GROUP, "workloads", namespace=namespace))
        by_owner: dict[str, Json] = {
            owner["uid"]: workload
            for workload in workloads
            for owner in workload["metadata"].get("ownerReferences", ())
        }
        usage: dict[str, int] = {}
        for job in jobs:
            if running(job):
                queue = job["metadata"]["labels"][QUEUE]
                usage[queue] = usage.get(queue, 0) + cpus(job)
        for job in jobs:
            name, queue = job["metadata"]["name"], job["metadata"]["labels"][QUEUE]
            workload = by_owner.get(job["metadata"]["uid"])
            if finished(job):
                continue
            if workload is None:
                return f"{name} has no Workload"
            active = workload["spec"].get("active", True)
            if running(job) and not active:
                return f"{name} runs though it is deactivated"
            if not running(job) and active and cpus(job) <= available(queue, self.limits, usage):
                return (
                    f"{name} waits though {cpus(job)} cpus fit in {queue}: {self.limits}, {usage}; "
                    f"its Workload: {workload.get('status')}; holding quota: {_holders(workloads)}"
                )
        return ""


def _holders(workloads: list[Json]) -> list[str]:
    """Workloads that hold quota, and what is said of them."""
    return [
        f"{w['metadata']['name']} {w['metadata'].get('deletionTimestamp', '')} "
        + " ".join(f"{c['type']}={c['status']}" for c in w["status"]["conditions"])
        for w in workloads
        if "admission" in w.get("status", {})
    ]
