"""One random history: what users and administrators do, in any order, to queues in a tree of cohorts."""

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from testbed.client import Json, condition, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError
from tests.audits import assert_passes
from tests.cluster.scenario import GROUP, Scenario, job, resource_groups
from tests.faults.moments import QUEUE, Replay, finished, runs
from tests.faults.overshoot import has_ended
from tests.faults.recording import Event
from tests.faults.tenant import YEAR, Tenant
from tests.model.quota import Limits
from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import FairSharing
from turnstile.insight.audit import Problem

PRIORITY = "kueue.x-k8s.io/priority-class"
PRIORITIES = (0, 10, 20)

COHORTS = {
    "org": Limits(2, queue=False),
    "left": Limits(1, borrowing=4, lending=4, parent="org", queue=False),
    "right": Limits(0, parent="org", queue=False),
}
QUEUES = {
    "a": Limits(4, borrowing=3, parent="left"),
    "b": Limits(3, lending=2, parent="left"),
    "c": Limits(4, borrowing=4, lending=3, parent="org"),
    "d": Limits(2, parent="right"),
}
POLICIES: dict[str, Json] = {
    "a": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
    "b": {
        "withinClusterQueue": "LowerOrNewerEqualPriority",
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
    },
    "c": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Any"},
    "d": {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    },
}
WEIGHTS = {"a": "2", "d": "0.5"}


