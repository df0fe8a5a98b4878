"""Workloads as a watch sees them, version after version, and what is recorded of them."""

from collections.abc import Iterable
from typing import Any

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.recorder.facts import Fact, Record, of_change

Json = dict[str, Any]
T0 = b.NOW - 5
"""Second 0 of `stamp`."""


def condition(kind: str, status: str, second: int, reason: str = "", message: str = "") -> Json:
    """A condition that has its status since a second."""
    return {
        "type": kind, "status": status, "reason": reason or kind, "message": message,
        "lastTransitionTime": b.stamp(second),
    }  # fmt: skip


def version(name: str, *conditions: Json, second: int = 0, **status: Any) -> Workload:
    """A version of the Workload `name`, created at `second`, of 4 pods with a CPU each."""
    base = b.workload(name, count=4, second=second, status={"conditions": list(conditions), **status})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{name}", "uid": f"j-{name}", "controller": True}
    return b.changed(base, metadata={"ownerReferences": [owner]})


def admission(cluster_queue: str = "a", cpu: int = 4) -> Json:
    """A reservation of CPUs for the four pods."""
    assigned = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": str(cpu)}, "count": 4}
    return {"clusterQueue": cluster_queue, "podSetAssignments": [assigned]}


def evictions(times: int) -> Json:
    """How often it was preempted so far."""
    return {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": times}]}


PREEMPTED = (
    "Preempted to accommodate a workload (UID: uid-high, JobUID: j-high) due to prioritization in the ClusterQueue;"
    " preemptor path: /b; preemptee path: /a"
)


def life(name: str = "w") -> list[Workload | None]:
    """It waits, is admitted, is preempted, waits, is admitted again, gives a pod's quota back, ends and is deleted."""
    waits = condition("QuotaReserved", "False", 1, "Pending", "2 more needed")
    reserved, admitted = condition("QuotaReserved", "True", 10), condition("Admitted", "True", 10)
    evicted = condition("Evicted", "True", 20, "Preempted", PREEMPTED)
    preempted = condition("Preempted", "True", 20, "InCohortReclamation", PREEMPTED)
    free = condition("QuotaReserved", "False", 25, "Pending", "preempted")
    out = condition("Admitted", "False", 25, "NoReservation")
    again, runs = condition("QuotaReserved", "True", 40), condition("Admitted", "True", 40)
    once = evictions(1)
    held: Json = {"admission": admission(), "schedulingStats": once}
    back = {"reclaimablePods": [{"name": "main", "count": 1}]}
    return [
        version(name),
        version(name, waits),
        version(name, reserved, admitted, admission=admission()),
        version(name, reserved, admitted, evicted, preempted, **held),
        version(name, free, out, evicted, preempted, schedulingStats=once),
        version(name, again, runs, **held),
        version(name, again, runs, **held, **back),
        version(name, again, runs, condition("Finished", "True", 60, "Succeeded", "done"), **held, **back),
        None,
    ]


def recorded(versions: Iterable[Workload | None], *, start: float = T0, step: float = 8.0) -> list[Record]:
    """The records of all versions; a version is seen every `step` seconds."""
    found: list[Record] = []
    old: Workload | None = None
    for number, new in enumerate(versions):
        found += of_change(old, new, start + number * step)
        old = new
    return found


def facts(records: Iterable[Record]) -> list[tuple[str, float]]:
    """What happened, with seconds since T0."""
    return [(each.what, each.at - T0) for each in records if isinstance(each, Fact)]
