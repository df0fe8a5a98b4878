"""Whether each preemption was allowed and needed, and whom it was for: judged on what its leader knew then.

The arithmetic is that of `quota`; the rules are told anew: KEP-83 (policies), KEP-1714 (fair sharing), KEP-79 (cohorts
of cohorts), Kueue's scheduler (order of a cycle). Must never ask Turnstile's own code.
"""

from collections.abc import Collection, Mapping

from tests.faults.evidence import Decided, Look
from tests.faults.fates import STILL_WAITS, Fate, Preemption, claimed, fits
from tests.faults.moments import Claim
from tests.model.rules import allowed


class Preemptions:
    """All preemptions of a history. What was written of it is told by `write` and `land`, in the order it happened.
    `deleted` are Workloads that were gone in the end, and `waiting` those that waited, if that is known."""

    def __init__(
        self,
        looks: list[Look],
        *,
        fair: bool,
        deleted: Collection[str] = (),
        waiting: Collection[str] | None = None,
    ) -> None:
        self._looks = looks
        self._fair = fair
        self._deleted = deleted
        self._waiting = waiting
        self._landed: set[tuple[int, str]] = set()
        self._order: dict[str, tuple[int, int]] = {}
        self._counted_on: dict[str, set[str]] = {}
        """Whose quota a preemptor ever counted on."""
        for decided in (decided for look in looks for decided in look.decisions if decided.victims):
            self._counted_on.setdefault(decided.uid, set()).update(decided.gone)
        self.all = [
            Preemption(number, place, decided, str(look))
            for number, look in enumerate(looks)
            for place, decided in enumerate(look.decisions)
            if decided.evicts
        ]

    def write(self, victim: str, preemptor: str, reason: str, revision: int) -> Preemption | None:
        """The decision from which an eviction at that revision followed; None if there is none."""
        for each in reversed(self.all):
            if each.decided.uid != preemptor or victim in each.written:
                continue
            chosen = any(v.new and v.uid == victim and v.reason == reason for v in each.decided.victims)
            if chosen and self._looks[each.look].newest < revision:
                each.written.add(victim)
                return each
        return None

    def land(self, uid: str, queue: str, revision: int) -> tuple[str, list[Look]]:
        """An admission reached the server: what was wrong with the decision it followed from, empty if nothing; and the
        cycles of that leader from that one until then, none if nobody decided it. `decided_before` tells the order."""
        for number in range(len(self._looks) - 1, -1, -1):
            look = self._looks[number]
            place = look.place(uid)
            if place is None or look.newest >= revision or (number, uid) in self._landed:
                continue
            if (look.decisions[place].queue, look.decisions[place].outcome) != (queue, "admit"):
                continue
            self._landed.add((number, uid))
            self._order[uid] = number, place
            since = [then for then in self._looks[number:] if then.term == look.term and then.newest < revision]
            return self._overshoot(look, place), since
        return "nobody decided that", []

    def decided_before(self, other: str, uid: str) -> bool:
        """Whether the last admission of one that reached the server was decided before that of another one."""
        return self._order.get(other, (-1, 0)) < self._order[uid]

    @staticmethod
    def _overshoot(look: Look, place: int) -> str:
        """Whether an admission did not fit what its leader knew, beside those it let in before it; empty if it did."""
        before = [decided.uid for decided in look.decisions[:place] if decided.outcome == "admit"]
        usage = look.usage(beside={uid: look.waiting[uid] for uid in before if uid in look.waiting})
        claim = look.waiting.get(look.decisions[place].uid)
        if claim is not None and fits(look, claim, usage):
            return ""
        return f"{claim} did not fit beside {usage} in {look}: {look.limits}"

    # --- whether it was right to ask for it -----------------------------------------------------------------------

    def fault(self, preemption: Preemption) -> str:
        """What was wrong with a decision when it was made; empty if nothing."""
        look, decided = self._looks[preemption.look], preemption.decided
        preemptor = look.waiting.get(decided.uid)
        if preemptor is None or preemptor.queue != decided.queue:
            return f"its preemptor did not wait there: {preemptor}"
        for victim in decided.victims:
            held = look.holding.get(victim.uid)
            if held is None or held.queue != victim.queue:
                return f"its victim held no quota there: {held}"
            if refusal := self._refusal(victim.reason, preemptor, held, look):
                return f"{victim.reason} is not allowed: {refusal}"
        # A head whose victims somebody before it took looks for others, beside what those before it claim.
        first = _wrong_choice(preemptor, decided, look, {}, set())
        return first and _wrong_choice(preemptor, decided, look, *claimed(look, preemption.place))

    def _refusal(self, reason: str, preemptor: Claim, victim: Claim, look: Look) -> str:
        """Why the policy of the preemptor's queue does not allow that victim; empty if it does."""
        policy = look.policies[preemptor.queue]
        above, older = preemptor.priority - victim.priority, preemptor.created < victim.created
        own = victim.queue == preemptor.queue
        good = allowed(policy.within if reason == "InClusterQueue" else policy.reclaim, above, older=older)
        if reason == "InCohortReclaimWhileBorrowing":
            threshold = policy.threshold
            good = good and allowed(policy.borrow, above, older=older) and not self._fair
            good = good and (threshold is None or victim.priority <= threshold)
        if own != (reason == "InClusterQueue") or (reason == "InCohortFairSharing" and not self._fair) or not good:
            return f"{preemptor} preempts {victim} under {policy}"
        return ""

    # --- whom it was for ------------------------------------------------------------------------------------------

    def outcome(self, preemption: Preemption) -> tuple[str, bool]:
        """What became of the preemptor, and whether that is an answer: it was let in, or what happened since shows why
        not. Followed from cycle to cycle, until it is let in or somebody else has its room, who is followed in turn."""
        deleted = preemption.decided.uid in self._deleted
        fate = Fate(self._looks, self._landed, self.all, self._counted_on, preemption, fair=self._fair, deleted=deleted)
        what, good = fate.find()
        if what == STILL_WAITS and self._waiting is not None and preemption.decided.uid not in self._waiting:
            what, good = "withdrawn", True  # after the last cycle
        again = self._again(preemption)
        if good and again is not None and again < fate.settled:
            return f"its victim was let in and evicted again in {self._looks[again]}, while its room was kept", False
        if good and fate.heir is not None:
            then, good = self.outcome(fate.heir)
            what = what if good else f"{what} by {fate.heir}, and then: {then}"
        return what, good

    def _again(self, preemption: Preemption) -> int | None:
        """When the same preemptor next had one of the same victims evicted."""
        for each in self.all:
            same = each.decided.uid == preemption.decided.uid and each.look > preemption.look
            if same and preemption.written & each.written:
                return each.look
        return None