class History:
    """Queues a, b, c and d below three cohorts, and what happens to them. `fair`: the cohort shares by weight."""

    def __init__(self, scenario: Scenario, control_plane: ControlPlane, lots: random.Random, *, fair: bool) -> None:
        self.scenario = scenario
        self.random = lots
        self.tenant = Tenant(scenario, control_plane, lots)
        self.fair = fair
        self.flavor = scenario.flavor("plain")
        self.limits = {**COHORTS, **QUEUES}
        for name, limits in COHORTS.items():
            parent = scenario.named(limits.parent) if limits.parent else None
            scenario.cohort(name, parent=parent, groups=self._groups(limits))
        self.queues = {
            name: scenario.queue(
                name,
                {self.flavor: {"cpu": _quota(limits)}},
                cohort=limits.parent,
                preemption=POLICIES[name],
                **({"fairSharing": {"weight": WEIGHTS[name]}} if name in WEIGHTS else {}),
            )
            for name, limits in QUEUES.items()
        }
        self.priorities = [scenario.priority_class(f"priority-{value}", value) for value in PRIORITIES]
        self.stopped = ""
        self.names: list[str] = []
        self.created = 0

    def _groups(self, limits: Limits) -> list[Json]:
        return resource_groups({self.flavor: {"cpu": _quota(limits)}}) if limits.nominal else []

    # --- what is done ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random operation. While the webhook is away a creation is refused; that is an operation too."""
        operations: dict[Callable[[], None], int] = {
            self._create: 14,
            self._delete: 2,
            self._finish: 4,
            self._edit_quota: 2,
            self._deactivate: 2,
            self._resize: 2,
            self._move: 2,
            self._make_anew: 1,
            self._delete_workload: 1,
            self._stop_queue: 2,
            self._delete_with_orphan: 2,
            self._delete_and_hold: 2,
            self.tenant.end_an_orphan: 3,
            self.tenant.strip_a_label: 2,
            self.tenant.hold_a_pod: 1,
            self.tenant.refuse_to_die: 3,
            self.tenant.delete_slowly: 2,
            self._storm: 2,
            self._send_a_stranger: 2,
            self._mark_later: 2,
            self.tenant.let_one_go: 6,
        }
        operation = self.random.choices(list(operations), list(operations.values()))[0]
        try:
            operation()
        except ApiError as error:
            if error.code not in (403, 404, 409, 422, 500):
                raise

    def _create(self) -> None:
        name = f"job-{self.created}"
        self.created += 1
        self._create_named(name)
        self.names.append(name)

    def _create_named(self, name: str) -> None:
        """A Job; some end by themselves, some take their time to stop, and some of these may take an hour."""
        made = job(
            name,
            namespace=self.scenario.namespace,
            queue=self.random.choice(list(QUEUES)),
            cpu=str(self.random.randint(1, 3)),
            pods=self.random.randint(1, 2),
            run_for=self.random.choice([None, None, None, "2s"]),
            labels={PRIORITY: self.random.choice(self.priorities)},
        )
        template = made["spec"]["template"]
        if self.random.random() < 0.25:
            template["metadata"]["annotations"][STOP_FOR] = "500ms"
        elif self.random.random() < 0.2:
            template["metadata"]["annotations"][STOP_FOR] = "1500ms"
            template["spec"]["terminationGracePeriodSeconds"] = self.random.choice([3600, YEAR])
        self.scenario.create(made)

    def _make_anew(self) -> None:
        """Another Job under a name that was just used."""
        name = self._pick()
        if name is not None:
            self.scenario.delete_job(name)
            self.names.remove(name)
            self._create_named(name)
            self.names.append(name)

    def _resize(self) -> None:
        """Change how many pods a waiting Job runs at a time, unless it starts just then."""
        self._change_waiting(
            lambda seen: {"spec": {"parallelism": self.random.randint(1, seen["spec"]["completions"])}}
        )

    def _move(self) -> None:
        """Send a waiting Job to another queue, unless it starts just then."""
        self._change_waiting(lambda _: {"metadata": {"labels": {QUEUE: self.random.choice(list(QUEUES))}}})

    def _change_waiting(self, change: Callable[[Json], Json]) -> None:
        name = self._pick()
        seen = self.scenario.read_job(name) if name is not None else None
        if seen is not None and not runs(seen) and not finished(seen):
            body = change(seen)
            body.setdefault("metadata", {})["resourceVersion"] = seen["metadata"]["resourceVersion"]
            self.scenario.api.patch(self.scenario.api.path_of(seen), body)

    def _delete_workload(self) -> None:
        workloads = self._items(GROUP, "workloads")
        if workloads:
            self.scenario.api.delete(self.scenario.api.path_of(self.random.choice(workloads)))

    def _pick(self) -> str | None:
        return self.random.choice(self.names) if self.names else None

    def _delete(self) -> None:
        name = self._pick()
        if name is not None:
            self.names.remove(name)
            self.scenario.delete_job(name)

    def _pick_running(self) -> str | None:
        """A Job that runs, if there is one."""
        started = {each["metadata"]["name"] for each in self._items("batch/v1", "jobs") if runs(each)}
        running = [name for name in self.names if name in started]
        return self.random.choice(running) if running else self._pick()

    def _delete_with_orphan(self) -> None:
        name = self._pick_running()
        if name is not None:
            self.names.remove(name)
            self.tenant.delete_with_orphan(name)

    def _delete_and_hold(self) -> None:
        name = self._pick_running()
        if name is not None:
            self.names.remove(name)
            self.tenant.delete_and_hold(name)

    def _storm(self) -> None:
        name = self._pick()
        if name is not None:
            self.tenant.storm(name)

    def _send_a_stranger(self) -> None:
        workloads = self._items(GROUP, "workloads")
        if workloads:
            self.tenant.be_a_stranger(self.random.choice(workloads)["metadata"]["name"])

    def _mark_later(self) -> None:
        name = self._pick()
        seen = self.scenario.read_job(name) if name is not None else None
        if seen is not None:
            self.tenant.mark_later(seen)

    def _finish(self) -> None:
        started = [seen["metadata"]["name"] for seen in self._items("batch/v1", "jobs") if runs(seen)]
        if started:
            self.scenario.end_pods(self.random.choice(started))

    def _edit_quota(self) -> None:
        """Change what a queue or a cohort has, and its limits if it has some."""
        name = self.random.choice([*QUEUES, *QUEUES, "org", "left"])
        old = self.limits[name]
        nominal = self.random.randint(0, 3) if name in COHORTS else self.random.randint(2, 6)
        new = Limits(
            nominal,
            borrowing=None if old.borrowing is None else self.random.randint(0, 4),
            lending=None if old.lending is None else self.random.randint(0, 4),
            parent=old.parent,
            queue=old.queue,
        )
        self.limits[name] = new
        body = {"spec": {"resourceGroups": self._groups(new) if name in COHORTS else self._groups_of_queue(new)}}
        plural = "cohorts" if name in COHORTS else "clusterqueues"
        self.scenario.api.patch(resource_path(GROUP, plural, self.scenario.named(name)), body)

    def _groups_of_queue(self, limits: Limits) -> list[Json]:
        return resource_groups({self.flavor: {"cpu": _quota(limits)}})

    def _deactivate(self) -> None:
        workloads = self._items(GROUP, "workloads")
        if workloads:
            chosen = self.random.choice(workloads)
            active = not chosen["spec"].get("active", True)
            self.scenario.api.patch(self.scenario.api.path_of(chosen), {"spec": {"active": active}})

    def _stop_queue(self) -> None:
        """Stop a ClusterQueue or a LocalQueue, or open the one that is stopped."""
        if self.stopped:
            path, self.stopped, policy = self.stopped, "", "None"
        else:
            name = self.random.choice(list(QUEUES))
            policy = self.random.choice(["Hold", "HoldAndDrain"])
            path = self.stopped = self.random.choice(
                [
                    resource_path(GROUP, "clusterqueues", self.queues[name]),
                    resource_path(GROUP, "localqueues", name, namespace=self.scenario.namespace),
                ]
            )
        self.scenario.api.patch(path, {"spec": {"stopPolicy": policy}})

    # --- what always holds ----------------------------------------------------------------------------------------

    def check_audit(self) -> None:
        """An audit of the pods that run finds nothing that lasts.

        Workloads may hold more than a quota that was lowered, and what they hold may be unused while no controller
        leads.
        """
        assert_passes(
            self.scenario.api, self.scenario.namespace, apart_from=(Problem.OVER_RESERVED, Problem.HELD_UNUSED)
        )

    # --- how it is at rest ----------------------------------------------------------------------------------------

    def check_settled(self, *, timeout: float) -> None:
        """Wait until nobody stops, starts or runs without leave, and nothing is left to decide. All that was deleted or
        evicted can go by now."""
        self.tenant.let_all_go()
        problem = "not looked yet"

        def look() -> bool:
            nonlocal problem
            problem = self.unsettled()
            return not problem

        wait_until(look, timeout=timeout, describe=lambda: f"not settled: {problem}")
        assert_passes(self.scenario.api, self.scenario.namespace, apart_from=(Problem.OVER_RESERVED,))

    def _items(self, group: str, plural: str) -> list[Json]:
        return self.scenario.api.items(resource_path(group, plural, namespace=self.scenario.namespace))

    def unsettled(self) -> str:
        """What is not as it should be at rest; empty if all is well."""
        jobs = self._items("batch/v1", "jobs")
        workloads = self._items(GROUP, "workloads")
        by_owner = {
            owner["uid"]: workload
            for workload in workloads
            for owner in workload["metadata"].get("ownerReferences", ())
        }
        for each in jobs:
            name = each["metadata"]["name"]
            workload = by_owner.get(each["metadata"]["uid"])
            if finished(each):
                continue
            if workload is None:
                return f"{name} has no Workload"
            status = workload.get("status", {})
            admitted = condition(workload, "Admitted").get("status") == "True"
            if condition(workload, "Evicted").get("status") == "True" and "admission" in status:
                return f"{name} is evicted and has not given its quota back: {status}"
            if runs(each) != admitted:
                return f"{name} {'runs' if runs(each) else 'does not run'}, its Workload: {status}"
            if admitted and not workload["spec"].get("active", True):
                return f"{name} runs though it is deactivated"
        if kept := self._kept_quota(jobs, workloads):
            return kept
        queues = [self._read(GROUP, "clusterqueues", name) for name in QUEUES]
        cohorts = [self._read(GROUP, "cohorts", name) for name in COHORTS]
        local_queues = self._items(GROUP, "localqueues")
        seen = {"clusterqueues": queues, "cohorts": cohorts, "localqueues": local_queues, "workloads": workloads}
        return _waits_in_vain(seen) or self._left_to_decide(seen)

    def _kept_quota(self, jobs: list[Json], workloads: list[Json]) -> str:
        """Which Workload still has quota, though its Job is finished or gone and no pod of it may run."""
        run = {each["metadata"]["uid"] for each in jobs if not finished(each)}
        pods = [each for each in self._items("v1", "pods") if not has_ended(each)]
        run.update(owner["uid"] for each in pods for owner in each["metadata"].get("ownerReferences", ()))
        named = {each["metadata"].get("annotations", {}).get(names.WORKLOAD) for each in pods}
        for each in workloads:
            meta, status = each["metadata"], each.get("status", {})
            owners = {owner["uid"] for owner in meta.get("ownerReferences", ())}
            owners.add(meta.get("labels", {}).get(names.JOB_UID_LABEL))
            has_quota = "admission" in status and condition(each, "Finished").get("status") != "True"
            if has_quota and not owners & run and meta["name"] not in named:
                return f"{meta['name']} has not given its quota back: {status}"
        return ""

    def _read(self, group: str, plural: str, name: str) -> Json:
        found: Json = self.scenario.api.get(resource_path(group, plural, self.scenario.named(name)))
        return found

    def _left_to_decide(self, seen: dict[str, list[Json]]) -> str:
        """What a decision engine that has just been shown everything would still do: at rest, nothing."""
        state = State(Options(fair_sharing=FairSharing() if self.fair else None))
        now = time.time()
        state.put_namespace(self.scenario.namespace, {})
        state.put_flavor(_decode(ResourceFlavor, self._read(GROUP, "resourceflavors", "plain")))
        for each in seen["cohorts"]:
            state.put_cohort(_decode(Cohort, each))
        for each in seen["clusterqueues"]:
            state.put_cluster_queue(_decode(ClusterQueue, each), now)
        for each in seen["localqueues"]:
            state.put_local_queue(_decode(LocalQueue, each), now)
        for each in seen["workloads"]:
            state.put_workload(_decode(Workload, each), now)
        while state.has_work:
            for decision in cycle(state, now):
                if decision.outcome == "admit" or decision.victims:
                    victims = [victim.key for victim in decision.victims]
                    return (
                        f"{decision.key} waits though it may {decision.outcome} {victims}: {decision.workload.status}"
                    )
        return ""


def _waits_in_vain(seen: dict[str, list[Json]]) -> str:
    """Who waits though there is room, by our own arithmetic; empty if nobody does."""
    events = [Event(0, 0.0, kind, None, obj) for kind, objects in seen.items() for obj in objects]
    moment = Replay().moments(events)[-1]
    for claim in moment.waiting.values():
        if moment.tree.fits(claim.queue, claim.cpus, moment.usage):
            return f"{claim} waits though it fits: {moment.usage}, {moment.limits}"
    return ""


def _decode(kind: type[Kind], obj: Json) -> Any:
    return kind.decoder()(msgspec.json.encode(obj))


def _quota(limits: Limits) -> Json:
    quota = {"nominalQuota": limits.nominal}
    if limits.borrowing is not None:
        quota["borrowingLimit"] = limits.borrowing
    if limits.lending is not None:
        quota["lendingLimit"] = limits.lending
    return quota
