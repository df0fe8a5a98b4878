"""Drives the engine: runs its cycles and writes what they decided. Only the leader runs this.

Cycles do not wait for writes. An admission is assumed in the ledger when a cycle decides it, confirmed when its write
succeeds, and forgotten when the API server refuses the write, which returns exactly that Workload to its position in
the queue. While the outcome of a write is unknown, the assumption stays: quota may stay reserved a moment too long, but
is never assigned twice.

A cycle runs in slices, so that the event loop is free again within about a millisecond, even during a search for
victims; changes that the watches see meanwhile are applied to the ledger after the cycle. Starting the writes of a
cycle and applying thousands of changes run in slices too.

An error of one Workload never ends the loop: it is reported, and only that Workload backs off. This module must never
decide about quota and never touch a job.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.errors import (
    NotLeading,
)
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.metrics.workloadtimes import queued_since
from turnstile.controllers.runtime.actions import Emit, Patch
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.refusals import REFUSED, RETRY
from turnstile.controllers.scheduling.secondpass import SecondPassWrites
from turnstile.controllers.scheduling.settling import settle
from turnstile.controllers.scheduling.waitreasons import WaitReasons, is_pending
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import Change
from turnstile.controllers.wakes import owner_concerned
from turnstile.engine import Cycle, Decision, State, Victim, cycle_steps
from turnstile.engine.naming import name_for
from turnstile.engine.quota.ordering import effective_priority
from turnstile.kube.gate import Rank
from turnstile.kube.slices import Slice
from turnstile.wording import standing as words
from turnstile.wording.grammar import sentence
from turnstile.wording.lost import lost

log = structlog.get_logger(__name__)

AT_ONCE = 32
"""Maximum number of ledger changes applied in watch callbacks between two runs of `_catch_up`; the rest is queued."""
_EDITED = (ClusterQueue, Cohort)
EDITS_APART = 0.25
"""Minimum seconds between two cycles that begin for edits of ClusterQueues and Cohorts alone. The first edit begins one
at once; those of a burst, each of which has all pending Workloads tried again, share cycles."""
CYCLES_PER_ANSWER = 2.0
"""Maximum number of cycles, unless they are short, in the time that the API server takes for what was decided."""
SHARE = 8.0
"""On a busy server a cycle begins this many times the duration of the last cycle after that cycle began."""
LONGEST_APART = 1.0
"""Maximum of these seconds."""
BACKLOG_SECONDS = 0.02
"""Seconds between two looks at how many admissions wait for their turn to be written."""
OVERDUE_SECONDS = 1.0
"""Seconds between two looks for victims that hold quota for too long after their eviction."""
QUOTA_STILL_HELD = "QuotaStillHeld"
"""Reason of the event about such a victim; Kueue has no event with this reason."""
PREEMPTION_COST = "PreemptionCost"
"""Reason of the event of a preemptor that says which run a victim lost by it; Kueue has no event with it."""
FAILED_PREEMPTION = "FailedPreemption"
"""Reason of the event of a preemptor whose victim's eviction the API server refuses; Kueue has no event with it."""


def seconds_apart(*, writes: float, cycle: float) -> float:
    """Minimum seconds between the beginnings of two cycles, from the seconds in which the API server will have answered
    the writes decided so far, and those that the last cycle took.

    On a busy server every event of a watch would cause a cycle over the heads of many ClusterQueues, whose decisions
    only wait for their turn to be written. After a rest one cycle decides about all that came meanwhile, and finds free
    what would have needed victims. The rest follows the duration of the cycle, because a cycle takes only one head of
    each ClusterQueue: a short cycle may be one of many over the same ClusterQueue.
    """
    return min(LONGEST_APART, writes / CYCLES_PER_ANSWER, SHARE * cycle)


def _subject(change: Change) -> str:
    """The object that a change is about, for the log."""
    given = next(iter(getattr(change, "args", ())), "")
    return f"{given.KIND} {given.metadata.key}" if isinstance(given, Kind) else str(given)


