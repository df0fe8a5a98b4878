"""A cluster to which a change really happens: a ledger that lived through it, fed as watches feed it, and its writes.

What a forecast of what-if is compared with. It shares no code with `turnstile.insight`: objects are changed by hand,
and the ledger is the one that decided until now, not one made of a snapshot.
"""

import random
from typing import Any

import msgspec

from tests.unit.engine import builders as b
from tests.unit.insight import pending_worlds as worlds
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.insight.consequences import Change
from turnstile.insight.snapshot import Snapshot


class Happening:
    """A ledger and the objects of its cluster, from an empty cluster on."""

    def __init__(self, objects: Snapshot, options: Options, lots: random.Random) -> None:
        self.state = State(options)
        self.objects = Snapshot()
        self.preempted: dict[str, str] = {}
        """Preemptor by victim, since the change."""
        given = list(objects.all())
        lots.shuffle(given)
        for obj in given:
            self.put(obj)
            if lots.random() < 0.3:
                self.rest()
        self.rest()

    def put(self, obj: Kind) -> None:
        """An object is written, and the watch tells of it."""
        self.objects.put(obj)
        match obj:
            case Workload():
                self.state.put_workload(obj, b.NOW)
            case ClusterQueue():
                self.state.put_cluster_queue(obj, b.NOW)
            case LocalQueue():
                self.state.put_local_queue(obj, b.NOW)
            case Cohort():
                self.state.put_cohort(obj)
            case _ if obj.KIND == "Namespace":
                self.state.put_namespace(obj.metadata.name, obj.metadata.labels)
            case _:
                self.state.put_flavor(obj)  # type: ignore[arg-type]

    def drop(self, kind: type[Kind], key: str) -> None:
        """An object is deleted, and the watch tells of it."""
        self.objects.drop(kind, key)
        {
            Workload: self.state.drop_workload,
            ClusterQueue: self.state.drop_cluster_queue,
            LocalQueue: self.state.drop_local_queue,
            Cohort: self.state.drop_cohort,
        }[kind](key)

    def rest(self) -> None:
        """Cycles until nothing new is decided; after each its writes succeed, and its victims stop."""
        while self.state.has_work:
            for decision in cycle(self.state, b.NOW):
                for victim in decision.victims:
                    if victim.new:
                        self.preempted.setdefault(victim.key, decision.key)
            for key in list(self.state.reservations.assumed):
                self.put(b.reserved(self.workload(key), self.state))
            for key in list(self.state.reservations.evicting):
                self._evict(key, "Preempted")

    def workload(self, key: str) -> Workload:
        """A Workload as the API server has it."""
        found = self.objects.get(Workload, key)
        assert found is not None
        return found

    def _evict(self, key: str, reason: str) -> None:
        """Its eviction is written, its pods end, its quota is free."""
        evicted = b.with_conditions(self.workload(key), Evicted=("True", reason))
        self.put(evicted)
        gone = b.released(evicted)
        self.put(b.with_conditions(gone, Evicted=("True", reason)))

    def holding(self) -> dict[str, Any]:
        """Flavors by pod set and resource of each Workload that holds quota."""
        return {
            key: [dict(item.flavors or {}) for item in info.totals]
            for queue in self.state.cluster_queues.values()
            for key, info in queue.workloads.items()
        }

    def happen(self, change: Change) -> set[str]:
        """The change is made, and things take their course; the Workloads that its stop policies evict."""
        self.preempted.clear()
        for obj in change.put:
            self.put(obj)
        for kind, key in change.drop:
            self.drop(kind, key)
        drained = {each.metadata.name for each in self.objects.of(ClusterQueue) if _drains(each)}
        lines = {each.metadata.key for each in self.objects.of(LocalQueue) if _drains(each)}
        evicted = set()
        for key in self.holding():
            workload = self.workload(key)
            admission = workload.status.admission
            assert admission is not None
            if not workload.spec.active:
                evicted.add(key)
                self._evict(key, "Deactivated")
            elif f"team/{workload.spec.queue_name}" in lines:
                evicted.add(key)
                self._evict(key, "LocalQueueStopped")
            elif admission.cluster_queue in drained:
                evicted.add(key)
                self._evict(key, "ClusterQueueStopped")
        self.rest()
        return evicted

    def finish_all(self) -> None:
        """All that hold quota end."""
        for key in self.holding():
            self.drop(Workload, key)
        self.rest()


def _drains(queue: ClusterQueue | LocalQueue) -> bool:
    return queue.spec.stop_policy == "HoldAndDrain"


def some_change(lots: random.Random, objects: Snapshot) -> Change:
    """What people do: submit, delete, resize, move, stop, change quotas."""
    queues, lines = list(objects.of(ClusterQueue)), list(objects.of(LocalQueue))
    workloads, cohorts = list(objects.of(Workload)), list(objects.of(Cohort))
    queue, line = lots.choice(queues), lots.choice(lines)
    kinds = ["submit", "submit", "quota", "quota", "stop queue", "stop line", "leave", "drop line"]
    kinds += ["end", "active", "priority"] * bool(workloads) + ["cohort", "drop cohort"] * bool(cohorts)
    match lots.choice(kinds):
        case "submit":
            new = worlds.workload(lots, 100, line.metadata.name)
            return Change(put=(b.changed(new, spec={"priority": lots.randint(0, 4)}),))
        case "quota":
            cohort = queue.spec.cohort_name
            names = [flavor.name for group in queue.spec.resource_groups for flavor in group.flavors]
            held = {
                name: {item: worlds.quota(lots, cohort=bool(cohort)) for item in worlds.RESOURCES} for name in names
            }
            return Change(put=(_respecified(queue, resourceGroups=b.quotas(held)),))
        case "stop queue":
            return Change(put=(_respecified(queue, stopPolicy=lots.choice(["None", "Hold", "HoldAndDrain"])),))
        case "stop line":
            return Change(put=(_respecified(line, stopPolicy=lots.choice(["None", "Hold", "HoldAndDrain"])),))
        case "leave":
            groups = msgspec.to_builtins(queue.spec)["resourceGroups"]
            for quota in (item for group in groups for flavor in group["flavors"] for item in flavor["resources"]):
                quota.pop("borrowingLimit", None)
                quota.pop("lendingLimit", None)
            name = None if queue.spec.cohort_name else "root"
            return Change(put=(_respecified(queue, cohortName=name, resourceGroups=groups),))
        case "drop line":
            return Change(drop=((LocalQueue, line.metadata.key),))
        case "end":
            return Change(drop=((Workload, lots.choice(workloads).metadata.key),))
        case "active":
            return Change(put=(b.changed(lots.choice(workloads), spec={"active": False}),))
        case "priority":
            return Change(put=(b.changed(lots.choice(workloads), spec={"priority": lots.randint(0, 4)}),))
        case "cohort":
            names = [each.metadata.name for each in objects.all() if each.KIND == "ResourceFlavor"]
            held = {name: {item: lots.randint(0, 8) for item in worlds.RESOURCES} for name in names}
            return Change(put=(_respecified(cohorts[0], resourceGroups=b.quotas(held)),))
        case _:
            return Change(drop=((Cohort, cohorts[0].metadata.key),))


def _respecified(obj: Any, **spec: Any) -> Any:
    body = msgspec.to_builtins(obj)
    body["spec"] = {**body["spec"], **spec}
    if body["spec"].get("cohortName", "") is None:
        del body["spec"]["cohortName"]
    return msgspec.convert(body, type(obj))
