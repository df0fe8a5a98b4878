"""Flavors that one pod set gets for resources of several groups: its pods get the node labels of all of them.

Two values of one label are on no node, and a required node affinity may be met by each flavor and not by all together.
Such pods would hold quota and never be placed, so these flavors do not fit together. Kueue lets a label of one flavor
overwrite that of the other (kueue#14409). Must never look at quota.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.causes import Cause
from turnstile.engine.flavors.eligibility import matches_labels

if TYPE_CHECKING:
    from turnstile.engine.flavors.demand import Demand


def conflict(one: ResourceFlavor, other: ResourceFlavor) -> str | None:
    """Why no node is of both flavors; None if one may be."""
    ours, theirs = one.spec.node_labels, other.spec.node_labels
    for key, value in ours.items():
        if theirs.get(key, value) != value:
            one_name, other_name = one.metadata.name, other.metadata.name
            return Cause.CONTRADICTION.says(flavor=one_name, other=other_name, key=key, ours=value, theirs=theirs[key])
    return None


def lonely(groups: Sequence[Sequence[ResourceFlavor]]) -> Iterator[str]:
    """Why flavors of a ClusterQueue cannot be used by pods that ask for resources of several of its groups: for each
    flavor with which no flavor of another resource group fits together, its first conflict there; each pair once."""
    seen: set[frozenset[str]] = set()
    for group in groups:
        for flavor in group:
            for other in groups:
                if other is group or not other or any(conflict(flavor, each) is None for each in other):
                    continue
                pair = frozenset((flavor.metadata.name, other[0].metadata.name))
                if pair not in seen:
                    seen.add(pair)
                    yield conflict(flavor, other[0]) or ""
                break


class Obstacle(NamedTuple):
    """A companion, by its name, with which another flavor does not fit together."""

    flavor: str
    reason: str


class Companions:
    """The flavors that a pod set has for resources of other groups."""

    __slots__ = ("_flavors", "_labels")

    def __init__(self, flavors: Sequence[ResourceFlavor]) -> None:
        self._flavors = flavors
        self._labels = {key: value for each in flavors for key, value in each.spec.node_labels.items()}

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [each.metadata.name for each in self._flavors]

    def unfit(self, flavor: ResourceFlavor, demand: "Demand") -> Obstacle | None:
        """The companion beside which the pods cannot have a flavor too; None if they can. Raises ValueError if their
        affinity is malformed."""
        if not self._labels or not flavor.spec.node_labels:
            return None
        for other in self._flavors:
            if reason := conflict(flavor, other):
                return Obstacle(other.metadata.name, reason)
        together = self._labels | flavor.spec.node_labels
        shapes = [demand.info.totals[index].shape for index in demand.members]
        if any(
            shape is not None and shape.terms is not None and not matches_labels(shape, together) for shape in shapes
        ):
            names = ", ".join(other.metadata.name for other in (*self._flavors, flavor))
            return Obstacle(self._flavors[-1].metadata.name, Cause.AFFINITY_TOGETHER.says(flavors=names))
        return None


ALONE: Final = Companions(())
"""No other flavors."""
