"""What a ClusterQueue can still be given in a tree of cohorts."""

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.core import LimitRange
from turnstile.engine import State
from turnstile.engine.quota import tree

CPU = 1000


def grow(queues: list[object], cohorts: list[object], usage: dict[str, float]) -> State:
    """A settled tree with usage in cores, of queues that admit."""
    state = State()
    state.put_flavor(b.flavor())
    for item in queues:
        state.put_cluster_queue(item, b.NOW)  # type: ignore[arg-type]
    for item in cohorts:
        state.put_cohort(item)  # type: ignore[arg-type]
    state.ledger.settle()
    pair = state.surroundings.catalog.pair("default", "cpu")
    for name, amount in usage.items():
        tree.add_usage(state.cluster_queues[name].node, pair, int(amount * CPU))
    return state


def q(name: str, cohort: str, nominal: int, borrowing: int | None = None, lending: int | None = None) -> object:
    """A queue of cpu."""
    return b.queue(name, {"default": {"cpu": (nominal, borrowing, lending)}}, cohort)


def c(
    name: str,
    nominal: int | None = None,
    parent: str | None = None,
    borrowing: int | None = None,
    lending: int | None = None,
) -> object:
    """A cohort of cpu."""
    return b.cohort(name, {"default": {"cpu": (nominal, borrowing, lending)}} if nominal is not None else None, parent)


@pytest.mark.parametrize(
    ("queues", "cohorts", "usage", "available", "maximum"),
    [
        pytest.param(
            [q("a", "x", 10), q("b", "x", 10, None, 9)], [c("x", 10)], {"a": 1, "b": 0.5}, [28, 28.5], [29, 30],
            id="a lending limit keeps a part for its owner",
        ),
        pytest.param(
            [q("a", "x", 10), q("b", "x", 10, 2), q("c", "x", 10, None, 5)], [c("x", 10)], {"a": 20, "b": 10, "c": 6},
            [4, 2, 4], [35, 12, 40], id="a borrowing limit caps what comes from others",
        ),
        pytest.param(
            [q("a", "x", 10), q("b", "x", 10, 0, 0)], [c("x", 10)], {"a": 31, "b": 0}, [0, 0], [20, 10],
            id="a debt elsewhere blocks even reserved quota",
        ),
        pytest.param(
            [q("a", "left", 10), q("b", "right", 10, None, 0)],
            [c("left", 10, "root"), c("right", 10, "root")], {"a": 10, "b": 5}, [20, 25], [30, 40],
            id="cohorts lend each other through their parent",
        ),
        pytest.param(
            [q("a", "left", 10), q("b", "left", 10, 5), q("c", "right", 10)],
            [c("left", 10, "root", 5), c("right", 10, "root")], {}, [35, 15, 50], [35, 15, 50],
            id="an inner cohort has a borrowing limit too",
        ),
        pytest.param(
            [q("a", "left", 10, None, 5), q("b", "left", 10), q("c", "root", 0), q("d", "right", 0)],
            [c("left", 0, "root", None, 5), c("right", parent="root")], {}, [20, 15, 5, 5], [20, 15, 5, 5],
            id="an inner cohort has a lending limit too",
        ),
    ],
)  # fmt: skip
def test_available(
    queues: list[object], cohorts: list[object], usage: dict[str, float], available: list[float], maximum: list[float]
) -> None:
    """Available and maximum amounts follow limits at every level."""
    state = grow(queues, cohorts, usage)
    pair = state.surroundings.catalog.pair("default", "cpu")
    nodes = [queue.node for queue in state.cluster_queues.values()]
    assert [max(0, tree.available(node, pair)) / CPU for node in nodes] == available
    assert [tree.potential(node, pair) / CPU for node in nodes] == maximum


def test_taking_usage_back_leaves_no_trace() -> None:
    """Removing what was added restores every node, through guaranteed parts too."""
    state = grow(
        [q("a", "left", 3, None, 1), q("b", "right", 2)],
        [c("left", 2, "root", None, 3), c("right", 1, "root")],
        {"b": 4},
    )
    pair = state.surroundings.catalog.pair("default", "cpu")
    node = state.cluster_queues["a"].node
    before = [(each.name, each.usage.get(pair, 0)) for each in (node, *node.ancestors())]
    for amount in (500, 2500, 9000):
        tree.add_usage(node, pair, amount)
    for amount in (2500, 9000, 500):
        tree.remove_usage(node, pair, amount)
    assert [(each.name, each.usage.get(pair, 0)) for each in (node, *node.ancestors())] == before


def test_borrowing_level_is_the_height_of_the_smallest_subtree_with_room() -> None:
    """Own quota is level 0, the cohort's level 1, its parent's level 2."""
    state = grow([q("a", "inner", 1)], [c("inner", 1, "outer"), c("outer", 3)], {})
    pair = state.surroundings.catalog.pair("default", "cpu")
    node = state.cluster_queues["a"].node
    assert [tree.level(node, pair, amount * CPU) for amount in (1, 2, 5)] == [(0, True), (1, True), (2, False)]