class Scheduler:
    """One scheduling loop over one ledger. `decided` is called with the decisions of each cycle and its seconds, and
    `tried` with each decision, before anything of it is written."""

    def __init__(
        self,
        state: State,
        cluster: ClusterView,
        executor: Executor,
        *,
        decided: Callable[[Sequence[Decision], float], None] = lambda _, __: None,
        tried: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self.decided = decided
        self.tried = tried
        self.state = state
        self.cluster = cluster
        self.executor = executor
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._edits_tried_at = -math.inf
        self._beginnings: deque[Iterator[Change]] = deque()
        self._kept: deque[Change] = deque()
        self._carried_out = 0
        self._caught_up = asyncio.Event()
        self._refusals: dict[str, int] = {}
        self.reasons = WaitReasons(state, cluster, executor)
        self.second_pass = SecondPassWrites(state, cluster, executor, take=self.take, wake=self.wake)
        self._moved_at: float | None = None
        self._cycle_began = -math.inf
        self._cycle_seconds = 0.0
        self.cycles = 0
        self.admissions = 0
        self.preemptions = 0

    def wake(self) -> None:
        """Report that the ledger changed, so that a cycle may have something to decide."""
        self._urgent.set()
        self._wake.set()

    def take(self, change: Change) -> None:
        """Apply a change to the ledger: now, or right after the running cycle and the changes queued earlier."""
        self._apply(change)
        self.wake()

    def take_edit(self, change: Change, old: Kind, new: Kind) -> bool:
        """Take a change of an object that exists, if its cycle may wait for others of a burst of edits: one of a
        ClusterQueue or Cohort, and what is written meanwhile of why a Workload waits. Returns whether it was taken."""
        if not isinstance(new, _EDITED):
            if asyncio.get_running_loop().time() >= self._edits_tried_at + EDITS_APART:
                return False
            if not (isinstance(old, Workload) and isinstance(new, Workload)) or owner_concerned(old, new):
                return False
        self._apply(change)
        self._wake.set()
        return True

    def take_later(self, change: Change) -> None:
        """Apply a change of a node or pod, which come in crowds: its cycle may wait for others, as that of an edit."""
        self._apply(change)
        self._wake.set()

    def _apply(self, change: Change) -> None:
        if self.state.log.cycling or self._beginnings or self._kept or self._carried_out >= AT_ONCE:
            self._kept.append(change)
        else:
            self._carried_out += 1
            change()

    def begin(self, changes: Iterable[Change]) -> None:
        """Apply many changes in slices, before every change that `take` receives from now on."""
        self._beginnings.append(iter(changes))
        self.wake()

    @property
    def stalled_seconds(self) -> float:
        """Seconds since the loop last made progress, by an applied change or the end of a cycle; 0 without work."""
        return 0.0 if self._moved_at is None else asyncio.get_running_loop().time() - self._moved_at

    def _moved(self) -> None:
        self._moved_at = asyncio.get_running_loop().time()

    async def caught_up(self) -> None:
        """Wait until the ledger has every object that the stores held when the scheduler started."""
        await self._caught_up.wait()

    async def run(self) -> None:
        """Schedule until cancelled. Writes in flight are cancelled too; the next leader reads their outcome."""
        async with asyncio.TaskGroup() as writes:
            writes.create_task(self.reasons.write_decided(), name="reasons of decided Workloads")
            writes.create_task(self.reasons.write_undecided(), name="reasons of undecided Workloads")
            writes.create_task(self._note_overdue(), name="overdue victims")
            writes.create_task(self.second_pass.follow_turns(), name="turns of second passes")
            while True:
                await self._catch_up()
                self._caught_up.set()
                self._moved_at = None
                await self._wait()
                await self._let_edits_gather()
                self._moved()
                self._wake.clear()
                await self._schedule(writes)
                self.reasons.cycles_ended()

    async def _wait(self) -> None:
        """Wait until the ledger changed, or until time alone changes what is decided, which may have happened since the
        last cycle."""
        if self.state.has_work:
            return
        due = self.state.deadlines.next
        left = due - self.cluster.now.timestamp() if due is not None else None
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()

    async def _let_edits_gather(self) -> None:
        """Wait until a cycle for edits alone may begin, or there is more to decide about."""
        clock = asyncio.get_running_loop().time
        if not self._urgent.is_set() and self.state.has_work:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._edits_tried_at + EDITS_APART):
                    await self._urgent.wait()
            self._edits_tried_at = clock()
        self._urgent.clear()

    async def _schedule(self, writes: asyncio.TaskGroup) -> None:
        """Run cycles until no Workload is left to decide about."""
        failures = 0
        await self._catch_up()
        while self.state.has_work or self.second_pass.is_due:
            await self._rest()
            await self._catch_up()
            try:
                await self._cycle(writes)
                failures = 0
            except Exception:
                # A fault of the engine, logged once per attempt. It must not cancel the writes of earlier cycles.
                log.exception("cycle.broken", cycle=self.cycles)
                await asyncio.sleep(RETRY.delay(failures, random.random))
                failures += 1
            self._moved()
            await self._catch_up()

    async def _rest(self) -> None:
        """Wait until the next cycle may begin, and the API server is about to take what the earlier ones decided.

        An admission that is decided long before its write holds quota that a Workload of higher priority may ask for
        meanwhile. That Workload would have to wait for it to be written, and then evicted.
        """
        gate = self.executor.gate
        apart = seconds_apart(writes=gate.backlog_seconds, cycle=self._cycle_seconds)
        await asyncio.sleep(max(0.0, self._cycle_began + apart - time.perf_counter()))
        while gate.waiting(Rank.ADMIT) > gate.window.few:
            await asyncio.sleep(BACKLOG_SECONDS)
            await self._catch_up()
            self._moved()

    async def _catch_up(self) -> None:
        """Apply the queued changes to the ledger; a change that fails does not stop the others."""
        turn = Slice()
        self._carried_out = 0
        while (change := self._next_change()) is not None:
            if turn.over:
                self._moved()
                await turn.rest()
            try:
                change()
            except Exception:
                log.exception("ledger.refused", of=_subject(change))
        due, now = self.state.deadlines.next, self.cluster.now.timestamp()
        if due is not None and due <= now:
            self.state.pass_deadlines(now)
        for error in self.state.log.refused:
            log.error("ledger.refused", error=str(error))
        self.state.log.refused.clear()

    def _next_change(self) -> Change | None:
        while self._beginnings:
            change = next(self._beginnings[0], None)
            if change is not None:
                return change
            self._beginnings.popleft()
        return self._kept.popleft() if self._kept else None

    async def _cycle(self, writes: asyncio.TaskGroup) -> None:
        self.cycles += 1
        turn, began = Slice(), time.perf_counter()
        self._cycle_began = began
        result: Cycle | None = None
        with closing(cycle_steps(self.state, self.cluster.now.timestamp())) as steps:
            while result is None:
                try:
                    next(steps)
                except StopIteration as end:
                    result = end.value
                else:
                    if turn.over:
                        await turn.rest()
        for key, error in result.faults:
            self.executor.report(Workload, key, error)
        self._cycle_seconds = time.perf_counter() - began
        with self._reported("all"):
            self.decided(result.decisions, self._cycle_seconds)
        for decision in result:
            if turn.over:
                await turn.rest()
            with self._reported(decision.key):
                self.tried(decision)
            if decision.outcome == "admit":
                self.reasons.drop(decision.key)
                writes.create_task(self._guarded(decision.key, self._admit(decision)), name=f"admit {decision.key}")
                continue
            if decision.outcome in ("place", "unplaced", "evict"):
                write = self._guarded(decision.key, self.second_pass.write(decision))
                writes.create_task(write, name=f"places of {decision.key}")
                continue
            for victim in decision.victims:
                if turn.over:
                    await turn.rest()
                if victim.new:
                    evict = self._migrate if decision.outcome == "migrating" else self._preempt
                    write = self._guarded(victim.key, evict(victim, decision))
                    writes.create_task(write, name=f"preempt {victim.key}")
            if decision.condition_reason:
                self.reasons.put(decision)
        while result.entries or result.inadmissible or result.decisions:  # freeing thousands of entries takes time too
            for done in (result.entries, result.inadmissible, result.decisions):
                del done[-64:]
            if turn.over:
                await turn.rest()

    @contextmanager
    def _reported(self, key: str) -> Iterator[None]:
        """Report an error about one Workload, so that what was decided about the others is written all the same."""
        try:
            yield
        except NotLeading:
            raise
        except Exception as error:
            self.executor.report(Workload, key, error)

    async def _guarded(self, key: str, write: Coroutine[Any, Any, None]) -> None:
        """Run one write, whose outcome `settle` finds out; an error after that is reported."""
        with self._reported(key):
            await write

    def _priority(self, decision: Decision) -> int:
        """The priority by which the writes of a decision go out: the one by which the engine has ordered it."""
        return effective_priority(decision.workload, boost=self.state.options.gates.priority_boost)

    # --- admissions -----------------------------------------------------------------------------------------------

    async def _admit(self, decision: Decision) -> None:
        """Write one admission, then apply its outcome to the ledger."""

        def patch(workload: Workload) -> Patch | None:
            meta = workload.metadata
            same = (meta.uid, meta.generation) == (decision.uid, decision.generation)
            if decision.admission is None or not same or not is_pending(workload):
                return None  # the Workload is no longer the version that the cycle decided about
            draft = self.cluster.draft(workload)
            draft.reserve(decision.admission, admitted=decision.admitted)
            return draft.patch()

        priority = self._priority(decision)
        after, refused = await settle(self.executor, decision.key, patch, Rank.ADMIT, priority=priority)
        if after is None or after.metadata.uid != decision.uid or not after.quota_reserved:
            await self._not_admitted(decision, after, refused)
            return
        self._refusals.pop(decision.key, None)
        self.state.confirm(decision.key, after.metadata.resource_version)
        self.admissions += 1
        self._report_admission(decision, after)

    async def _not_admitted(self, decision: Decision, after: Workload | None, refused: Exception | None) -> None:
        """Return a Workload to its queue. After a refusal by the API server the Workload backs off first."""
        key = decision.key
        assumed = self.state.reservations.assumed.get(key)
        if assumed is not None and assumed.info.workload.metadata.uid == decision.uid:  # not a namesake's
            self.take(lambda: self.state.forget(key, self.cluster.now.timestamp()))
        if refused is None or after is None:
            self._refusals.pop(key, None)
            return
        self.take(lambda: self.state.drop_workload(key))
        times = self._refusals[key] = self._refusals.get(key, 0) + 1
        self.executor.emit(Emit(after, "Warning", "FailedUpdate", f"Cannot be admitted: {refused}"))
        await asyncio.sleep(REFUSED.delay(times - 1, random.random))
        latest = self.cluster.workloads.get(key)
        if latest is None:
            self._refusals.pop(key, None)
        else:
            self.take(lambda: self.state.put_workload(latest, self.cluster.now.timestamp()))

    def _report_admission(self, decision: Decision, after: Workload) -> None:
        queued = queued_since(decision.workload)
        waited = max(0, int((self.cluster.now - queued).total_seconds())) if queued else 0
        considered = decision.flavors_considered
        note = f"Quota reserved in ClusterQueue {decision.cluster_queue}, wait time since queued was {waited}s"
        note += f"; Flavors considered: {considered}" if considered else ""
        self.executor.emit(Emit(after, "Normal", "QuotaReserved", note))
        if after.admitted:
            note = f"Admitted by ClusterQueue {decision.cluster_queue}, wait time since reservation was 0s"
            self.executor.emit(Emit(after, "Normal", "Admitted", note))

    # --- preemptions ----------------------------------------------------------------------------------------------

    async def _preempt(self, victim: Victim, decision: Decision) -> None:
        """Evict one victim. Its quota stays counted until its job has stopped.

        Every attempt of the write checks again that the preemptor still waits: a preemptor that no longer needs the
        quota evicts no victim.
        """

        def patch(workload: Workload) -> Patch | None:
            if workload.metadata.uid != victim.uid or workload.evicted or not workload.quota_reserved:
                return None
            if workload.finished or not self._still_waits(decision):
                return None
            draft = self.cluster.draft(workload)
            draft.evict("Preempted", victim.message)
            draft.set(wl.PREEMPTED, "True", reason=victim.reason, message=victim.message)
            return draft.patch()

        after = await self._evicted(victim, decision, patch)
        if after is None:
            return
        self.preemptions += 1
        self.executor.emit(Emit(after, "Normal", "EvictedDueToPreempted", victim.message))
        self.executor.emit(Emit(after, "Normal", "Preempted", victim.message))
        if (patience := self.state.options.victim_patience) is not None:
            note = f"Its pods have {patience:g}s to end; those that hold quota after that are deleted"
            self.executor.emit(Emit(after, "Normal", "PodsHaveToEnd", note))
        named = name_for(decision.workload.metadata.namespace, victim.key, noun="workload")
        note = f"Preempted {named} (UID: {victim.uid}) in ClusterQueue {victim.cluster_queue}"
        self.executor.emit(Emit(decision.workload, "Normal", "PreemptedWorkload", note, one_series=True))
        if cost := lost(victim.held, victim.ran):
            note = sentence(words.loses(name_for(decision.workload.metadata.namespace, victim.key), cost))
            self.executor.emit(Emit(decision.workload, "Normal", PREEMPTION_COST, note))

    def _still_waits(self, decision: Decision) -> bool:
        """Whether the Workload of a decision still waits: neither admitted meanwhile, nor changed, nor gone."""
        workload = self.cluster.workloads.get(decision.key)
        if workload is None or decision.key in self.state.reservations.assumed or not is_pending(workload):
            return False
        return (workload.metadata.uid, workload.metadata.generation) == (decision.uid, decision.generation)

    async def _note_overdue(self) -> None:
        """Report victims that hold quota for too long after their eviction to the ledger, so that their preemptors no
        longer wait for them, and to users."""
        while True:
            await asyncio.sleep(OVERDUE_SECONDS)
            due, patience = self.state.reservations.next_overdue(), self.state.options.victim_patience
            if due is None or patience is None:
                continue
            with self._reported("overdue"):
                if not self.cluster.left(datetime.fromtimestamp(due - patience, UTC), patience):
                    self.take(partial(self._give_up, max(due, self.cluster.now.timestamp())))

    def _give_up(self, now: float) -> None:
        before = set(self.state.reservations.overdue)
        self.state.note_overdue(now)
        for key in self.state.reservations.overdue.keys() - before:
            patience = self.state.options.victim_patience or 0.0
            note = sentence(words.holds_still(patience))
            log.warning("victim.overdue", workload=key, evicted_at=self.state.reservations.overdue[key].evicted_at)
            self.executor.emit(Emit(self.state.workloads[key].workload, "Warning", QUOTA_STILL_HELD, note))

    async def _migrate(self, victim: Victim, decision: Decision) -> None:
        """Evict a variant on a less favorable flavor for its sibling on a better one."""

        def patch(workload: Workload) -> Patch | None:
            if workload.metadata.uid != victim.uid or workload.evicted or not workload.quota_reserved:
                return None
            draft = self.cluster.draft(workload)
            draft.evict(victim.reason, victim.message)
            return draft.patch()

        after = await self._evicted(victim, decision, patch)
        if after is not None:
            self.executor.emit(Emit(after, "Normal", f"EvictedDueTo{victim.reason}", victim.message))

    async def _evicted(
        self, victim: Victim, decision: Decision, patch: Callable[[Workload], Patch | None]
    ) -> Workload | None:
        """Write an eviction. Returns the evicted Workload, or None if it was not evicted and may be chosen again: at
        once if it was no longer needed, after a back-off if the API server refused.

        The write is a part of the preemptor's admission: it goes out before admissions of lower priority.
        """
        priority = self._priority(decision)
        after, refused = await settle(self.executor, victim.key, patch, Rank.ADMIT, priority=priority)
        if after is None or after.evicted:
            self._refusals.pop(victim.key, None)
            return after
        if refused is None:
            self._refusals.pop(victim.key, None)
        else:
            times = self._refusals[victim.key] = self._refusals.get(victim.key, 0) + 1
            self.executor.emit(Emit(after, "Warning", "FailedUpdate", f"Cannot be evicted: {refused}"))
            note = sentence(words.cannot_preempt(victim.cluster_queue))
            self.executor.emit(Emit(decision.workload, "Warning", FAILED_PREEMPTION, note))
            await asyncio.sleep(REFUSED.delay(times - 1, random.random))
        self.state.forget_eviction(victim.key)
        self.wake()
        return None
