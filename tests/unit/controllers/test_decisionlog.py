"""The decision log tells what the ledger took in and what followed from it, in the order it happened."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engine.builders import NOW, flavor, local, queue, workload
from turnstile.controllers.scheduling.decisionlog import DecisionLog, TermLog
from turnstile.engine import Options, State, cycle, cycle_steps

Line = dict[str, Any]


class Desk:
    """A ledger with a queue of 4 cpus, in which the higher priority preempts, and the file it tells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = DecisionLog(path)
        self.state = State(Options(), TermLog(self.log, Options(), identity="one", epoch=3))
        self.state.put_namespace("team", {})
        self.state.put_flavor(flavor())
        preemption = {"withinClusterQueue": "LowerPriority"}
        self.state.put_cluster_queue(queue("a", {"default": {"cpu": 4}}, preemption=preemption), NOW)
        self.state.put_local_queue(local("main", "a"), NOW)

    def lines(self) -> list[Line]:
        """What would be left of it were the process killed now."""
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A new one."""
    made = Desk(tmp_path / "decisions.jsonl")
    yield made
    made.log.close()


class TestALog:
    """One line for each thing."""

    def test_begins_with_the_term(self, desk: Desk) -> None:
        """Several may be in one file: a process may lead more than once."""
        cycle(desk.state, NOW)
        assert desk.lines()[0] == {"leading": "one", "epoch": 3}

    def test_says_which_version_of_what_was_taken_in(self, desk: Desk) -> None:
        """The object itself is in the cluster; its version is what was known of it."""
        desk.state.put_workload(workload("low", version=7), NOW)
        desk.state.drop_workload("team/low")
        cycle(desk.state, NOW)
        saw, gone = desk.lines()[-2:]
        assert saw == {"event": "put_workload", "key": "team/low", "uid": "uid-low", "resourceVersion": "7"}
        assert gone == {"event": "drop_workload", "key": "team/low"}

    def test_says_for_whom_somebody_has_to_go(self, desk: Desk) -> None:
        """Who was looked at, in which version, whom it has evicted, and by which right."""
        desk.state.put_workload(workload("low", cpu=3, version=7), NOW)
        cycle(desk.state, NOW)
        desk.state.put_workload(workload("high", cpu=3, priority=1, version=9), NOW)
        cycle(desk.state, NOW)
        line = desk.lines()[-1]
        told = {name: line[name] for name in ("cycle", "key", "uid", "resourceVersion", "clusterQueue", "outcome")}
        assert told == {
            "cycle": 2,
            "key": "team/high",
            "uid": "uid-high",
            "resourceVersion": "9",
            "clusterQueue": "a",
            "outcome": "preempting",
        }
        reason = "InClusterQueue"
        assert line["victims"] == [
            {"key": "team/low", "uid": "uid-low", "clusterQueue": "a", "reason": reason, "new": True}
        ]
        assert line["short"] == [["default", "cpu", 3000, 1000]]

    def test_is_in_the_file_before_anything_follows(self, desk: Desk) -> None:
        """Decisions outlive a kill in the middle of their writes."""
        desk.state.put_workload(workload("low"), NOW)
        result = cycle(desk.state, NOW)
        assert [line["outcome"] for line in desk.lines() if "cycle" in line] == [each.outcome for each in result]

    def test_keeps_what_comes_in_a_cycle_behind_its_decisions(self, desk: Desk) -> None:
        """What is told before a decision was known to it, and nothing else was."""
        desk.state.put_workload(workload("low", version=7), NOW)
        for _ in cycle_steps(desk.state, NOW):
            if not any(line.get("event") == "drop_workload" for line in desk.lines()):
                desk.state.drop_workload("team/low")
        cycle(desk.state, NOW)
        told = [line.get("event", line.get("outcome")) for line in desk.lines()]
        assert told[told.index("put_workload") :][:2] == ["put_workload", "admit"]
        assert set(told[told.index("admit") + 1 :]) == {"drop_workload"}

    def test_tells_nothing_of_a_cycle_that_was_left_early(self, desk: Desk) -> None:
        """Nothing was decided."""
        desk.state.put_workload(workload("low"), NOW)
        with closing(cycle_steps(desk.state, NOW)) as steps:
            next(steps)
        desk.state.drop_workload("team/low")
        cycle(desk.state, NOW)
        assert not [line for line in desk.lines() if "cycle" in line]

    def test_of_a_full_disk_ends_and_nothing_else_does(self, desk: Desk) -> None:
        """Admission does not depend on who can write a log."""
        full = DecisionLog(Path("/dev/full"))
        state = State(Options(), TermLog(full, Options(), identity="two", epoch=4))
        for index in range(1000):
            state.put_workload(workload(f"w-{index}"), NOW)
        cycle(state, NOW)
        assert len(state.workloads) == 1000