def test_a_cycle_of_cohorts_admits_nothing_until_it_is_broken() -> None:
    """Queues below a cycle wait, and are tried when the cycle is gone."""
    state = b.world(b.queue("a", cohort="x"))
    state.put_cohort(b.cohort("x", parent="y"))
    state.put_cohort(b.cohort("y", parent="x"))
    state.put_workload(b.workload("w"), b.NOW)
    assert [decision.outcome for decision in b.settle(state)] == ["inadmissible"]
    assert state.questions.why("team/w") == ("Suspended", "ClusterQueue a is inactive", ())
    state.put_cohort(b.cohort("y"))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_a_queue_below_a_cycle_of_cohorts_is_not_active_and_names_it() -> None:
    """The cycle is told from its first name on, after whatever else is wrong, until it is broken."""
    state = b.world(b.queue("a", cohort="low"), b.queue("free", cohort="other"))
    for name, parent in (("low", "y"), ("y", "x"), ("x", "y")):
        state.put_cohort(b.cohort(name, parent=parent))
    cycle = "the parents of its cohort form a cycle: x -> y -> x."
    assert state.questions.active_reason("a") == (False, "Unknown", f"Can't admit new workloads: {cycle}")
    assert state.questions.active_reason("free") == (True, "Ready", "Can admit new workloads")
    state.drop_flavor("default")
    missing = "references missing ResourceFlavor(s): default"
    message = f"Can't admit new workloads: {missing}, {cycle}"
    assert state.questions.active_reason("a") == (False, "FlavorNotFound", message)
    state.put_cohort(b.cohort("y"))
    assert state.questions.active_reason("a") == (False, "FlavorNotFound", f"Can't admit new workloads: {missing}.")


def test_unlimited_quota_stays_unlimited() -> None:
    """The largest int64 is no number to run out of."""
    state = b.world(b.queue("a", {"default": {"memory": 2**63 - 1}}))
    pair = state.surroundings.catalog.pair("default", "memory")
    state.ledger.settle()
    node = state.cluster_queues["a"].node
    tree.add_usage(node, pair, 10**18)
    assert tree.available(node, pair) > 2**63


class TestGenerationOfAClusterQueue:
    """Scans of flavors start over once a generation is past; see `turnstile.engine.cycle.entries.outdated`."""

    def state(self) -> State:
        """One queue of 10 cores."""
        state = State()
        state.put_cluster_queue(b.queue("a", {"default": {"cpu": 10}}), b.NOW)
        state.ledger.settle()
        return state

    def after(self, state: State, changed: object) -> int:
        """How much the generation grew."""
        before = state.cluster_queues["a"].generation
        state.put_cluster_queue(changed, b.NOW)  # type: ignore[arg-type]
        state.ledger.settle()
        return state.cluster_queues["a"].generation - before

    def test_another_quota_is_another_generation(self) -> None:
        """There may be room in flavors that were tried."""
        assert self.after(self.state(), b.queue("a", {"default": {"cpu": 20}})) == 1

    def test_another_cohort_is_another_generation(self) -> None:
        """Others may lend."""
        assert self.after(self.state(), b.queue("a", {"default": {"cpu": 10}}, "pool")) == 1

    def test_another_policy_keeps_the_generation(self) -> None:
        """It makes no room."""
        policy = {"withinClusterQueue": "LowerPriority"}
        assert self.after(self.state(), b.queue("a", {"default": {"cpu": 10}}, preemption=policy)) == 0


def test_a_tree_of_too_many_cohorts_admits_nothing_and_says_so() -> None:
    """A chain of 1,200 Cohorts makes its own tree inactive, with a reason; other trees go on, and so does the rest of
    the chain when it is cut."""
    state = b.world(
        b.queue("top", {"default": {"cpu": 1}}, "c0"),
        b.queue("low", {"default": {"cpu": 1}}, "c1200"),
        b.queue("other", {"default": {"cpu": 1}}, "else"),
    )
    for number in range(1, 1201):
        state.put_cohort(b.cohort(f"c{number}", None, f"c{number - 1}"))
    for name in ("top", "low", "other"):
        state.put_workload(b.workload(name, name), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/other"}
    said = "the tree of its cohort is more than 100 Cohorts deep"
    for name in ("top", "low"):
        assert state.questions.active_reason(name) == (False, "Unknown", f"Can't admit new workloads: {said}.")
    assert state.questions.active_reason("other")[0]
    state.put_cohort(b.cohort("c50"))
    b.settle(state)
    assert b.admitted(state) == {"team/other", "team/top"}
    state.put_cohort(b.cohort("c1150"))
    b.settle(state)
    assert b.admitted(state) == {"team/other", "team/top", "team/low"}


def test_what_is_known_by_the_name_of_an_object_goes_with_it() -> None:
    """Limits of a namespace without LimitRanges are forgotten."""
    state = b.world(b.queue("a"))
    limits = msgspec.convert({"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": []}}, LimitRange)
    state.put_limit_range(limits, b.NOW)
    state.drop_limit_range("team/l", b.NOW)
    assert not state.recounts.limit_ranges
    assert not state.surroundings.limits
