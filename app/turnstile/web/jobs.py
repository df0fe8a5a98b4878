"""The page My jobs: the Workloads of a namespace, or of all that the reader may see, by state and parts of names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnstile.web import queues
from turnstile.web.queues import Entry
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World

PAGE: Final = 50
"""Workloads on one page, and ClusterQueues that a search shows at most."""
NAMESPACES: Final = 500
"""Namespaces to choose from; where there are more, the reader writes one."""
STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "waiting": ("pending", "reserved", "leaving", "inactive"),
    "pending": ("pending",),
    "reserved": ("reserved",),
    "admitted": ("admitted",),
    "leaving": ("leaving",),
    "finished": ("finished",),
    "inactive": ("inactive",),
}
"""The states that a reader may choose, and those of Workloads that each stands for."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """One page of the list: the Workloads, how many match, and ClusterQueues that a search found."""

    cluster_queues: tuple[str, ...]
    entries: tuple[Entry, ...]
    count: int
    """Workloads that match."""
    namespaces: tuple[str, ...]
    """Namespaces to choose from."""
    more_namespaces: bool
    page: int
    pages: int


def jobs(world: World, *, wanted: str, state: str, namespace: str, page: int, sight: Sight = EVERYTHING) -> Jobs:
    """Workloads, by parts of their name, of the name of their job or of their namespace, and by state; and
    ClusterQueues by name."""
    words = wanted.lower().split()
    known = sorted(
        {each.api.metadata.namespace for each in world.state.queues.local_queues.values() if each.api is not None}
    )
    seen = [each for each in known if sight.sees(each)]
    if not namespace:
        within = sight.namespaces
    elif sight.sees(namespace):
        within = frozenset((namespace,))
    else:
        within = frozenset()
    states = STATES.get(state, (state,) if state else ())
    keys, count = world.listing.page(words, states=states, namespaces=within, offset=(page - 1) * PAGE, limit=PAGE)
    if not keys and page > 1:  # an address of a page that is no more leads to the first one
        page = 1
        keys, count = world.listing.page(words, states=states, namespaces=within, offset=0, limit=PAGE)
    infos = world.state.workloads
    tree = sorted(world.state.cluster_queues) if words and sight.tree else ()
    return Jobs(
        cluster_queues=tuple(name for name in tree if all(word in name.lower() for word in words))[:PAGE],
        entries=tuple(queues.entry(world, infos[key], sight=sight) for key in keys if key in infos),
        count=count,
        namespaces=tuple(seen[:NAMESPACES]),
        more_namespaces=len(seen) > NAMESPACES,
        page=page,
        pages=max(1, -(-count // PAGE)),
    )
