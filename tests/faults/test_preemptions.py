"""The judge of preemptions sees each kind of wrong, and takes nothing right for wrong."""

from collections.abc import Mapping

import pytest

from tests.faults.evidence import Decided, Look, Victim
from tests.faults.fates import Preemption
from tests.faults.moments import Claim
from tests.faults.preemptions import Preemptions
from tests.model.quota import Limits
from tests.model.rules import Policy

LIMITS = {
    "org": Limits(0, queue=False),
    "a": Limits(4, parent="org"),
    "b": Limits(2, parent="org"),
}
POLICIES = {
    "a": Policy("LowerPriority", "Any"),
    "b": Policy("Never", "LowerPriority"),
    "c": Policy("Never", "LowerPriority"),
}


def claim(name: str, queue: str, cpus: int, *, priority: int = 0, created: float = 0) -> Claim:
    """Somebody, by name."""
    return Claim(name, name, f"job-{name}", queue, cpus, priority, created)


def waits(
    name: str, outcome: str = "pending", requeue: str = "NoFit", *, queue: str = "a", borrowing: int = 0
) -> Decided:
    """A decision without victims."""
    return Decided(name, queue, outcome, requeue, borrowing, ())


def lets_in(name: str, *, queue: str = "a", borrowing: int = 0) -> Decided:
    """An admission."""
    return waits(name, "admit", "", queue=queue, borrowing=borrowing)


def preempts(name: str, *victims: Victim, queue: str = "a", borrowing: int = 0) -> Decided:
    """A decision to have others evicted, or to wait for them to go."""
    return Decided(name, queue, "preempting", "PendingPreemption", borrowing, victims)


def victim(name: str, queue: str = "a", reason: str = "InClusterQueue", *, new: bool = True) -> Victim:
    """One of them."""
    return Victim(name, queue, reason, new)


class Told:
    """Cycles of one leader or more, told one by one."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.unwritten: set[str] = set()
        """Whose admissions never reached the server."""

    def look(
        self,
        *decisions: Decided,
        waiting: tuple[Claim, ...] = (),
        holding: tuple[Claim, ...] = (),
        going: tuple[str, ...] = (),
        left: tuple[str, ...] = (),
        limits: Mapping[str, Limits] = LIMITS,
        term: int = 0,
    ) -> None:
        """One more cycle."""
        number = len(self.looks)
        self.looks.append(
            Look(
                term=term,
                leader=f"leader-{term}",
                cycle=number,
                newest=10 * number,
                limits=limits,
                policies=POLICIES,
                waiting={each.uid: each for each in waiting},
                holding={each.uid: each for each in holding},
                assumed=frozenset(),
                going=frozenset(going),
                left=frozenset(left),
                decisions=list(decisions),
            )
        )

    def judge(self, *, fair: bool = False) -> tuple[Preemptions, Preemption]:
        """The judge, and the first preemption."""
        preemptions = Preemptions(self.looks, fair=fair)
        for look in self.looks:
            for decided in look.decisions:
                if decided.outcome == "admit" and decided.uid not in self.unwritten:
                    assert preemptions.land(decided.uid, decided.queue, look.newest + 5)[1] == [look]
        return preemptions, preemptions.all[0]

    def fault(self) -> str:
        """What was wrong with the first preemption."""
        preemptions, first = self.judge()
        return preemptions.fault(first)

    def outcome(self) -> tuple[str, bool]:
        """What came of it, all its evictions having been written."""
        preemptions, first = self.judge()
        first.written |= {each.uid for each in first.decided.victims if each.new}
        return preemptions.outcome(first)


HIGH = claim("high", "a", 3, priority=10, created=1)
LOW, OTHER = claim("low", "a", 2), claim("other", "a", 2)


class TestADecision:
    """On what its leader knew."""

    def test_that_takes_just_enough_is_right(self) -> None:
        """With both gone it fits, and without either it does not."""
        told = Told()
        told.look(
            preempts("high", victim("low"), victim("other")), waiting=(HIGH,), holding=(LOW, OTHER), limits=_alone()
        )
        assert not told.fault()

    def test_may_not_take_one_too_many(self) -> None:
        """Whom nobody needs stays."""
        told = Told()
        small = claim("small", "a", 1)
        victims = victim("low"), victim("small")
        told.look(preempts("high", *victims), waiting=(HIGH,), holding=(LOW, small), limits=_alone())
        assert "would have fitted without" in told.fault()

    def test_may_not_take_too_few(self) -> None:
        """They would go for nothing."""
        told = Told()
        told.look(preempts("high", victim("low")), waiting=(HIGH,), holding=(LOW, OTHER), limits=_alone())
        assert "would not fit" in told.fault()

    def test_may_not_be_made_for_somebody_who_does_not_wait(self) -> None:
        """Deleted, stopped or let in before."""
        told = Told()
        told.look(preempts("high", victim("low"), victim("other")), holding=(LOW, OTHER))
        assert "did not wait" in told.fault()

    def test_may_not_break_the_policy(self) -> None:
        """The victim is no lower."""
        told = Told()
        equal = claim("equal", "a", 4, priority=10)
        told.look(preempts("high", victim("equal")), waiting=(HIGH,), holding=(equal,), limits=_alone())
        assert "not allowed" in told.fault()

    def test_may_not_go_below_the_nominal_quota_of_another_queue(self) -> None:
        """The first victim brought it back to what is its own."""
        told = Told()
        theirs = claim("one", "b", 2), claim("two", "b", 2)
        victims = [victim(each.uid, "b", "InCohortReclamation") for each in theirs]
        big = claim("big", "a", 5, priority=10)
        told.look(preempts("big", *victims), waiting=(big,), holding=(*theirs, claim("own", "a", 1, priority=10)))
        assert "within its quota" in told.fault()

    def test_of_an_eviction_is_the_one_made_before_it(self) -> None:
        """An eviction that nobody decided, or that somebody decided later, is nobody's."""
        told = Told()
        told.look()
        told.look(preempts("high", victim("low"), victim("other")), waiting=(HIGH,), holding=(LOW, OTHER))
        preemptions, first = told.judge()
        assert preemptions.write("low", "somebody", "InClusterQueue", 20) is None
        assert preemptions.write("low", "high", "InCohortReclamation", 20) is None
        assert preemptions.write("low", "high", "InClusterQueue", 10) is None
        assert preemptions.write("low", "high", "InClusterQueue", 11) is first
        assert preemptions.write("low", "high", "InClusterQueue", 12) is None


