"""Usage as it would be, tried on the tree itself and taken back.

Must never outlive the question that is tried.
"""

from types import TracebackType
from typing import Self

from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import Usage


class Trial:
    """Usage as it would be, on the ledger itself: `remove` and `add`, look, and on leaving all is as it was.

    Nodes that are touched get a copy of their usage to try things on, so that leaving costs next to nothing however
    many there are, and leaving in the middle of a search is as good as at its end. Trials nest. While one is open
    only the cycle may read or change usage, and the tree must keep its shape.
    """

    __slots__ = ("_before", "_kept")

    def __init__(self) -> None:
        self._kept: set[int] = set()
        self._before: list[tuple[Node, Amounts]] = []

    def _keep(self, node: Node) -> None:
        above: Node | None = node
        while above is not None and id(above) not in self._kept:
            self._kept.add(id(above))
            self._before.append((above, above.usage))
            above.usage = above.usage.copy()
            above = above.parent

    def remove(self, node: Node, usage: Usage) -> None:
        """As if so much less were in use in a ClusterQueue."""
        if id(node) not in self._kept:
            self._keep(node)
        usage.remove_from(node)

    def add(self, node: Node, usage: Usage) -> None:
        """As if so much more were in use in a ClusterQueue."""
        if id(node) not in self._kept:
            self._keep(node)
        usage.add_to(node)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node, usage in self._before:
            node.usage = usage
