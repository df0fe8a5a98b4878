"""Which preemptor had which victims, so that preemption comes to an end.

Policies can make three Workloads take turns for ever: the first reclaims its quota from a borrower of any priority, the
second, of higher priority in the same ClusterQueue, preempts the first, and the borrower, of higher priority still,
preempts the second. Kueue goes on. Here no preemptor has the same victim twice while nothing changes in their tree but
by preemption itself. The number of pairs is finite, so a fixed point is always reached. Must never choose victims.
"""

from collections.abc import Iterable
from typing import Any, Final

from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.ledger import Ledger

_NO_VICTIMS: Final[frozenset[str]] = frozenset()
_NOTHING: Final[dict[str, frozenset[str]]] = {}

Tree = tuple[bool, str]
"""Whether the root is a ClusterQueue, and its name."""


class Repeats:
    """Victims by tree and preemptor."""

    __slots__ = ("_ledger", "by_tree")

    def __init__(self, ledger: Ledger[Any]) -> None:
        self._ledger = ledger
        self.by_tree: dict[Tree, dict[str, frozenset[str]]] = {}

    def spared(self, queue: ClusterQueue, key: str) -> frozenset[str]:
        """Keys of the victims that a preemptor of that ClusterQueue may not have again."""
        if not self.by_tree:
            return _NO_VICTIMS
        return self.by_tree.get(_tree(queue), _NOTHING).get(key, _NO_VICTIMS)

    def add(self, queue: ClusterQueue, key: str, victims: Iterable[str]) -> None:
        """A workload of that queue had others preempted."""
        by_preemptor = self.by_tree.setdefault(_tree(queue), {})
        by_preemptor[key] = by_preemptor.get(key, _NO_VICTIMS).union(victims)

    def forget(self, queue: ClusterQueue | None) -> None:
        """Something else changed in the tree of a queue: there, all may be as it was before."""
        if self.by_tree and queue is not None and not self._ledger.cyclic(queue.node):
            self.by_tree.pop(_tree(queue), None)

    def forget_all(self) -> None:
        """A quota or a policy changed."""
        if self.by_tree:
            self.by_tree.clear()


def _tree(queue: ClusterQueue) -> Tree:
    root = queue.node.root
    return root.is_queue, root.name
