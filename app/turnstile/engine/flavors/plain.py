"""A lone pod set that fits into the first flavor of its one resource group without borrowing, as most do: the flavors
that a search would come to, for a third of the work.

Must never search.
"""

from typing import NamedTuple

from turnstile.engine.flavors.demand import Demand
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.reasons import Attempt, FlavorChoice, Mode


class Plain(NamedTuple):
    """The same for all pod sets of which all resources fit into a flavor without borrowing. Shared by them: it is never
    changed."""

    choices: dict[str, FlavorChoice]
    names: dict[str, str]
    attempts: tuple[tuple[Attempt]]
    tried: dict[str, int]
    pairs: tuple[FlavorResource, ...]


class PlainFits:
    """Remembers what is the same for all that simply fit."""

    __slots__ = ("_fits", "_setup", "_whole")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._fits: dict[tuple[str, int], tuple[FlavorChoice, tuple[Attempt]]] = {}
        """By flavor and where the scan ended."""
        self._whole: dict[tuple[str | int, ...], Plain] = {}
        """By flavor, where the scan ended, and resources."""

    def fit(self, flavor: str, tried: int) -> tuple[FlavorChoice, tuple[Attempt]]:
        """A flavor for resources that all fit into it without borrowing, in a scan that ended at index `tried`."""
        found = self._fits.get((flavor, tried))
        if found is None:
            choice = FlavorChoice(flavor, Mode.FIT, 0, tried if self._setup.fungible else -1)
            found = self._fits[flavor, tried] = choice, (Attempt(flavor),)
        return found

    def first(self, demand: Demand) -> Plain | None:
        """The first flavor for all resources of a lone pod set, whose usage is added to the assumed usage; None if
        flavors must be searched."""
        queue, info, requests = demand.queue, demand.info, demand.requests
        group = queue.group_of.get(next(iter(requests), ""))
        if group is None or info.last_assignment is not None or info.allowed_flavors is not None:
            return None
        if not group.covered.issuperset(requests):
            return None
        flavor = group.flavors[0]
        tried = 0 if len(group.flavors) > 1 and self._setup.fungible else -1
        plain = self._whole.get((flavor, tried, *requests))
        if plain is None:
            plain = self._whole[flavor, tried, *requests] = self._all(flavor, tried, tuple(requests))
        usage = demand.assumed.with_more(queue.node, plain.pairs, requests.values())
        if usage is None:
            return None
        try:
            if self._setup.unfit(queue, info, demand.members, flavor) is not None:
                return None
        except ValueError:
            return None
        demand.assumed.become(usage)
        return plain

    def _all(self, flavor: str, tried: int, resources: tuple[str, ...]) -> Plain:
        choice, attempts = self.fit(flavor, tried)
        return Plain(
            dict.fromkeys(resources, choice),
            dict.fromkeys(resources, flavor),
            (attempts,),
            dict.fromkeys(resources, tried),
            tuple(self._setup.pair(flavor, resource) for resource in resources),
        )
