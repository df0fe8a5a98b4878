"""Traces of jobs, and forecasts that are measured by what happened."""

import json
from pathlib import Path
from statistics import mean, quantiles

import pytest
from typer.testing import CliRunner, Result

from tests.bench.backtest import Backtest, app, cluster
from tests.bench.traces import DAY, Shape, TraceJob, made_up, read_swf
from turnstile.api.errors import InvalidValue

LINE = "1 0 10 3600 4 -1 -1 4 3600 -1 1 7 1 3 2 -1 -1 -1"


@pytest.fixture(scope="module")
def jobs() -> list[TraceJob]:
    """Two weeks."""
    return made_up(Shape(days=14, capacity=64, load=0.8), seed=5)


class TestMadeUpTraces:
    """In the shape of public ones."""

    def test_as_busy_as_asked(self, jobs: list[TraceJob]) -> None:
        """The work fills the part of the cluster that was asked for."""
        work = sum(job.seconds * job.size for job in jobs)
        assert work / (64 * 14 * DAY) == pytest.approx(0.8, abs=0.05)

    def test_heavy_tails(self, jobs: list[TraceJob]) -> None:
        """The mean run is far longer than the median, and a hundredth of the jobs do much of the work."""
        seconds = sorted(job.seconds for job in jobs)
        assert mean(seconds) > 1.5 * quantiles(seconds, n=2)[0]
        assert sum(seconds[-len(seconds) // 100 :]) > 0.05 * sum(seconds)

    def test_days_and_weekends(self, jobs: list[TraceJob]) -> None:
        """Fewer jobs come by night, and at weekends."""
        hours = [job.submitted / 3600 % 24 for job in jobs]
        assert sum(9 <= hour < 21 for hour in hours) > 1.3 * sum(not 9 <= hour < 21 for hour in hours)
        days = [int(job.submitted / DAY) % 7 for job in jobs]
        assert sum(day >= 5 for day in days) / 2 < sum(day < 5 for day in days) / 5

    def test_bursts(self, jobs: list[TraceJob]) -> None:
        """Many a job comes within two minutes of another of the same kind."""
        last: dict[str, float] = {}
        near = 0
        for job in jobs:
            near += job.submitted - last.get(job.app, -DAY) < 120
            last[job.app] = job.submitted
        assert near > len(jobs) / 3

    def test_the_same_seed(self, jobs: list[TraceJob]) -> None:
        """Makes the same trace."""
        assert made_up(Shape(days=14, capacity=64, load=0.8), seed=5) == jobs


class TestFiles:
    """The Standard Workload Format."""

    def test_a_job(self) -> None:
        """Comments, and jobs that did not run, are left out."""
        lines = ["; Version: 2.2", "", LINE, LINE.replace("3600", "-1", 1)]
        assert list(read_swf(lines, "f")) == [TraceJob(1, 0, 3600, 4, "user-7", "app-3", "queue-2")]

    def test_another_text(self) -> None:
        """The error names the line."""
        with pytest.raises(InvalidValue, match=r"line 2.*18 numbers"):
            list(read_swf([LINE, "hello world"], "f"))


class TestForecastsOfATrace:
    """What is said on the way."""

    def test_all_run_equally_long(self) -> None:
        """Then it is known to the second when each is admitted, but for who will come."""
        jobs = [TraceJob(number, number * 60.0, 600.0, 1, "u", "a") for number in range(60)]
        test = Backtest(jobs=jobs, world=cluster(["main"], 4), every=900, warm_up=1800, courses=20)
        found = [each for each in test.outcomes() if each.covered is not None]
        assert found
        assert all(each.forecast.earliest == pytest.approx(each.waited, abs=1) for each in found)
        assert all(each.forecast.latest == pytest.approx(each.waited, abs=1) for each in found)

    def test_nothing_is_said_in_the_beginning(self) -> None:
        """No run has ended yet."""
        jobs = [TraceJob(number, 0.0, 600.0, 1, "u", "a") for number in range(9)]
        (first, *_) = Backtest(jobs=jobs, world=cluster(["main"], 4), every=60, warm_up=0, courses=20).outcomes()
        assert first.covered is None
        assert first.forecast.reason.startswith("no run time is known")

    def test_the_same_seed(self) -> None:
        """Says the same."""
        shape = Shape(days=1, capacity=4, load=0.9)
        test = Backtest(jobs=made_up(shape, 1), world=cluster(["main"], 4), warm_up=DAY / 2, every=3 * 3600, courses=5)
        assert list(test.outcomes()) == list(test.outcomes())


def ask(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


class TestCommand:
    """`python -m tests.bench.backtest`: what it prints, and its exit codes."""

    QUICK = ("--traces", "1", "--days", "2", "--courses", "20")

    def test_figures_and_plot(self, tmp_path: Path) -> None:
        """Within wide limits it succeeds."""
        plot = tmp_path / "plot.svg"
        done = ask(*self.QUICK, "--least", "0", "--most", "100", "--plot", plot)
        assert done.exit_code == 0
        assert "In the 80% interval: " in done.output
        assert plot.read_text().startswith("<svg ")
        assert plot.read_text().count("<circle ") == int(done.output.split()[0])

    def test_outside_of_the_limits(self) -> None:
        """It fails, and says so."""
        done = ask(*self.QUICK, "--least", "101", "--most", "102", "-o", "json")
        assert done.exit_code == 1
        assert "is not between 101 and 102 %" in done.output
        told = json.loads(done.stdout)
        assert told["forecasts"] == len(told["outcomes"])

    def test_a_file(self, tmp_path: Path) -> None:
        """In the Standard Workload Format; it is as busy as asked."""
        file = tmp_path / "trace.swf"
        lines = [
            f"{number} {number * 60} 0 {600 + number % 7 * 60} 1 -1 -1 1 0 -1 1 1 1 1 1 -1 -1 -1"
            for number in range(900)
        ]
        file.write_text("\n".join(["; made by hand", *lines]))
        done = ask(
            *("--trace", file, "--days", "1", "--load", "1.2", "--courses", "20"),
            *("--least", "0", "--most", "100"),
        )
        assert done.exit_code == 0, done.output

    def test_no_trace(self, tmp_path: Path) -> None:
        """The error names the file."""
        file = tmp_path / "trace.swf"
        file.write_text("; nothing\n")
        assert "no job of it ran" in ask("--trace", file).output
        assert "cannot be read" in ask("--trace", tmp_path / "missing").output
