"""Why a Workload waits: what blocks it, who is before it, what it waits for besides quota, and what would admit it.

The engine decides on a ledger made of a snapshot, and this tells what it said. Names of Workloads in namespaces that
the asker may not see never leave this module: they are counted instead. Must never decide.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.instants import Instant
from turnstile.engine.queue.devices import asks_for_devices
from turnstile.engine.quota.amounts import text
from turnstile.engine.reasons import Figure
from turnstile.insight import policies, rights, standing
from turnstile.insight.near import Near
from turnstile.insight.remedies import Remedy, Search, Supposed
from turnstile.insight.snapshot import Sees, Snapshot, name_of, names_of, refusals
from turnstile.insight.standing import Leaving, Preempted
from turnstile.insight.whatif import decided

BEFORE: Final = 10
"""Names of Workloads that are told of those before a Workload, and of those that it would wait for, at most."""
TAKERS: Final = 5
"""Names of Workloads that are told of those that take part of a raised quota, at most."""


class Holder(msgspec.Struct, frozen=True):
    """A ClusterQueue that holds a resource of a flavor, and how much."""

    cluster_queue: str
    amount: str
    hidden: bool = False
    """Whether these are ClusterQueues whose names the asker may not see, all together."""


class Blocker(msgspec.Struct, frozen=True):
    """One resource of one flavor that a Workload cannot have now. Amounts are quantities, as people write them."""

    flavor: str
    resource: str
    requested: str
    available: str
    nominal: str
    used: str
    borrowing_limit: str
    """Empty if borrowing is not limited, or not possible."""
    most: str
    """The amounts that would be available if nothing were in use."""
    holders: tuple[Holder, ...]
    """Who holds it in the ClusterQueue's tree of cohorts, the largest amount first."""


class Place(msgspec.Struct, frozen=True):
    """Where a Workload stands, counted from 0, and who is before it in its ClusterQueue."""

    in_cluster_queue: int
    in_local_queue: int
    before: tuple[str, ...]
    """Some of them, in order."""
    hidden: int
    """How many of those before it the asker may not see."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a Workload does or does not run. `reason` and `message` are those of its condition."""

    workload: str
    local_queue: str
    cluster_queue: str
    state: str
    """`pending`, `reserved` (it waits for admission checks), `admitted`, `finished` or `inactive`."""
    reason: str = ""
    message: str = ""
    sentence: str = ""
    """The answer in one sentence."""
    blockers: tuple[Blocker, ...] = ()
    rules: tuple[str, ...] = ()
    """Rules of its ClusterQueue that keep it from preempting those that hold what is short."""
    skipped_flavors: tuple[str, ...] = ()
    """Flavors that were not tried for quota, each with the reason."""
    place: Place | None = None
    waits_for: tuple[str, ...] = ()
    """Reasons to wait besides quota."""
    remedies: tuple[Remedy, ...] = ()
    preempted: Preempted | None = None
    """The last preemption of a Workload that waits since, or gives its quota back."""
    leaving: tuple[Leaving, ...] = ()
    """Workloads that were preempted for it and still hold quota."""
    unread: tuple[str, ...] = ()
    """Sentences on objects that could not be read: the answer does not count with them, and may be without a part."""


