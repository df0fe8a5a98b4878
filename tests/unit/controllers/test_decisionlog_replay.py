"""A decision log with objects replays to the same decisions, whatever happened."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.engine.test_histories import Histories
from turnstile.api.errors import InvalidValue
from turnstile.controllers.scheduling.decisionlog import DecisionLog, Decisions, TermLog
from turnstile.engine import Options, State, cycle, cycle_steps
from turnstile.insight.replay import Line, Replayed, replay
from turnstile.recorder.decisions import StoredDecisions
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading
from turnstile.recorder.writer import Retention, Writer


def lines(path: Path) -> Iterator[Line]:
    """Those of a log."""
    return (json.loads(line) for line in path.read_bytes().splitlines())


class Both:
    """A log in a file and one in the recorder's store."""

    def __init__(self, *logs: Decisions) -> None:
        self.logs = logs

    def append(self, line: Line) -> None:
        """Tell both."""
        for log in self.logs:
            log.append(line)

    def flush(self) -> None:
        """Flush both."""
        for log in self.logs:
            log.flush()


class Logged(Histories):
    """The histories of the engine, with logs that are replayed in the end."""

    def begin(self, options: Options) -> None:
        """An engine that logs: it is told the namespaces and flavors anew."""
        super().begin(options)
        if hasattr(self, "log"):
            self.log.close()
        else:
            self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "decisions.jsonl"
        self.path.unlink(missing_ok=True)
        self.log = DecisionLog(self.path)
        self.place = Location.of(tempfile.mktemp(dir=self.folder.name))
        self.writer = Writer(self.place, retention=Retention(), clock=lambda: b.NOW)
        both = Both(self.log, StoredDecisions(self.writer, lambda: b.NOW))
        self.state = self.told.told_to(State(options, TermLog(both, options, identity="one", epoch=1, objects=True)))

    def try_all_again(self) -> None:
        """No event makes it so, so no log tells it."""

    def teardown(self) -> None:
        """The log is replayed."""
        self.end_slices()
        self.log.close()
        (term,) = replay(lines(self.path))
        self.writer.start()
        self.writer.close()
        with reading(self.place) as reader:
            (stored,) = replay(reader.decisions())
        self.folder.cleanup()
        assert term.difference == ""
        assert stored == term


Logged.TestCase.settings = settings(
    max_examples=examples(15), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
test_histories_replay = Logged.TestCase


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a term in which one Workload preempts another."""
    path = tmp_path / "decisions.jsonl"
    with closing(DecisionLog(path)) as decisions:
        state = State(Options(), TermLog(decisions, Options(), identity="one", epoch=3, objects=True))
        state.put_namespace("team", {})
        state.put_flavor(b.flavor())
        preemption = {"withinClusterQueue": "LowerPriority"}
        state.put_cluster_queue(b.queue("a", {"default": {"cpu": 4}}, preemption=preemption), b.NOW)
        state.put_local_queue(b.local("main", "a"), b.NOW)
        state.put_admission_check("nodes", active=True, controller="c")
        state.put_workload(b.workload("low", cpu=3), b.NOW)
        cycle(state, b.NOW)
        state.put_workload(b.workload("high", cpu=3, priority=1), b.NOW)
        cycle(state, b.NOW + 1)
    return path


def test_all_is_the_same(log: Path) -> None:
    """Cycle by cycle."""
    assert list(replay(lines(log))) == [Replayed("one", 3, cycles=2, decisions=2)]


def test_what_differs_is_named(log: Path) -> None:
    """The cycle, the Workload, the field and both values."""
    told = [line | {"outcome": "pending"} if line.get("outcome") == "preempting" else line for line in lines(log)]
    (term,) = replay(told)
    assert term.difference == "cycle 2, Workload team/high: outcome was 'pending' and is now 'preempting'"


def test_a_decision_too_many_is_named(log: Path) -> None:
    """It follows from nothing in the log."""
    told = list(lines(log))
    cycled = next(number for number, line in enumerate(told) if "cycled" in line)
    told.insert(cycled, told[cycled - 1])
    (term,) = replay(told)
    assert term.difference == "cycle 1: it made 2 decisions, and now makes 1"


def test_a_log_without_objects_is_refused(tmp_path: Path) -> None:
    """With what to do."""
    path = tmp_path / "decisions.jsonl"
    with closing(DecisionLog(path)) as decisions:
        TermLog(decisions, Options(), identity="one", epoch=3)
    with pytest.raises(InvalidValue, match="--decision-log-objects"):
        list(replay(lines(path)))


def test_a_term_is_replayed_until_a_cycle_was_left(tmp_path: Path) -> None:
    """What such a cycle leaves behind cannot be repeated."""
    path = tmp_path / "decisions.jsonl"
    with closing(DecisionLog(path)) as decisions:
        state = State(Options(), TermLog(decisions, Options(), identity="one", epoch=3, objects=True))
        state.put_namespace("team", {})
        state.put_flavor(b.flavor())
        state.put_cluster_queue(b.queue("a"), b.NOW)
        state.put_local_queue(b.local("main", "a"), b.NOW)
        state.put_workload(b.workload("low"), b.NOW)
        with closing(cycle_steps(state, b.NOW)) as steps:
            next(steps)
        cycle(state, b.NOW)
    (term,) = replay(lines(path))
    assert (term.cycles, term.difference) == (0, "")
    assert "was left before its end" in term.unfinished
