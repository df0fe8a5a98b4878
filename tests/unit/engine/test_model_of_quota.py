"""The arithmetic that histories are judged by agrees with the engine's, which shares no line with it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.quota import Limits, Tree
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.shares import share

PAIR = FlavorResource("default", "cpu")
COHORTS = {"org": None, "left": "org", "right": "org", "inner": "left"}
QUEUES = {"a": "left", "b": "inner", "c": "inner", "d": "org", "e": "right", "alone": None}

few = st.integers(0, 6)
limit = st.none() | few


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Limits], dict[str, int]]:
    """Limits of every node of the tree above, and what its queues use."""
    limits = {}
    for name, parent in {**COHORTS, **QUEUES}.items():
        given_limits = (draw(limit), draw(limit)) if parent is not None else (None, None)
        weight = Fraction(draw(st.integers(0, 3)))
        limits[name] = Limits(draw(few), *given_limits, parent=parent, queue=name in QUEUES, weight=weight)
    return limits, {name: draw(few) for name in QUEUES}


def engine_tree(limits: dict[str, Limits], usage: dict[str, int]) -> dict[str, tree.Node]:
    """The same as nodes of the engine."""
    nodes = {name: tree.Node(name, is_queue=own.queue) for name, own in limits.items()}
    for name, own in limits.items():
        node = nodes[name]
        node.nominal = {PAIR: own.nominal}
        node.weight = float(own.weight)
        node.borrowing_limit = {} if own.borrowing is None else {PAIR: own.borrowing}
        node.lending_limit = {} if own.lending is None else {PAIR: own.lending}
        if own.queue:
            node.usage = {PAIR: usage[name]}
        if own.parent is not None:
            node.parent = nodes[own.parent]
            (node.parent.queues if own.queue else node.parent.cohorts)[name] = node
    for root in (nodes["org"], nodes["alone"]):
        tree.rebuild(root)
    return nodes


@given(worlds(), st.integers(1, 8))
def test_both_find_the_same_room_levels_and_shares(world: tuple[dict[str, Limits], dict[str, int]], more: int) -> None:
    """Over all trees, limits and usages."""
    limits, usage = world
    nodes, ours = engine_tree(limits, usage), Tree(limits)
    for name in QUEUES:
        assert ours.room(name, usage) == tree.available(nodes[name], PAIR)
        assert ours.level(name, more, usage) == tree.level(nodes[name], PAIR, more)
        assert ours.path(name) == nodes[name].path()
    for name, node in nodes.items():
        infinite, value = ours.share(name, usage)
        assert infinite == share(node).infinite
        assert float(value) == pytest.approx(share(node).value)
        assert ours.borrows(name, usage) == tree.is_borrowing(node)
