"""`what-if --drain` of nodes in a Topology: whose pods have places there, and whether they get other nodes."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK
from tests.unit.insight.racks import racks, runs
from turnstile.api.core import Pod
from turnstile.cli.what_if import shown
from turnstile.engine import Options
from turnstile.insight.difference import difference
from turnstile.insight.drain import Displaced, Drained, drained, selector
from turnstile.insight.snapshot import Snapshot


def drain(snapshot: Snapshot, labels: str, *, namespace: str = "team") -> Drained:
    """The effect, for an asker who sees one namespace."""
    return drained(snapshot, selector(labels), Options(), b.NOW, sees=lambda each: each == namespace)


def two() -> Snapshot:
    """A gang of one rack on two nodes, and another one; each rack has one more node with room for two pods."""
    snapshot = racks({"r1": [2, 2, 2], "r2": [2, 2, 1]})
    runs(snapshot, "moves", {"r1-0": 2, "r1-1": 1})
    runs(snapshot, "stuck", {"r2-0": 2, "r2-1": 2})
    return snapshot


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ("r1-0", (Displaced("team/moves", 2, True),)),
        ("r2-0", (Displaced("team/stuck", 2, False),)),
        ("r1-2", ()),
    ],
)
def test_the_engine_is_asked_for_other_nodes(node: str, found: tuple[Displaced, ...]) -> None:
    """In the same rack, which the gang requires; nobody is named who has no pods on the node."""
    (flavor,) = drain(two(), f"kubernetes.io/hostname={node}").flavors
    assert flavor.displaced == found


def test_workloads_that_the_asker_may_not_see() -> None:
    """They are not named."""
    (flavor,) = drain(two(), f"{RACK}=r1", namespace="other").flavors
    assert flavor.displaced == ()
    assert flavor.hidden == 2


def test_without_pods_nothing_is_known_of_places() -> None:
    """As in a dump without them: all Workloads of the flavor are named."""
    snapshot = two()
    del snapshot.objects[Pod]
    (flavor,) = drain(snapshot, f"{RACK}=r1").flavors
    assert flavor.displaced is None
    assert set(flavor.workloads) == {"team/moves", "team/stuck"}


def test_it_is_told_in_words() -> None:
    """Those without room first."""
    snapshot = two()
    told = difference(snapshot, Options(), b.NOW, drain(snapshot, "pool=gpu").quotas)
    text = "\n".join(shown(told, drain(snapshot, "kubernetes.io/hostname=r1-0")))
    assert "  team/moves has 2 pods there, which get other nodes." in text
    text = "\n".join(shown(told, drain(snapshot, "kubernetes.io/hostname=r2-0")))
    assert "  team/stuck has 2 pods there, which find no room elsewhere: it is evicted, and waits again." in text
