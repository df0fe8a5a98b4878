"""Decides on the entries of a cycle one by one, each given what those before it took.

Must never look at an entry that has not been nominated.
"""

import math

from turnstile.engine.causes import Cause
from turnstile.engine.cycle import variants
from turnstile.engine.cycle.claims import Claims
from turnstile.engine.cycle.entries import Entry, holding, to_reserve, usage_of
from turnstile.engine.cycle.nominator import Nominator
from turnstile.engine.decisions import Status
from turnstile.engine.instants import Instant, stamp
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.preemption.search import Preemptor
from turnstile.engine.preemption.targets import NO_TARGETS, NO_VICTIMS, Target, Targets
from turnstile.engine.queue.admissible import preemption_gated
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.usage import NO_USAGE, Usage
from turnstile.engine.reasons import (
    ADMISSION_GATED,
    PENDING_EVALUATION,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED_WORKLOADS,
    WAITING_FOR_QUOTA,
    Mode,
)
from turnstile.engine.state import State


class Processor:
    """Decides on the entries of one cycle. Decisions are in the entries; `admitted` has those that hold quota then, as
    they will hold it."""

    __slots__ = ("admitted", "claimed", "claims", "gates", "nominator", "now", "pace", "preemptor", "state")

    def __init__(
        self, state: State, claims: Claims, preemptor: Preemptor, nominator: Nominator, now: Instant, pace: Pace
    ) -> None:
        self.state = state
        self.gates = state.options.gates
        self.claims = claims
        self.preemptor = preemptor
        self.nominator = nominator
        self.now = now
        self.pace = pace
        self.admitted: list[tuple[Entry, Info]] = []
        self.claimed = False
        """Whether an entry so far keeps places without being admitted."""

    def _refresh(self, entry: Entry) -> Sliced[None]:
        """Find flavors and targets anew for an entry whose victims an earlier one took."""
        assert entry.assignment is not None
        entry.recomputed = True
        entry.info.last_assignment = None
        pins = entry.assignment.pins()
        self.preemptor.collector.gone = self.claims.preempted
        try:
            with self.claims.freed(entry) as trial:
                yield from trial.show_all(self.pace)
                yield from self.nominator.assign(entry, pins)
        finally:
            self.preemptor.collector.gone = NO_VICTIMS
        self._for_now(entry)
        if entry.assignment.mode is Mode.FIT:
            entry.assignment.mode = Mode.DEFERRED_FIT

    def _misplaced(self, entry: Entry) -> Sliced[bool]:
        """Whether an entry has quota, and only its places were taken by entries before it."""
        assert entry.assignment is not None
        usage = entry.assignment.usage
        again = self.gates.tas_recompute_assignment_within_scheduling_cycle and not entry.recomputed
        if usage.places is None or not again or entry.beside is not None:
            return False
        places, usage.places = usage.places, None
        try:
            return (yield from self.claims.fits(entry, self.pace))
        finally:
            usage.places = places

    def _place_again(self, entry: Entry) -> Sliced[None]:
        """Find other places in the same flavors, or other victims: else all Workloads of equal shape would want the
        same domain, and one of them a cycle would get it."""
        assert entry.assignment is not None
        entry.recomputed = True
        entry.info.last_assignment = None
        self.preemptor.collector.gone = self.claims.preempted
        try:
            yield from self.nominator.assign(entry, entry.assignment.pins())
        finally:
            self.preemptor.collector.gone = NO_VICTIMS

    def process(self, entry: Entry) -> Sliced[None]:
        """Decide on one entry, given what those before it took."""
        info, queue = entry.info, entry.queue
        siblings: list[tuple[int, Info]] = []
        where: int | None = None
        if self.gates.concurrent_admission:
            siblings, where = variants.admitted_siblings(info, queue), variants.place(info, queue)
            if where is not None and any(other < where for other, _ in siblings):
                self.skip(entry, Cause.BETTER_VARIANT_RUNS.says(), PENDING_EVALUATION)
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
            if (end := self.preemptor.collector.spared.get(info.key)) is not None:
                entry.message += f". {Cause.PROTECTED.says(at=stamp(math.ceil(end)))}"
            entry.crowded = entry.recomputed and assignment.seeker is not None and self.claimed
            if queue.preemption.reclaim_within_cohort != "Any" or (
                self.gates.prioritize_preemptor_workloads and entry.preemptor
            ):
                reserved = to_reserve(queue, assignment)
                self._note_claim(entry, reserved)
                self.claims.reserve(queue, reserved)
            return
        if mode is Mode.PREEMPT and self._gated(info):
            self._set(entry, "preemptionGated", Cause.PREEMPTION_GATED.says(), ADMISSION_GATED)
            entry.requeue_reason = "PreemptionGated"
            info.last_assignment = None
            return
        if mode is Mode.DEFERRED_FIT:
            self._defer(entry)
            return
        if self.claims.overlap(entry):
            self.skip(entry, Cause.SHARED_VICTIMS.says())
            return
        fits = yield from self.claims.fits(entry, self.pace)
        if not fits and (yield from self._misplaced(entry)):
            yield from self._place_again(entry)
            yield from self.process(entry)
            return
        if not fits and mode is Mode.FIT and entry.preemptor and (yield from self._wait_for_victims(entry)):
            if not entry.targets:
                self._defer(entry)
                return
            fits, mode = True, Mode.PREEMPT
        if not fits or (mode is Mode.FIT and not (yield from self.nominator.room.still_has(assignment))):
            self.skip(entry, Cause.OVERTAKEN.says())
            return
        if entry.targets:
            yield from self.nominator.room.reserve(assignment, [each.info for each in entry.targets])
            yield from self.claims.preempt(entry, self.pace)
        blocked = (
            mode is Mode.FIT
            and self.state.options.wait_for_pods_ready.block_admission
            and bool(self.state.reservations.not_ready or self.admitted)
        )
        usage = usage_of(entry)
        if mode is not Mode.FIT or blocked:
            self._note_claim(entry, usage)
        self.claims.count(queue, usage, admitted=mode is Mode.FIT and not blocked)
        if mode is Mode.PREEMPT:
            entry.quota_reason, entry.requeue_reason = WAITING_FOR_PREEMPTED_WORKLOADS, "PendingPreemption"
            entry.message += f". {Cause.PREEMPTS.says(count=len(entry.targets))}"
            info.last_assignment = None
            return
        if blocked:
            entry.message = Cause.PODS_NOT_READY.says()
            entry.quota_reason, entry.requeue_reason = WAITING_FOR_PODS_READY, "FailedAfterNomination"
            info.last_assignment = entry.before  # the flavor is right: it is to be found again
            return
        if where is not None and siblings:
            self.claims.replace(queue, usage, NO_USAGE)
            self._migrate(entry, where, siblings[0][1])
            return
        entry.status = "assumed"
        entry.held = holding(entry, self.now)
        self.state.node_table.expect(entry.held, decided=True)
        if entry.held.usage is not usage:
            self.claims.replace(queue, usage, entry.held.usage)
        self.admitted.append((entry, entry.held))

    def _defer(self, entry: Entry) -> None:
        """Have an entry wait for victims that an entry before it counts on too."""
        assert entry.assignment is not None
        entry.assignment.mode = Mode.DEFERRED_FIT
        entry.message = Cause.SHARED_VICTIMS_SUFFICE.says()
        entry.quota_reason, entry.requeue_reason = WAITING_FOR_PREEMPTED_WORKLOADS, "PendingPreemption"
        entry.info.last_assignment = None
        self._note_claim(entry, usage_of(entry))
        self.claims.count(entry.queue, usage_of(entry))

    def _note_claim(self, entry: Entry, usage: Usage) -> None:
        """Remember whether an entry keeps places, which those of other trees may be short of."""
        if usage.places is not None:
            entry.claims = self.claimed = True

    def _wait_for_victims(self, entry: Entry) -> Sliced[bool]:
        """Whether a preemptor, whose room was taken by an entry before it, fits once the rest of its victims have
        released their quota: then it goes on waiting for them. Its targets are those that no entry before it counts on.
        Kueue leaves what they release to the next head that fits."""
        assert entry.assignment is not None
        assert entry.nomination is not None
        taken = self.claims.preempted
        self.preemptor.collector.gone = taken
        try:
            entry.targets = yield from self.preemptor.leaving(entry.nomination)
        finally:
            self.preemptor.collector.gone = NO_VICTIMS
        waits = bool(entry.targets) or any(key in taken for key in entry.nomination.victims)
        entry.assignment.mode = Mode.PREEMPT
        if not waits or not (yield from self.claims.fits_then(entry, self.pace)):
            entry.assignment.mode, entry.targets = Mode.FIT, NO_TARGETS
            return False
        entry.message = Cause.OVERTAKEN.says()
        return True

    def _migrate(self, entry: Entry, where: int, sibling: Info) -> None:
        """A less favorable variant runs: it makes way first, if the better flavor is good enough to move for."""
        if not variants.acceptable(where, entry.queue):
            entry.message, entry.quota_reason = Cause.VARIANT_NOT_ACCEPTABLE.says(), PENDING_EVALUATION
            return
        entry.targets = Targets([Target(sibling, entry.queue, "FlavorMigration")])
        entry.message += f". {Cause.MIGRATES.says(count=1)}"
        entry.quota_reason, entry.requeue_reason = WAITING_FOR_PREEMPTED_WORKLOADS, "PendingMigration"
        entry.info.last_assignment = None

    @staticmethod
    def _set(entry: Entry, status: Status, message: str, quota_reason: str) -> None:
        entry.status, entry.message, entry.quota_reason = status, message, quota_reason

    def skip(self, entry: Entry, message: str, quota_reason: str = WAITING_FOR_QUOTA) -> None:
        """Leave an entry out of this cycle: it stays active."""
        self._set(entry, "skipped", message, quota_reason)
        if not self.gates.flavor_fungibility_preserve_scan_progress:
            entry.info.last_assignment = None
        self._for_now(entry)

    @staticmethod
    def _for_now(entry: Entry) -> None:
        """Mark that the entry was refused for a reason of this cycle alone: not enough to make its Workload
        inadmissible."""
        if entry.info.last_assignment is not None:
            entry.info.last_assignment.since = -1

    def _gated(self, info: Info) -> bool:
        if not (self.gates.concurrent_admission or self.gates.multi_kueue_orchestrated_preemption):
            return False
        return preemption_gated(info.workload)
