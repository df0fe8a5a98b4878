"""The standing of a pending Workload, where no amount is short: it is held, can never start, or starts by itself.

It starts by itself where nothing keeps it back, or where Workloads that were preempted for it are about to end. Then no
change helps, and nobody has to forecast anything. Must never decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Condition, Kind, find_condition
from turnstile.api.workload import Workload
from turnstile.engine import Options, cycle
from turnstile.engine.decisions import preemptor_uid
from turnstile.engine.instants import Instant, instant, instant_or_zero
from turnstile.engine.queue.protections import began
from turnstile.insight.running import held
from turnstile.insight.snapshot import Sees, Snapshot, called_in, name_of
from turnstile.wording import standing as words
from turnstile.wording.causes import waiting
from turnstile.wording.lost import lost
from turnstile.wording.shortage import headline, of_figures


class Leaving(msgspec.Struct, frozen=True):
    """A Workload that was evicted and still holds quota."""

    workload: str
    since: str
    pods: tuple[str, ...] | None = None
    """Its pods that have not ended; None if nobody has read them."""
    lost: str = ""
    """The run that it loses, such as `16.7 GPU-hours`."""


class Preempted(msgspec.Struct, frozen=True):
    """The last preemption of a Workload: by which one, why and when."""

    by: str
    """Empty if the preemptor is gone."""
    why: str
    """The sentence about it, with its names, without a full stop."""
    at: str


def holding_back(workload: Workload, snapshot: Snapshot) -> Iterator[str]:
    """Reasons besides quota for which a Workload without quota waits."""
    meta, status = workload.metadata, workload.status
    if not workload.spec.active:
        yield words.inactive()
    if gates := meta.annotations.get(names.ADMISSION_GATED_BY):
        yield words.gated(gates)
    if status.requeue_state is not None and status.requeue_state.requeue_at is not None:
        yield words.backs_off(status.requeue_state.requeue_at, status.requeue_state.count)
    for gate in workload.spec.preemption_gates:
        if not any(each.name == gate.name and each.position == "Open" for each in status.preemption_gates):
            yield words.may_not_preempt(gate.name)
    name = workload.spec.queue_name or ""
    local = snapshot.get(LocalQueue, f"{meta.namespace}/{name}")
    if local is None:
        yield words.missing_local_queue(name, meta.namespace)
        return
    if local.spec.stop_policy not in (None, "None"):
        yield words.stopped("LocalQueue", name, local.spec.stop_policy)
    queue = snapshot.get(ClusterQueue, local.spec.cluster_queue or "")
    if queue is None:
        yield words.missing_cluster_queue(local.spec.cluster_queue or "")
    elif queue.spec.stop_policy not in (None, "None"):
        yield words.stopped("ClusterQueue", queue.metadata.name, queue.spec.stop_policy)


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
    shorts = of_figures(decision.figures) if decision is not None else []
    if any(each.most is not None for each in shorts):
        return headline(shorts)
    return waiting(why.message) if why is not None else ""


# --- it starts by itself ----------------------------------------------------------------------------------------------


def leaving_for(workload: Workload, snapshot: Snapshot) -> list[Leaving]:
    """Workloads that were preempted for one and still hold quota, those that were evicted first at the beginning."""
    return _leaving(each for each in snapshot.of(Workload) if _preemptor(each) == workload.metadata.uid)


def with_pods(leaving: Leaving, listed: Mapping[str, Any]) -> Leaving:
    """The Workload with those of the pods of its namespace, as the API server lists them, that are its own and have not
    ended; none may be told apart in a cluster whose pods carry no mark."""
    name = leaving.workload.partition("/")[2]
    own = (each for each in listed["items"] if (each["metadata"].get("annotations") or {}).get(names.WORKLOAD) == name)
    run = (each for each in own if each.get("status", {}).get("phase") not in ("Succeeded", "Failed"))
    return replace(leaving, pods=tuple(sorted(each["metadata"]["name"] for each in run)))


def anything_leaves(snapshot: Snapshot) -> bool:
    """Whether a Workload that was evicted still holds quota."""
    return any(each.evicted and each.quota_reserved and not each.finished for each in snapshot.of(Workload))


def by_itself(workload: Workload, snapshot: Snapshot, sees: Sees) -> str:
    """Why a Workload starts that the engine admits without a change, once those that were evicted have ended."""
    own = leaving_for(workload, snapshot)
    leaves = own or _leaving(each for each in snapshot.of(Workload))
    them = called_in(snapshot, [each.workload for each in leaves], sees, most=words.NAMED)
    if not leaves:
        return words.starts_now()
    return words.preempts(them, own[0].since) if own else words.starts_after(them)


def preempted(workload: Workload, snapshot: Snapshot, sees: Sees) -> Preempted | None:
    """The preemption of a Workload that holds no quota since, or gives it back."""
    found = _preemption(workload)
    if found is None:
        return None
    uid = preemptor_uid(found.message)
    by = next((each.metadata.key for each in snapshot.of(Workload) if each.metadata.uid == uid), "")
    (job,) = called_in(snapshot, [by], sees) if by else ("",)
    at = found.last_transition_time
    return Preempted(name_of(by, sees) if by else "", words.preempted(job, found.reason, at), at)


def _leaving(workloads: Iterator[Workload]) -> list[Leaving]:
    found = []
    for each in workloads:
        evicted = find_condition(each.status.conditions, wl.EVICTED)
        if evicted is not None and each.evicted and each.quota_reserved and not each.finished:
            found.append(Leaving(each.metadata.key, evicted.last_transition_time, lost=_lost(each, evicted)))
    return sorted(found, key=lambda each: (each.since, each.workload))


def _lost(workload: Workload, evicted: Condition) -> str:
    """The run that an evicted Workload loses, by its status, while it holds its quota still."""
    admission, reserved = workload.status.admission, find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    if admission is None or reserved is None or not workload.admitted or not evicted.last_transition_time:
        return ""
    begin = began(workload.status.conditions, instant_or_zero(reserved.last_transition_time))
    return lost(held(admission.pod_set_assignments), instant(evicted.last_transition_time) - begin)


def _preemption(workload: Workload) -> Condition | None:
    evicted = find_condition(workload.status.conditions, wl.EVICTED)
    found = find_condition(workload.status.conditions, wl.PREEMPTED)
    if not workload.evicted or evicted is None or evicted.reason != wl.PREEMPTED:
        return None
    return found if found is not None and found.status == "True" else None


def _preemptor(workload: Workload) -> str:
    found = _preemption(workload)
    return (preemptor_uid(found.message) or "") if found is not None else ""
