"""Whether each preemption was allowed and needed, and whom it was for: judged on what its leader knew then.

The arithmetic is that of `quota`; the rules are told anew: KEP-83 (policies), KEP-1714 (fair sharing), KEP-79 (cohorts
of cohorts), Kueue's scheduler (order of a cycle). Must never ask Turnstile's own code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tests.faults.evidence import Decided, Look
from tests.faults.moments import Claim

SERVED, CUT_SHORT = "served", "cut short"


@dataclass(eq=False)
class Preemption:
    """One decision that had others evicted: in which cycle it was made, and where in it. `written` are those of its
    victims whose eviction reached the server."""

    look: int
    place: int
    decided: Decided
    told: str
    written: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        victims = ", ".join(f"{victim.uid[:8]} in {victim.queue}" for victim in self.decided.victims)
        return f"{self.told}: {victims} for {self.decided.uid[:8]} in {self.decided.queue}"


class Preemptions:
    """All preemptions of a history. What was written of it is told by `write` and `land`, in the order it happened."""

    def __init__(self, looks: list[Look], *, fair: bool) -> None:
        self._looks = looks
        self._fair = fair
        self._landed: set[tuple[int, str]] = set()
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

    def land(self, uid: str, queue: str, revision: int) -> Look | None:
        """The cycle from which an admission at that revision followed; None if there is none."""
        for number in range(len(self._looks) - 1, -1, -1):
            look = self._looks[number]
            admits = any((d.uid, d.queue, d.outcome) == (uid, queue, "admit") for d in look.decisions)
            if admits and look.newest < revision and (number, uid) not in self._landed:
                self._landed.add((number, uid))
                return look
        return None

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
        return self._past_nominal(preemptor, decided, look) or self._superfluous(preemption, preemptor, look)

    def _refusal(self, reason: str, preemptor: Claim, victim: Claim, look: Look) -> str:
        """Why the policy of the preemptor's queue does not allow that victim; empty if it does."""
        policy = look.policies[preemptor.queue]
        lower = victim.priority < preemptor.priority
        newer = victim.priority == preemptor.priority and preemptor.created < victim.created
        own = victim.queue == preemptor.queue
        if reason == "InClusterQueue":
            allowed = {"LowerPriority": lower, "LowerOrNewerEqualPriority": lower or newer}.get(policy.within, False)
        else:
            allowed = {"LowerPriority": lower, "Any": True}.get(policy.reclaim, False)
        if reason == "InCohortReclaimWhileBorrowing":
            threshold = policy.threshold
            allowed = allowed and policy.borrow == "LowerPriority" and lower and not self._fair
            allowed = allowed and (threshold is None or victim.priority <= threshold)
        if own != (reason == "InClusterQueue") or (reason == "InCohortFairSharing" and not self._fair) or not allowed:
            return f"{preemptor} preempts {victim} under {policy}"
        return ""

    @staticmethod
    def _past_nominal(preemptor: Claim, decided: Decided, look: Look) -> str:
        """Which other queue would be left with less than its own quota by the last of its victims; empty if none."""
        for queue in sorted({victim.queue for victim in decided.victims} - {preemptor.queue}):
            theirs = [victim.uid for victim in decided.victims if victim.queue == queue]
            usages = (look.usage(without=[other for other in theirs if other != last]) for last in theirs)
            if not any(look.tree.borrows(queue, usage) for usage in usages):
                return f"{queue} is within its quota before all of {theirs} are gone: {look.usage()}, {look.limits}"
        return ""

    def _superfluous(self, preemption: Preemption, preemptor: Claim, look: Look) -> str:
        """With its victims gone the preemptor must fit, and without any one of them it must not. A head whose victims
        somebody before it took looks for others, beside what that one will take."""
        why = ""
        before = look.decisions[: preemption.place]
        claimed = {d.uid: look.waiting[d.uid] for d in before if d.claims and d.uid in look.waiting}
        freed = {uid for d in before if d.claims for uid in d.gone}
        for beside, gone in (({}, set()), (claimed, freed)):
            for borrow in (False, True):
                why = _not_minimal(preemptor, preemption.decided, look, beside, gone, borrow=borrow)
                if not why:
                    return ""
        return why

    # --- whom it was for ------------------------------------------------------------------------------------------

    def outcome(self, preemption: Preemption) -> tuple[str, bool]:
        """What became of the preemptor, and whether that is an answer: it was let in, or what happened since shows why
        not. Followed from cycle to cycle, until it is let in or somebody else has its room; if that one only claims the
        room until others are gone, then it is followed in turn."""
        fate = _Fate(self._looks, self._landed, self.all, preemption, fair=self._fair)
        what, good = fate.find()
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


