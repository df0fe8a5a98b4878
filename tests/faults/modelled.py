"""What `simulated` histories happen to: a cluster that keeps objects and nothing else, and a leader that looks at it.

The leader's ledger and log are the real ones. Between them and the cluster are watches that are behind and writes that
land late, each as `app/turnstile/controllers/scheduling/scheduler.py` makes it: its preconditions are looked at when
it lands, and writes of one object go out one after the other. Must never decide anything.
"""

import copy
import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from testbed.client import Json, condition
from tests.faults.moments import is_true
from tests.faults.recording import Event
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.controllers.scheduling.decisionlog import DecisionLog, TermLog
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.decisions import Victim
from turnstile.engine.options import FairSharing

FIRST_REVISION = 100
NAMESPACE = "team"


class Cluster:
    """The objects as the API server has them, and the recording of all there ever were. `now` is in seconds."""

    def __init__(self) -> None:
        self.now = int(b.NOW)
        self.recorded: list[Event] = []
        self._revision = FIRST_REVISION
        self._objects: dict[tuple[str, str], Json] = {}

    def all(self, kind: str) -> list[Json]:
        """Objects of a kind, the oldest first."""
        return [obj for (other, _), obj in self._objects.items() if other == kind]

    def find(self, kind: str, uid: str) -> Json | None:
        """An object as it is."""
        return self._objects.get((kind, uid))

    def put(self, kind: str, obj: Json) -> Json:
        """Write an object, which is the cluster's from now on."""
        meta = obj["metadata"]
        old = self.find(kind, meta["uid"])
        if old is None:
            meta |= {"creationTimestamp": _stamp(self.now), "generation": 1}
        else:
            created, generation = old["metadata"]["creationTimestamp"], old["metadata"]["generation"]
            meta |= {"creationTimestamp": created, "generation": generation + (old["spec"] != obj["spec"])}
        self._objects[kind, meta["uid"]] = obj
        self._record(kind, old, obj)
        meta["resourceVersion"] = str(self._revision)
        return obj

    def delete(self, kind: str, obj: Json) -> None:
        """Remove an object at once."""
        self._record(kind, self._objects.pop((kind, obj["metadata"]["uid"])), None)

    def _record(self, kind: str, old: Json | None, new: Json | None) -> None:
        self._revision += 1
        at = self.now + (self._revision - FIRST_REVISION) / 10_000
        self.recorded.append(Event(self._revision, at, kind, old, new))


@dataclass(frozen=True, eq=False)
class Write:
    """What follows from a decision for one Workload: its admission, or the eviction of a victim."""

    decision: Decision
    victim: Victim | None = None

    @property
    def key(self) -> str:
        """Of the Workload that is written."""
        return self.decision.key if self.victim is None else self.victim.key

    @property
    def uid(self) -> str:
        """Of the Workload that is written."""
        return self.decision.uid if self.victim is None else self.victim.uid


