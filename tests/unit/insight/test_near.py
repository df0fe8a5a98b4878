"""What is decided about a Workload is the same on the part of a snapshot that is near it as on all of it."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team, world
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.options import WaitForPodsReady
from turnstile.insight.near import Near
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, WhatIf


def fates(snapshot: Snapshot, key: str) -> list[tuple[str, str, str]]:
    """What happens to a Workload once it has a priority above all others, and to those that it preempts."""
    workload = snapshot.get(Workload, key)
    assert workload is not None
    first = b.changed(workload, spec={"priority": 9})
    state, _ = snapshot.state(Options(), b.NOW)
    parts = WhatIf(now=b.NOW, put=[first]).answer(state)
    told = [each for each in parts if isinstance(each, Fate)]
    return [(each.key, each.outcome, each.explanation) for each in told if key in (each.key, each.preemptor)]


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_decides_is_left_out(seed: int) -> None:
    """Of random clusters."""
    snapshot, waiting = world(seed)
    near = Near(snapshot, Options())
    for key in waiting:
        workload = snapshot.get(Workload, key)
        assert workload is not None
        assert fates(near.of(workload), key) == fates(snapshot, key)


def two_trees(**more: str) -> Snapshot:
    """A Workload waits in each of two ClusterQueues without a Cohort, or in the Cohorts that are given."""
    snapshot = Snapshot()
    snapshot.put(team())
    snapshot.put(b.flavor())
    for name in ("one", "two"):
        snapshot.put(b.queue(name, {"default": {"cpu": 1}}, more.get(name)))
        snapshot.put(b.local(name, name))
        snapshot.put(b.workload(f"in-{name}", name, cpu=3))
    return snapshot


def left(snapshot: Snapshot, options: Options | None = None) -> tuple[list[str], list[str]]:
    """The Workloads and ClusterQueues near the Workload of queue `one`."""
    workload = snapshot.get(Workload, "team/in-one")
    assert workload is not None
    found = Near(snapshot, options or Options()).of(workload)
    return [each.metadata.name for each in found.of(Workload)], [each.metadata.name for each in found.of(ClusterQueue)]


class TestTrees:
    """What is near."""

    def test_other_trees_are_not(self) -> None:
        """Their queues and Workloads are left out."""
        assert left(two_trees()) == (["in-one"], ["one"])

    def test_its_own_tree_is(self) -> None:
        """All members of the Cohort."""
        assert left(two_trees(one="all", two="all")) == (["in-one", "in-two"], ["one", "two"])

    def test_cohorts_in_a_cycle(self) -> None:
        """They are one tree; a ClusterQueue below them admits nothing."""
        snapshot = two_trees(one="a", two="b").changed([b.cohort("a", {}, parent="b"), b.cohort("b", {}, parent="a")])
        assert left(snapshot) == (["in-one", "in-two"], ["one", "two"])

    def test_a_parent_that_does_not_exist(self) -> None:
        """Children of one are one tree all the same: each lends to the others through it."""
        snapshot = two_trees(one="a", two="b").changed([b.cohort("a", {}, parent="c"), b.cohort("b", {}, parent="c")])
        assert left(snapshot) == (["in-one", "in-two"], ["one", "two"])

    def test_of_several_workloads(self) -> None:
        """What is near any of them."""
        snapshot = two_trees()
        asked = [each for key in ("team/in-one", "team/in-two") if (each := snapshot.get(Workload, key))]
        found = Near(snapshot, Options()).of(*asked)
        assert [each.metadata.name for each in found.of(Workload)] == ["in-one", "in-two"]
        assert not list(Near(snapshot, Options()).of().of(Workload))

    def test_everything_is_where_any_workload_can_block_admission(self) -> None:
        """With waitForPodsReady.blockAdmission."""
        options = Options(wait_for_pods_ready=WaitForPodsReady(block_admission=True))
        assert left(two_trees(), options) == (["in-one", "in-two"], ["one", "two"])

    def test_a_queue_that_does_not_exist(self) -> None:
        """The Workload alone."""
        snapshot = two_trees().changed([b.workload("in-one", "none", cpu=1)])
        assert left(snapshot) == (["in-one"], [])

    def test_what_holds_quota_after_its_queue_was_pointed_elsewhere(self) -> None:
        """It is near those who want that quota."""
        held = b.held("held", "one", {"cpu": "1"}, flavor="default")
        elsewhere = b.changed(held, spec={"queueName": "two"})
        assert left(two_trees().changed([elsewhere]))[0] == ["held", "in-one"]
