"""Why there is no place for pods, in Kueue's words."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from turnstile.engine.causes import Cause
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.topology.capacity import Free
from turnstile.engine.topology.counting import Counts
from turnstile.engine.topology.shape import Shape
from turnstile.engine.topology.tree import Domain, Leaf

_AT_ONCE: Final = 256
"""Domains that are looked at between two stops."""
_LEAF_WORK: Final = 0.25


def too_few(counts: Counts, shape: Shape, pods: int, fit: int, pace: Pace) -> Sliced[str]:
    """There are domains, and not enough in them: so many slices would have a place."""
    topology = counts.tree.topology
    layers = shape.layers
    nodes = yield from _excluded(counts, pace)
    if len(layers) > 1:
        listed = _by_layer(counts, shape, pods)
        return Cause.PLACES_BY_LAYER.says(topology=topology, layers=listed) + nodes
    needed = pods // shape.slice_size
    unit = "pod" if shape.slice_size == 1 else "slice"
    if fit == 0:
        return Cause.PLACES_NONE.says(topology=topology, needed=needed, unit=unit) + nodes
    return Cause.PLACES_FEW.says(topology=topology, fit=fit, needed=needed, unit=unit) + nodes


def _by_layer(counts: Counts, shape: Shape, pods: int) -> str:
    """How many slices of each layer fit into the domain that has the most."""
    top = max(counts.tree.domains(shape.level), key=lambda domain: counts.slices[domain.at])
    parts = []
    for level, size in shape.layers:
        below: list[Domain] = [top]
        while below and below[0].level < level:
            below = [child for domain in below for child in domain.children]
        fit = sum(counts.pods[domain.at] // size for domain in below)
        parts.append(f"{fit}/{pods // size} slice(s) fit on level {counts.tree.levels[level]}")
    return "; ".join(parts)


def _excluded(counts: Counts, pace: Pace) -> Sliced[str]:
    """How many domains of the lowest level take none of the pods, and for which reasons; empty if each takes some."""
    tree, ask = counts.tree, counts.kind.ask
    reasons: Counter[str] = Counter()
    full: Counter[Free] = Counter()
    leaves = tree.domains(len(tree.levels) - 1)
    for start in range(0, len(leaves), _AT_ONCE):
        part = leaves[start : start + _AT_ONCE]
        pace.left -= _LEAF_WORK * len(part)
        if pace.left <= 0:
            yield
            pace.renew()
        for leaf in part:
            if (reason := counts.excluded.get(leaf.at)) is not None:
                reasons[reason] += 1
            elif not counts.pods[leaf.at] and isinstance(leaf, Leaf):
                full[counts.free(leaf)] += 1
    for free, count in full.items():
        reasons[f'resource "{ask.limiting(free.amounts)}"'] += count
    return listed(list(reasons.elements()), len(leaves))


def listed(reasons: Sequence[str], nodes: int) -> str:
    """How many of so many nodes take none of the pods, by the reason of each; empty if each takes some."""
    if not reasons:
        return ""
    counted = ", ".join(sorted(f"{reason}: {count}" for reason, count in Counter(reasons).items()))
    return f". {Cause.NODES_EXCLUDED.says(total=nodes, excluded=counted)}"
