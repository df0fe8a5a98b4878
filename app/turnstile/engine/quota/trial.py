"""Usage as it would be: tried on the tree itself and taken back, or kept beside it.

A trial must never outlive the question that is tried, and a view never the cycle.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from turnstile.engine.pace import AT_ONCE, Pace, Sliced
from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import Usage
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.tree import Capacity

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue

PLACE: Final = 3.0
"""Work to try another usage of a place, or to put it back."""
PLACES_AT_ONCE: Final = 64
"""Places that are tried, or put back, without a stop."""


class View:
    """Usage of one tree as it would be, kept beside the usage that is counted, so that a change costs one way to the
    root however much is different already.

    A node that the view does not hold has the usage that is counted. So whoever counts usage in the tree changes the
    view first: by `add`, or by `keep` if the view is to stay without that usage.

    Places are shared by all trees of cohorts, so of them the view has what is counted and not in it.
    """

    __slots__ = ("_without", "usage")

    def __init__(self) -> None:
        self.usage: dict[Node, Amounts] = {}
        """By node; with a node all that are above it."""
        self._without: Places | None = None

    def copy(self) -> "View":
        """The same, to be changed on its own."""
        other = View()
        other.usage = {node: usage.copy() for node, usage in self.usage.items()}
        other._without = self._without.copy() if self._without is not None else None
        return other

    @property
    def without(self) -> Places | None:
        """Places that are counted and not in the view; not to be changed."""
        return self._without

    def keep(self, node: Node, usage: Usage) -> None:
        """Stay without a usage that is about to be counted in a ClusterQueue."""
        self._hold(node)
        self._take_off(usage)

    def _take_off(self, usage: Usage) -> None:
        if usage.places is not None:
            if self._without is None:
                self._without = Places()
            self._without.include(usage.places)

    def _hold(self, node: Node) -> None:
        """Hold the usage of a ClusterQueue, and of the Cohorts above it, as it is now."""
        above: Node | None = node
        while above is not None and above not in self.usage:
            self.usage[above] = above.usage.copy()
            above = above.parent

    def add(self, node: Node, usage: Usage) -> None:
        """So much more in a ClusterQueue, which is about to be counted in the tree too."""
        self._hold(node)
        self._swap(node)
        usage.add_quota(node)
        self._swap(node)

    def remove(self, node: Node, usage: Usage) -> None:
        """So much less in a ClusterQueue."""
        self._hold(node)
        self._swap(node)
        usage.remove_quota(node)
        self._swap(node)
        self._take_off(usage)

    def _swap(self, node: Node) -> None:
        above: Node | None = node
        while above is not None:
            above.usage, self.usage[above] = self.usage[above], above.usage
            above = above.parent


_AS_IT_IS: Final[Mapping[Node, Amounts]] = {}


class Trial:
    """Usage as it would be, on the ledger itself: `remove` and `add`, look, and on leaving all is as it was.

    Nodes that are touched get a copy of their usage to try things on, so that leaving costs next to nothing however
    many there are, and leaving in the middle of a search is as good as at its end. Trials nest. While one is open
    only the cycle may read or change usage, and the tree must keep its shape.

    A trial of a `View` begins with the usage of that, at each node that is shown or touched.
    """

    __slots__ = ("_before", "_places", "_usage")

    def __init__(self, view: View | None = None) -> None:
        self._before: dict[Node, Amounts] = {}
        """Usage of the nodes that are touched, as it was."""
        self._usage: Mapping[Node, Amounts] = view.usage if view is not None else _AS_IT_IS
        self._places: dict[Capacity, Mapping[str, int]] = {}
        """Places that are touched, as they were."""
        if view is not None and view.without is not None:
            self._keep_places(view.without)
            view.without.vacate()

    def _keep(self, node: Node) -> None:
        before, shown = self._before, self._usage
        above: Node | None = node
        while above is not None and above not in before:
            before[above] = usage = above.usage
            above.usage = shown.get(above, usage).copy()
            above = above.parent

    def _keep_places(self, places: Places) -> None:
        for place in places.capacities:
            if place not in self._places:
                self._places[place] = place.used

    def show(self, node: Node) -> None:
        """Have the node, and the Cohorts above it, show the usage that is tried."""
        if node not in self._before:
            self._keep(node)

    def show_all(self, pace: Pace) -> Sliced[None]:
        """Have the whole tree show the usage that is tried."""
        for node in self._usage:
            pace.left -= 0.25
            if pace.left <= 0:
                yield
                pace.renew()
            self.show(node)

    def remove(self, node: Node, usage: Usage) -> None:
        """As if so much less were in use in a ClusterQueue."""
        if node not in self._before:
            self._keep(node)
        if usage.places is not None:
            self._keep_places(usage.places)
        usage.remove_from(node)

    def remove_all(self, freed: "Mapping[ClusterQueue, Usage]", pace: Pace) -> Sliced[None]:
        """As if so much less were in use in each of many ClusterQueues."""
        for queue, usage in freed.items():
            pace.left -= 2
            if pace.left <= 0:
                yield
                pace.renew()
            if usage.places is None or len(usage.places) <= PLACES_AT_ONCE:
                self.remove(queue.node, usage)
                continue
            self.show(queue.node)
            usage.remove_quota(queue.node)
            for places in usage.places.parts(PLACES_AT_ONCE):
                pace.left -= PLACE * len(places)
                if pace.left <= 0:
                    yield
                    pace.renew()
                self._keep_places(places)
                places.vacate()

    def undo(self, pace: Pace) -> Sliced[None]:
        """Have all as it was: in slices, for as long as many nodes are left."""
        while len(self._before) > AT_ONCE:
            pace.left -= 0.25
            if pace.left <= 0:
                yield
                pace.renew()
            node, usage = self._before.popitem()
            node.usage = usage
        while len(self._places) > PLACES_AT_ONCE:
            pace.left -= PLACE
            if pace.left <= 0:
                yield
                pace.renew()
            place, used = self._places.popitem()
            place.put_back(used)

    def add(self, node: Node, usage: Usage) -> None:
        """As if so much more were in use in a ClusterQueue."""
        if node not in self._before:
            self._keep(node)
        if usage.places is not None:
            self._keep_places(usage.places)
        usage.add_to(node)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node, usage in self._before.items():
            node.usage = usage
        for place, used in self._places.items():
            place.put_back(used)
