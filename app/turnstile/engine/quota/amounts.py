"""Amounts of a resource in a flavor: whole numbers, and the pairs they are counted by.

Inside the engine an amount is a plain int (milli for cpu, base units otherwise) and the largest int64 in a quota stands
for *unlimited*, which is held as a number so large that adding or taking any request leaves it unlimited. Only text and
results for the outside are held within int64. Must never parse a quantity on the hot path.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from turnstile.api.pods import Quantity
from turnstile.api.quantity import MAX_INT64, MIN_INT64, from_int, to_int

UNLIMITED: Final = 1 << 200
"""Quota without end. `UNLIMITED - request` is still past every int64, `UNLIMITED - UNLIMITED` is 0 (Kueue: Amount)."""


class FlavorResource(Struct, gc=False, eq=False):
    """One resource in one flavor. Interned by its `Catalog`: equal pairs are one object, so a dict finds them fast.
    The garbage collector follows neither a pair nor a dict from pairs to amounts."""

    flavor: str
    resource: str

    def __repr__(self) -> str:
        return f"{self.flavor}/{self.resource}"

    def __deepcopy__(self, memo: object) -> "FlavorResource":
        return self


Amounts = dict[FlavorResource, int]
"""Amount by flavor and resource. An absent pair is 0."""


class Catalog:
    """Interns flavor-resource pairs. Grows with what quotas and assignments name."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], FlavorResource] = {}

    def pair(self, flavor: str, resource: str) -> FlavorResource:
        """The one object for this pair."""
        found = self._pairs.get((flavor, resource))
        if found is None:
            found = self._pairs[flavor, resource] = FlavorResource(flavor, resource)
        return found


def quota(resource: str, value: Quantity) -> int:
    """A quota or limit as an amount; the largest int64 and more is unlimited. Raises InvalidValue."""
    return endless(to_int(resource, value))


def endless(amount: int) -> int:
    """A sum of quotas: from the largest int64 on it is unlimited, and nothing is left of it once as much is taken off
    (Kueue: unlimited less a number is unlimited, less unlimited is 0)."""
    return UNLIMITED if amount >= MAX_INT64 else amount


def bounded(amount: int) -> int:
    """The amount within int64, as the API has it."""
    return MAX_INT64 if amount > MAX_INT64 else max(amount, MIN_INT64)


def text(resource: str, amount: int) -> str:
    """The amount as a quantity for people, `Unlimited` past int64 (Kueue: ResourceFormatter)."""
    return "Unlimited" if amount >= MAX_INT64 else from_int(resource, bounded(amount))


@lru_cache(maxsize=1 << 12)
def quantity(resource: str, amount: int) -> str:
    """The amount as a canonical quantity, within int64."""
    return from_int(resource, bounded(amount))


def multiplied(amount: int, count: int) -> int:
    """Request of `count` pods, saturating at int64."""
    product = amount * count
    return min(product, MAX_INT64)


def fnv1a(name: str) -> int:
    """FNV-1a, 64 bit, of the UTF-8 bytes: the order in which Kueue visits the resources of a request."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


_ORDER: dict[str, tuple[int, str]] = {}


def visiting_order(resources: Iterable[str]) -> list[str]:
    """Resources in the order a flavor is looked for: by FNV-1a hash, ties by name (Kueue: slice_requests)."""
    return sorted(resources, key=_rank)


def _rank(name: str) -> tuple[int, str]:
    rank = _ORDER.get(name)
    if rank is None:
        rank = (fnv1a(name), name)
        if len(_ORDER) < 10_000:  # names come from tenants: the memo stays small
            _ORDER[name] = rank
    return rank
