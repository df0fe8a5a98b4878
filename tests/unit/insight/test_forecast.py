"""When a pending Workload is admitted: from the run times seen, and not without them."""

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import workload
from tests.unit.insight.pending_worlds import team
from tests.unit.insight.racks import racks, runs
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight.forecast import Arrivals, Forecast, Forecaster, arrivals_of
from turnstile.insight.near import Near
from turnstile.insight.runtimes import Group, Run, RunTimes
from turnstile.insight.snapshot import Snapshot

LINE = Group(queue="team/main")


def busy(*more: object) -> Snapshot:
    """A queue of one cpu that is held for 5 seconds already, for which two Workloads wait."""
    snapshot = Snapshot()
    for each in (
        team(), b.flavor(), b.queue("main", {"default": {"cpu": 1}}), b.local("main", "main"),
        b.held("runs", "main", {"cpu": "1"}), b.workload("first", second=1), b.workload("second", second=2), *more,
    ):  # fmt: skip
        snapshot.put(each)  # type: ignore[arg-type]
    return snapshot


def told(
    *keys: str,
    seconds: tuple[float, ...] = (),
    snapshot: Snapshot | None = None,
    arrivals: Arrivals = (),
    seed: int = 0,
) -> list[Forecast]:
    """The forecasts, given how long others ran."""
    times = RunTimes([Run(LINE, each) for each in seconds])
    forecaster = Forecaster(snapshot or busy(), Options(), b.NOW, times, arrivals=arrivals, seed=seed)
    return forecaster.forecast([f"team/{key}" for key in keys])


class TestIntervals:
    """From draws of run times."""

    def test_when_the_one_before_ends(self) -> None:
        """All runs last 100 seconds, and 5 of them have passed."""
        (first,) = told("first", seconds=(100.0,) * 20)
        assert (first.earliest, first.median, first.latest, first.reason) == (95, 95, 95, "")
        assert first.based_on == ("20 runs of queue team/main, priority class none, kind none",)

    def test_one_after_the_other(self) -> None:
        """The second waits for the end of the first too."""
        first, second = told("first", "second", seconds=(100.0,) * 20)
        assert first.median == 95
        assert second.median == 195

    def test_a_gang_waits_for_a_rack(self) -> None:
        """There is quota for it and room in two racks, but it needs a whole one: the first that ends leaves it."""
        snapshot = racks({"r1": [2, 2], "r2": [2, 2]})
        runs(snapshot, "one", {"r1-0": 2})
        runs(snapshot, "other", {"r2-0": 1})
        snapshot.put(workload("gang", 4))
        (gang,) = told("gang", seconds=(100.0,) * 20, snapshot=snapshot)
        assert gang.reason == ""
        assert gang.median == 96

    def test_long_and_short_runs(self) -> None:
        """The interval is from early to late."""
        (first,) = told("first", seconds=tuple(float(each) for each in range(10, 110)))
        assert first.earliest is not None
        assert first.latest is not None
        assert 5 <= first.earliest <= 25
        assert 80 <= first.latest <= 105

    def test_the_same_seed(self) -> None:
        """Gives the same answer, and another seed another one."""
        seconds = tuple(float(each) for each in range(10, 110))
        assert told("first", seconds=seconds) == told("first", seconds=seconds)
        assert told("first", seconds=seconds) != told("first", seconds=seconds, seed=1)

    def test_others_will_come(self) -> None:
        """Where Workloads of higher priority came again and again, they will."""
        seconds = (100.0,) * 20
        urgent = [(b.NOW - back, b.workload(f"urgent-{back}", priority=9)) for back in range(600, 0, -150)]
        (without,) = told("second", seconds=seconds)
        (with_,) = told("second", seconds=seconds, arrivals=urgent)
        assert with_.median is not None
        assert without.median is not None
        assert with_.median > without.median