def _wrong_choice(preemptor: Claim, decided: Decided, look: Look, beside: Mapping[str, Claim], gone: set[str]) -> str:
    """What is wrong with a choice of victims, with others let in and gone; empty if nothing."""
    if sentence := _past_nominal(preemptor, decided, look, beside, gone):
        return sentence
    within = _not_minimal(preemptor, decided, look, beside, gone, borrow=False)  # it may have been to reclaim its own
    return within and _not_minimal(preemptor, decided, look, beside, gone, borrow=True)


def _past_nominal(preemptor: Claim, decided: Decided, look: Look, beside: Mapping[str, Claim], gone: set[str]) -> str:
    """Which other queue would be left with less than its own quota before the last of its victims went."""
    for queue in sorted({victim.queue for victim in decided.victims} - {preemptor.queue}):
        theirs = {victim.uid for victim in decided.victims if victim.queue == queue}
        usages = (look.usage(without=gone | theirs - {last}, beside=beside) for last in sorted(theirs))
        if not any(look.tree.borrows(queue, usage) for usage in usages):
            return f"{queue} is within its quota before all of {sorted(theirs)} are gone: {look.usage()}, {look.limits}"
    return ""


def _not_minimal(
    preemptor: Claim, decided: Decided, look: Look, beside: Mapping[str, Claim], gone: set[str], *, borrow: bool
) -> str:
    """With its victims gone the preemptor must fit, and without any one of them it must not."""

    def fits(victims: set[str]) -> bool:
        usage = look.usage(without=gone | victims, beside=beside)
        return look.tree.fits(preemptor.queue, preemptor.cpus, usage, borrow=borrow)

    if not fits(decided.gone):
        return f"{preemptor} would not fit with all of them gone: {look.usage()}, {look.limits}"
    for victim in decided.victims:
        if fits(decided.gone - {victim.uid}):
            return f"{preemptor} would have fitted without {victim}: {look.usage()}, {look.limits}"
    return ""
