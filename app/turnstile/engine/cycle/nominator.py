"""Nomination: whether a head may be processed at all, and with which flavors, pod counts and victims.

Must never change usage or the place of a workload.
"""

from collections.abc import Set as AbstractSet

from turnstile.engine.causes import Cause
from turnstile.engine.cycle.entries import NOTHING_CARRIED, Entry, outdated
from turnstile.engine.flavors import partial
from turnstile.engine.flavors.assigner import Assigner
from turnstile.engine.flavors.assignment import Assignment, Pins
from turnstile.engine.flavors.places import policy_of, take
from turnstile.engine.flavors.reach import within_reach
from turnstile.engine.flavors.room import RoomJudge
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.pace import Sliced
from turnstile.engine.preemption.search import Preemptor
from turnstile.engine.preemption.targets import NO_TARGETS, Target, Targets
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.commonclaims import shared_claim
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.quota.trial import Trial
from turnstile.engine.reasons import MISCONFIGURED, PENDING_EVALUATION, SUSPENDED, WAITING_FOR_QUOTA, Mode
from turnstile.engine.state import State


class Nominator:
    """Nominates the heads of one cycle."""

    __slots__ = ("_assigner", "_gates", "_preemptor", "_setup", "_state", "_wanted_claims", "room")

    def __init__(self, state: State, preemptor: Preemptor) -> None:
        self._state = state
        self._gates = state.options.gates
        self._preemptor = preemptor
        self.room = RoomJudge(state.node_table, state.surroundings.nodes.room, preemptor.pace)
        self._setup = Setup(
            flavors=state.activity.flavors,
            pair=state.surroundings.catalog.pair,
            oracle=preemptor.oracle,
            fungible=self._gates.flavor_fungibility,
            fair_sharing=state.options.fair_sharing is not None,
            topologies=state.activity.topologies if self._gates.topology_aware_scheduling else None,
            nodes=state.surroundings.nodes,
            policy=policy_of(self._gates),
            delays=state.activity.delays_places,
            observable=self._gates.unadmitted_workloads_observability,
            room=self.room if state.surroundings.nodes.room is not None else None,
            ignore_undeclared=self._gates.quota_check_strategy
            and state.options.quota_check_strategy == "IgnoreUndeclared",
            pace=preemptor.pace,
        )
        self._assigner = Assigner(self._setup)
        self._wanted_claims: dict[str, set[str]] | None = None
        """ResourceClaims that victims of waiting preemptors name, and these preemptors; None until a head asks."""

    def start(self, cycle: int) -> None:
        """The number of the cycle that begins."""
        self._assigner.cycle = cycle
        self.room.begin()
        self._wanted_claims = None

    def borrow(self, allowed: bool) -> None:
        """Whether Workloads may borrow and have others preempted; if not, only free nominal quota will do."""
        self._setup.judge.own_quota_only = not allowed

    def accepts(self, entry: Entry) -> bool:
        """Whether the head may be processed; if not, the entry tells why. A head that already holds quota has no
        message and is dropped."""
        state, info, queue = self._state, entry.info, entry.queue
        namespace = info.namespace
        if state.ledger.holder(info.key) is not None:
            queue.pending.put_down(info.key)
            return False
        labels = state.queues.namespaces.get(namespace)
        if info.failed_checks:
            entry.message, entry.quota_reason = Cause.CHECKS_FAILED.says(), PENDING_EVALUATION
        elif not queue.active or (state.ledger.broken and state.ledger.cyclic(queue.node)):
            entry.message, entry.quota_reason = Cause.CLUSTER_QUEUE_INACTIVE.says(queue=queue.name), SUSPENDED
        elif labels is None:
            entry.message = Cause.NAMESPACE_MISSING.says(namespace=namespace)
            entry.quota_reason = MISCONFIGURED
        elif not queue.selects(labels):
            entry.message = Cause.NAMESPACE_NOT_SELECTED.says()
            entry.quota_reason, entry.requeue_reason = MISCONFIGURED, "NamespaceMismatch"
        elif (violations := info.violations()) is not None:
            entry.message, entry.quota_reason = violations, MISCONFIGURED
        elif (old := _replaced(entry)) is not None and state.reservations.is_evicted(old):
            entry.message, entry.quota_reason = Cause.SLICE_STOPS.says(), WAITING_FOR_QUOTA
        elif old is not None and old.usage.places is not None:
            entry.message, entry.quota_reason = Cause.SLICE_PLACED.says(), MISCONFIGURED
        else:
            return True
        return False

    def assign(self, entry: Entry, pins: Pins | None = None) -> Sliced[None]:
        """Flavors and targets for a head (Kueue: getAssignments)."""
        self._preemptor.start()
        info, queue = entry.info, entry.queue
        if info.last_assignment is not None and self._outdated(info, queue):
            info.last_assignment = None
        replaced, old = None, _replaced(entry)
        if old is not None and old.key not in self._preemptor.collector.gone:
            replaced = Target(old, queue, "")
        entry.replaced = replaced
        entry.carried = self._carried(entry) if queue.commons.carriers and replaced is None else NOTHING_CARRIED
        waits = entry.nomination is not None and self._needs_others(entry)
        full = None if waits else (yield from self._in_full(entry, pins))
        entry.assignment, entry.targets = full, NO_TARGETS
        settled = full is not None and full.mode is Mode.FIT and not full.borrowing
        if settled or not (yield from self._as_nominated(entry, replaced)):
            full = entry.assignment = full or (yield from self._in_full(entry, pins))
            if full.mode is Mode.PREEMPT:
                entry.targets = yield from self.targets(queue, info, full)
            if full.mode is not Mode.FIT and not entry.targets and not (yield from self._partial(entry, pins)):
                entry.replaced = None
        assert entry.assignment is not None
        yield from self._foresee_places(entry)
        entry.message = "" if entry.assignment.mode is Mode.FIT else entry.assignment.message
        if not entry.message and entry.assignment.mode is not Mode.FIT:
            entry.message = (full or (yield from self._in_full(entry, pins))).message
        last, before = entry.assignment.last, info.last_assignment
        if before is not None and entry.assignment.resumed:
            last.since = before.since
            last.follow(before)
        else:
            last.since = queue.pending.pop_cycle
        info.last_assignment = last

    def targets(self, queue: ClusterQueue, info: Info, assignment: Assignment) -> Sliced[Targets]:
        """Workloads to preempt for an assignment in mode Preempt; none if that would not help, because there would be
        no room on nodes."""
        found = yield from self._preemptor.targets(queue, info, assignment)
        if found:
            lack = yield from self.room.lacks_then(assignment, [each.info for each in found])
            for pod_set in assignment.pod_sets if lack is not None else ():
                if lack is not None and pod_set.name == lack.pod_set:
                    pod_set.reasons = [*pod_set.reasons, lack.reason]
            if lack is not None:
                return NO_TARGETS
        return found

    def _foresee_places(self, entry: Entry) -> Sliced[None]:
        """Find the places that a preemptor will have once its victims are gone, or that it keeps free of others if
        there are none."""
        assignment = entry.assignment
        assert assignment is not None
        seeker = assignment.seeker
        if seeker is None:
            return
        with Trial() as trial:
            yield from trial.remove_all(entry.targets.freed, self._preemptor.pace)
            found = yield from seeker.find(empty=not entry.targets)
            yield from trial.undo(self._preemptor.pace)
        take(assignment, seeker, found)

    def _in_full(self, entry: Entry, pins: Pins | None) -> Sliced[Assignment]:
        """Flavors for all pods."""
        old = entry.replaced.info if entry.replaced is not None else None
        return self._assigner.assign(entry.queue, entry.info, pins=pins, replaced=old, carried=entry.carried)

    def _carried(self, entry: Entry) -> dict[int, PodSetTotals]:
        """The devices of a head's ResourceClaims that other Workloads of its ClusterQueue are charged for.

        Not if these Workloads are evicted, because a preemptor gets the quota of the devices then. Nor while a
        preemptor waits whose victims include a Workload with the claim: otherwise a tenant who goes on submitting Jobs
        that name the claim would keep its devices from the preemptor.
        """
        state, info, queue = self._state, entry.info, entry.queue
        found: dict[int, PodSetTotals] = {}
        for index, totals in enumerate(info.totals):
            claim = shared_claim(info, totals)
            wanted = {name: amount for name, amount in totals.once.items() if amount}
            for common in queue.commons.of_claim(claim, wanted) if claim else ():
                carrier = queue.workloads.get(queue.commons.carriers.get(common, ""))
                if carrier is None or state.reservations.is_evicted(carrier):
                    continue
                if not self._claimed(claim) <= {info.key}:
                    state.nominations.barred[queue.name] = None
                    continue
                flavors = {pair.resource: pair.flavor for pair, _ in common.amounts}
                found[index] = PodSetTotals(
                    name=totals.name,
                    count=totals.count,
                    requests=wanted,
                    pod_set=totals.pod_set,
                    once=wanted,
                    flavors=flavors,
                )
        return found

    def _claimed(self, claim: str) -> AbstractSet[str]:
        """The waiting preemptors with a victim that names a ResourceClaim (`namespace/name`)."""
        if self._wanted_claims is None:
            state = self._state
            wanted: dict[str, set[str]] = {}
            for queue in state.cluster_queues.values():
                nomination = queue.pending.nomination
                for key in nomination.victims if nomination is not None else ():
                    victim = state.workloads.get(key)
                    for totals in victim.totals if victim is not None else ():
                        if nomination is not None and victim is not None and totals.claim:
                            wanted.setdefault(f"{victim.namespace}/{totals.claim}", set()).add(nomination.preemptor)
            self._wanted_claims = wanted
        return self._wanted_claims.get(claim, frozenset())

    def _needs_others(self, entry: Entry) -> bool:
        """Whether a preemptor is known to fit only by borrowing, or by its victims: then it is tried as nominated
        before its flavors are searched. With thousands of preemptors that wait, that is half of what a cycle costs."""
        if entry.nomination is None or entry.nomination.assignment is None or entry.replaced is not None:
            return False
        return not self._setup.judge.may_fit_freely(entry.queue, entry.info)

    def never_fits(self, entry: Entry) -> bool:
        """Whether a head that was refused can never be admitted as the objects are: it asks for more than its
        ClusterQueue could be given if nothing were in use, for what no flavor offers, or for what the limits of its
        namespace forbid. In Kueue such a Workload blocks a StrictFIFO ClusterQueue: whoever may submit to it could
        close it."""
        info = entry.info
        if entry.assignment is None:
            return entry.quota_reason == MISCONFIGURED and entry.message == info.violations()
        if entry.requeue_reason != "NoFit" or info.replaces is not None:
            return False
        return not within_reach(self._setup, entry.queue, info, partial=self._gates.partial_admission)

    def _as_nominated(self, entry: Entry, replaced: Target | None) -> Sliced[bool]:
        """The flavors and pods for which others were preempted, if there is quota for them, or will be once the rest of
        the victims have released theirs.

        In Kueue a preemptor is assigned anew in each cycle. Where it takes several cycles to come to the same flavors
        again, or where a search would not be begun any more, the victims are let in meanwhile, and preempted again. And
        where the whole fits now by borrowing, those who made way for a part preempt it.
        """
        nomination, info, queue = entry.nomination, entry.info, entry.queue
        if nomination is None or nomination.assignment is None or not self._wanted_back(nomination):
            return False
        found = nomination.assignment
        counts, all_pods = [item.count for item in found.pod_sets], [item.count for item in info.totals]
        if any(count > pods for count, pods in zip(counts, all_pods, strict=True)):
            return False
        part = counts if counts != all_pods else None
        old = replaced.info if replaced is not None and part is None else None
        leaving = yield from self._preemptor.leaving(nomination)
        progress, info.last_assignment = info.last_assignment, None
        self._preemptor.promised = leaving
        try:
            kept = yield from self._assigner.assign(
                queue, info, counts=part, pins=found.pins(), replaced=old, carried=entry.carried
            )
        finally:
            self._preemptor.promised = None
            info.last_assignment = progress
        targets = NO_TARGETS
        if kept.mode is not Mode.FIT:
            if kept.mode is Mode.NO_FIT and (part is not None or kept.no_fit_reason != WAITING_FOR_QUOTA):
                return False
            if not leaving or not (yield from self._preemptor.suffice(leaving, queue, found.usage)):
                return False
            targets = leaving
            if kept.mode is Mode.NO_FIT:
                kept = found.again()
        entry.assignment, entry.targets = kept, targets
        entry.replaced = replaced if part is None else None
        return True

    def _wanted_back(self, nomination: Nomination) -> bool:
        """Whether a victim waits, or holds quota: otherwise the preemptor may take more than was promised."""
        holders, waiting = self._state.ledger.holders, self._state.queues.waiting
        return any(key in waiting or key in holders for key in nomination.victims)

    def _partial(self, entry: Entry, pins: Pins | None) -> Sliced[bool]:
        """Fewer pods, if the pod sets allow it: the smallest cut by which the workload fits (or can preempt to).

        A scan that stops at a flavor goes on in the next cycle, but only if it is for all pods. Where that is not so
        and fewer pods found nothing either, their scans go on at once. Kueue never looks at their other flavors.
        """
        info, full = entry.info, entry.assignment
        assert full is not None
        if not self._gates.partial_admission or entry.replaced is not None:
            return False
        parts = _Parts(self._assigner, self, entry, pins)
        all_pods, least = [item.count for item in info.totals], [item.min_count for item in info.totals]
        found = yield from partial.search(all_pods, least, parts.find)
        if found is None and parts.pending and not full.last.pending:
            found = yield from partial.search(all_pods, least, parts.find_in_any_flavor)
        # also where all pods were refused before it came to the flavors that the scan has behind it
        full.resumed = full.resumed or parts.resumed
        if found is None:
            return False
        entry.assignment, entry.targets = found
        return True

    def _outdated(self, info: Info, queue: ClusterQueue) -> bool:
        assert info.last_assignment is not None
        return outdated(
            info.last_assignment,
            cycle=self._state.log.scheduling_cycle,
            generation=queue.generation,
            hash_=info.hash,
            preserve_progress=self._gates.flavor_fungibility_preserve_scan_progress,
        )


