"""`explain` says how many pods fit at each level of a Topology, where the largest hole is, and what would make room."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK, workload
from tests.unit.insight.racks import pod, racks, runs
from turnstile.api.topology import HOSTNAME
from turnstile.api.workload import Workload
from turnstile.cli.explain import shown
from turnstile.engine import Options
from turnstile.insight.explain import Explanation, explain
from turnstile.insight.room import Hole, Room
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, WhatIf


def told(snapshot: Snapshot, key: str = "team/waits", *, namespace: str = "team") -> Explanation:
    """The explanation for an asker who sees one namespace."""
    return explain(snapshot, Options(), b.NOW, key, sees=lambda each: each == namespace)


def fragmented() -> Snapshot:
    """Two racks of eight CPUs, of which a Workload holds two each; and one that wants eight CPUs on one rack."""
    snapshot = racks({"r1": [4, 4], "r2": [4, 4]})
    runs(snapshot, "one", {"r1-0": 2})
    runs(snapshot, "two", {"r2-0": 1, "r2-1": 1})
    snapshot.put(workload("waits", 8, second=2))
    return snapshot


def test_the_largest_hole_of_each_level() -> None:
    """And the Workloads of which one has to end."""
    (room,) = told(fragmented()).room
    assert room == Room(
        pod_set="main", flavor="gpu", pods=8, level=RACK, fit=6, most=8,
        holes=(Hole(RACK, "r1", 6), Hole(HOSTNAME, "r1-1", 4)), ends=("team/one",), into="r1",
    )  # fmt: skip


def test_the_sentence_names_the_hole() -> None:
    """In words that need no knowledge of topologies, and every remedy is one."""
    answer = told(fragmented())
    assert answer.sentence == (
        "Waits for room for 8 pods on one rack: the largest hole is on rack r1, for 6. All fit on r1 once team/one has"
        " ended."
    )
    assert "  rack: 6 pods on r1\n  node: 4 pods on r1-1" in "\n".join(shown(answer))


def test_names_that_the_asker_may_not_see() -> None:
    """The Workload of another namespace is not named."""
    assert "once 1 Workload" not in told(fragmented()).sentence
    assert "team/one" not in told(fragmented(), namespace="other").sentence


def test_a_rack_that_is_too_small_whatever_ends() -> None:
    """Waiting does not help, and the sentence says so; pods of other Workloads do not count."""
    snapshot = fragmented()
    snapshot.put(workload("waits", 9, second=2))
    assert told(snapshot).sentence == (
        "Can never start as it is: it needs room for 9 pods on one rack, and without other jobs the largest has room"
        " for 8."
    )


def test_pods_that_no_topology_placed_stay() -> None:
    """A DaemonSet's pod is there whatever ends."""
    snapshot = fragmented()
    for number, host in enumerate(("r1-1", "r2-1")):
        snapshot.put(pod(f"agent-{number}", host))
    (room,) = told(snapshot).room
    assert (room.fit, room.most) == (5, 7)


def test_any_nodes_will_do() -> None:
    """Without a required level all of them together count."""
    snapshot = racks({"r1": [4], "r2": [4]})
    runs(snapshot, "one", {"r1-0": 3})
    snapshot.put(workload("waits", 6, second=2, unconstrained=True))
    assert told(snapshot).sentence == (
        "Waits for room for 6 pods: gpu nodes have room for 5 now. All fit once team/one has ended."
    )


def test_whole_slices_count() -> None:
    """Two slices of three on one rack need hosts with room for a slice."""
    snapshot = racks({"r1": [4, 4, 2]})
    asked = {"podSetSliceRequiredTopology": HOSTNAME, "podSetSliceSize": 3}
    runs(snapshot, "one", {"r1-1": 2})
    snapshot.put(workload("waits", 6, second=2, required=RACK, **asked))
    (room,) = told(snapshot).room
    assert (room.fit, room.most, room.ends) == (3, 6, ("team/one",))


@pytest.mark.parametrize("ends", ["one", "two"])
def test_one_of_those_that_are_named_suffices(ends: str) -> None:
    """The engine admits the Workload once it is gone with its pods, and else does not."""
    snapshot = fragmented()
    state, _ = snapshot.state(Options(), b.NOW)
    fates = WhatIf(now=b.NOW, drop=[(Workload, f"team/{ends}")]).answer(state)
    assert "admitted" in [each.outcome for each in fates if isinstance(each, Fate) and each.key == "team/waits"]
