"""Why a Workload waits: what blocks it, who is before it, what it waits for besides quota, and what would admit it.

The engine decides on a ledger made of a snapshot, and this tells what it said. Names of Workloads in namespaces that
the asker may not see never leave this module: they are counted instead. Must never decide.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.effectivequota import set_by
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Condition, find_condition
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.causes import Cause
from turnstile.engine.instants import Instant
from turnstile.insight import policies, rights, standing
from turnstile.insight.blockers import Blocker, blockers, figures_of, shorts_of
from turnstile.insight.near import Near
from turnstile.insight.remedies import Remedy, Supposed, Trial, of_owner
from turnstile.insight.remedies import remedies as possible
from turnstile.insight.room import Room, rooms
from turnstile.insight.running import Running, running
from turnstile.insight.snapshot import Sees, Snapshot, called_in, name_of, names_of, refusals
from turnstile.insight.standing import Leaving, Preempted
from turnstile.insight.whatif import decided
from turnstile.wording import standing as words
from turnstile.wording.causes import said, waiting
from turnstile.wording.evictions import evicted
from turnstile.wording.grammar import clause, sentence
from turnstile.wording.inactivity import admits_nothing
from turnstile.wording.reading import read
from turnstile.wording.remedies import wait_for
from turnstile.wording.shortage import Short, headline
from turnstile.wording.workloads import called

BEFORE: Final = 10
"""Names of Workloads that are told of those before a Workload, at most."""
TAKERS: Final = 5
"""Names of Workloads that are told of those that take part of a raised quota, at most."""


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
    job: str = ""
    """Namespace and name of the job that it is for, as its owner knows it."""
    local_queue: str
    cluster_queue: str
    state: str
    """`pending`, `reserved` (it waits for admission checks), `admitted`, `finished` or `inactive`."""
    reason: str = ""
    message: str = ""
    sentence: str = ""
    """The answer in one sentence."""
    kept: str = ""
    """Since when its ClusterQueue keeps what comes free for it, without a full stop; empty if it does not."""
    blockers: tuple[Blocker, ...] = ()
    rules: tuple[str, ...] = ()
    """Rules of its ClusterQueue that keep it from preempting those that hold what is short."""
    set_by: str = ""
    """The object whose controller has written the quota of its ClusterQueue; empty if it is the one of the spec."""
    skipped_flavors: tuple[str, ...] = ()
    """Flavors that were not tried for quota, each with the reason."""
    room: tuple[Room, ...] = ()
    """The room for its pods, by pod set and flavor, where a Topology places them."""
    place: Place | None = None
    waits_for: tuple[str, ...] = ()
    """Reasons to wait besides quota."""
    remedies: tuple[Remedy, ...] = ()
    by_itself: bool = False
    """Whether it starts without any change."""
    preempted: Preempted | None = None
    """The last preemption of a Workload that waits since, or gives its quota back."""
    leaving: tuple[Leaving, ...] = ()
    """Workloads that were preempted for it and still hold quota."""
    run: Running | None = None
    """The run of an admitted Workload, or the last one of a Workload that has finished."""
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
    own = _Said(workload, snapshot, cluster_queue, unread, sees)
    if (settled := own.settled(now)) is not None:
        return settled
    if not rights.suffice(snapshot):
        if rights.seen_in_part(snapshot) and local is not None:
            return _in_part(own, snapshot, options, now, workload, remedies)
        return own.waiting()
    around = Near(snapshot, options)
    near = around.of(workload)
    state, refused = near.state(options, now)
    line = state.questions.pending(cluster_queue)
    order = _tried_before(state, key)
    place = _place(line, key, state, sees)
    decision = _decision(state, key, now) or _alone(near, options, now, workload)
    if key in state.reservations.assumed:
        return own.explained(state="pending", sentence=sentence(words.starts_now()), place=place, by_itself=True)
    figures = figures_of(decision, state)
    room = tuple(rooms(state, key, sees))
    why = state.questions.why(key)
    waits_for = (
        *_devices(workload, state),
        *standing.holding_back(workload, near),
        *_inactive(state, cluster_queue),
        *_line(order, state, key, cluster_queue),
        *refusals(refused, sees),
    )
    trial = Trial(around, options, now, workload)
    if trial.admits(Supposed(workload)) is not None:
        starts = standing.by_itself(workload, near, sees)
        return own.explained(state="pending", sentence=sentence(starts), place=place, by_itself=True)
    if standing.anything_leaves(near):
        state, decision = _after_promises(near, options, now, workload, decision)
        figures = figures_of(decision, state)
    free = trial.unstopped()
    never = standing.never(near, options, now, free.workload, free.put)
    found = tuple(islice(possible(trial, figures), remedies))
    reason, message = (why.reason, why.message) if why is not None else own.condition()
    shorts = shorts_of(figures, state, workload, cluster_queue, sees)
    return own.explained(
        state="pending" if workload.spec.active else "inactive",
        reason=reason,
        message=message,
        sentence=_no_room(room, shorts, waits_for, never, message) or never or _sentence(shorts, waits_for, message),
        kept=next(_cause_sentence(decision, Cause.KEPT), ""),
        blockers=blockers(figures, shorts, state, cluster_queue, queues=queues),
        rules=() if never else (*policies.forbidding(state, key, figures), *_cause_sentence(decision, Cause.PROTECTED)),
        skipped_flavors=tuple(_skipped(decision)) if decision is not None else (),
        room=room,
        place=place,
        waits_for=waits_for,
        remedies=tuple(_hiding(each, near, sees) for each in found),
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
    figures = figures_of(decision, state)
    shorts = shorts_of(figures, state, workload, said.cluster_queue, said.sees)
    waits_for = tuple(standing.holding_back(workload, near))
    queue = snapshot.get(ClusterQueue, said.cluster_queue)
    blocked = (
        queue is not None
        and queue.spec.queueing_strategy == "StrictFIFO"
        and rights.others_wait(snapshot, said.cluster_queue)
    )
    found: Iterator[Remedy] = iter(())
    if shorts and not waits_for and not blocked:
        found = of_owner(Trial(around, options, now, workload), figures)
    answer = said.waiting()
    unread = answer.unread
    if not shorts and not waits_for and any(each.cause is Cause.QUOTA_IN_USE for each in read(Cause, answer.message)):
        unread = (*unread, words.figures_are_old(said.cluster_queue))
    return msgspec.structs.replace(
        answer,
        sentence=said.of_growth(why) if (why := _sentence(shorts, waits_for, answer.message)) else answer.sentence,
        blockers=blockers(figures, shorts, state, said.cluster_queue),
        skipped_flavors=tuple(_skipped(decision)) if decision is not None else (),
        waits_for=waits_for,
        remedies=tuple(islice(found, remedies)),
        unread=unread,
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
        self.sees = sees
        before = snapshot.get(Workload, workload.metadata.annotations.get(names.SLICE_REPLACEMENT_FOR, ""))
        self._grows = before is not None and before.admitted and not before.evicted and not before.finished
        queue = snapshot.get(ClusterQueue, cluster_queue)
        self._set_by = set_by(queue) if queue is not None else ""
        self._preempted = standing.preempted(workload, snapshot, sees)
        self._leaving = tuple(
            msgspec.structs.replace(each, workload=name_of(each.workload, sees))
            for each in standing.leaving_for(workload, snapshot)
        )

    def of_growth(self, reason: str) -> str:
        """A sentence about a job that waits; a job that grows runs on meanwhile."""
        pods = sum(each.count for each in self._workload.spec.pod_sets)
        return sentence(words.grows_later(pods, reason)) if self._grows else reason

    def explained(self, *, state: str, sentence: str, **more: object) -> Explanation:
        return Explanation(
            state=state,
            sentence=self.of_growth(sentence) if state in ("pending", "reserved") else sentence,
            workload=self._workload.metadata.key,
            job=called(self._workload),
            local_queue=self._local_queue,
            cluster_queue=self.cluster_queue,
            set_by=self._set_by,
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
        return self.explained(
            state=state, reason=reason, message=message, sentence=waiting(message or Cause.NOT_TRIED.says())
        )

    def settled(self, now: Instant) -> Explanation | None:
        """The answer for a Workload that does not wait for quota."""
        workload = self._workload
        conditions = workload.status.conditions
        if workload.finished:
            finished = find_condition(conditions, wl.FINISHED)
            assert finished is not None
            ended = self._ended("finished", finished, words.finished(finished.message))
            return msgspec.structs.replace(ended, run=running(workload, now))
        if not workload.quota_reserved:
            return None
        if workload.evicted:
            condition = find_condition(conditions, wl.EVICTED)
            assert condition is not None
            how = clause(evicted(condition.message)) if self._preempted is None else self._preempted.why
            goes_on = words.goes_on(how) if workload.spec.active else how
            return self._ended("reserved", condition, goes_on)
        if workload.admitted:
            return self.explained(state="admitted", sentence=sentence(words.admitted()), run=running(workload, now))
        checks = tuple(self._checks())
        return self.explained(state="reserved", waits_for=checks, sentence=sentence(words.waits_for_checks(checks)))

    def _ended(self, state: str, why: Condition, how: str) -> Explanation:
        return self.explained(state=state, reason=why.reason, message=why.message, sentence=sentence(how))

    def _checks(self) -> Iterator[str]:
        for check in self._workload.status.admission_checks:
            if check.state != "Ready":
                yield words.check(check.name, check.state, check.message)


def _devices(workload: Workload, state: State) -> Iterator[str]:
    charges = state.surroundings.charges(workload)
    if charges is not None and charges.problem is not None:
        yield words.devices_not_counted(charges.problem.message)


def _cause_sentence(decision: Decision | None, cause: Cause) -> Iterator[str]:
    """The sentence about one cause, if the decision has it, without a full stop."""
    for each in read(Cause, decision.message if decision is not None else ""):
        if each.cause is cause:
            yield said(each).removesuffix(".")


def _inactive(state: State, cluster_queue: str) -> Iterator[str]:
    """That a ClusterQueue admits nothing, for another reason than a stop."""
    queue = state.cluster_queues.get(cluster_queue)
    if queue is not None and queue.api.spec.stop_policy == "None":
        active, _, message = state.questions.active_reason(cluster_queue)
        if not active:
            yield f"ClusterQueue {cluster_queue} {admits_nothing(message)}"


def _decision(state: State, key: str, now: Instant) -> Decision | None:
    """Decision of the engine about a Workload in its next cycles, as long as they decide anything new; or about an
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
    """Decision of the engine about a Workload at the head of its queue, with nobody else waiting anywhere."""

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
    """That a Workload is not tried before others are admitted: the queue is strict, or keeps quota for one of them."""
    queue = state.cluster_queues.get(cluster_queue)
    if before and queue is not None and queue.api.spec.queueing_strategy == "StrictFIFO":
        yield words.behind(len(before), cluster_queue)
    elif queue is not None and queue.pending.kept_for in before:
        yield waiting(Cause.KEPT_FOR_ANOTHER.says(queue=cluster_queue)).removesuffix(".")