def _replaced(entry: Entry) -> Info | None:
    """The slice of the same elastic job whose place the head takes, if that has quota in the same ClusterQueue."""
    old = entry.queue.workloads.get(entry.info.replaces) if entry.info.replaces is not None else None
    return old if old is not None and entry.info.succeeds(old) else None


class _Parts:
    """Flavors and targets for fewer pods of a head. `resumed` says that a scan went on from where the last cycle
    stopped, `pending` that one stopped before its last flavor and found nothing."""

    __slots__ = ("_assigner", "_entry", "_nominator", "_pins", "pending", "resumed")

    def __init__(self, assigner: Assigner, nominator: Nominator, entry: Entry, pins: Pins | None) -> None:
        self._assigner = assigner
        self._nominator = nominator
        self._entry = entry
        self._pins = pins
        self.pending = False
        self.resumed = False

    def find(self, counts: list[int]) -> Sliced[tuple[Assignment, Targets] | None]:
        """As far as the scan goes."""
        assignment, targets = yield from self._assign(counts)
        self.resumed = self.resumed or assignment.resumed
        if assignment.mode is Mode.FIT or targets:
            return assignment, targets
        self.pending = self.pending or assignment.last.pending
        return None

    def find_in_any_flavor(self, counts: list[int]) -> Sliced[tuple[Assignment, Targets] | None]:
        """Through all flavors."""
        info = self._entry.info
        progress = info.last_assignment
        try:
            while True:
                assignment, targets = yield from self._assign(counts)
                if assignment.mode is Mode.FIT or targets:
                    return assignment, targets
                last = assignment.last
                if info.last_assignment is not None:
                    last.follow(info.last_assignment)
                if not last.pending:
                    return None
                info.last_assignment = last
        finally:
            info.last_assignment = progress

    def _assign(self, counts: list[int]) -> Sliced[tuple[Assignment, Targets]]:
        queue, info = self._entry.queue, self._entry.info
        carried = self._entry.carried
        assignment = yield from self._assigner.assign(queue, info, counts=counts, pins=self._pins, carried=carried)
        if assignment.mode is not Mode.PREEMPT:
            return assignment, NO_TARGETS
        return assignment, (yield from self._nominator.targets(queue, info, assignment))