class _Fate:
    """What became of one preemptor. `settled` is the number of the cycle that decided it, and `heir` who claimed the
    room, to have it once others are gone."""

    def __init__(
        self,
        looks: list[Look],
        landed: set[tuple[int, str]],
        everything: list[Preemption],
        preemption: Preemption,
        *,
        fair: bool,
    ) -> None:
        self._looks = looks
        self._landed = landed
        self._all = everything
        self._preemption = preemption
        self._fair = fair
        self._uid = preemption.decided.uid
        start = looks[preemption.look]
        self._start = start
        self._preemptor = start.waiting[self._uid]
        self._victims = preemption.decided.gone
        own = _fits(start, self._preemptor, start.usage(without=self._victims))
        self._any = not own
        """Whether it needs also what others, who come before it, had evicted."""
        self.settled = preemption.look
        self.heir: Preemption | None = None
        self._lost: set[str] = set()
        """Let in, and never written: their leader was killed, or the server refused."""

    def find(self) -> tuple[str, bool]:
        """What became of it, and whether that is an answer."""
        before = self._start
        for number in range(self._preemption.look, len(self._looks)):
            look = self._looks[number]
            self.settled = number
            self._lost &= look.assumed
            first = self._preemption.place + 1 if number == self._preemption.look else 0
            found = self._without_decision(before, look) if number > self._preemption.look else None
            found = found or self._with_decisions(number, look, first)
            if found is not None:
                return found
            before = look
        return "its preemptor still waits at the end", False

    def _without_decision(self, before: Look, look: Look) -> tuple[str, bool] | None:
        """What happened since the cycle before."""
        uid = self._uid
        if uid in look.assumed:
            return None
        if uid in look.holding:
            there = look.holding[uid].queue == self._preemptor.queue
            return (SERVED, True) if there else ("its preemptor got quota elsewhere", False)
        waiting = look.waiting.get(uid)
        if waiting is None or waiting.terms != self._preemptor.terms or uid in look.left:
            return "withdrawn", True
        if self._has_room(look, {}, set()):
            return None
        if look.limits != before.limits:
            return "quota cut", True
        if look.term != before.term:
            unwritten = {u for u in self._victims - look.going if u in look.holding}
            if unwritten - self._preemption.written:
                return CUT_SHORT, True
        return f"its room was lost before {look}: {look.usage()}, going {sorted(look.going)}, {look.limits}", False

    def _has_room(self, look: Look, beside: Mapping[str, Claim], freed: set[str]) -> bool:
        """Whether it fits, or will once those are gone who go for it."""
        going = set(look.going) if self._any else self._victims & look.going
        if look is self._start:
            going |= self._victims
        return _fits(look, self._preemptor, look.usage(without=going | freed | self._lost, beside=beside))

    def _with_decisions(self, number: int, look: Look, first: int) -> tuple[str, bool] | None:
        """What the decisions of a cycle made of it, from one on."""
        if self._uid in look.assumed:
            return None
        beside: dict[str, Claim] = {}
        freed: set[str] = set()
        for place, decided in enumerate(look.decisions):
            if decided.uid == self._uid:
                if decided.outcome != "admit":
                    continue
                return (SERVED, True) if (number, self._uid) in self._landed else None
            claim = look.waiting.get(decided.uid)
            if not decided.claims or claim is None:
                continue
            if decided.outcome == "admit" and (number, decided.uid) not in self._landed:
                self._lost.add(decided.uid)
                continue
            beside[decided.uid] = claim
            freed |= decided.gone
            if place >= first and not self._has_room(look, beside, freed):
                if decided.outcome != "admit":
                    known = (each for each in self._all if (each.look, each.place) == (number, place))
                    self.heir = next(known, None) or Preemption(number, place, decided, str(look))
                return self._passed(look, place, claim)
        return None

    # --- who may pass it ------------------------------------------------------------------------------------------

    def _passed(self, look: Look, place: int, other: Claim) -> tuple[str, bool]:
        """Somebody else takes its room: whether that one comes first."""
        mine = look.place(self._uid)
        story = f"{other} took its room in {look} though {self._preemptor} comes first: {look.usage()}, {look.limits}"
        if mine is not None and mine < place:
            if look.term != self._start.term:
                return "left to its place in line by the next leader", True
            return f"{story}; it was looked at before", False
        if mine is not None:
            return ("outranked", True) if self._comes_first(look, place, mine) else (story, False)
        heads = [head for head in look.decisions if head.queue == self._preemptor.queue]
        if not heads:
            return f"{story}; nobody of its queue was looked at", False
        head = look.waiting.get(heads[0].uid)
        sticky = self._sticky(look, self._preemptor.queue)
        if sticky == self._uid or head is None:
            return f"{story}; it had to be at the head, and not {head}", False
        if sticky == head.uid or _line(head) < _line(self._preemptor):
            return "not at the head", True
        return f"{story}; {head} was at the head", False

    def _sticky(self, look: Look, queue: str) -> str | None:
        """Who stands at the head of a queue for having had others preempted, and keeps their room."""
        number = self._looks.index(look)
        found: str | None = None
        for each in self._all:
            if each.look >= number:
                break
            if self._looks[each.look].term == look.term and each.decided.queue == queue:
                found = each.decided.uid
        return found

    def _comes_first(self, look: Look, place: int, mine: int) -> bool:
        """Whether one head may be decided about before another one, by the order of a cycle."""
        one, two = look.decisions[place], look.decisions[mine]
        first, second = look.waiting[one.uid], look.waiting[two.uid]
        if self._sticky(look, two.queue) == self._uid == two.uid and not self._may_pass(look, one, first):
            return False
        if not self._fair:
            return (one.borrowing, *_line(first)) <= (two.borrowing, *_line(second))
        if look.tree.root(first.queue) != look.tree.root(second.queue):
            return True
        theirs, ours = look.tree.below(first.queue, second.queue)
        # The other side of the tree is judged by the head that comes first in it.
        for number in range(place + 1, mine + 1):
            best = look.waiting.get(look.decisions[number].uid)
            if best is None or ours not in (best.queue, *look.tree.above(best.queue)):
                continue
            before = self._standing(look, place, theirs, first)
            return any(a <= b for a in before for b in self._standing(look, place, ours, best)) and (
                number == mine or self._comes_first(look, number, mine)
            )
        return False

    def _may_pass(self, look: Look, one: Decided, claim: Claim) -> bool:
        """Nobody is let in before the one he was preempted for, nor, if he would borrow and has no higher priority,
        before one that waits for its victims to go; unless he waits so himself."""
        if one.uid in self._victims:
            return False
        if not one.borrowing or claim.priority > self._preemptor.priority:
            return True
        return self._sticky(look, one.queue) == one.uid

    @staticmethod
    def _standing(look: Look, place: int, node: str, claim: Claim) -> Iterator[tuple[bool, object, int, float, str]]:
        """How a side of the tree stands with a workload let in: as the cycle began, and beside those before it."""
        claimed = {d.uid: look.waiting[d.uid] for d in look.decisions[:place] if d.claims and d.uid in look.waiting}
        for beside in ({}, claimed):
            usage = look.usage(beside={**beside, claim.uid: claim})
            share: tuple[bool, Fraction] = look.tree.share(node, usage)
            yield look.tree.borrows(node, usage), share, *_line(claim)


def _line(claim: Claim) -> tuple[int, float, str]:
    """Place in the line of one queue."""
    return -claim.priority, claim.created, claim.uid


def _fits(look: Look, claim: Claim, usage: Mapping[str, int]) -> bool:
    return claim.queue in look.tree and look.tree.fits(claim.queue, claim.cpus, usage)


def _not_minimal(
    preemptor: Claim, decided: Decided, look: Look, beside: Mapping[str, Claim], gone: set[str], *, borrow: bool
) -> str:
    def fits(victims: set[str]) -> bool:
        usage = look.usage(without=gone | victims, beside=beside)
        return look.tree.fits(preemptor.queue, preemptor.cpus, usage, borrow=borrow)

    if not fits(decided.gone):
        return f"{preemptor} would not fit with all of them gone: {look.usage()}, {look.limits}"
    for victim in decided.victims:
        if fits(decided.gone - {victim.uid}):
            return f"{preemptor} would have fitted without {victim}: {look.usage()}, {look.limits}"
    return ""
