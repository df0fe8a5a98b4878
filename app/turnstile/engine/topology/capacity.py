"""Free amounts of places for pods, and how many pods of one kind fit into them.

Free amounts are interned, so nodes that are alike are counted once, and a count never becomes wrong: what changes is
which amounts are free in a place. Must never know where a place is.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K")
V = TypeVar("V")

MOST_PODS: Final = 2**31 - 1
PODS: Final = "pods"
MOST_COUNTED: Final = 1 << 11
"""Free amounts for which one kind of pods is counted, at about 100 bytes each; then the counts are forgotten."""
MOST_ASKS: Final = 128
"""Requests that are interned. Whoever may make Workloads may make as many different ones as they like."""


class Free:
    """Amounts that are free in a place, by resource; below zero where more is in use than there is. Never changed."""

    __slots__ = ("__weakref__", "amounts")

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self.amounts = amounts


class _Counts(dict[Free, int]):
    """Pods that fit, by free amounts. Computed when asked for."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: tuple[tuple[str, int], ...]) -> None:
        super().__init__()
        self._wanted = wanted

    def into(self, amounts: Mapping[str, int]) -> int:
        """Pods that fit into these amounts."""
        fit = MOST_PODS
        for resource, amount in self._wanted:
            have = amounts.get(resource, 0)
            if have < amount:
                return 0
            if (each := have // amount) < fit:
                fit = each
        return fit

    def __missing__(self, free: Free) -> int:
        fit = self.into(free.amounts)
        if len(self) >= MOST_COUNTED:
            self.clear()
        self[free] = fit
        return fit


class _WithLeader(dict[Free, tuple[int, int]]):
    """Leaders (one or none) that fit, and pods that fit beside as many, by free amounts."""

    __slots__ = ("_frees", "_leader", "_worker")

    def __init__(self, worker: "Ask", leader: "Ask", frees: "Frees") -> None:
        super().__init__()
        self._worker = worker
        self._leader = leader
        self._frees = frees

    def __missing__(self, free: Free) -> tuple[int, int]:
        beside = self._frees.less(free, self._leader, 1) if self._leader.fits[free] else free
        if len(self) >= MOST_COUNTED:
            self.clear()
        found = self[free] = (int(beside is not free), self._worker.fits[beside])
        return found


class Ask:
    """Requests of one pod, the place of the pod itself among them. Interned by `Frees.ask`."""

    __slots__ = ("_beside", "amounts", "fits")

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self.amounts = amounts
        self.fits = _Counts(tuple((name, amount) for name, amount in amounts.items() if amount > 0))
        """How many such pods fit, by free amounts."""
        self._beside: dict[Ask, _WithLeader] = {}

    def beside(self, leader: "Ask", frees: "Frees") -> Mapping[Free, tuple[int, int]]:
        """Leaders that fit, and pods that fit beside as many, by free amounts."""
        found = self._beside.get(leader)
        if found is None:
            self._beside.clear()
            found = self._beside[leader] = _WithLeader(self, leader, frees)
        return found

    def into(self, amounts: Mapping[str, int]) -> int:
        """How many such pods fit into amounts that are of no place."""
        return self.fits.into(amounts)

    def limiting(self, amounts: Mapping[str, int]) -> str:
        """The resource of which the fewest pods fit, the first by name."""
        return min(
            (max(0, amounts.get(name, 0)) // amount, name) for name, amount in self.amounts.items() if amount > 0
        )[1]


class Held(WeakValueDictionary[K, V]):
    """Values by key for as long as something else holds them. A copy has those that are held in the copy."""

    def __reduce__(self) -> tuple[type["Held[K, V]"], tuple[()], None, None, Iterator[tuple[K, V]]]:
        return type(self), (), None, None, iter(list(self.items()))


class Frees:
    """Interns free amounts, and requests of pods."""

    __slots__ = ("_asks", "_known", "nothing")

    def __init__(self) -> None:
        self._known: Held[frozenset[tuple[str, int]], Free] = Held()
        self._asks: dict[frozenset[tuple[str, int]], Ask] = {}
        self.nothing = self.of({})

    def of(self, amounts: Mapping[str, int]) -> Free:
        """The one object for these amounts."""
        key = frozenset(amounts.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Free(amounts)
        return found

    def less(self, free: Free, ask: Ask, pods: int) -> Free:
        """The rest once so many pods have their place."""
        taken = ask.amounts
        return self.of({name: amount - pods * taken.get(name, 0) for name, amount in free.amounts.items()})

    def ask(self, requests: Mapping[str, int]) -> Ask:
        """The one object for pods with these requests. Equal ones may differ after very many others."""
        amounts = {**requests, PODS: 1}
        key = frozenset(amounts.items())
        found = self._asks.get(key)
        if found is None:
            if len(self._asks) >= MOST_ASKS:
                self._asks.clear()
            found = self._asks[key] = Ask(amounts)
        return found
