"""The quota tree of a moment in the past, from recorded quotas: the engine's own tree, and so the engine's arithmetic.

It says what ClusterQueues borrow, and who lends it. Pure.
"""

from collections.abc import Mapping

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.clusterqueue import ClusterQueueSpec
from turnstile.api.cohort import Cohort, CohortSpec
from turnstile.api.meta import ObjectMeta
from turnstile.api.quantity import from_int
from turnstile.api.quota import FlavorQuotas, ResourceGroup, ResourceQuota
from turnstile.engine.quota import lending
from turnstile.engine.quota.amounts import Catalog
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.quota.tree import Node, add_usage
from turnstile.recorder.facts import Pair, Quota


class Tree:
    """ClusterQueues and Cohorts with their quotas, and what each ClusterQueue holds."""

    def __init__(self) -> None:
        self._ledger = Ledger(Catalog(), ClusterQueue)

    def put(self, *quotas: Quota, held: Mapping[str, Mapping[Pair, int]] | None = None) -> None:
        """ClusterQueues and Cohorts have these quotas from now on. A ClusterQueue that is new begins with what is
        `held` in it."""
        for quota in quotas:
            match quota.kind, quota.gone:
                case "ClusterQueue", True:
                    self._ledger.drop_cluster_queue(quota.name)
                case "ClusterQueue", False:
                    known = quota.name in self._ledger.cluster_queues
                    spec = ClusterQueueSpec(cohort_name=quota.parent or None, resource_groups=_groups(quota))
                    made = self._ledger.put_cluster_queue(ApiClusterQueue(metadata=_named(quota), spec=spec))
                    if not known and held is not None:
                        amounts = held.get(quota.name, {}).items()
                        made.node.usage = {self._ledger.catalog.pair(*pair): amount for pair, amount in amounts}
                case _, True:
                    self._ledger.drop_cohort(quota.name)
                case _:
                    above = CohortSpec(parent_name=quota.parent or None, resource_groups=_groups(quota))
                    self._ledger.put_cohort(Cohort(metadata=_named(quota), spec=above))
        self._ledger.settle()

    def use(self, queue: str, pair: Pair, amount: int) -> None:
        """A ClusterQueue holds so much more, or less."""
        found = self._ledger.cluster_queues.get(queue)
        if found is None:
            return
        key = self._ledger.catalog.pair(*pair)
        if self._ledger.cyclic(found.node):
            found.node.usage[key] = found.node.usage.get(key, 0) + amount
        else:
            add_usage(found.node, key, amount)

    def borrowed(self, queue: str, pair: Pair) -> int:
        """The usage of a ClusterQueue past its nominal quota; nothing without a Cohort, which lends it, nor if its
        quota is not known."""
        found = self._ledger.cluster_queues.get(queue)
        return lending.borrowed(found.node, self._ledger.catalog.pair(*pair)) if found is not None else 0

    def root(self, queue: str) -> Node | None:
        """The topmost Cohort above a ClusterQueue; None without any, and for Cohorts in a cycle, which lend nothing."""
        found = self._ledger.cluster_queues.get(queue)
        if found is None or found.node.parent is None or self._ledger.cyclic(found.node):
            return None
        return found.node.root

    def lent(self, root: Node, pair: Pair) -> dict[Node, float]:
        """The loans of each ClusterQueue and Cohort below a root, from its own quota."""
        return lending.lent(root, self._ledger.catalog.pair(*pair))


def _named(quota: Quota) -> ObjectMeta:
    return ObjectMeta(name=quota.name)


def _groups(quota: Quota) -> list[ResourceGroup]:
    """One group: how resources go together decides which flavor is taken, never how much there is."""
    flavors: dict[str, FlavorQuotas] = {}
    for flavor, resource, *amounts in quota.amounts:
        nominal, borrowing, lends = (None if each is None else from_int(resource, each) for each in amounts)
        given = ResourceQuota(
            name=resource, nominal_quota=nominal or "0", borrowing_limit=borrowing, lending_limit=lends
        )
        flavors.setdefault(flavor, FlavorQuotas(name=flavor)).resources.append(given)
    covered = list(dict.fromkeys(each[1] for each in quota.amounts))
    return [ResourceGroup(covered_resources=covered, flavors=list(flavors.values()))]