class Leader:
    """One leader: its ledger, what it has seen of the cluster, and its writes that are under way."""

    def __init__(
        self, cluster: Cluster, decisions: DecisionLog, lots: random.Random, *, epoch: int, fair: bool
    ) -> None:
        self.writes: list[Write] = []
        self._cluster = cluster
        self._decisions = decisions
        self._lots = lots
        self._known: dict[str, Json] = {}
        """Workloads as it has seen them, by key."""
        self._alive = True
        options = Options(fair_sharing=FairSharing() if fair else None)
        self._ledger = State(options, TermLog(decisions, options, identity=f"leader-{epoch}", epoch=epoch))
        lease = {"name": "turnstile-controller", "uid": "lease"}
        cluster.put("leases", {"metadata": lease, "spec": {"holderIdentity": f"leader-{epoch}_1"}})
        self._seen = len(cluster.recorded)
        self._list()

    @property
    def behind(self) -> int:
        """How many events its watches have yet to tell of."""
        return len(self._cluster.recorded) - self._seen

    @property
    def waits_for_victims(self) -> bool:
        """Whether time will end the wait for a victim."""
        return self._ledger.reservations.next_overdue() is not None

    def _list(self) -> None:
        self._ledger.put_namespace(NAMESPACE, {})
        self._ledger.put_flavor(b.flavor("plain"))
        for kind in ("cohorts", "clusterqueues", "localqueues", "workloads"):
            for obj in self._cluster.all(kind):
                self._see(kind, obj)

    def catch_up(self, events: int) -> None:
        """Hear of so many events more."""
        for event in self._cluster.recorded[self._seen : self._seen + events]:
            self._seen += 1
            if event.new is not None:
                self._see(event.kind, event.new)
            else:
                self._see_gone(event.obj)

    def _see(self, kind: str, obj: Json) -> None:
        if not self._alive:
            return
        if kind == "workloads":
            if self._is_old(obj):
                return
            self._known[key_of(obj)] = obj
            self._ledger.put_workload(msgspec.convert(obj, Workload), self._cluster.now)
        elif kind == "clusterqueues":
            self._ledger.put_cluster_queue(msgspec.convert(obj, ClusterQueue), self._cluster.now)
        elif kind == "cohorts":
            self._ledger.put_cohort(msgspec.convert(obj, Cohort))
        else:
            self._ledger.put_local_queue(msgspec.convert(obj, LocalQueue), self._cluster.now)

    def _is_old(self, workload: Json) -> bool:
        """Whether this version of it, or a newer one, was seen already: by its watch, or in answer to a write."""
        known, seen = self._known.get(key_of(workload)), workload["metadata"]
        return (
            known is not None
            and known["metadata"]["uid"] == seen["uid"]
            and int(known["metadata"]["resourceVersion"]) >= int(seen["resourceVersion"])
        )

    def _see_gone(self, workload: Json) -> None:
        known = self._known.get(key_of(workload))
        if known is not None and known["metadata"]["uid"] == workload["metadata"]["uid"]:
            del self._known[key_of(workload)]
            self._ledger.drop_workload(key_of(workload))

    def decide(self, at_most: int) -> int:
        """Run cycles while there is something to decide, and say how many it were; their writes are under way."""
        due = self._ledger.reservations.next_overdue()
        if due is not None and due <= self._cluster.now:
            self._ledger.note_overdue(self._cluster.now)
        for count in range(at_most):
            if not self._ledger.has_work:
                return count
            for decision in cycle(self._ledger, self._cluster.now):
                if decision.outcome == "admit":
                    self.writes.append(Write(decision))
                self.writes += [Write(decision, victim) for victim in decision.victims if victim.new]
        return at_most

    def land(self, *, late: float) -> None:
        """Let writes through, in any order but for those of one Workload, which wait for each other."""
        for write in self._lots.sample(self.writes, len(self.writes)):
            earlier = self.writes[: self.writes.index(write)]
            if self._lots.random() < late or any(other.uid == write.uid for other in earlier):
                continue
            self.writes.remove(write)
            if write.victim is None:
                self._admit(write)
            else:
                self._evict(write, write.victim)

    def _admit(self, write: Write) -> None:
        """As long as it is what was decided about; otherwise it returns to its place in line."""
        workload = self._cluster.find("workloads", write.uid)
        if workload is not None and in_line(workload) and generation_of(workload) == write.decision.generation:
            draft = copy.deepcopy(workload)
            reserve(draft, json.loads(msgspec.json.encode(write.decision.admission)), at=self._cluster.now)
            self._see("workloads", self._cluster.put("workloads", draft))
            if self._alive:
                self._ledger.confirm(write.key, draft["metadata"]["resourceVersion"])
            return
        assumed = self._ledger.reservations.assumed.get(write.key)
        if self._alive and assumed is not None and assumed.info.workload.metadata.uid == write.uid:
            self._ledger.forget(write.key, self._cluster.now)
        if workload is not None:
            self._see("workloads", workload)

    def _evict(self, write: Write, victim: Victim) -> None:
        """As long as it has quota, and somebody waits for that; otherwise it may be chosen again."""
        workload = self._cluster.find("workloads", write.uid)
        if workload is None:
            return
        if holds(workload) and not is_true(workload, "Evicted") and self._still_waits(write.decision):
            workload = copy.deepcopy(workload)
            evict(workload, "Preempted", victim.message, at=self._cluster.now)
            set_condition(workload, "Preempted", "True", victim.reason, victim.message, at=self._cluster.now)
            self._cluster.put("workloads", workload)
        elif self._alive and not is_true(workload, "Evicted"):
            self._ledger.forget_eviction(write.key)
        self._see("workloads", workload)

    def _still_waits(self, decision: Decision) -> bool:
        """Whether a Workload waits, as far as is known, for what was decided about."""
        known = self._known.get(decision.key)
        if known is None or decision.key in self._ledger.reservations.assumed or not in_line(known):
            return False
        return bool(known["metadata"]["uid"] == decision.uid and generation_of(known) == decision.generation)

    def die(self) -> None:
        """Decide nothing more and hear of nothing more; of the writes under way some arrive nevertheless."""
        self._alive = False
        self.writes = [write for write in self.writes if self._lots.random() < 0.5]
        self.land(late=0)
        self._decisions.close()


# --- Workloads --------------------------------------------------------------------------------------------------------


def key_of(workload: Json) -> str:
    """Namespace and name."""
    return f"{NAMESPACE}/{workload['metadata']['name']}"


def generation_of(workload: Json) -> int:
    """How often what it asks for was changed, and one."""
    return int(workload["metadata"]["generation"])


def holds(workload: Json) -> bool:
    """Whether it has quota."""
    return is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")


def in_line(workload: Json) -> bool:
    """Whether it waits for quota, as far as itself is concerned."""
    waits = not is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")
    return bool(waits and workload["spec"]["active"])


def set_condition(draft: Json, kind: str, status: str, reason: str, message: str = "", *, at: int) -> None:
    """Give it a condition, as of second `at`, unless it had that status before."""
    others = [each for each in draft["status"].get("conditions", ()) if each["type"] != kind]
    old = condition(draft, kind)
    since = old["lastTransitionTime"] if old.get("status") == status else _stamp(at)
    new = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    draft["status"]["conditions"] = [*others, new]


def reserve(draft: Json, admission: Json, *, at: int) -> None:
    """Let it in, with that admission."""
    draft["status"]["admission"] = admission
    for kind in ("QuotaReserved", "Admitted"):
        set_condition(draft, kind, "True", kind, at=at)
    for kind in ("Evicted", "Preempted"):
        set_condition(draft, kind, "False", "QuotaReserved", at=at)


def evict(draft: Json, reason: str, message: str, *, at: int) -> None:
    """Ask it to go, and count that."""
    set_condition(draft, "Evicted", "True", reason, message, at=at)
    counted = draft["status"].setdefault("schedulingStats", {}).setdefault("evictions", [])
    entry = next((each for each in counted if each["reason"] == reason), None)
    if entry is None:
        counted.append({"reason": reason, "underlyingCause": "", "count": 1})
    else:
        entry["count"] += 1


def give_back(draft: Json, *, at: int) -> None:
    """It has stopped: take its quota back. Who was preempted is in line again."""
    del draft["status"]["admission"]
    set_condition(draft, "QuotaReserved", "False", "Pending", at=at)
    set_condition(draft, "Admitted", "False", "NoReservation", at=at)
    if condition(draft, "Evicted")["reason"] == "Preempted":
        set_condition(draft, "Requeued", "True", "Preempted", at=at)


def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
