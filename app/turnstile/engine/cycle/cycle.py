"""One scheduling cycle: the head of every active ClusterQueue is looked at, all against one state of the ledger.

Nominate (find flavors, find whom to preempt), order, then process one by one; each sees the usage of those before it.
Behind a head that waits for its victims the next Workload is tried too (`turnstile.engine.cycle.passing`). Sources:
Kueue's scheduler. Decisions are returned, and admissions are assumed. Must never write anything out.

A cycle stops often, in the middle of a search for victims too, and what others do at a stop must neither see nor touch
what it tries. So: while a cycle is under way (`Log.cycling`) the *usage of the tree* is its own, with everything that
it counts or imagines gone; no other task reads it. *Who holds quota and who waits* stays true all the time, and the
figures that people see are taken from that. Every event, write outcome or sample that comes meanwhile waits until the
end. A cycle that is closed at any stop puts usage and heads back as they were.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from turnstile.engine.causes import Cause
from turnstile.engine.cycle import recall
from turnstile.engine.cycle.claims import Claims
from turnstile.engine.cycle.entries import Entry, entry_rank, usage_of
from turnstile.engine.cycle.nominator import Nominator
from turnstile.engine.cycle.outcomes import decision_on, evicts, late_victims, reasons_of, victims_of
from turnstile.engine.cycle.passing import Passing
from turnstile.engine.cycle.precedence import after_their_preemptors
from turnstile.engine.cycle.processor import Processor
from turnstile.engine.cycle.secondpass import SecondPass
from turnstile.engine.cycle.tournament import Tournament
from turnstile.engine.decisions import Decision, Victim
from turnstile.engine.instants import Instant, stamp
from turnstile.engine.pace import STRETCH, Pace, Sliced, arrange, finish
from turnstile.engine.queue.admissible import backoff_over
from turnstile.engine.queue.heaps import Pending
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.queue.requeueing import requeue
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import WAITING_FOR_PODS_READY
from turnstile.engine.state import State


@dataclass(slots=True)
class Cycle:
    """Results of one cycle. `decisions` are in the order they were made, inadmissible heads last.

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
        self.claims = Claims(state.reservations.is_evicted)
        self.expected: list[str] = []
        self.marks: list[tuple[Pending, Nomination | None]] = []
        """Nominations as they were before."""
        self.set_aside: list[tuple[Pending, Info]] = []
        """Heads of StrictFIFO queues that can never be admitted: they stay in their queue, but not as its head."""
        self.ordered: list[Entry] = []
        preemptor = state.preemptor(now, pace)
        self.nominator = Nominator(state, preemptor)
        self.processor = Processor(state, self.claims, preemptor, self.nominator, now, pace)
        self.spared = preemptor.collector.spared
        self.passing = Passing(state, self.claims, self.nominator, pace)
        self.second_pass = SecondPass(state, now, pace)
        self.passed_over = state.nominations.passed_over.copy()
        """Claims as they were before the cycle."""
        self.crowded = state.nominations.crowded.copy()
        """The same of claims on places."""
        self.lasting: dict[str, str] = {}
        """Entries so far that keep places and still do in the next cycle: their keys and ClusterQueues."""

    def steps(self) -> Sliced[Cycle]:
        """The cycle; see `cycle_steps`."""
        state = self.state
        if state.log.cycling:
            raise RuntimeError("a cycle is under way: let it end before the next one starts")
        result = Cycle(state.log.scheduling_cycle + 1)
        state.log.cycling = True
        ended = False
        try:
            yield from state.catching_up(self.pace)
            yield from state.ledger.settling(self.pace)
            while state.ledger.healed:
                state.retries.mark(state.ledger.healed.pop())
            state.nominations.end_claims()
            if state.retries.marked:
                yield from state.retries.carry_out(self.now, state.log.shape, self.pace)
            if not state.log.scheduling_cycle:
                yield from recall.nominations(state, self.pace)
            state.log.scheduling_cycle += 1
            self.nominator.start(state.log.scheduling_cycle)
            yield from self.second_pass.steps(result.faults)
            self.processor.preemptor.collector.steady = True  # nothing is counted before the first entry is processed
            for entry in self._heads():
                if entry is not None:
                    yield from self._nominate(entry, result)
                yield
            self.processor.preemptor.collector.end_steady()
            blocked = False
            ordered: Iterable[Entry | None]
            if self.state.options.fair_sharing is not None:
                ordered = yield from self._tournament(result.entries)
            else:
                by_rank = result.entries.copy()
                yield from arrange(by_rank, attrgetter("rank"), self.pace)
                ordered = iter(by_rank)
            for entry in after_their_preemptors(result.entries, ordered, self.pace):
                if entry is None:
                    yield
                    continue
                self.ordered.append(entry)
                result.order.append(entry.info.key)
                if blocked:
                    entry.blocked = True
                    entry.info.last_assignment = entry.before
                    continue
                yield from self.processor.process(entry)
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
                else:
                    yield from self.nominator.assign(entry)
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
        state = self.state
        for queue in list(state.cluster_queues.values()):
            pending = queue.pending
            self.pace.left -= 0.5
            if self.pace.left <= 0:
                self.pace.renew()
                yield None
            if not pending.active or not queue.active:
                continue
            head = pending.pop()
            while head is not None and head.never == state.log.shape:
                self.set_aside.append((pending, head))
                head = pending.set_head_aside()
            if head is not None:
                yield Entry(head, queue)

    # Order

    def _tournament(self, entries: list[Entry]) -> Sliced[Tournament]:
        gates = self.gates
        tournament = Tournament(
            usage_of,
            self.pace,
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
            self.pace.left -= 1
            if self.pace.left <= 0:
                yield
                self.pace.renew()
            entry = self.passing.next(head) if self.passing.waits(head) else None
            if entry is None:
                continue
            yield from self._nominate(entry, result)
            if result.entries[-1] is not entry:
                continue
            self.ordered.append(entry)
            result.order.append(entry.info.key)
            if not entry.requeue_reason:
                yield from self.processor.process(entry)
            yield

    # The end

    def _end(self, result: Cycle) -> Sliced[None]:
        """Uncount what was only for this cycle, assume what was admitted, requeue the rest."""
        state = self.state
        observable = self.gates.unadmitted_workloads_observability
        yield from self.claims.take_off(self.pace)
        changed, progress = bool(self.processor.admitted), False
        for entry in (*self.ordered, *result.inadmissible):
            entry.settled = True
            state.deadlines.follow(entry.info.key, self.spared.get(entry.info.key) if entry.held is None else None)
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
                if entry.requeue_reason in {"PendingPreemption", "PendingMigration"}:
                    assert pending.nomination is not None
                    victims_so_far = yield from reasons_of(entry.targets, self.pace)
                    pending.nomination = pending.nomination.widened(victims_so_far, entry.assignment)
                changed = changed or not active
                progress = progress or fresh
            if not entry.blocked:
                if state.reservations.overdue and entry.held is None:
                    entry.message = late_victims(entry.message, entry.info, state.reservations.overdue)
                expected = len(self.expected)
                victims: Sequence[Victim] = ()
                if evicts(entry):
                    victims = yield from victims_of(entry, state, self.expected, self.now, self.pace)
                decision = decision_on(entry, victims, observable=observable)
                changed = changed or len(self.expected) > expected
                state.queues.remember(decision)
                result.decisions.append(decision)
            yield
        second = self.second_pass.entries
        changed = changed or any(entry.status for entry in second)
        result.decisions[:0] = self.second_pass.end()
        result.entries[:0] = second
        result.order[:0] = [entry.info.key for entry in second]
        result.keep_going = bool(self.processor.admitted) or any(entry.status for entry in second)
        result.progress = progress or changed
        state.log.ended(self.now, result.decisions, changed=changed, progress=progress)

    def _abandon(self, result: Cycle) -> None:
        """The caller left before the end and will never see what was decided: all heads go back to their places."""
        state = self.state
        finish(self.claims.take_off(Pace()))
        self.second_pass.undo()
        state.log.cycling = False
        marked = set(state.retries.cluster_queues)
        for entry, info in self.processor.admitted:
            if entry.settled:
                generation = entry.queue.generation
                state.take_back(entry.info.key, self.now)
                entry.queue.generation = generation  # and no Workload is requeued: no quota was released
            else:
                info.usage.remove_from(entry.queue.node)
                state.node_table.forget(info)
        state.retries.unmark([name for name in state.retries.cluster_queues if name not in marked])
        for key in self.expected:
            state.forget_eviction(key)
        for pending, nomination in reversed(self.marks):
            pending.nomination = nomination
        for entry in (*result.entries, *result.inadmissible):
            entry.info.last_assignment = entry.before
            if entry.settled and entry.held is None:
                entry.info.never = -1
                entry.queue.pending.put_back(entry.info)
        for pending, info in self.set_aside:
            pending.put_back(info)
        for queue in state.cluster_queues.values():
            for left in queue.pending.under_way:
                queue.pending.put_down(left.key)
                queue.pending.push(left)
        state.nominations.put_back(self.passed_over, self.crowded)
        state.log.abandoned(result.number - 1)

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

    def _keeps(self, entry: Entry) -> bool:
        """Whether the ClusterQueue of a refused head keeps for it what comes free, because it has waited for so long:
        it stays the head, as in a StrictFIFO ClusterQueue. Kueue admits Workloads behind it for ever."""
        queue, key = entry.queue, entry.info.key
        if entry.beside is not None:
            return False
        queue.pending.kept_for = ""
        refused = entry.requeue_reason in {"NoFit", "PreemptionNoCandidates"} and not self.nominator.never_fits(entry)
        if queue.keep_quota_after is None or not refused:
            return False
        since = entry.info.timestamp + queue.keep_quota_after
        if since > self.now:
            self.state.deadlines.follow(key, min(since, self.spared.get(key, since)))
            return False
        queue.pending.kept_for = key
        entry.message += f". {Cause.KEPT.says(queue=queue.name, at=stamp(since))}"
        return True

    def _is_crowded(self, entry: Entry) -> bool:
        """Whether an entry is to be tried again because claims that end with this cycle left it no places. Nodes are
        shared by ClusterQueues that share no quota, so nothing in its own tree would have it tried again. Where a claim
        lasts, the Workload becomes inadmissible until the claimant has its places or waits no more, so that those
        behind it may pass. In Kueue such a Workload waits until something else changes in its Cohort."""
        if not entry.crowded:
            return False
        if self.lasting:
            entry.crowded = False
            self.state.nominations.crowd_out(entry.queue.name, self.lasting)
        return entry.crowded

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
        if not queue.best_effort and self.nominator.never_fits(entry):
            info.never = self.state.log.shape  # the next cycle makes it inadmissible
        crowded = self._is_crowded(entry)
        active = requeue(
            queue,
            info,
            entry.requeue_reason,
            entry.quota_reason,
            backoff_over=backoff_over(info.workload, self.now),
            again=self._keeps(entry) or again or crowded,
        )
        if not active:
            return False, False
        if entry.claims and not entry.crowded:
            self.lasting[info.key] = queue.name
        mark = (entry.requeue_reason, last.mark if last is not None else ())
        epoch, seen = info.tags or (-1, frozenset())
        if epoch != self.state.log.epoch:
            seen = frozenset()
        info.tags = (self.state.log.epoch, seen | {mark})
        return True, mark not in seen