class TestAnAdmission:
    """On what its leader knew, too."""

    def test_that_fits_is_right(self) -> None:
        """Beside those that hold quota, or were let in before it in the same cycle."""
        told = Told()
        told.look(lets_in("high"), waiting=(HIGH,), holding=(claim("small", "a", 1),), limits=_alone())
        wrong, since = Preemptions(told.looks, fair=False).land("high", "a", 5)
        assert (wrong, since) == ("", told.looks)

    def test_that_does_not_fit_is_wrong(self) -> None:
        """Two are let in side by side, each of which would fit alone."""
        told = Told()
        told.look(lets_in("low"), lets_in("high"), waiting=(HIGH, LOW), limits=_alone())
        assert "did not fit" in Preemptions(told.looks, fair=False).land("high", "a", 5)[0]

    def test_that_nobody_decided_is_wrong(self) -> None:
        """Or that was decided after it, or for another queue."""
        told = Told()
        told.look(lets_in("high"), waiting=(HIGH,), limits=_alone())
        preemptions = Preemptions(told.looks, fair=False)
        for uid, queue, revision in (("low", "a", 5), ("high", "b", 5), ("high", "a", 0)):
            assert preemptions.land(uid, queue, revision) == ("nobody decided that", [])


class TestAPreemptor:
    """Followed from cycle to cycle."""

    def begun(self) -> Told:
        """`high` had `low` and `other` evicted, alone in its tree."""
        told = Told()
        self.then(told, preempts("high", victim("low"), victim("other")), holding=(LOW, OTHER))
        return told

    def then(
        self,
        told: Told,
        *decisions: Decided,
        waiting: tuple[Claim, ...] = (HIGH,),
        holding: tuple[Claim, ...] = (),
        going: tuple[str, ...] = (),
        left: tuple[str, ...] = (),
        term: int = 0,
        cpus: int = 4,
    ) -> None:
        """One more cycle, with so much quota."""
        limits = _alone(cpus)
        told.look(*decisions, waiting=waiting, holding=holding, going=going, left=left, term=term, limits=limits)

    def test_that_gets_its_room_is_served(self) -> None:
        """After its victims have gone one by one."""
        told = self.begun()
        self.then(told, preempts("high", victim("low", new=False)), holding=(LOW,), going=("low",))
        self.then(told, lets_in("high"))
        assert told.outcome() == ("served", True)

    def test_whose_admission_was_never_written_is_not_served(self) -> None:
        """Its leader was killed, and the next one leaves it waiting."""
        told = self.begun()
        self.then(told, lets_in("high"))
        self.then(told, waits("high"), term=1)
        told.unwritten.add("high")
        assert told.outcome() == ("its preemptor still waits at the end", False)

    def test_that_is_gone_has_withdrawn(self) -> None:
        """So has one that stopped waiting for a while."""
        told = self.begun()
        self.then(told, waiting=())
        assert told.outcome() == ("withdrawn", True)
        told = self.begun()
        self.then(told, left=("high",))
        assert told.outcome() == ("withdrawn", True)

    def test_may_lose_its_room_to_a_cut(self) -> None:
        """Quota that is not there any more is nobody's."""
        told = self.begun()
        self.then(told, waits("high"), cpus=2)
        assert told.outcome() == ("quota cut", True)

    def test_may_be_passed_by_somebody_who_comes_first(self) -> None:
        """Here of another queue, within its own quota, where it would borrow."""
        told = Told()
        big = claim("big", "a", 5, priority=10)
        theirs = claim("theirs", "b", 2)
        held = claim("held", "a", 2)
        told.look(preempts("big", victim("held"), borrowing=1), waiting=(big,), holding=(held,))
        told.look(lets_in("theirs", queue="b"), waits("big", "skipped", borrowing=1), waiting=(big, theirs))
        assert told.outcome() == ("outranked", True)

    def test_may_not_be_passed_by_somebody_who_comes_after(self) -> None:
        """In the same order, but borrowing like itself."""
        told = Told()
        big, theirs = claim("big", "a", 5, priority=10), claim("theirs", "b", 3, priority=5)
        told.look(preempts("big", victim("low"), borrowing=1), waiting=(big,), holding=(LOW,))
        passed = lets_in("theirs", queue="b", borrowing=1), waits("big", "skipped", borrowing=1)
        told.look(*passed, waiting=(big, theirs))
        assert told.outcome()[1] is False

    def test_may_not_be_passed_by_its_own_victim(self) -> None:
        """Though that would borrow less."""
        told = Told()
        big, theirs = claim("big", "a", 5, priority=10), claim("theirs", "b", 2)
        reclaimed = victim("theirs", "b", "InCohortReclamation")
        told.look(preempts("big", reclaimed, borrowing=1), waiting=(big,), holding=(theirs,))
        told.look(lets_in("theirs", queue="b"), waits("big", "skipped", borrowing=1), waiting=(big, theirs))
        assert told.outcome()[1] is False

    def test_stays_at_the_head_of_its_queue(self) -> None:
        """Another one of its queue is looked at in its place."""
        told = self.begun()
        first = claim("first", "a", 4, priority=20)
        self.then(told, lets_in("first"), waiting=(HIGH, first))
        assert told.outcome()[1] is False

    def test_stands_behind_others_under_the_next_leader(self) -> None:
        """Who knows nothing of what was decided before."""
        told = self.begun()
        first = claim("first", "a", 4, priority=20)
        self.then(told, lets_in("first"), waiting=(HIGH, first), term=1)
        assert told.outcome() == ("not at the head", True)

    def test_is_looked_at_while_its_room_is_there(self) -> None:
        """Nobody of its queue is, and another queue takes it."""
        told = Told()
        big, theirs = claim("big", "a", 5, priority=10), claim("theirs", "b", 2)
        told.look(preempts("big", victim("low"), borrowing=1), waiting=(big,), holding=(LOW,))
        told.look(lets_in("theirs", queue="b"), waiting=(big, theirs))
        assert "nobody of its queue was looked at" in told.outcome()[0]

    def test_may_be_passed_by_somebody_who_waits_for_others_to_go(self) -> None:
        """Then that one is followed in turn: the room must come to somebody."""
        told = self.begun()
        first = claim("first", "a", 4, priority=20)
        claims = preempts("first", victim("low", new=False), victim("other", new=False))
        self.then(told, claims, waiting=(HIGH, first), holding=(LOW, OTHER), going=("low", "other"), term=1)
        assert told.outcome()[1] is False
        self.then(told, lets_in("first"), waiting=(HIGH, first), term=1)
        assert told.outcome() == ("not at the head", True)

    def test_is_passed_over_once_it_is_inadmissible(self) -> None:
        """It counted on another one's victim alone, and was refused while a third one kept room for that cycle."""
        assert self.refused().outcome() == ("not at the head", True)

    def test_is_not_parked_by_a_refusal_without_a_reason(self) -> None:
        """Nobody kept its room."""
        assert "had to be at the head, and not Claim(uid='fourth'" in self.refused(kept=False).outcome()[0]

    def test_is_inadmissible_no_more_once_somebody_gave_room_back(self) -> None:
        """It stands at the head again."""
        assert "had to be at the head, and not Claim(uid='fourth'" in self.refused(back=1).outcome()[0]

    def refused(self, *, kept: bool = True, back: int = 0) -> Told:
        """`high` had `low` evicted, and loses its room to `theirs`; that is refused, and `last` counts on the room. It
        was `keeper` who kept it meanwhile, if anybody; somebody may have given back so much since."""
        told = Told()
        limits = {**LIMITS, "c": Limits(2, parent="org")}
        high, low, rest = claim("high", "a", 2, priority=10), claim("low", "a", 4), claim("rest", "b", 4)
        first, theirs = claim("first", "a", 2, priority=20), claim("theirs", "b", 2)
        keeper, last = claim("keeper", "c", 1), claim("last", "c", 2)
        line = first, high, theirs, claim("fourth", "b", 2), keeper, last
        told.look(preempts("high", victim("low")), waiting=(high,), holding=(low, rest), limits=limits)

        def then(*decisions: Decided, left: int = 4) -> None:
            holding, claims = (low, claim("rest", "b", left)), preempts("first", victim("low", new=False))
            told.look(claims, *decisions, waiting=line, holding=holding, going=("low",), limits=limits, term=1)

        then(waits("theirs", "pending", "PendingPreemption", queue="b"))
        keeps = [waits("keeper", requeue="PreemptionNoCandidates", queue="c")] if kept else []
        then(*keeps, waits("theirs", requeue="PreemptionNoCandidates", queue="b"))
        counts = waits("last", "pending", "PendingPreemption", queue="c")
        then(counts, waits("fourth", requeue="PreemptionNoCandidates", queue="b"), left=4 - back)
        let_in = lets_in("first"), lets_in("last", queue="c")
        told.look(*let_in, waiting=line, holding=(claim("rest", "b", 4 - back),), limits=limits, term=1)
        return told

    @pytest.mark.parametrize(("priority", "expected"), [(20, ("parked", True)), (0, None)])
    def test_is_inadmissible_once_it_was_outranked_though_others_leave_enough(
        self, priority: int, expected: tuple[str, bool] | None
    ) -> None:
        """`above` takes what is free. The victim of `beside` frees two cpus too many, so there is room for all in the
        end; but `high` is refused without them, and `low`'s room goes to `next`. No lower one may take it so."""
        told = Told()
        limits = {**LIMITS, "a": Limits(4, parent="org"), "b": Limits(2, parent="org"), "c": Limits(2, parent="org")}
        high, low, large = claim("high", "a", 4, priority=10), claim("low", "a", 2), claim("large", "b", 4)
        line = high, claim("beside", "b", 2), claim("above", "c", 2, priority=priority), claim("next", "a", 2)
        waits_for_large = preempts("beside", victim("large", "b", new=False), queue="b")

        def then(*decisions: Decided, holding: tuple[Claim, ...] = (low, large)) -> None:
            going = tuple({"low", "large"} & {each.uid for each in holding})
            told.look(waits_for_large, *decisions, waiting=line, holding=holding, going=going, limits=limits)

        then(preempts("high", victim("low")))
        then(lets_in("above", queue="c"), preempts("high", victim("low", new=False)))
        taken = claim("above", "c", 2, priority=priority)
        then(waits("high", requeue="PreemptionNoCandidates"), holding=(low, large, taken))
        then(preempts("next", victim("low", new=False)), holding=(low, large, taken))
        then(lets_in("next"), holding=(large, taken))
        if expected is not None:
            assert told.outcome() == expected
        else:
            assert told.outcome()[1] is False

    def test_is_not_passed_by_an_admission_that_was_never_written(self) -> None:
        """Nobody has its room: the next leader must give it to somebody."""
        told = self.begun()
        first = claim("first", "a", 4, priority=20)
        self.then(told, lets_in("first"), waiting=(HIGH, first), term=1)
        told.unwritten.add("first")
        assert told.outcome()[1] is False

    def test_may_be_cut_short_by_a_kill(self) -> None:
        """One of the evictions was never written; the next leader asks for none."""
        told = self.begun()
        self.then(told, waits("high"), holding=(LOW,), term=1)
        preemptions, first = told.judge()
        first.written = {"other"}
        assert preemptions.outcome(first) == ("cut short", True)

    def test_does_not_have_somebody_evicted_twice_for_one_room(self) -> None:
        """The victim was let in again while the room was kept."""
        told = self.begun()
        again = preempts("high", victim("low"))
        self.then(told, lets_in("low"), waiting=(HIGH, LOW))
        self.then(told, again, holding=(LOW,))
        self.then(told, lets_in("high"))
        assert told.outcome()[1] is False


def _alone(cpus: int = 4) -> dict[str, Limits]:
    """Queue a, in no cohort."""
    return {"a": Limits(cpus)}
