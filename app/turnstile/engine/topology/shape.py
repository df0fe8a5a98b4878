"""The place that a pod set asks for, in terms of the levels of a tree.

Source: Kueue's TASFlavorSnapshot. Must never look at what is free.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from turnstile.api.topology import SliceConstraint, TopologyRequest
from turnstile.engine.causes import Cause

_NONE: Final = TopologyRequest()


class Shape(NamedTuple):
    """Levels are numbers, 0 the widest."""

    level: int
    """All pods shall be in one domain of this level, if it is no wider than that."""
    required: bool
    """Whether they have to be."""
    unconstrained: bool
    """Whether any domains will do."""
    slice_level: int
    """Each slice has to be in one domain of this level."""
    slice_size: int
    """Pods of a slice."""
    inner: tuple[int, ...]
    """For each level the pods that have to stay together in a domain of it, inside a slice; 0 if none have to."""

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Level and size of the slices, and of those inside them, the widest first."""
        found = [(self.slice_level, self.slice_size)]
        for level, size in enumerate(self.inner):
            if size and size == found[-1][1] and len(found) > 1:
                found[-1] = (level, size)
            elif size:
                found.append((level, size))
        return found


def constraints(request: TopologyRequest, *, multi_layer: bool = True) -> list[SliceConstraint]:
    """Layers of slices that a pod set asks for, the outermost first."""
    layers = list(request.podset_slice_required_topology_constraints)
    if layers:
        return layers if multi_layer else layers[:1]
    if request.pod_set_slice_required_topology is None:
        return []
    return [SliceConstraint(topology=request.pod_set_slice_required_topology, size=request.pod_set_slice_size or 0)]


def shape_of(request: TopologyRequest | None, levels: Sequence[str], *, multi_layer: bool = True) -> Shape | str:
    """The shape of a request in these levels, or why they have none. No request asks for any domains."""
    request = request or _NONE
    layers = constraints(request, multi_layer=multi_layer)
    wanted = request.required or request.preferred
    slices_only = wanted is None and not request.unconstrained and bool(layers)
    if wanted is None:
        wanted = levels[0] if slices_only else levels[-1]
    if wanted not in levels:
        return Cause.TOPOLOGY_LEVEL.says(level=wanted)
    level = levels.index(wanted)
    slice_level, slice_size = len(levels) - 1, 1
    inner = [0] * len(levels)
    if layers:
        first = layers[0]
        if first.topology not in levels:
            return Cause.SLICE_LEVEL.says(level=first.topology)
        if not first.size:
            return Cause.SLICE_SIZE.says()
        slice_level, slice_size = levels.index(first.topology), first.size
        if level > slice_level:
            return Cause.SLICE_ABOVE.says(slice=first.topology, level=wanted)
        if (why := _set_inner(inner, layers, levels)) is not None:
            return why
    return Shape(
        level=level,
        required=request.required is not None,
        unconstrained=bool(request.unconstrained) or slices_only or not (request.required or request.preferred),
        slice_level=slice_level,
        slice_size=slice_size,
        inner=tuple(inner),
    )


def _set_inner(inner: list[int], layers: Sequence[SliceConstraint], levels: Sequence[str]) -> str | None:
    """Enter the layers inside the first one; why they cannot be, if so."""
    before = layers[0]
    for layer in layers[1:]:
        if layer.topology not in levels:
            return Cause.LAYER_LEVEL.says(level=layer.topology)
        start, end = levels.index(before.topology), levels.index(layer.topology)
        if end <= start:
            return Cause.LAYER_ORDER.says(layer=layer.topology, before=before.topology)
        if not layer.size or before.size % layer.size:
            return Cause.LAYER_SIZE.says(size=layer.size, before=before.size)
        inner[start + 1 : end + 1] = [layer.size] * (end - start)
        before = layer
    return None
