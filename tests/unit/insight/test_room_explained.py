"""A Workload that waits for room on nodes without a Topology: what `explain` says."""

from tests.unit.engine import builders as b
from tests.unit.engine.room_worlds import node, queue
from tests.unit.insight.pending_worlds import team
from turnstile.api.core import Node, Pod
from turnstile.engine import Options
from turnstile.insight.explain import explain
from turnstile.insight.snapshot import Snapshot


def explained(*nodes: Node, cpu: int = 2) -> str:
    """The sentence about a Workload of two pods, with quota."""
    snapshot = Snapshot()
    snapshot.objects[Pod] = {}
    snapshot.objects[Node] = {}
    for each in (team(), b.flavor(), queue(), b.local("main", "main"), b.workload("w", cpu=cpu, count=2), *nodes):
        snapshot.put(each)
    return explain(snapshot, Options(), b.NOW, "team/w", sees=lambda _: True).sentence


def test_it_says_how_many_pods_fit_and_what_is_short() -> None:
    """With the nodes that take none of them."""
    assert explained(node("a", 2), node("b", 1)) == (
        "Waits for room on default nodes: they have room for 1 of its 2 pod(s). Nodes that take none of its pods, out"
        ' of 2: resource "cpu": 1.'
    )


def test_there_is_no_node_at_all() -> None:
    """It does not say that it can never start: nodes come."""
    assert explained() == "Waits for a node: no node that is ready has the labels of default nodes."


def test_there_is_room() -> None:
    """It starts by itself."""
    assert "room" not in explained(node("a", 4))
