"""The standing of a pending Workload, where no amount is short: it is held, can never start, or starts by itself.

It starts by itself where nothing keeps it back, or where Workloads that were preempted for it are about to end. Then no
change helps, and nobody has to forecast anything. Must never decide.
"""

from collections.abc import Iterator, Sequence

import msgspec

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Condition, Kind, find_condition
from turnstile.api.workload import Workload
from turnstile.engine import Options, cycle
from turnstile.engine.decisions import preemptor_uid
from turnstile.engine.instants import Instant
from turnstile.engine.quota.amounts import text
from turnstile.engine.reasons import PREEMPTION_TEXT, Figure
from turnstile.insight.snapshot import Sees, Snapshot, name_of, names_of


class Leaving(msgspec.Struct, frozen=True):
    """A Workload that was evicted and still holds quota."""

    workload: str
    since: str
    pods: tuple[str, ...] | None = None
    """Its pods that have not ended; None if nobody has read them."""


class Preempted(msgspec.Struct, frozen=True):
    """The last preemption of a Workload: by which one, why and when."""

    by: str
    """Empty if the preemptor is gone."""
    why: str
    at: str


def holding_back(workload: Workload, snapshot: Snapshot) -> Iterator[str]:
    """Reasons besides quota for which a Workload without quota waits."""
    meta, status = workload.metadata, workload.status
    if not workload.spec.active:
        yield "it is not active: spec.active is false"
    if gates := meta.annotations.get(names.ADMISSION_GATED_BY):
        yield f"its admission is gated by {gates}: whoever set the annotation {names.ADMISSION_GATED_BY} removes it"
    if status.requeue_state is not None and status.requeue_state.requeue_at is not None:
        yield f"its back-off ends at {status.requeue_state.requeue_at}, after attempt {status.requeue_state.count}"
    for gate in workload.spec.preemption_gates:
        if not any(each.name == gate.name and each.position == "Open" for each in status.preemption_gates):
            yield f"preemption gate {gate.name} is not open: it may not preempt"
    name = workload.spec.queue_name or ""
    local = snapshot.get(LocalQueue, f"{meta.namespace}/{name}")
    if local is None:
        yield f"LocalQueue {name or '(none)'} does not exist in namespace {meta.namespace}"
        return
    if local.spec.stop_policy not in (None, "None"):
        yield f"LocalQueue {name} is stopped (stopPolicy {local.spec.stop_policy})"
    queue = snapshot.get(ClusterQueue, local.spec.cluster_queue or "")
    if queue is None:
        yield f"ClusterQueue {local.spec.cluster_queue or ''} does not exist"
    elif queue.spec.stop_policy not in (None, "None"):
        yield f"ClusterQueue {queue.metadata.name} is stopped (stopPolicy {queue.spec.stop_policy})"


# --- it can never start -----------------------------------------------------------------------------------------------


def never(snapshot: Snapshot, options: Options, now: Instant, workload: Workload, put: Sequence[Kind] = ()) -> str:
    """Why a Workload would not be admitted even if no other existed, with the objects `put` besides; empty if it
    would, and if it is held back by something that can end."""
    alone = snapshot.keeping(Workload, lambda _: False).changed([*put, workload])
    if any(holding_back(workload, alone)):
        return ""
    state, _ = alone.state(options, now)
    key = workload.metadata.key
    while state.has_work:
        cycle(state, now)
    if key not in state.queues.waiting:
        return ""
    decision, why = state.queues.decisions.get(key), state.questions.why(key)
    for figure in decision.figures if decision is not None else ():
        if figure.requested + figure.assumed > figure.maximum:
            return f"it can never start as things are: {_too_much(figure)}"
    return f"it can never start as things are: {why.message}" if why is not None else ""


def _too_much(figure: Figure) -> str:
    resource = figure.resource
    asked, most = (text(resource, each) for each in (figure.requested + figure.assumed, figure.maximum))
    asks = f"it asks for {asked} {resource} of flavor {figure.flavor}"
    return f"{asks}, and its ClusterQueue can never have more than {most}"


# --- it starts by itself ----------------------------------------------------------------------------------------------


def leaving_for(workload: Workload, snapshot: Snapshot) -> list[Leaving]:
    """Workloads that were preempted for one and still hold quota, those that were evicted first at the beginning."""
    return _leaving(each for each in snapshot.of(Workload) if _preemptor(each) == workload.metadata.uid)


def anything_leaves(snapshot: Snapshot) -> bool:
    """Whether a Workload that was evicted still holds quota."""
    return any(each.evicted and each.quota_reserved and not each.finished for each in snapshot.of(Workload))


def by_itself(workload: Workload, snapshot: Snapshot, sees: Sees) -> str:
    """Why a Workload starts that the engine admits without a change, once those that were evicted have ended."""
    if own := leaving_for(workload, snapshot):
        keys = [each.workload for each in own]
        them = "it has" if len(own) == 1 else "they have"
        ends = f"it preempts {_counted(keys)}, and starts when {them} ended: {', '.join(names_of(keys, sees, most=5))}"
        return f"{ends} (preempted at {own[0].since})"
    others = _leaving(each for each in snapshot.of(Workload))
    if others:
        keys = [each.workload for each in others]
        them = "has" if len(others) == 1 else "have"
        return f"it starts when {_counted(keys)} that {'was' if len(keys) == 1 else 'were'} evicted {them} ended: " + (
            ", ".join(names_of(keys, sees, most=5))
        )
    return "nothing keeps it back: the next cycles of the scheduler admit it"


def preempted(workload: Workload, snapshot: Snapshot, sees: Sees) -> Preempted | None:
    """The preemption of a Workload that holds no quota since, or gives it back."""
    found = _preemption(workload)
    if found is None:
        return None
    uid = preemptor_uid(found.message)
    by = next((each.metadata.key for each in snapshot.of(Workload) if each.metadata.uid == uid), "")
    why = PREEMPTION_TEXT.get(found.reason, found.reason)
    return Preempted(name_of(by, sees) if by else "", why, found.last_transition_time)


def told(given: Preempted) -> str:
    """The preemption as a sentence without a full stop."""
    by = f" by {given.by}" if given.by else ""
    return f"it was preempted at {given.at}{by}, due to {given.why}"


def _leaving(workloads: Iterator[Workload]) -> list[Leaving]:
    found = []
    for each in workloads:
        evicted = find_condition(each.status.conditions, wl.EVICTED)
        if evicted is not None and each.evicted and each.quota_reserved and not each.finished:
            found.append(Leaving(each.metadata.key, evicted.last_transition_time))
    return sorted(found, key=lambda each: (each.since, each.workload))


def _preemption(workload: Workload) -> Condition | None:
    evicted = find_condition(workload.status.conditions, wl.EVICTED)
    found = find_condition(workload.status.conditions, wl.PREEMPTED)
    if not workload.evicted or evicted is None or evicted.reason != wl.PREEMPTED:
        return None
    return found if found is not None and found.status == "True" else None


def _preemptor(workload: Workload) -> str:
    found = _preemption(workload)
    return (preemptor_uid(found.message) or "") if found is not None else ""


def _counted(keys: Sequence[str]) -> str:
    return "1 Workload" if len(keys) == 1 else f"{len(keys)} Workloads"
