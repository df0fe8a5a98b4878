"""Why there is no place for pods, in Kueue's words."""

from collections import Counter
from collections.abc import Sequence

from turnstile.engine.causes import Cause
from turnstile.engine.topology.counting import Counts
from turnstile.engine.topology.shape import Shape
from turnstile.engine.topology.tree import Domain, Leaf


def too_few(counts: Counts, shape: Shape, pods: int, fit: int) -> str:
    """There are domains, and not enough in them: so many slices would have a place."""
    topology = counts.tree.topology
    layers = shape.layers
    if len(layers) > 1:
        listed = _by_layer(counts, shape, pods)
        return Cause.PLACES_BY_LAYER.says(topology=topology, layers=listed) + excluded(counts)
    needed = pods // shape.slice_size
    unit = "pod" if shape.slice_size == 1 else "slice"
    if fit == 0:
        return Cause.PLACES_NONE.says(topology=topology, needed=needed, unit=unit) + excluded(counts)
    return Cause.PLACES_FEW.says(topology=topology, fit=fit, needed=needed, unit=unit) + excluded(counts)


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


def excluded(counts: Counts) -> str:
    """How many domains of the lowest level take none of the pods, and for which reasons; empty if each takes some."""
    tree, kind = counts.tree, counts.kind
    reasons: list[str] = []
    leaves = tree.domains(len(tree.levels) - 1)
    for leaf in leaves:
        assert isinstance(leaf, Leaf)
        reason = counts.excluded.get(leaf.at)
        if reason is None and not counts.pods[leaf.at]:
            reason = f'resource "{kind.ask.limiting(counts.free(leaf).amounts)}"'
        if reason is not None:
            reasons.append(reason)
    return listed(reasons, len(leaves))


def listed(reasons: Sequence[str], nodes: int) -> str:
    """How many of so many nodes take none of the pods, by the reason of each; empty if each takes some."""
    if not reasons:
        return ""
    counted = ", ".join(sorted(f"{reason}: {count}" for reason, count in Counter(reasons).items()))
    return f". {Cause.NODES_EXCLUDED.says(total=nodes, excluded=counted)}"
