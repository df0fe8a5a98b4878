"""What became of a preemptor, followed from cycle to cycle until it is let in, or an answer shows why not.

The order of a cycle is told anew, as Kueue has it and docs/concepts/preemption.md changes it. Must never ask
Turnstile's own code.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from tests.faults.evidence import Decided, Look
from tests.faults.moments import Claim

SERVED, CUT_SHORT, STILL_WAITS = "served", "cut short", "its preemptor still waits at the end"
OUTRANKED = "outranked", True


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


class Fate:
    """What became of one preemptor. `settled` is the number of the cycle that decided it, and `heir` the decision that
    gave somebody else its room."""

    def __init__(
        self,
        looks: list[Look],
        landed: set[tuple[int, str]],
        everything: list[Preemption],
        counted_on: Mapping[str, Collection[str]],
        preemption: Preemption,
        *,
        fair: bool,
        deleted: bool,
    ) -> None:
        self._looks = looks
        self._landed = landed
        self._all = everything
        self._counted_on = counted_on
        self._preemption = preemption
        self._fair = fair
        self._deleted = deleted
        self._admitted_in: int | None = None
        """The last term in which it was let in, if that was not written."""
        self._uid = preemption.decided.uid
        start = looks[preemption.look]
        self._start = start
        self._preemptor = start.waiting[self._uid]
        self._victims = preemption.decided.gone
        self._before: dict[str, Claim] = {}
        """Those whose victims leave some of the room it counts on, which is to hold them too."""
        self._leaving = set(self._victims)
        self._own = set(self._victims)
        """Of those, the ones that it chose itself."""
        before = start.decisions[: preemption.place]
        admitted = {decided.uid: start.waiting[decided.uid] for decided in before if decided.outcome == "admit"}
        self._short = bool(self._victims) and not self._fits_by_its_own(start, admitted)
        """Whether somebody who comes first, or an administrator, took what it needs beside its own victims: there is
        room for it only where those of others leave more than is asked for."""
        self.settled = preemption.look
        self.heir: Preemption | None = None

    def find(self) -> tuple[str, bool]:
        """What became of it, and whether that is an answer."""
        before = self._start
        for number in range(self._preemption.look, len(self._looks)):
            look = self._looks[number]
            self.settled = number
            first = self._preemption.place + 1 if number == self._preemption.look else 0
            found = self._without_decision(before, look) if number > self._preemption.look else None
            found = found or self._with_decisions(number, look, first)
            if found is not None:
                return found
            before = look
        return STILL_WAITS, False

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
        if self._deleted and self._admitted_in == look.term:
            return "withdrawn", True  # the write found it gone, and the watch has not told of that yet
        then = replace(look, decisions=before.decisions)
        if self._has_room(then, {}, set()):
            uncut = replace(look, limits=before.limits)
            self._short = self._short or (self._fits_by_its_own(uncut, {}) and not self._fits_by_its_own(look, {}))
            return None
        limits = (before.limits, self._start.limits)
        if any(self._has_room(replace(each, limits=old), {}, set()) for each in (then, look) for old in limits):
            return "quota cut", True
        staying = {uid for uid in self._leaving - look.going if uid in look.holding}
        if look.term != before.term and staying - self._preemption.written:
            return CUT_SHORT, True
        if any(self._called_off(uid, look) for uid in staying):
            return "called off", True
        mine = look.place(self._uid)
        if mine is not None and look.decisions[mine].requeue == "PendingPreemption":
            return None  # it had more victims, as those of others were not evicted after all
        return f"its room was lost before {look}: {look.usage()}, going {sorted(look.going)}, {look.limits}", False

    def _called_off(self, victim: str, look: Look) -> bool:
        """Whether who had that one evicted waited no more, or asked for something else, before that was known to be
        written."""
        number = self._looks.index(look)
        for each in reversed(self._all):
            if each.look < number and any(v.new and v.uid == victim for v in each.decided.victims):
                uid, was = each.decided.uid, self._looks[each.look].waiting[each.decided.uid]
                since = self._looks[each.look + 1 : number + 1]
                waited = all(
                    uid not in then.left and uid in then.waiting and then.waiting[uid].terms == was.terms
                    for then in since
                )
                return not waited  # and though it may have been on its way already, its leader counts on it no more
        return False

    def _has_room(self, look: Look, beside: Mapping[str, Claim], freed: set[str]) -> bool:
        """Whether it fits, or will once those are gone who go for it."""
        going = self._leaving if look is self._start else self._leaving & look.going
        claiming = {decided.uid for decided in look.decisions if decided.claims}
        waiting = {uid: claim for uid, claim in self._before.items() if uid in look.waiting.keys() & claiming}
        usage = look.usage(without=going | freed, beside={**waiting, **beside})
        return fits(look, self._preemptor, usage)

    def _with_decisions(self, number: int, look: Look, first: int) -> tuple[str, bool] | None:
        """What the decisions of a cycle made of it, from one on."""
        if self._uid in look.assumed:
            return None
        admitted: dict[str, Claim] = {}
        claimed: dict[str, Claim] = {}
        freed: set[str] = set()
        for place, decided in enumerate(look.decisions):
            claim = look.waiting.get(decided.uid)
            if decided.uid == self._uid:
                if decided.outcome == "admit":
                    self._admitted_in = look.term
                    return (SERVED, True) if (number, self._uid) in self._landed else None
                self._leaving |= decided.gone
                self._own |= decided.gone
                freed |= decided.gone
                continue
            if not decided.claims or claim is None:
                continue
            if decided.outcome == "admit":
                admitted[decided.uid] = claim
            else:
                claimed[decided.uid] = claim
                freed |= decided.gone
            if place >= first and decided.outcome == "admit" and self._taken(look, admitted, decided.uid):
                self._short = self._passed(look, place, claim) == OUTRANKED
            if place >= first and not self._has_room(look, {**admitted, **claimed}, freed):
                known = (each for each in self._all if (each.look, each.place) == (number, place))
                self.heir = next(known, None) or Preemption(number, place, decided, str(look))
                return self._passed(look, place, claim)
        if not self._has_room(look, admitted, set()):
            self._before |= claimed
            self._leaving |= freed
        return None

    def _taken(self, look: Look, admitted: Mapping[str, Claim], uid: str) -> bool:
        """Whether it is by this admission that it has no room beside its own victims."""
        others = {other: claim for other, claim in admitted.items() if other != uid}
        return self._fits_by_its_own(look, others) and not self._fits_by_its_own(look, admitted)

    def _fits_by_its_own(self, look: Look, beside: Mapping[str, Claim]) -> bool:
        going = self._own if look is self._start else self._own & look.going
        return fits(look, self._preemptor, look.usage(without=going, beside=beside))

    # --- who may pass it ------------------------------------------------------------------------------------------

    def _passed(self, look: Look, place: int, other: Claim) -> tuple[str, bool]:
        """Somebody else takes its room: whether that one comes first."""
        mine = look.place(self._uid)
        first = self._first(look, self._preemptor.queue)
        another = look.term != self._start.term
        unnamed = another and not any(f"(UID: {self._uid}," in message for message in self._known_evictions(look))
        served = self._uid in look.waiting and look.waiting[self._uid].evicted != ""
        unknown = another and (first != {self._uid} or unnamed or served or self._lost(look))
        if mine is not None and (unnamed or (unknown and mine < place)):
            return "left to its place in line by the next leader", True
        if mine is not None and mine < place:
            if self._short and look.decisions[mine].requeue == "PreemptionNoCandidates":
                return "parked", True
            return self._story(look, other, "was looked at before")
        if mine is not None:
            return OUTRANKED if self._comes_first(look, place, mine) else self._story(look, other, "is first")
        if unknown and any(each.place(self._uid) is not None for each in self._before_it(look)):
            return "left to its place in line by the next leader", True
        if (self._short or not self._victims) and self._parked(look):
            return "parked", True
        heads = [head for head in look.decisions if head.queue == self._preemptor.queue]
        if not heads:
            return self._story(look, other, "waits, and nobody of its queue was looked at")
        head = look.waiting.get(heads[0].uid)
        if (first == {self._uid} and not unknown) or head is None:
            return self._story(look, other, f"had to be at the head, and not {head}")
        if head.uid in first or _line(head) < _line(self._preemptor):
            return "not at the head", True
        return self._story(look, other, f"comes before {head}, who was at the head")

    def _story(self, look: Look, other: Claim, but: str) -> tuple[str, bool]:
        return f"{other} took its room in {look} though {self._preemptor} {but}: {look.usage()}, {look.limits}", False

    def _lost(self, look: Look) -> bool:
        """Whether a victim that still has to go does not name it any more, having been evicted for another reason."""
        return any(f"(UID: {self._uid}," not in look.holding[uid].evicted for uid in self._own & look.going)

    def _first(self, look: Look, queue: str) -> set[str]:
        """Who stands at the head of a queue for having had others preempted, and keeps their room. A new leader knows
        that from the conditions of victims as it begins, also of victims that wait no more, which may name several."""
        for earlier in self._before_it(look):
            for decided in earlier.decisions:
                if decided.queue == queue and decided.requeue == "PendingPreemption":
                    return {decided.uid}
        evicted = self._known_evictions(look)
        return {
            uid
            for uid, claim in self._began(look).waiting.items()
            if claim.queue == queue
            and (uid in self._counted_on or any(f"(UID: {uid}," in message for message in evicted))
        }

    def _began(self, look: Look) -> Look:
        """The first cycle of the same leader."""
        return [look, *self._before_it(look)][-1]

    def _known_evictions(self, look: Look) -> list[str]:
        """What the conditions of evicted Workloads said when the leader began."""
        began = self._began(look)
        return [claim.evicted for claim in (*began.waiting.values(), *began.holding.values()) if claim.evicted]

    def _parked(self, look: Look) -> bool:
        """Whether it was refused when this leader last looked at it, as those before it in the cycle, or one that
        outranked it, left it no room, and no quota came back in its tree since: until then it is out of line, and holds
        nobody of its queue up."""
        then = look
        for earlier in self._before_it(look):
            if self._uid in then.left or _gave_back(earlier, then, self._preemptor.queue):
                return False
            place = earlier.place(self._uid)
            if place is not None:
                refused = earlier.decisions[place].requeue == "PreemptionNoCandidates"
                if not self._short:
                    return refused and not self._has_room(earlier, *claimed(earlier, place))
                return refused and not self._fits_by_its_own(earlier, {})
            then = earlier
        return False

    def _before_it(self, look: Look) -> Iterator[Look]:
        """The cycles of the same leader before that one, the latest first."""
        number = self._looks.index(look)
        return (earlier for earlier in reversed(self._looks[:number]) if earlier.term == look.term)

    def _comes_first(self, look: Look, place: int, mine: int) -> bool:
        """Whether one head may be decided about before another one, by the order of a cycle."""
        one, two = look.decisions[place], look.decisions[mine]
        first, second = look.waiting[one.uid], look.waiting[two.uid]
        if two.uid == self._uid and self._first(look, two.queue) == {two.uid} and not self._may_pass(look, one, first):
            return False
        named = f"(UID: {one.uid}," in second.evicted  # maybe under an earlier leader
        if (named or self._made_way(two.uid, one.uid)) and one.uid in self._first(look, one.queue):
            return True  # it was preempted for that one
        freely = two.borrowing and two.uid not in self._counted_on
        if freely and second.priority <= first.priority and one.uid in self._first(look, one.queue):
            return True  # it would borrow what that one waits for
        for number, decided in enumerate(look.decisions[place + 1 : mine], place + 1):
            made_way = self._made_way(two.uid, decided.uid) and decided.uid in self._first(look, decided.queue)
            if made_way and self._comes_first(look, place, number):
                return True  # it made way for one that comes after this one
        if not self._fair:
            return (one.borrowing, *_line(first)) <= (two.borrowing, *_line(second))
        if look.tree.root(first.queue) != look.tree.root(second.queue):
            return True
        theirs, ours = look.tree.below(first.queue, second.queue)
        # The other side of the tree is judged by the head that comes first in it, or would, but made way for this one.
        heads = [(number, _head(look, number)) for number in range(len(look.decisions))]
        side = [(number, head) for number, head in heads if head and ours in (head.queue, *look.tree.above(head.queue))]
        before = [
            (number, head)
            for number, head in side
            if place < number <= mine and (number == mine or not self._made_way(head.uid, one.uid))
        ]
        after = []
        if self._first(look, two.queue) == {two.uid}:
            after = [
                each for each in side if each[0] > mine and not self._may_pass(look, look.decisions[each[0]], each[1])
            ]
        return any(
            any(
                a <= b
                for a in self._standing(look, place, theirs, _head(look, place) or first)
                for b in self._standing(look, place, ours, head)
            )
            and (number >= mine or self._comes_first(look, number, mine))
            for number, head in before + after
        )

    def _made_way(self, victim: str, preemptor: str) -> bool:
        """Whether one ever counted on the quota of the other."""
        return victim in self._counted_on.get(preemptor, ())

    def _may_pass(self, look: Look, one: Decided, claim: Claim) -> bool:
        """Nobody is let in before the one he was preempted for, nor, if he would borrow and has no higher priority,
        before one that waits for its victims to go; unless he waits so himself. A new leader knows a victim by its
        condition, which names the one that had it evicted first."""
        if one.uid in self._victims and (look.term == self._start.term or f"(UID: {self._uid}," in claim.evicted):
            return False
        if not one.borrowing or claim.priority > self._preemptor.priority:
            return True
        return one.uid in self._first(look, one.queue)

    @staticmethod
    def _standing(look: Look, place: int, node: str, claim: Claim) -> Iterator[tuple[bool, object, int, float]]:
        """How a side of the tree stands with a workload let in: as the cycle began, and beside those before it. Of two
        that stand the same either comes first."""
        for beside in ({}, claimed(look, place)[0]):
            usage = look.usage(beside={**beside, claim.uid: claim})
            share: tuple[bool, Fraction] = look.tree.share(node, usage)
            yield look.tree.borrows(node, usage), share, *_line(claim)[:2]


def _head(look: Look, place: int) -> Claim | None:
    """The Workload of a decision, as it counts in the order of the cycle: it takes nothing if no flavor fits it."""
    decided = look.decisions[place]
    claim = look.waiting.get(decided.uid)
    return replace(claim, cpus=0) if claim and decided.requeue == "NoFit" else claim


def _line(claim: Claim) -> tuple[int, float, str]:
    """Place in the line of one queue."""
    return -claim.priority, claim.created, claim.uid


def _gave_back(before: Look, after: Look, queue: str) -> bool:
    """Whether quota or a policy changed from one cycle to the next, or somebody in the tree of a queue holds less."""
    if (before.limits, before.policies) != (after.limits, after.policies):
        return True
    tree, now = before.tree, after.holding
    return any(
        held.uid not in now or now[held.uid].queue != held.queue or now[held.uid].cpus < held.cpus
        for held in before.holding.values()
        if held.queue in tree and tree.root(held.queue) == tree.root(queue)
    )


def fits(look: Look, claim: Claim, usage: Mapping[str, int]) -> bool:
    """Whether a claim fits beside that usage, in whole cpus by ClusterQueue."""
    return claim.queue in look.tree and look.tree.fits(claim.queue, claim.cpus, usage)


def claimed(look: Look, place: int) -> tuple[dict[str, Claim], set[str]]:
    """What those before a place in a cycle claim, and whom they want gone. One that finds nobody to preempt keeps for
    itself what its queue has a right to, unless that can always reclaim it."""
    beside: dict[str, Claim] = {}
    gone: set[str] = set()
    for decided in look.decisions[:place]:
        claim = look.waiting.get(decided.uid)
        if claim is None:
            continue
        if decided.claims:
            beside[decided.uid] = claim
            gone |= decided.gone
        elif decided.requeue == "PreemptionNoCandidates" and look.policies[claim.queue].reclaim != "Any":
            limits, used = look.limits[claim.queue], look.usage(beside=beside).get(claim.queue, 0)
            room: float = limits.nominal - used
            if decided.borrowing:
                room = float("inf") if limits.borrowing is None else room + limits.borrowing
            beside[decided.uid] = replace(claim, cpus=int(max(0, min(claim.cpus, room))))
    return beside, gone