class TestNoGuess:
    """Without data there is no number, but a reason."""

    def test_no_run_time_at_all(self) -> None:
        """Nothing has finished yet."""
        (first,) = told("first")
        assert (first.earliest, first.latest) == (None, None)
        assert first.reason.startswith("no run time is known")

    def test_too_few_runs(self) -> None:
        """Of what it waits for."""
        (first,) = told("first", seconds=(100.0,) * 3)
        assert (first.earliest, first.latest) == (None, None)

    def test_longer_than_any_run(self) -> None:
        """What it waits for runs longer than anything that was seen."""
        (first,) = told("first", seconds=(4.0,) * 20)
        assert first.latest is None
        assert first.reason

    def test_never(self) -> None:
        """It asks for more than there is: the reason says so, though no run time is known either."""
        wide = b.workload("wide", cpu=2, second=3)
        for seconds in ((100.0,) * 20, ()):
            (forecast,) = told("wide", seconds=seconds, snapshot=busy(wide))
            assert forecast.earliest is None
            assert forecast.reason.startswith("can never start as it is: it asks for 2 CPUs on default nodes")

    def test_a_stopped_queue(self) -> None:
        """It says that the queue is stopped, and nothing of run times."""
        held = b.local("main", "main", stopPolicy="Hold")
        (forecast,) = told("waits", seconds=(), snapshot=busy(b.workload("waits", second=3), held))
        assert (forecast.earliest, forecast.reason) == (None, "LocalQueue main is stopped (stopPolicy Hold)")

    def test_one_that_starts_now(self) -> None:
        """There is no interval from now to now."""
        more = b.queue("main", {"default": {"cpu": 9}})
        (forecast,) = told("waits", seconds=(), snapshot=busy(b.workload("waits", second=3), more))
        assert (forecast.earliest, forecast.latest) == (None, None)
        assert forecast.reason == "nothing keeps it back: the next cycles of the scheduler admit it"

    def test_what_does_not_wait(self) -> None:
        """Is told so."""
        (forecast,) = told("runs", seconds=(100.0,) * 20)
        assert forecast.reason == "it does not wait in a queue"


def test_arrivals_are_in_order() -> None:
    """By creation."""
    assert [each.metadata.name for _, each in arrivals_of(busy())] == ["runs", "first", "second"]


class TestOtherTrees:
    """What happens below another topmost Cohort."""

    @staticmethod
    def world() -> Snapshot:
        """A Workload waits in a ClusterQueue of Cohort `left`, whose sibling is of Cohort `all` above it."""
        snapshot = Snapshot()
        for each in (
            team(), b.flavor(), b.cohort("left", parent="all"), b.cohort("all"),
            b.queue("main", {"default": {"cpu": 1}}, cohort="left"), b.local("main", "main"),
            b.queue("sibling", {"default": {"cpu": 1}}, cohort="all"), b.local("sibling", "sibling"),
            b.queue("far", {"default": {"cpu": 1}}, cohort="right"), b.local("far", "far"),
            b.queue("alone", {"default": {"cpu": 1}}), b.local("alone", "alone"),
            b.held("runs", "main", {"cpu": "1"}), b.workload("first", second=1), b.workload("near", "sibling"),
            b.held("elsewhere", "far", {"cpu": "1"}), b.workload("distant", "far"), b.workload("lonely", "alone"),
        ):  # fmt: skip
            snapshot.put(each)
        return snapshot

    def test_changes_nothing(self) -> None:
        """The forecast is the same with them and without."""
        whole = self.world()
        first = whole.get(Workload, "team/first")
        assert first is not None
        part = Near(whole, Options()).of(first)
        assert len(list(part.of(Workload))) < len(list(whole.of(Workload)))
        (with_,), (without,) = (told("first", seconds=(100.0,) * 20, snapshot=each) for each in (whole, part))
        assert (with_.earliest, with_.median, with_.latest) == (without.earliest, without.median, without.latest)
