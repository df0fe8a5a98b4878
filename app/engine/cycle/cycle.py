"""One scheduling cycle: the head of every active ClusterQueue is looked at, all against one state of the ledger.

Nominate (find flavors, find whom to preempt), order, then process one by one; each sees the usage of those before it.
Behind a head that waits for its victims the next Workload is tried too (`app.engine.cycle.passing`).
Sources: Kueue's scheduler. What is decided is returned and, for admissions, assumed. Must never write anything out.

A cycle stops often, in the middle of a search for victims too, and what others do at a stop must neither see nor touch
what it tries. So: while a cycle is under way (`State.cycling`) the *usage of the tree* is its own, with everything that
it counts or imagines gone; no other task reads it. *Who holds quota and who waits* stays true all the time, and the
figures that people see are taken from that. Every event, write outcome or sample that comes meanwhile waits until the
end. A cycle that is closed at any stop puts usage and heads back as they were.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from app.engine.cycle import recall, variants
from app.engine.cycle.claims import Claims, usage_of
from app.engine.cycle.entries import Entry, after_their_preemptors, entry_rank, holding, to_reserve
from app.engine.cycle.nominator import Nominator
from app.engine.cycle.outcomes import decision_on, evicts, late_victims, victims_of
from app.engine.cycle.passing import Passing
from app.engine.cycle.tournament import Tournament
from app.engine.decisions import Decision, Status
from app.engine.flavors.assignment import Pins
from app.engine.instants import Instant
from app.engine.pace import STRETCH, Pace, Sliced, arrange, finish
from app.engine.preemption.search import Preemptor, Unfinished
from app.engine.preemption.targets import NO_TARGETS, NO_VICTIMS, Target, Targets
from app.engine.queue.admissible import backoff_over, preemption_gated
from app.engine.queue.heaps import Pending
from app.engine.queue.nomination import Nomination
from app.engine.queue.requeueing import requeue
from app.engine.quota.info import Info
from app.engine.quota.trial import Trial
from app.engine.quota.usage import NO_USAGE
from app.engine.reasons import (
    ADMISSION_GATED,
    PENDING_EVALUATION,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED_WORKLOADS,
    WAITING_FOR_QUOTA,
    Mode,
)
from app.engine.state import State
from app.engine.tables import Claim


@dataclass(slots=True)
class Cycle:
    """What one cycle did. `decisions` are in the order they were made, inadmissible heads last.

    `faults` are errors of the engine itself, by the head that was being looked at. `progress` is False if another cycle
    on the same state would decide the same; `keep_going` is Kueue's signal that something was admitted, so that the
    next cycle should follow at once.
    """

    number: int
    decisions: list[Decision] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    inadmissible: list[Entry] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    faults: list[tuple[str, Exception]] = field(default_factory=list)
    keep_going: bool = False
    progress: bool = False

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)


def cycle(state: State, now: Instant) -> Cycle:
    """Run one cycle to its end."""
    return finish(cycle_steps(state, now, stretch=math.inf))


def cycle_steps(state: State, now: Instant, *, stretch: float = STRETCH) -> Sliced[Cycle]:
    """A cycle as a generator that stops after each entry, and after each `stretch` of work of a search, so that the
    caller can let others run; its value (of the StopIteration, or of `yield from`) is the `Cycle`. Where it stops
    changes nothing of what it decides. Events that reach the state meanwhile are applied at its end. If it is closed
    before its end, nothing was decided."""
    return _Run(state, now, Pace(stretch)).steps()


class _Run:
    """The state of one cycle."""

    def __init__(self, state: State, now: Instant, pace: Pace) -> None:
        self.state = state
        self.now = now
        self.pace = pace
        self.gates = state.options.gates
        self.claims = Claims(state.ledger)
        self.expected: list[str] = []
        self.marks: list[tuple[Pending, Nomination | None]] = []
        """Nominations as they were before."""
        self.ordered: list[Entry] = []
        self.admitted: list[tuple[Entry, Info]] = []
        self.preemptor = Preemptor(state, now, pace)
        self.nominator = Nominator(state, self.preemptor)
        self.passing = Passing(state, self.claims, self.nominator, pace)
        self.passed_over: dict[str, tuple[Claim, ...]] = {}
        """As it was before the cycle."""

    def steps(self) -> Sliced[Cycle]:
        """The cycle; see `cycle_steps`."""
        state = self.state
        if state.cycling:
            raise RuntimeError("a cycle is under way: let it end before the next one starts")
        result = Cycle(state.scheduling_cycle + 1)
        state.cycling = True
        ended = False
        try:
            yield from state.ledger.settling(self.pace)
            if state.passed_over:
                self.passed_over.update(state.passed_over)
                state.end_claims()
            if state.retry_queues or state.retry_cohorts:
                yield from state.retry_marked(self.now, self.pace)
            if not state.scheduling_cycle:
                yield from recall.nominations(state, self.pace)
            state.scheduling_cycle += 1
            self.nominator.start(state.scheduling_cycle)
            for entry in self._heads():
                if entry is not None:
                    yield from self._nominate(entry, result)
                yield
            blocked = False
            ordered: Iterable[Entry]
            if self.state.options.fair_sharing is not None:
                ordered = yield from self._tournament(result.entries)
            else:
                ordered = by_rank = result.entries.copy()
                yield from arrange(by_rank, attrgetter("rank"), self.pace)
            for entry in after_their_preemptors(result.entries, ordered):
                self.ordered.append(entry)
                result.order.append(entry.info.key)
                if blocked:
                    entry.blocked = True
                    entry.info.last_assignment = entry.before
                    continue
                yield from self._process(entry)
                blocked = entry.quota_reason == WAITING_FOR_PODS_READY
                yield
            if not blocked:
                yield from self._pass_beside(result)
            yield from self._end(result)
            ended = True
        finally:
            if not ended:
                self._abandon(result)
        return result

    def _nominate(self, entry: Entry, result: Cycle) -> Sliced[None]:
        """Find flavors and targets for an entry that may be processed."""
        try:
            if self.nominator.accepts(entry):
                result.entries.append(entry)
                if entry.beside is not None:
                    yield from self.passing.nominate(entry)
                elif not self._assigned(entry):
                    yield from self._assign(entry)
                entry.rank = entry_rank(entry, self.gates)
            elif entry.message:
                result.inadmissible.append(entry)
        except Exception as error:  # a fault of ours: it costs this entry its turn, and the others nothing
            if result.entries and result.entries[-1] is entry:
                result.entries.pop()
            entry.set_aside(error)
            result.inadmissible.append(entry)
            result.faults.append((entry.info.key, error))

    def _heads(self) -> Iterator[Entry | None]:
        """The heads; None where many queues without one call for a stop."""
        state, forked = self.state, self.state.journal is not None
        for queue in list(state.cluster_queues.values()):
            pending = queue.pending
            self.pace.left -= 0.5
            if self.pace.left <= 0:
                self.pace.renew()
                yield None
            if not pending.active or not queue.active:
                continue
            if forked:
                state.touch(queue)
            head = pending.pop()
            if head is not None:
                if forked:
                    state.touch_info(head)
                yield Entry(head, queue)

    def _assigned(self, entry: Entry, pins: Pins | None = None) -> bool:
        """Find flavors and targets at one stretch, as most are; whether that was enough."""
        self.preemptor.start()
        try:
            self.nominator.assign(entry, pins)
        except Unfinished:
            return False
        return True

    def _assign(self, entry: Entry, pins: Pins | None = None) -> Sliced[None]:
        """Find them after all, letting searches finish in their own time."""
        while True:
            yield from self.preemptor.go_on()
            try:
                self.nominator.assign(entry, pins)
            except Unfinished:
                continue
            return

    # Order

    def _tournament(self, entries: list[Entry]) -> Sliced[Tournament]:
        gates = self.gates
        tournament = Tournament(
            usage_of,
            non_borrowing_first=gates.fair_sharing_prioritize_non_borrowing,
            priority_first=gates.priority_sorting_within_cohort,
            preemptors_first=gates.prioritize_preemptor_workloads,
        )
        for entry in entries:
            tournament.add(entry)
            yield
        return tournament

    # Processing

    def _pass_beside(self, result: Cycle) -> Sliced[None]:
        """Behind each head that waits for its victims, look at the next Workload too."""
        for head in self.ordered.copy():
            entry = self.passing.next(head) if self.passing.waits(head) else None
            if entry is None:
                continue
            yield from self._nominate(entry, result)
            if result.entries[-1] is not entry:
                continue
            self.ordered.append(entry)
            result.order.append(entry.info.key)
            if not entry.requeue_reason:
                yield from self._process(entry)
            yield

    def _refresh(self, entry: Entry) -> Sliced[None]:
        """Find flavors and targets anew for an entry whose victims an earlier one took."""
        assert entry.assignment is not None
        entry.recomputed = True
        entry.info.last_assignment = None
        pins = entry.assignment.pins()
        self.preemptor.gone = self.claims.preempted
        try:
            with Trial() as trial:
                yield from self.claims.free(trial, entry.queue, self.pace)
                if not self._assigned(entry, pins):
                    yield from self._assign(entry, pins)
        finally:
            self.preemptor.gone = NO_VICTIMS
        self._for_now(entry)
        if entry.assignment.mode is Mode.FIT:
            entry.assignment.mode = Mode.DEFERRED_FIT

    def _process(self, entry: Entry) -> Sliced[None]:
        """Decide on one entry, given what those before it took."""
        info, queue = entry.info, entry.queue
        siblings: list[tuple[int, Info]] = []
        where: int | None = None
        if self.gates.concurrent_admission:
            siblings, where = variants.admitted_siblings(info, queue), variants.place(info, queue)
            if where is not None and any(other < where for other, _ in siblings):
                self._skip(entry, variants.MORE_FAVORABLE_ADMITTED, PENDING_EVALUATION)
                return
        recompute = self.gates.recompute_assignment_upon_preemption_targets_overlap and entry.beside is None
        if recompute and self.claims.overlap(entry):
            yield from self._refresh(entry)
        assignment = entry.assignment
        assert assignment is not None
        mode = assignment.mode
        if mode is Mode.NO_FIT:
            observable = self.gates.unadmitted_workloads_observability
            entry.requeue_reason = "NoFit"
            entry.quota_reason = assignment.no_fit_reason if observable else ""
            return
        if mode is Mode.PREEMPT and not entry.targets:
            entry.requeue_reason, entry.quota_reason = "PreemptionNoCandidates", WAITING_FOR_QUOTA
            if queue.preemption.reclaim_within_cohort != "Any" or (
                self.gates.prioritize_preemptor_workloads and entry.preemptor
            ):
                self.claims.reserve(queue, to_reserve(queue, assignment))
            return
        if mode is Mode.PREEMPT and self._gated(info):
            self._set(entry, "preemptionGated", "Workload requires preemption, but it's gated", ADMISSION_GATED)
            entry.requeue_reason = "PreemptionGated"
            info.last_assignment = None
            return
        if mode is Mode.DEFERRED_FIT:
            entry.message = (
                "Workload has overlapping preemption targets with another workload,"
                " but will fit after these preemptions complete"
            )
            entry.quota_reason, entry.requeue_reason = WAITING_FOR_PREEMPTED_WORKLOADS, "PendingPreemption"
            info.last_assignment = None
            self.claims.count(queue, usage_of(entry))
            return
        if self.claims.overlap(entry):
            self._skip(entry, "Workload has overlapping preemption targets with another workload")
            return
        fits = yield from self.claims.fits(entry, self.pace)
        if not fits and mode is Mode.FIT and entry.preemptor and (yield from self._wait_for_victims(entry)):
            fits, mode = True, Mode.PREEMPT
        if not fits:
            self._skip(entry, "Workload no longer fits after processing another workload")
            return
        if entry.targets:
            self.claims.preempt(entry)
        blocked = (
            mode is Mode.FIT
            and self.state.options.wait_for_pods_ready.block_admission
            and bool(self.state.not_ready or self.admitted)
        )
        usage = usage_of(entry)
        self.claims.count(queue, usage, admitted=mode is Mode.FIT and not blocked)
        if mode is Mode.PREEMPT:
            entry.quota_reason, entry.requeue_reason = WAITING_FOR_PREEMPTED_WORKLOADS, "PendingPreemption"
            entry.message += f". Pending the preemption of {len(entry.targets)} workload(s)"
            info.last_assignment = None
            return
        if blocked:
            entry.message = "waiting for all admitted workloads to be in PodsReady condition"
            entry.quota_reason, entry.requeue_reason = WAITING_FOR_PODS_READY, "FailedAfterNomination"
            info.last_assignment = entry.before  # the flavor is right: it is to be found again
            return
        if where is not None and siblings:
            self.claims.replace(queue, usage, NO_USAGE)
            self._migrate(entry, where, siblings[0][1])
            return
        entry.status = "assumed"
        entry.held = holding(entry, self.now)
        if entry.held.usage is not usage:
            self.claims.replace(queue, usage, entry.held.usage)
        self.admitted.append((entry, entry.held))

    def _wait_for_victims(self, entry: Entry) -> Sliced[bool]:
        """Whether a preemptor, whose room was taken by an entry before it, fits once the rest of its victims have
        released their quota: then it goes on waiting for them. Kueue leaves what they release to the next head that
        fits."""
        assert entry.assignment is not None
        assert entry.nomination is not None
        self.preemptor.gone = self.claims.preempted
        try:
            entry.targets = yield from self.preemptor.leaving(entry.nomination)
        finally:
            self.preemptor.gone = NO_VICTIMS
        entry.assignment.mode = Mode.PREEMPT
        if not entry.targets or not (yield from self.claims.fits_then(entry, self.pace)):
            entry.assignment.mode, entry.targets = Mode.FIT, NO_TARGETS
            return False
        entry.message = "Workload no longer fits after processing another workload"
        return True

    def _migrate(self, entry: Entry, where: int, sibling: Info) -> None:
        """A less favorable variant runs: it makes way first, if the better flavor is good enough to move for."""
        if not variants.acceptable(where, entry.queue):
            entry.message, entry.quota_reason = variants.BELOW_LAST_ACCEPTABLE, PENDING_EVALUATION
            return
        entry.targets = Targets([Target(sibling, entry.queue, "FlavorMigration")])
        entry.message += ". Pending the migration of 1 workload(s)"
        entry.quota_reason, entry.requeue_reason = WAITING_FOR_PREEMPTED_WORKLOADS, "PendingMigration"
        entry.info.last_assignment = None

    @staticmethod
    def _set(entry: Entry, status: Status, message: str, quota_reason: str) -> None:
        entry.status, entry.message, entry.quota_reason = status, message, quota_reason

    def _skip(self, entry: Entry, message: str, quota_reason: str = WAITING_FOR_QUOTA) -> None:
        self._set(entry, "skipped", message, quota_reason)
        if not self.gates.flavor_fungibility_preserve_scan_progress:
            entry.info.last_assignment = None
        self._for_now(entry)

    @staticmethod
    def _for_now(entry: Entry) -> None:
        """What it was refused for is only so while this cycle lasts: not enough to make it inadmissible in the end."""
        if entry.info.last_assignment is not None:
            entry.info.last_assignment.since = -1

    def _gated(self, info: Info) -> bool:
        if not (self.gates.concurrent_admission or self.gates.multi_kueue_orchestrated_preemption):
            return False
        return preemption_gated(info.workload)

    # The end

    def _end(self, result: Cycle) -> Sliced[None]:
        """Uncount what was only for this cycle, assume what was admitted, requeue the rest."""
        state = self.state
        observable = self.gates.unadmitted_workloads_observability
        yield from self.claims.take_off(self.pace)
        changed, progress = bool(self.admitted), False
        for entry in (*self.ordered, *result.inadmissible):
            entry.settled = True
            if entry.held is not None:
                entry.queue.pending.put_down(entry.info.key)
                entry.info.last_assignment = None
                state.assume(entry.held, entry.info, entry.queue, self.now, counted=True)
            else:
                if entry.blocked or (entry.status and not entry.requeue_reason):
                    entry.requeue_reason = "FailedAfterNomination"
                pending = entry.queue.pending
                self.marks.append((pending, pending.nomination))
                if entry.beside is None and self.passing.changed(entry):
                    changed = True
                active, fresh = self._requeue(entry)
                if entry.requeue_reason == "PendingPreemption":
                    assert pending.nomination is not None
                    victims_so_far = {target.info.key: target.reason for target in entry.targets}
                    pending.nomination = pending.nomination.widened(victims_so_far, entry.assignment)
                changed = changed or not active
                progress = progress or fresh
            if not entry.blocked:
                if state.overdue and entry.held is None:
                    entry.message = late_victims(entry.message, entry.info.uid, state.overdue)
                expected = len(self.expected)
                victims = (yield from victims_of(entry, state, self.expected, self.pace)) if evicts(entry) else ()
                decision = decision_on(entry, victims, observable=observable)
                changed = changed or len(self.expected) > expected
                state.remember(decision)
                result.decisions.append(decision)
            yield
        result.keep_going = bool(self.admitted)
        result.progress = progress or changed
        state.end_cycle(changed=changed, progress=progress)

    def _abandon(self, result: Cycle) -> None:
        """The caller left before the end and will never see what was decided: all heads go back to their places."""
        state = self.state
        finish(self.claims.take_off(Pace()))
        state.cycling = False
        marked = set(state.retry_queues)
        for entry, info in self.admitted:
            if entry.settled:
                generation = entry.queue.generation
                state.take_back(entry.info.key, self.now)
                entry.queue.generation = generation  # and no Workload is requeued: no quota was released
            else:
                info.usage.remove_from(entry.queue.node)
        for name in [name for name in state.retry_queues if name not in marked]:
            del state.retry_queues[name]
        for key in self.expected:
            state.forget_eviction(key)
        for pending, nomination in reversed(self.marks):
            pending.nomination = nomination
        for entry in (*result.entries, *result.inadmissible):
            entry.info.last_assignment = entry.before
            if entry.settled and entry.held is None:
                entry.queue.pending.put_back(entry.info)
        for queue in state.cluster_queues.values():
            for left in queue.pending.under_way:
                queue.pending.put_down(left.key)
                queue.pending.push(left)
        if state.passed_over != self.passed_over:
            state.keep(state.passed_over)
            state.passed_over.clear()
            state.passed_over.update(self.passed_over)
        state.scheduling_cycle = result.number - 1
        state.end_cycle(changed=True, progress=True)

    @staticmethod
    def _starts_over(entry: Entry) -> bool:
        """Whether its scan came to the end without the flavors before, whose quota may be free again since they were
        left behind. Kueue makes the head inadmissible: the quota it was refused in one cycle may have been reserved for
        another head, or released, in the same cycle, and nothing would requeue it."""
        last = entry.info.last_assignment
        if last is None or entry.assignment is None or not entry.assignment.resumed or last.pending:
            return False
        given_up = entry.queue.best_effort and entry.requeue_reason in {"NoFit", "PreemptionNoCandidates"}
        return given_up and entry.queue.pending.retry_cycle >= last.since

    def _requeue(self, entry: Entry) -> tuple[bool, bool]:
        """Requeue an entry: active or inadmissible. Whether it is active, and then whether with a reason and progress
        that it was not requeued with since other Workloads changed."""
        info, queue = entry.info, entry.queue
        if entry.beside is not None and entry.requeue_reason == "NoFit":
            self.passing.make_inadmissible(entry, self.now)
            return False, False
        last = info.last_assignment
        if last is not None and not last.hash:
            last.hash = info.hash
        again = self._starts_over(entry)
        if again:
            last = info.last_assignment = None
        active = requeue(
            queue,
            info,
            entry.requeue_reason,
            entry.quota_reason,
            backoff_over=backoff_over(info.workload, self.now),
            again=again,
        )
        if not active:
            return False, False
        mark = (entry.requeue_reason, last.mark if last is not None else ())
        epoch, seen = info.tags or (-1, frozenset())
        if epoch != self.state.epoch:
            seen = frozenset()
        info.tags = (self.state.epoch, seen | {mark})
        return True, mark not in seen
