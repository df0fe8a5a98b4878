"""Random clusters in which a Workload waits, as snapshots."""

import random
from typing import Any

import msgspec

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue, Preemption
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.decisions import admission_of, preempted_message
from turnstile.insight.snapshot import Snapshot

RESOURCES = ("cpu", "nvidia.com/gpu")


def team(name: str = "team") -> Namespace:
    """The namespace of all Workloads, or another one."""
    return msgspec.convert({"metadata": {"name": name}}, Namespace)


def quota(lots: random.Random, *, cohort: bool) -> Any:
    """A nominal quota, with limits now and then."""
    nominal = lots.randint(0, 8)
    borrowing = lots.choice([None, None, 0, 2, 5]) if cohort else None
    lending = lots.choice([None, None, 0, nominal]) if cohort else None
    return (nominal, borrowing, lending)


def workload(lots: random.Random, number: int, line: str) -> Workload:
    """A Workload of one or two pod sets."""
    pod_sets = []
    for name in ("main", "workers")[: lots.randint(1, 2)]:
        requests = {resource: str(lots.randint(1, 6)) for resource in RESOURCES[: lots.randint(1, 2)]}
        containers = [{"name": "c", "resources": {"requests": requests}}]
        pod_sets.append({"name": name, "count": lots.randint(1, 3), "template": {"spec": {"containers": containers}}})
    meta = {"name": f"w{number}", "namespace": "team", "uid": f"uid-w{number}", "creationTimestamp": b.stamp(number)}
    spec = {"queueName": line, "priority": lots.randint(0, 2), "podSets": pod_sets}
    return msgspec.convert({"metadata": meta, "spec": spec}, Workload)


def world(seed: int) -> tuple[Snapshot, list[str]]:
    """A cluster as it is when its scheduler has nothing new to decide, and the Workloads that wait in it."""
    lots = random.Random(seed)
    snapshot = Snapshot()
    snapshot.put(team())
    flavors = ["small", "large"][: lots.randint(1, 2)]
    for name in flavors:
        snapshot.put(b.flavor(name))
    if lots.random() < 0.7:
        snapshot.put(b.cohort("root", {flavors[0]: {each: lots.randint(0, 4) for each in RESOURCES}}))
    queues = [f"q{number}" for number in range(lots.randint(1, 3))]
    for name in queues:
        cohort = lots.choice(["root", None])
        held = {each: {item: quota(lots, cohort=cohort is not None) for item in RESOURCES} for each in flavors}
        snapshot.put(
            b.queue(
                name,
                held,
                cohort,
                queueingStrategy=lots.choice(["StrictFIFO", "BestEffortFIFO"]),
                stopPolicy=lots.choice(["None"] * 8 + ["Hold"]),
                preemption={
                    "withinClusterQueue": lots.choice(["Never", "LowerPriority"]),
                    "reclaimWithinCohort": lots.choice(["Never", "Any"]),
                },
            )
        )
        snapshot.put(b.local(f"line-{name}", name, stopPolicy=lots.choice(["None"] * 8 + ["Hold"])))
    for number in range(lots.randint(1, 9)):
        snapshot.put(workload(lots, number, f"line-{lots.choice(queues)}"))
    return settled(snapshot)


def preempting(seed: int) -> tuple[Snapshot, list[str]]:
    """Such a cluster in which an urgent Workload came and preempts others, if it may: these have been told to go, and
    hold their quota still. Workloads that wait, the urgent one among them."""
    snapshot, _ = world(seed)
    lots = random.Random(-seed)
    policy = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
    snapshot = snapshot.changed(
        [
            msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, preemption=policy))
            for each in snapshot.of(ClusterQueue)
        ]
    )
    lines = [each.spec.queue_name or "" for each in snapshot.of(Workload) if each.quota_reserved]
    lines = lines or [each.metadata.name for each in snapshot.of(LocalQueue)]
    urgent = workload(lots, 50, lots.choice(lines))
    urgent = msgspec.structs.replace(urgent, spec=msgspec.structs.replace(urgent.spec, priority=9))
    snapshot = snapshot.changed([urgent])
    state, _ = snapshot.state(Options(), b.NOW)
    victims = []
    while state.has_work:
        for decision in cycle(state, b.NOW):
            for victim in decision.victims:
                evicted = snapshot.get(Workload, victim.key)
                if victim.new and evicted is not None:
                    preemptor = snapshot.get(Workload, decision.key)
                    assert preemptor is not None
                    message = preempted_message(preemptor, victim.reason, "/a", "/b")
                    victims.append(_told_to_go(evicted, victim.reason, message))
    changed = snapshot.changed([*victims, *_admitted(state)])
    return changed, sorted(each.metadata.key for each in changed.of(Workload) if not each.quota_reserved)


def _told_to_go(victim: Workload, reason: str, message: str) -> Workload:
    plain = msgspec.to_builtins(victim)
    for kind, why in (("Evicted", "Preempted"), ("Preempted", reason)):
        condition = {"type": kind, "status": "True", "reason": why, "message": message, "lastTransitionTime": b.STAMP}
        plain["status"]["conditions"].append(condition)
    return msgspec.convert(plain, Workload)


def settled(snapshot: Snapshot) -> tuple[Snapshot, list[str]]:
    """What the scheduler leaves of it: admissions are written, victims are left where they are."""
    state, _ = snapshot.state(Options(), b.NOW)
    while state.has_work:
        cycle(state, b.NOW)
    return snapshot.changed(_admitted(state)), sorted(state.queues.waiting)


def _admitted(state: State) -> list[Workload]:
    found = []
    for assumed in state.reservations.assumed.values():
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": b.STAMP}
            for kind in ("QuotaReserved", "Admitted")
        ]
        status = {"conditions": conditions, "admission": admission_of(assumed.info, assumed.cluster_queue)}
        plain = {**msgspec.to_builtins(assumed.waiting.workload), "status": msgspec.to_builtins(status)}
        found.append(msgspec.convert(plain, Workload))
    return found
