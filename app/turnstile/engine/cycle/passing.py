"""Workloads that pass beside the claim of a preemptor whose victims have not gone yet.

A preemptor stays at the head of its ClusterQueue until its victims have released their quota. In Kueue no Workload
behind the preemptor is tried meanwhile. Here the next Workload of a BestEffortFIFO queue is tried in each cycle with
the claim counted as used, and admitted if free nominal quota is left: so that Workload neither takes what the preemptor
waits for, nor makes the preemptor borrow more. That Workload preempts no other. A Workload that does not fit is
inadmissible until quota is released or the claim ends (`Nominations.passed_over`). Must never change what a head is
decided.
"""

from turnstile.engine.causes import Cause
from turnstile.engine.cycle.claims import Claims
from turnstile.engine.cycle.entries import Entry, usage_of
from turnstile.engine.cycle.nominator import Nominator
from turnstile.engine.instants import Instant
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.queue.admissible import backoff_over
from turnstile.engine.queue.nominations import Claim
from turnstile.engine.queue.requeueing import pass_over
from turnstile.engine.reasons import WAITING_FOR_PREEMPTED_WORKLOADS, WAITING_FOR_QUOTA, Mode
from turnstile.engine.state import State


class Passing:
    """The second round of one cycle."""

    __slots__ = ("_claims", "_nominator", "_pace", "_state")

    def __init__(self, state: State, claims: Claims, nominator: Nominator, pace: Pace) -> None:
        self._state = state
        self._claims = claims
        self._nominator = nominator
        self._pace = pace

    def waits(self, head: Entry) -> bool:
        """Whether a head waits only for victims that were evicted in earlier cycles."""
        return (
            head.requeue_reason == "PendingPreemption"
            and head.queue.best_effort
            and not self._state.options.gates.concurrent_admission
            and all(self._state.reservations.is_evicted(target.info) for target in head.targets)
        )

    def next(self, head: Entry) -> Entry | None:
        """The first Workload behind the head that may have room beside it."""
        pending = head.queue.pending
        if not pending.active:
            return None
        info = pending.pop_beside()
        if info is None:
            return None
        entry = Entry(info, head.queue)
        entry.beside = head
        return entry

    def nominate(self, entry: Entry) -> Sliced[None]:
        """Find flavors with free nominal quota, the claim of its preemptor counted as used."""
        assert entry.beside is not None
        info = entry.info
        info.last_assignment = None  # where a scan goes on is for its turn at the head
        self._nominator.borrow(False)
        try:
            with self._claims.staying(entry.queue) as trial:
                yield from self._claims.beside(trial, entry.beside, self._pace)
                yield from self._nominator.assign(entry)
            assert entry.assignment is not None
            if entry.assignment.mode is not Mode.FIT:
                entry.requeue_reason = "NoFit"
                entry.quota_reason = entry.assignment.no_fit_reason or WAITING_FOR_QUOTA
                return
            with self._claims.staying(entry.queue):
                if not usage_of(entry).fits(entry.queue.node):
                    entry.requeue_reason, entry.quota_reason = "NoFit", WAITING_FOR_PREEMPTED_WORKLOADS
                    entry.message = Cause.BESIDE_PREEMPTOR.says()
        finally:
            self._nominator.borrow(True)
            info.last_assignment = entry.before

    def claim(self, head: Entry) -> Claim | None:
        """The claim of a head that waits for victims; None if it does not wait for victims alone."""
        if head.assignment is None or not self.waits(head):
            return None
        victims = tuple(target.info.key for target in head.targets)
        return Claim(head.info.key, usage_of(head).key, victims)

    def make_inadmissible(self, entry: Entry, now: Instant) -> None:
        """A Workload found no room beside the claim: it waits for quota, or for the end of the claim."""
        assert entry.beside is not None
        claim = self.claim(entry.beside)
        assert claim is not None
        self._state.nominations.pass_over(entry.queue.name, claim)
        pass_over(entry.queue, entry.info, entry.quota_reason, backoff_over=backoff_over(entry.info.workload, now))

    def changed(self, head: Entry) -> bool:
        """Whether Workloads became inadmissible beside another claim than the head of their queue has now, so that they
        are tried again."""
        name = head.queue.name
        claim = self.claim(head) if name in self._state.nominations.passed_over else None
        if claim is None or not self._state.nominations.pass_over(name, claim):
            return False
        self._state.retries.mark(name)
        return True
