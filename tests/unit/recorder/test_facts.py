"""Facts are derived from versions of a Workload, each with the time at which it happened."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.recorder.lives import PREEMPTED, T0, condition, facts, life, recorded, version
from turnstile.recorder.facts import Fact, Quota, Subject, of_change, of_quota


class TestALife:
    """A Workload that waits, runs, is preempted, runs again and ends."""

    def test_is_told_in_order(self) -> None:
        """With the times of its conditions, and of what only the observer dates, the time of the observation."""
        assert facts(recorded(life())) == [
            ("created", 0),
            ("waiting", 1),
            ("reserved", 10),
            ("admitted", 10),
            ("evicted", 20),
            ("released", 25),
            ("waiting", 25),
            ("reserved", 40),
            ("admitted", 40),
            ("usage", 48),
            ("finished", 60),
            ("deleted", 64),
        ]

    def test_says_by_whom_it_was_preempted(self) -> None:
        """The preemptor, the ClusterQueue it waits in, and by which right."""
        (evicted,) = (each for each in recorded(life()) if isinstance(each, Fact) and each.what == "evicted")
        assert (evicted.reason, evicted.message) == ("Preempted", PREEMPTED)
        assert evicted.detail == {"preemptor": "uid-high", "cluster_queue": "b", "why": "InCohortReclamation"}

    def test_says_what_it_holds(self) -> None:
        """All of the admission at first, and less after a pod has ended."""
        held = [each for each in recorded(life()) if isinstance(each, Fact) and each.what in ("reserved", "usage")]
        usage = [each.detail["usage"] for each in held if each.detail is not None]
        assert usage == [[["default", "cpu", 4000]], [["default", "cpu", 4000]], [["default", "cpu", 3000]]]

    def test_says_what_it_is(self) -> None:
        """The Workload and its job, so that it is found when both are gone."""
        subject = recorded(life())[0]
        assert isinstance(subject, Subject)
        assert (subject.namespace, subject.name, subject.local_queue) == ("team", "w", "main")
        assert (subject.owner_kind, subject.owner_name) == ("Job", "job-w")


@pytest.mark.parametrize("cut", range(1, 9))
def test_facts_derived_again_have_the_same_marks(cut: int) -> None:
    """A leader that sees a version first derives of it what the leader before derived, and nothing else but why the
    Workload waits and what it holds, which are compared with what is stored."""
    before = {(each.what, each.mark) for each in recorded(life()[:cut]) if isinstance(each, Fact) and not each.observed}
    again = [each for each in of_change(None, life()[cut - 1], T0 + 500) if isinstance(each, Fact)]
    assert {(each.what, each.mark) for each in again if not each.observed} <= before
    assert {each.what for each in again if each.observed} <= {"waiting", "usage"}


class TestAVersion:
    def test_that_changes_nothing_of_interest_is_no_fact(self) -> None:
        """A condition that no timeline has, another label."""
        old = version("w", condition("QuotaReserved", "False", 1, "Pending", "2 more needed"))
        new = b.changed(old, metadata={"labels": {"a": "b"}})
        new.status.conditions = [
            *new.status.conditions,
            *version("w", condition("PodsScheduled", "False", 3)).status.conditions,
        ]
        assert list(of_change(old, new, T0)) == []

    def test_with_another_reason_is_dated_by_the_observer(self) -> None:
        """Its condition does not say since when."""
        old = version("w", condition("QuotaReserved", "False", 1, "Pending", "2 more needed"))
        new = version("w", condition("QuotaReserved", "False", 1, "Pending", "1 more needed"))
        assert facts(of_change(old, new, T0 + 7)) == [("waiting", 7)]

    def test_of_a_namesake_ends_the_one_before(self) -> None:
        """A watch may miss the deletion."""
        old, new = version("w"), b.changed(version("w"), metadata={"uid": "another"})
        found = [(each.uid, each.what) for each in of_change(old, new, T0) if isinstance(each, Fact)]
        assert found == [("uid-w", "deleted"), ("another", "created")]

    def test_with_a_check_that_moved(self) -> None:
        """The check, its state and what it says."""
        check = {"name": "nodes", "state": "Ready", "message": "there are", "lastTransitionTime": b.stamp(9)}
        found = list(of_change(version("w"), version("w", admissionChecks=[check]), T0))
        assert [(each.what, each.reason, each.detail, each.at - T0) for each in found if isinstance(each, Fact)] == [
            ("check", "Ready", {"check": "nodes"}, 9)
        ]


class TestAQuota:
    def test_is_recorded_with_its_limits(self) -> None:
        """In the units of the engine."""
        queue = b.queue("a", {"default": {"cpu": (4, 2, 1)}}, cohort="all")
        assert list(of_quota(None, queue, T0)) == [
            Quota("ClusterQueue", "a", T0, "all", (("default", "cpu", 4000, 2000, 1000),))
        ]

    def test_of_a_cohort(self) -> None:
        """Under its parent."""
        assert list(of_quota(None, b.cohort("all", {"x": {"gpu": 3}}, parent="top"), T0)) == [
            Quota("Cohort", "all", T0, "top", (("x", "gpu", 3, None, None),))
        ]

    def test_that_is_gone(self) -> None:
        """Is nothing from then on."""
        assert list(of_quota(b.queue("a"), None, T0)) == [Quota("ClusterQueue", "a", T0, "", (), gone=True)]