def _place(line: list[str], key: str, state: State, sees: Sees) -> Place | None:
    if key not in line:
        return None
    at = line.index(key)
    pending = state.queues.waiting
    own = pending[key].local_queue
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


def _skipped(decision: Decision) -> Iterator[str]:
    if decision.assignment is None:
        return
    for pod_set in decision.assignment.pod_sets:
        for attempt in pod_set.merged_attempts():
            if not attempt.figures and attempt.reasons:
                yield f"{attempt.flavor}: {' '.join(map(waiting, attempt.reasons))}"


def _sentence(shorts: Sequence[Short], waits_for: Sequence[str], message: str) -> str:
    if waits_for:
        return sentence(waits_for[0])
    return headline(shorts) if shorts else waiting(message)


def _no_room(room: Sequence[Room], shorts: Sequence[Short], waits_for: Sequence[str], never: str, message: str) -> str:
    """The sentence about nodes that have no room, if that is what it waits for; empty otherwise."""
    found = next((each.sentence for each in room if each.sentence), "")
    if not found or shorts or (waits_for and not never):
        return ""
    excluded = (said(each) for each in read(Cause, message) if each.cause is Cause.NODES_EXCLUDED)
    return " ".join((found, *excluded))


def _hiding(remedy: Remedy, snapshot: Snapshot, sees: Sees) -> Remedy:
    """The remedy without the names of Workloads that the asker may not see."""
    preempts, ends = names_of(remedy.preempts, sees), names_of(remedy.ends, sees)
    takers = names_of(remedy.takers, sees, most=TAKERS)
    does = wait_for(called_in(snapshot, remedy.ends, sees, most=words.NAMED)) if remedy.ends else remedy.does
    return msgspec.structs.replace(remedy, does=does, preempts=preempts, ends=ends, takers=takers)


def plain(explanation: Explanation) -> dict[str, Any]:
    """The explanation for programs: its fields, without the objects that remedies suppose."""
    found: dict[str, Any] = msgspec.to_builtins(explanation)
    for remedy in found["remedies"]:
        del remedy["put"]
    return found
