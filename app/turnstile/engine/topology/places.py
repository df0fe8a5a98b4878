"""The places that a Workload has: what its pods request of each place, counted there and taken off again.

The part of its usage that quota does not know. Must never choose a place.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Protocol

from turnstile.engine.pace import Sliced
from turnstile.engine.topology.capacity import Ask
from turnstile.engine.topology.tree import Capacity, Domain

Amounts = Mapping[str, int]


class Sought(Protocol):
    """Places that are to be found for pods, as a search for victims asks for them."""

    def fits(self) -> bool:
        """Whether there are places as things are."""

    def domains(self) -> Sliced[set[Domain]]:
        """Domains that would each have room for all pods of a pod set without the pods that topology placed."""

    @property
    def key(self) -> Hashable:
        """Equal for equal requests."""


class Places:
    """Requests by place. To be changed only by whoever made it."""

    __slots__ = ("_of",)

    def __init__(self, of: Mapping[Capacity, Amounts] | None = None) -> None:
        self._of: dict[Capacity, Amounts] = dict(of or {})

    def __repr__(self) -> str:
        return f"Places({list(self._of.values())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self._of == other._of

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, place: Capacity) -> bool:
        return place in self._of

    def __len__(self) -> int:
        return len(self._of)

    def amounts(self, place: Capacity) -> Amounts | None:
        """Requests of the pods in a place; None if it is none of these."""
        return self._of.get(place)

    @property
    def capacities(self) -> Iterable[Capacity]:
        """The places."""
        return self._of

    @property
    def key(self) -> Hashable:
        """Equal for equal places."""
        return frozenset((id(place), frozenset(amounts.items())) for place, amounts in self._of.items())

    def put(self, place: Capacity, ask: Ask, pods: int) -> None:
        """So many more pods in a place."""
        amounts = {resource: amount * pods for resource, amount in ask.amounts.items()}
        before = self._of.get(place)
        self._of[place] = amounts if before is None else _sum(before, amounts)

    def include(self, other: "Places") -> None:
        """Those of others too."""
        for place, amounts in other._of.items():
            before = self._of.get(place)
            self._of[place] = amounts if before is None else _sum(before, amounts)

    def copy(self) -> "Places":
        """The same, to be changed."""
        return Places(self._of)

    def among(self, domains: AbstractSet[Domain]) -> Iterable[Domain]:
        """Those of some domains in which any place is."""
        found: dict[Domain, None] = {}
        for place in self._of:
            for leaf in place.leaves:
                domain: Domain = leaf
                while domain.parent is not None:
                    if domain in domains:
                        found[domain] = None
                    domain = domain.parent
        return found

    def parts(self, most: int) -> Iterator["Places"]:
        """The same in parts of so many places."""
        places = iter(self._of.items())
        while part := dict(islice(places, most)):
            yield Places(part)

    def occupy(self) -> None:
        """Count them."""
        for place, amounts in self._of.items():
            place.take(amounts, 1)

    def vacate(self) -> None:
        """Count them no more."""
        for place, amounts in self._of.items():
            place.take(amounts, -1)

    def fits(self) -> bool:
        """Whether all of it is free."""
        for place, amounts in self._of.items():
            free = place.free.amounts
            if any(amount > 0 and free.get(resource, 0) < amount for resource, amount in amounts.items()):
                return False
        return True

    def cover(self, freed: "Places") -> "Places":
        """The part of it that is among what others free, which is taken off."""
        covered = Places()
        for place, amounts in freed._of.items():
            mine = self._of.get(place)
            if mine is None:
                continue
            part = {name: min(amount, mine[name]) for name, amount in amounts.items() if mine.get(name, 0) > 0}
            self._of[place] = {name: amount - part.get(name, 0) for name, amount in mine.items()}
            covered._of[place] = part
        return covered

    def below(self, other: "Places") -> bool:
        """Whether it is less than another in any place of the other."""
        return any(
            amount > self._of.get(place, {}).get(resource, 0)
            for place, amounts in other._of.items()
            for resource, amount in amounts.items()
        )


def _sum(one: Amounts, other: Amounts) -> Amounts:
    total = dict(one)
    for resource, amount in other.items():
        total[resource] = total.get(resource, 0) + amount
    return total
