"""`what-if --free-domain`: whose pods would have to move to free a rack, and the run that is lost."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK
from tests.unit.insight.racks import racks, runs
from turnstile.api.core import Node, Pod
from turnstile.api.errors import InvalidValue
from turnstile.api.topology import HOSTNAME
from turnstile.cli.what_if import planned
from turnstile.engine import Options
from turnstile.insight.freeing import TRIED, Move, Plan, plans
from turnstile.insight.snapshot import Snapshot

NOW = b.NOW + 3600
LOWER = {"withinClusterQueue": "LowerPriority"}


def plan(snapshot: Snapshot, level: str = RACK) -> Plan:
    """The plan for the only flavor."""
    (found,) = plans(snapshot, level, Options(), NOW)
    return found


def test_the_rack_whose_pods_have_run_least() -> None:
    """Of three racks the one with two pods: their gang moves as a whole, and another rack has room for it."""
    snapshot = racks({"r1": [2, 2], "r2": [2, 2], "r3": [6]})
    runs(snapshot, "three", {"r1-0": 2, "r1-1": 1})
    runs(snapshot, "two", {"r2-0": 1, "r2-1": 1})
    runs(snapshot, "four", {"r3-0": 4})
    found = plan(snapshot)
    assert (found.labels, found.nodes) == ({"pool": "gpu", RACK: "r2"}, 2)
    assert found.moves == (Move("team/two", 2, True, False, "2 core-hours"),)


def test_pods_that_need_no_rack_of_their_own_get_other_nodes() -> None:
    """Only the run of these pods is lost, not that of the Workload's others."""
    snapshot = racks({"r1": [2, 2], "r2": [3]})
    runs(snapshot, "wide", {"r1-0": 2, "r2-0": 1}, preferred=RACK)
    found = plan(snapshot)
    assert found.labels[RACK] == "r2"
    assert found.moves == (Move("team/wide", 1, True, False, "1 core-hours"),)
    text = "\n".join(planned([found], "rack"))
    assert "team/wide has 1 pod there, which would get other nodes; lost: 1 core-hours." in text
    assert f"kubectl drain -l pool=gpu,{RACK}=r2 --ignore-daemonsets" in text


def test_a_gang_without_another_rack_waits() -> None:
    """No rack has room for two more pods."""
    snapshot = racks({"r1": [3], "r2": [4], "r3": [3]})
    runs(snapshot, "three", {"r1-0": 3})
    runs(snapshot, "four", {"r2-0": 4})
    runs(snapshot, "two", {"r3-0": 2})
    found = plan(snapshot)
    assert found.moves == (Move("team/two", 2, False, False, "2 core-hours"),)
    assert "would be evicted, and wait again" in "\n".join(planned([found], "rack"))


def test_a_rack_that_leaves_nobody_waiting_is_better() -> None:
    """More run time is lost: three pods that may be anywhere move, not two that need a rack with room for both."""
    snapshot = racks({f"r{number}": [3] for number in range(4)})
    for number in range(3):
        runs(snapshot, f"pair-{number}", {f"r{number}-0": 2})
    runs(snapshot, "wide", {"r3-0": 3}, preferred=RACK)
    assert plan(snapshot).moves == (Move("team/wide", 3, True, False, "3 core-hours"),)


def test_an_evicted_workload_that_starts_again() -> None:
    """A Workload of lower priority makes room for it in another rack, and is named."""
    snapshot = racks({"r1": [2], "r2": [2]}, b.queue("main", {"gpu": {"cpu": 100}}, preemption=LOWER))
    runs(snapshot, "high", {"r1-0": 1}, priority=10)
    runs(snapshot, "low", {"r2-0": 2})
    found = plan(snapshot)
    assert found.moves == (Move("team/high", 1, False, True, "1 core-hours"),)
    assert found.preempts == ("team/low",)
    assert "To start again they would preempt team/low." in "\n".join(planned([found], "rack"))


def test_a_free_rack_needs_no_move() -> None:
    """Nothing has to leave it."""
    snapshot = racks({"r1": [2], "r2": [2]})
    runs(snapshot, "here", {"r1-0": 1})
    found = plan(snapshot)
    assert (found.labels[RACK], found.moves) == ("r2", ())
    assert "a rack of 1 node is free" in next(planned([found], "rack"))


@pytest.mark.parametrize("level", [RACK, RACK.rpartition("/")[2]])
def test_a_level_may_be_named_by_its_end(level: str) -> None:
    """As people call it."""
    assert plan(racks({"r1": [2]}), level).labels[RACK] == "r1"


def test_an_unknown_level() -> None:
    """The error names those that there are."""
    with pytest.raises(InvalidValue, match=f"the levels are {RACK}, {HOSTNAME}"):
        plans(racks({"r1": [2]}), "row", Options(), NOW)


@pytest.mark.parametrize("kind", [Pod, Node])
def test_nothing_is_said_without_nodes_or_pods(kind: type[Pod] | type[Node]) -> None:
    """A rack would look free."""
    snapshot = racks({"r1": [2]})
    snapshot.objects.pop(kind)
    with pytest.raises(InvalidValue, match="the right to list nodes, pods and Workloads"):
        plans(snapshot, RACK, Options(), NOW)


def test_few_domains_are_tried() -> None:
    """The engine is asked about a bounded number of racks, however many there are."""
    snapshot = racks({f"r{number}": [1] for number in range(3 * TRIED)})
    for number in range(3 * TRIED):
        runs(snapshot, f"job-{number:02}", {f"r{number}-0": 1})
    assert len(plan(snapshot).moves) == 1
