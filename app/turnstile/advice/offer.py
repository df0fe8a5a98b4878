"""The offer of a cluster to a job that is submitted: queues, quotas, flavors and priority classes, but no Workloads.

It is the engine's own ledger, fed as the leader's is. The amount that each ClusterQueue could be given if nothing were
in use is kept change by change, because the ledger would compute a whole tree of cohorts anew after a change of one
quota, and a review must not wait for that. Must never know what is in use.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, PriorityClass, RuntimeClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options, State
from turnstile.engine.intake import FEEDING
from turnstile.engine.queue.clusterqueue import ClusterQueue as EngineQueue
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import Amounts, FlavorResource, endless
from turnstile.engine.quota.tree import Node

K = TypeVar("K", bound=Kind)

FED: Final[tuple[type[Kind], ...]] = (ResourceFlavor, LimitRange, RuntimeClass, Cohort, ClusterQueue, LocalQueue)
"""Kinds that enter the ledger, in this order."""
NAMED: Final[tuple[type[Kind], ...]] = (Namespace, WorkloadPriorityClass, PriorityClass)
"""Kinds that are looked up by name."""
OFFERED: Final = (*FED, *NAMED)
"""All kinds that are read."""


class Offer:
    """The objects of one cluster, put in any order."""

    def __init__(self, options: Options) -> None:
        self.state = State(options)
        self._named: dict[type[Kind], dict[str, Kind]] = {kind: {} for kind in NAMED}
        self._lent: dict[Node, Amounts] = {}
        """The amounts that the children of each Cohort lend it together."""

    # --- reading

    def local_queue(self, key: str) -> LocalQueue | None:
        """A LocalQueue by `namespace/name`."""
        found = self.state.queues.local_queues.get(key)
        return found.api if found is not None else None

    def cluster_queue(self, name: str) -> EngineQueue | None:
        """A ClusterQueue by name."""
        return self.state.cluster_queues.get(name)

    def named(self, kind: type[K], name: str) -> K | None:
        """An object of a kind of `NAMED`."""
        found = self._named[kind].get(name)
        return found if isinstance(found, kind) else None

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a namespace; None if it is not known."""
        found = self.named(Namespace, name)
        return found.metadata.labels if found is not None else None

    def cyclic(self, queue: EngineQueue) -> bool:
        """Whether the cohorts above a ClusterQueue form a cycle, so that it admits nothing."""
        return self.state.ledger.cyclic(queue.node)

    def most(self, queue: EngineQueue, flavor: str, resource: str) -> int:
        """The most that a ClusterQueue could be given of a resource in a flavor if nothing were in use, by borrowing
        too. Never call it for a ClusterQueue that is `cyclic`."""
        return tree.potential(queue.node, self.state.surroundings.catalog.pair(flavor, resource))

    # --- changes

    def put(self, obj: Kind) -> None:
        """An object exists or changed. Raises InvalidValue if it cannot be read, and changes nothing."""
        kind, key = type(obj), obj.metadata.key
        if kind in self._named:
            self._named[kind][key] = obj
        else:
            self._change(kind, key, lambda: FEEDING[kind].put(self.state, obj, 0.0))

    def drop(self, kind: type[Kind], key: str) -> None:
        """An object is gone."""
        if kind in self._named:
            self._named[kind].pop(key, None)
        else:
            self._change(kind, key, lambda: FEEDING[kind].drop(self.state, key, 0.0))

    def _change(self, kind: type[Kind], key: str, change: Callable[[], Any]) -> None:
        if kind not in (ClusterQueue, Cohort):
            change()
            return
        ledger = self.state.ledger
        before, was_broken = self._node(kind, key), ledger.broken
        parent = before.parent if before is not None else None
        lent = _lends(before) if before is not None else {}
        change()
        if ledger.broken or was_broken:
            self._compute_all()
            return
        node = self._node(kind, key)
        self._lend(parent, {pair: -amount for pair, amount in lent.items()})
        if node is not None:
            self._measure(node)
            self._lend(node.parent, _lends(node))
        for gone in (before, parent):
            if gone is not None and not gone.is_queue and ledger.cohorts.get(gone.name) is not gone:
                self._lent.pop(gone, None)

    def _node(self, kind: type[Kind], name: str) -> Node | None:
        if kind is Cohort:
            return self.state.ledger.cohorts.get(name)
        queue = self.state.cluster_queues.get(name)
        return queue.node if queue is not None else None

    def _measure(self, node: Node) -> None:
        """Compute what there is below a node, and what of it the node keeps, as `tree.rebuild` does."""
        subtree = dict(node.nominal)
        for pair, amount in self._lent.get(node, {}).items():
            subtree[pair] = endless(subtree.get(pair, 0) + amount)
        node.subtree = subtree
        node.guaranteed = {
            pair: endless(max(0, subtree.get(pair, 0) - limit)) for pair, limit in node.lending_limit.items()
        }

    def _lend(self, cohort: Node | None, changes: Amounts) -> None:
        """Change what the children of a Cohort lend it, and with it what the Cohort itself can lend its parent."""
        while cohort is not None and (changes := {pair: amount for pair, amount in changes.items() if amount}):
            lent = self._lent.setdefault(cohort, {})
            before = {pair: _lends_of(cohort, pair) for pair in changes}
            for pair, amount in changes.items():
                lent[pair] = lent.get(pair, 0) + amount
                cohort.subtree[pair] = total = endless(cohort.nominal.get(pair, 0) + lent[pair])
                if (limit := cohort.lending_limit.get(pair)) is not None:
                    cohort.guaranteed[pair] = endless(max(0, total - limit))
            changes = {pair: _lends_of(cohort, pair) - before[pair] for pair in changes}
            cohort = cohort.parent

    def _compute_all(self) -> None:
        """Compute all anew: cohorts form a cycle, or did until now."""
        ledger = self.state.ledger
        ledger.settle()
        self._lent.clear()
        for cohort in ledger.cohorts.values():
            lent: Amounts = {}
            for child in (*cohort.cohorts.values(), *cohort.queues.values()):
                for pair, amount in _lends(child).items():
                    lent[pair] = lent.get(pair, 0) + amount
            self._lent[cohort] = lent


def _lends_of(node: Node, pair: FlavorResource) -> int:
    return node.subtree.get(pair, 0) - node.guaranteed.get(pair, 0)


def _lends(node: Node) -> Amounts:
    """The amount that a node lends its Cohort."""
    return {pair: _lends_of(node, pair) for pair in node.subtree}
