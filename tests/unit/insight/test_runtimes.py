"""How long Workloads run is told from the runs that were seen, and from nothing else."""

from random import Random
from statistics import quantiles

import pytest

from tests.unit.engine import builders as b
from turnstile.insight.runtimes import ENDLESS, Group, Run, RunTimes, group_of, runs_of

TEAM = Group(queue="team/main", priority_class="urgent", kind="Job", label="bert")


def runs(group: Group, *seconds: float, ended: bool = True) -> list[Run]:
    """Runs of a group."""
    return [Run(group, each, ended) for each in seconds]


def drawn(times: RunTimes, group: Group, *, elapsed: float = 0.0, count: int = 4000) -> list[float]:
    """Many draws, each from another distribution that the runs make likely."""
    sample = times.sample(group)
    assert sample is not None
    lots = Random(1)
    return sorted(sample.distribution(lots).draw(lots, elapsed=elapsed) for _ in range(count))


class TestWhichRunsCount:
    """Those of the same group, and of a coarser one."""

    @pytest.mark.parametrize(
        ("seen", "common"),
        [
            (TEAM, "queue team/main, priority class urgent, kind Job, label bert"),
            (TEAM._replace(priority_class=""), "queue team/main, kind Job, label bert"),
            (TEAM._replace(queue="other/main"), "label bert"),
            (TEAM._replace(label="gpt"), "queue team/main, priority class urgent, kind Job"),
            (TEAM._replace(label="gpt", kind="RayJob"), "queue team/main"),
            (Group(queue="other/main", kind="Job"), "kind Job"),
            (Group(queue="other/main"), "all Workloads"),
        ],
    )
    def test_a_coarser_group(self, seen: Group, common: str) -> None:
        """What its runs have in common is told."""
        sample = RunTimes(runs(seen, *range(1, 11))).sample(TEAM)
        assert sample is not None
        assert str(sample) == f"10 runs of {common}"

    def test_few_of_its_own(self) -> None:
        """They count beside those of a coarser group, and the more, the more they are."""
        coarser = runs(TEAM._replace(label="gpt"), *[100.0] * 50)
        medians = []
        for few in (1, 4, 40):
            times = RunTimes([*coarser, *runs(TEAM, *[1.0] * few)])
            sample = times.sample(TEAM)
            assert sample is not None
            assert sample.coarser is not None
            medians.append(sum(each <= 1 for each in drawn(times, TEAM)) / 4000)
        assert medians == [pytest.approx(0.2, abs=0.07), pytest.approx(0.5, abs=0.07), pytest.approx(0.9, abs=0.05)]

    def test_too_few(self) -> None:
        """Nothing is told of less than ten runs that ended."""
        times = RunTimes([*runs(TEAM, *range(1, 10)), *runs(TEAM, 1000.0, ended=False)])
        assert times.sample(TEAM) is None

    def test_the_latest_count(self) -> None:
        """Of many, the first ones are forgotten."""
        times = RunTimes([*runs(TEAM, *[1.0] * 500), *runs(TEAM, *[9.0] * 400)])
        assert drawn(times, TEAM, count=50)[5] >= 8


class TestHowLong:
    """The distribution of what is drawn."""

    def test_as_the_runs_were(self) -> None:
        """Its deciles are theirs."""
        lots = Random(7)
        seen = [lots.paretovariate(1.5) * 60 for _ in range(300)]
        expected, found = quantiles(seen, n=10), quantiles(drawn(RunTimes(runs(TEAM, *seen)), TEAM), n=10)
        assert found == pytest.approx(expected, rel=0.25)

    def test_after_some_time(self) -> None:
        """It lasts at least as long as it has lasted, and as those that lasted so long."""
        times = RunTimes(runs(TEAM, *range(1, 101)))
        found = drawn(times, TEAM, elapsed=60)
        assert found[0] >= 60
        assert found[len(found) // 2] == pytest.approx(80, abs=4)

    def test_groups_are_alike_in_themselves(self) -> None:
        """A group of which nothing is known may be like one that is short, or like one that is long: in one course of
        events its runs are mostly of one kind."""
        times = RunTimes([
            run
            for label, seconds in (("a", 1.0), ("b", 1000.0))
            for run in runs(TEAM._replace(label=label), *[seconds] * 20)
        ])  # fmt: skip
        sample = times.sample(TEAM._replace(label="new"))
        assert sample is not None
        lots = Random(3)
        parts = []
        for _ in range(200):
            distribution = sample.distribution(lots)
            parts.append(sum(distribution.draw(lots) <= 1 for _ in range(50)) / 50)
        assert sum(each <= 0.2 or each >= 0.8 for each in parts) >= 40

    def test_longer_than_any_that_was_seen(self) -> None:
        """There is no number."""
        assert set(drawn(RunTimes(runs(TEAM, *range(1, 101))), TEAM, elapsed=101)) == {ENDLESS}

    def test_runs_under_way_count(self) -> None:
        """Half of all run for ever: without those that still run, all would seem short."""
        times = RunTimes([*runs(TEAM, *range(1, 51)), *runs(TEAM, *[100.0] * 50, ended=False)])
        assert sum(each == ENDLESS for each in drawn(times, TEAM)) == pytest.approx(2000, abs=200)


class TestOfWorkloads:
    """Run times are those of Workloads that run or have finished."""

    def test_finished_and_running(self) -> None:
        """From the admission to the end, or to now."""
        held = b.held("runs", "main", {"cpu": "1"}, at=0)
        done = b.changed(held, metadata={"name": "done"})
        conditions = [*done.status.conditions]
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": b.stamp(3)}
        plain = [{"type": each.type, "status": each.status, "reason": each.reason,
                  "lastTransitionTime": each.last_transition_time} for each in conditions]  # fmt: skip
        done = b.changed(done, status={"conditions": [*plain, finished]})
        found = runs_of([held, done, b.workload("waits")], b.NOW)
        assert [(each.seconds, each.ended) for each in found] == [(3.0, True), (5.0, False)]

    def test_the_label_of_its_pods(self) -> None:
        """Where the Workload has none itself."""
        waits = b.workload("waits")
        labelled = b.changed(waits, metadata={"labels": {"app": "bert"}})
        assert group_of(labelled, "app").label == "bert"
        assert group_of(waits, "app") == Group(queue="team/main")