def explain(
    snapshot: Snapshot,
    options: Options,
    now: Instant,
    key: str,
    *,
    sees: Sees,
    queues: bool = True,
    remedies: int | None = None,
) -> Explanation:
    """Explain the Workload with a key, with so many remedies at most. `queues`: whether the asker may see the names of
    ClusterQueues of others. Raises InvalidValue if the snapshot has no such Workload."""
    snapshot = rights.relevant(snapshot)
    workload = snapshot.get(Workload, key)
    if workload is None:
        raise InvalidValue("workload", key, rights.absent(snapshot, Workload, key))
    local = snapshot.get(LocalQueue, f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")
    cluster_queue = (local.spec.cluster_queue or "") if local is not None else ""
    unread = rights.unread(snapshot)
    said = _Said(workload, snapshot, cluster_queue, unread, sees)
    if (settled := said.settled()) is not None:
        return settled
    if not rights.suffice(snapshot):
        if rights.seen_in_part(snapshot) and local is not None:
            return _in_part(said, snapshot, options, now, workload, remedies)
        return said.waiting()
    around = Near(snapshot, options)
    near = around.of(workload)
    state, refused = near.state(options, now)
    line = state.questions.pending(cluster_queue)
    order = _tried_before(state, key)
    place = _place(line, key, state, sees)
    decision = _decision(state, key, now) or _alone(near, options, now, workload)
    if key in state.reservations.assumed:
        sentence = "nothing keeps it back: the next cycles of the scheduler admit it"
        return said.told(state="pending", sentence=sentence, place=place)
    figures = tuple(decision.figures) if decision is not None else ()
    why = state.questions.why(key)
    waits_for = (
        *_devices(workload, state),
        *standing.holding_back(workload, near),
        *_line(order, state, key, cluster_queue),
        *refusals(refused, sees),
    )
    search = Search(around, options, now, workload)
    if search.admits(Supposed(workload)) is not None:
        return said.told(state="pending", sentence=standing.by_itself(workload, near, sees), place=place)
    if standing.anything_leaves(near):
        state, decision = _after_promises(near, options, now, workload, decision)
        figures = tuple(decision.figures) if decision is not None else ()
    never = standing.never(near, options, now, *search.unstopped())
    found = tuple(islice(search.remedies(figures), remedies))
    reason, message = (why.reason, why.message) if why is not None else said.condition()
    blockers = _blockers(figures, state, cluster_queue, queues=queues)
    return said.told(
        state="pending" if workload.spec.active else "inactive",
        reason=reason,
        message=message,
        sentence=never or _sentence(blockers, waits_for, message),
        blockers=blockers,
        rules=() if never else tuple(policies.forbidding(state, key, figures)),
        skipped_flavors=tuple(_skipped(decision)) if decision is not None else (),
        place=place,
        waits_for=waits_for,
        remedies=tuple(_hiding(each, sees) for each in found),
    )


def _in_part(
    said: "_Said", snapshot: Snapshot, options: Options, now: Instant, workload: Workload, remedies: int | None
) -> Explanation:
    """The explanation for an asker who sees all queues, and Workloads of one namespace: the statuses of ClusterQueues
    tell what the others hold. Who else waits is not known, so no place is told, and only what the owner can do."""
    around = Near(rights.with_usage_of_others(snapshot, now), options)
    near = around.of(workload)
    state, _ = near.state(options, now)
    decision = _decision(state, workload.metadata.key, now) or _alone(near, options, now, workload)
    figures = tuple(decision.figures) if decision is not None else ()
    blockers = _blockers(figures, state, said.cluster_queue)
    waits_for = tuple(standing.holding_back(workload, near))
    queue = snapshot.get(ClusterQueue, said.cluster_queue)
    blocked = (
        queue is not None
        and queue.spec.queueing_strategy == "StrictFIFO"
        and rights.others_wait(snapshot, said.cluster_queue)
    )
    found: Iterator[Remedy] = iter(())
    if blockers and not waits_for and not blocked:
        found = Search(around, options, now, workload).of_owner(figures)
    answer = said.waiting()
    return msgspec.structs.replace(
        answer,
        sentence=_sentence(blockers, waits_for, answer.sentence),
        blockers=blockers,
        skipped_flavors=tuple(_skipped(decision)) if decision is not None else (),
        waits_for=waits_for,
        remedies=tuple(islice(found, remedies)),
    )


class _Said:
    """The reason in the Workload's own status."""

    def __init__(
        self, workload: Workload, snapshot: Snapshot, cluster_queue: str, unread: tuple[str, ...], sees: Sees
    ) -> None:
        self._workload = workload
        self._local_queue = workload.spec.queue_name or ""
        self.cluster_queue = cluster_queue
        self._unread = unread
        self._preempted = standing.preempted(workload, snapshot, sees)
        self._leaving = tuple(
            msgspec.structs.replace(each, workload=name_of(each.workload, sees))
            for each in standing.leaving_for(workload, snapshot)
        )

    def told(self, **more: object) -> Explanation:
        return Explanation(
            workload=self._workload.metadata.key,
            local_queue=self._local_queue,
            cluster_queue=self.cluster_queue,
            preempted=self._preempted,
            leaving=self._leaving,
            unread=self._unread,
            **more,  # type: ignore[arg-type]
        )

    def condition(self) -> tuple[str, str]:
        """Reason and message of the condition that tells why it has no quota."""
        reserved = find_condition(self._workload.status.conditions, wl.QUOTA_RESERVED)
        return (reserved.reason, reserved.message) if reserved is not None else ("", "")

    def waiting(self) -> Explanation:
        """The answer of the condition alone."""
        reason, message = self.condition()
        state = "pending" if self._workload.spec.active else "inactive"
        return self.told(state=state, reason=reason, message=message, sentence=message or "it was not tried yet")

    def settled(self) -> Explanation | None:
        """The answer for a Workload that does not wait for quota."""
        workload = self._workload
        conditions = workload.status.conditions
        if workload.finished:
            finished = find_condition(conditions, wl.FINISHED)
            assert finished is not None
            sentence = f"it has finished: {finished.message}"
            return self.told(state="finished", reason=finished.reason, message=finished.message, sentence=sentence)
        if not workload.quota_reserved:
            return None
        if workload.evicted:
            evicted = find_condition(conditions, wl.EVICTED)
            assert evicted is not None
            how = f"it was evicted ({evicted.message})" if self._preempted is None else standing.told(self._preempted)
            sentence = f"{how}; when its pods have ended, it waits in its queue again"
            return self.told(state="reserved", reason=evicted.reason, message=evicted.message, sentence=sentence)
        if workload.admitted:
            return self.told(state="admitted", sentence="it is admitted: its pods may run")
        checks = tuple(self._checks())
        sentence = f"it holds its quota and waits: {'; '.join(checks)}"
        return self.told(state="reserved", waits_for=checks, sentence=sentence)

    def _checks(self) -> Iterator[str]:
        for check in self._workload.status.admission_checks:
            if check.state != "Ready":
                told = f" ({check.message})" if check.message else ""
                yield f"admission check {check.name} is {check.state}{told}"


def _devices(workload: Workload, state: State) -> Iterator[str]:
    gates = state.options.gates
    if gates.kueue_dra_reject_workloads_when_dra_disabled and asks_for_devices(workload, state.queues.devices.backed):
        yield "its pods ask for devices (claims, or a resource that a DeviceClass backs), which no quota counts yet"


def _decision(state: State, key: str, now: Instant) -> Decision | None:
    """What the engine decides about a Workload in its next cycles, as long as they decide anything new; or about an
    equal one, where it does not look at both."""
    for _ in range(len(state.queues.waiting) + 1):
        if key not in state.queues.waiting or not state.has_work or key in state.queues.decisions:
            break
        cycle(state, now)
    info, decisions = state.queues.waiting.get(key), state.queues.decisions
    if info is None or key in decisions:
        return decisions.get(key)
    equal = (
        each.key
        for each in state.queues.waiting.values()
        if (each.local_queue, each.hash) == (info.local_queue, info.hash)
    )
    return next((decisions[each] for each in equal if each in decisions), None)


def _alone(snapshot: Snapshot, options: Options, now: Instant, workload: Workload) -> Decision | None:
    """What the engine would decide about a Workload at the head of its queue: with nobody else waiting anywhere."""

    def stays(each: Workload) -> bool:
        return each.quota_reserved or each is workload

    state, _ = snapshot.keeping(Workload, stays).state(options, now)
    cycle(state, now)
    return state.queues.decisions.get(workload.metadata.key)


def _after_promises(
    snapshot: Snapshot, options: Options, now: Instant, workload: Workload, before: Decision | None
) -> tuple[State, Decision | None]:
    """The state and the decision once victims have ended and their preemptors have what they were promised: what is
    free until then is not for this Workload. `whatif` decides in the same way, so both tell the same amounts."""
    state, _ = snapshot.state(options, now)
    for _ in decided(state, now):
        pass
    found = _decision(state, workload.metadata.key, now)
    return (state, found) if found is not None and found.figures else (state, before)


def _tried_before(state: State, key: str) -> list[str]:
    info = state.queues.waiting.get(key)
    local = state.queues.local_queues.get(info.local_queue) if info is not None else None
    line = state.questions.pending(local.cluster_queue) if local is not None else []
    return line[: line.index(key)] if key in line else []


def _line(before: list[str], state: State, key: str, cluster_queue: str) -> Iterator[str]:
    """That a Workload is not tried before others are admitted, where the queue is strict."""
    queue = state.cluster_queues.get(cluster_queue)
    if before and queue is not None and queue.api.spec.queueing_strategy == "StrictFIFO":
        others = "1 Workload is" if len(before) == 1 else f"{len(before)} Workloads are"
        yield f"{others} before it in ClusterQueue {cluster_queue}, which is StrictFIFO: it is not tried until then"


def _place(line: list[str], key: str, state: State, sees: Sees) -> Place | None:
    if key not in line:
        return None
    at = line.index(key)
    own = state.queues.waiting[key].local_queue
    before = line[:at]
    shown = [each for each in before if sees(each.partition("/")[0])]
    return Place(
        in_cluster_queue=at,
        in_local_queue=sum(
            state.queues.waiting[each].local_queue == own for each in before if each in state.queues.waiting
        ),
        before=tuple(shown[:BEFORE]),
        hidden=len(before) - len(shown),
    )


def _blockers(
    figures: Sequence[Figure], state: State, cluster_queue: str, *, queues: bool = True
) -> tuple[Blocker, ...]:
    return tuple(_blocker(figure, state, cluster_queue, queues=queues) for figure in dict.fromkeys(figures))


def _blocker(figure: Figure, state: State, cluster_queue: str, *, queues: bool) -> Blocker:
    resource = figure.resource
    limit = figure.borrowing_limit
    held = state.questions.holders(figure.flavor, resource, cluster_queue)
    holders = [Holder(name, text(resource, amount)) for name, amount in held if queues or name == cluster_queue]
    if others := sum(amount for name, amount in held if not (queues or name == cluster_queue)):
        holders.append(Holder("other ClusterQueues", text(resource, others), hidden=True))
    return Blocker(
        flavor=figure.flavor,
        resource=resource,
        requested=text(resource, figure.requested + figure.assumed),
        available=text(resource, figure.available),
        nominal=text(resource, figure.nominal),
        used=text(resource, figure.used),
        borrowing_limit=text(resource, limit) if limit is not None else "",
        most=text(resource, figure.maximum),
        holders=tuple(holders[:BEFORE]),
    )


def _skipped(decision: Decision) -> Iterator[str]:
    if decision.assignment is None:
        return
    for pod_set in decision.assignment.pod_sets:
        for attempt in pod_set.merged_attempts():
            if not attempt.figures and attempt.reasons:
                yield f"{attempt.flavor}: {', '.join(attempt.reasons)}"


def _sentence(blockers: Sequence[Blocker], waits_for: Sequence[str], message: str) -> str:
    if waits_for:
        return waits_for[0]
    for each in blockers:
        says = f"it asks for {each.requested} {each.resource} of flavor {each.flavor}, of which {each.available} "
        return says + ("is" if each.available == "1" else "are") + " available"
    return message


def _hiding(remedy: Remedy, sees: Sees) -> Remedy:
    """The remedy without the names of Workloads that the asker may not see."""
    preempts, ends = names_of(remedy.preempts, sees), names_of(remedy.ends, sees)
    takers = names_of(remedy.takers, sees, most=TAKERS)
    return msgspec.structs.replace(remedy, preempts=preempts, ends=ends, takers=takers)


def plain(told: Explanation) -> dict[str, Any]:
    """The explanation for programs: its fields, without the objects that remedies suppose."""
    found: dict[str, Any] = msgspec.to_builtins(told)
    for remedy in found["remedies"]:
        del remedy["put"]
    return found
