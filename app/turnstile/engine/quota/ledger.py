"""The ledger: the quota tree of all ClusterQueues and Cohorts, and the workloads that hold quota in it.

Usage is kept step by step; a change of quota or shape marks its tree, which is computed anew before it is next read.
Must never know who waits.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.quantity import to_float
from turnstile.api.quota import FairSharing, ResourceGroup
from turnstile.engine.causes import Inactive
from turnstile.engine.pace import Pace, Sliced, finish
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import Amounts, Catalog, quota
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.tree import Node


def weight_of(sharing: FairSharing | None) -> float:
    """Fair sharing weight, 1 if not given. Raises InvalidValue."""
    return 1.0 if sharing is None else to_float(sharing.weight)


class _Quotas(NamedTuple):
    nominal: Amounts
    borrowing: Amounts
    lending: Amounts
    weight: float


Queue = TypeVar("Queue", bound=ClusterQueue)


class Ledger(Generic[Queue]):
    """Trees and reservations.

    `cohorts` holds a node for each cohort that is named by anyone; those with an API object are in `declared`. `make`
    makes a ClusterQueue of that name.
    """

    __slots__ = (
        "_cycles",
        "_deep",
        "_dirty",
        "_make",
        "broken",
        "catalog",
        "cluster_queues",
        "cohorts",
        "declared",
        "healed",
        "holders",
        "parentless",
    )

    def __init__(self, catalog: Catalog, make: Callable[[str], Queue]) -> None:
        self._make = make
        self.catalog = catalog
        self.cluster_queues: dict[str, Queue] = {}
        self.cohorts: dict[str, Node] = {}
        self.declared: dict[str, Cohort] = {}
        self.holders: dict[str, str] = {}
        self.parentless: dict[str, dict[str, Info]] = {}  # reservations in ClusterQueues that do not exist
        self.broken = False
        """Whether there is a tree that admits nothing: its cohorts form a cycle, or are too many levels deep."""
        self.healed: list[str] = []
        """ClusterQueues of trees that were too deep and are not any more, whose Workloads are to be tried again."""
        self._cycles = False
        self._deep: set[str] = set()
        """Roots of trees that are too deep."""
        self._dirty: dict[str, Node] = {}

    # The tree

    def put_cluster_queue(self, api: ApiClusterQueue) -> Queue:
        """Create or update. Reservations that were seen before their queue are counted."""
        name = api.metadata.name
        quotas = self._quotas(api.spec.resource_groups, api.spec.fair_sharing)
        queue = self.cluster_queues.get(name)
        node_parent = api.spec.cohort_name or ""
        if queue is None:
            queue = self._make(name)
            self.cluster_queues[name] = queue
            queue.update(api)
            self._set_quotas(queue.node, quotas)
            self._attach(queue.node, node_parent)
            for info in self.parentless.pop(name, {}).values():
                self._vacate(info)
                self.hold(queue, info)
        else:
            node, old = queue.node, queue.node.parent
            before = node.nominal, node.borrowing_limit, node.lending_limit, queue.groups
            queue.update(api)
            self._set_quotas(node, quotas)
            if (old.name if old is not None else "") != node_parent:
                self._detach(node)
                self._attach(node, node_parent)
            elif before == (node.nominal, node.borrowing_limit, node.lending_limit, queue.groups):
                return queue  # another policy or weight: scans of flavors go on where they were
        self._mark(queue.node)
        return queue

    def drop_cluster_queue(self, name: str) -> Queue | None:
        """Remove a queue; reservations in it wait for it to come back."""
        queue = self.cluster_queues.get(name)
        if queue is None:
            return None
        del self.cluster_queues[name]
        self._detach(queue.node)
        if queue.workloads:
            self.parentless[name] = dict(queue.workloads)
        return queue

    def put_cohort(self, api: Cohort) -> Node:
        """Create or update."""
        name = api.metadata.name
        quotas = self._quotas(api.spec.resource_groups, api.spec.fair_sharing)
        node = self._cohort(name)
        self.declared[name] = api
        self._set_quotas(node, quotas)
        parent = api.spec.parent_name or ""
        if (node.parent.name if node.parent is not None else "") != parent:
            self._detach(node)
            self._attach(node, parent)
        self._mark(node)
        return node

    def drop_cohort(self, name: str) -> None:
        """Remove the object; the cohort stays, without quota, as long as it has members."""
        if name not in self.declared:
            return
        node = self.cohorts[name]
        del self.declared[name]
        self._set_quotas(node, self._quotas([], None))
        self._detach(node)
        self._mark(node)
        self._forget_if_empty(node)

    def root_of_cohort(self, name: str) -> str:
        """Name of the tree a cohort is in: should it leave, what it borrowed comes free there."""
        node = self.cohorts.get(name)
        return name if node is None or self.cyclic(node) else node.root.name

    def _cohort(self, name: str) -> Node:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = Node(name, is_queue=False)
        return node

    def _attach(self, node: Node, parent_name: str) -> None:
        if not parent_name:
            return
        parent = self._cohort(parent_name)
        node.parent = parent
        (parent.queues if node.is_queue else parent.cohorts)[node.name] = node
        if not node.is_queue:
            self._cycles = self._cycles or self._in_cycle(node)
            self.broken = self.broken or self._cycles
        self._mark(parent)

    def _detach(self, node: Node) -> None:
        parent = node.parent
        if parent is None:
            return
        self._mark(parent)
        node.parent = None
        (parent.queues if node.is_queue else parent.cohorts).pop(node.name, None)
        if self._cycles:
            self._cycles = any(self._in_cycle(cohort) for cohort in self.cohorts.values())
            self.broken = self._cycles or bool(self._deep)
        self._forget_if_empty(parent)

    def _forget_if_empty(self, node: Node) -> None:
        if node.name not in self.declared and not node.queues and not node.cohorts:
            self.cohorts.pop(node.name, None)

    def _quotas(self, groups: list[ResourceGroup], sharing: FairSharing | None) -> "_Quotas":
        """Quotas and weight of a node, read before anything is changed. Raises InvalidValue."""
        quotas = _Quotas({}, {}, {}, weight_of(sharing))
        for group in groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    pair = self.catalog.pair(flavor.name, resource.name)
                    quotas.nominal[pair] = quota(resource.name, resource.nominal_quota)
                    if resource.borrowing_limit is not None:
                        quotas.borrowing[pair] = quota(resource.name, resource.borrowing_limit)
                    if resource.lending_limit is not None:
                        quotas.lending[pair] = quota(resource.name, resource.lending_limit)
        return quotas

    @staticmethod
    def _set_quotas(node: Node, quotas: "_Quotas") -> None:
        node.nominal, node.borrowing_limit, node.lending_limit, node.weight = quotas

    def cyclic(self, node: Node) -> bool:
        """Whether the cohorts above form a cycle, or those of the tree are too many levels deep; such a tree admits
        nothing, and nothing may be read of it."""
        return self.broken and ((self._cycles and self._in_cycle(node)) or node.root.name in self._deep)

    @staticmethod
    def _in_cycle(node: Node) -> bool:
        seen = {id(node)}
        above = node.parent
        while above is not None:
            if id(above) in seen:
                return True
            seen.add(id(above))
            above = above.parent
        return False

    def fault_above(self, node: Node) -> str:
        """The fault of the cohorts above a node; empty if there is none."""
        if not self.cyclic(node):
            return ""
        if cycle := self.cycle_above(node):
            return Inactive.COHORT_CYCLE.says(cohorts=" -> ".join([*cycle, cycle[0]]))
        return Inactive.COHORTS_DEEP.says(most=tree.MOST_LEVELS)

    @staticmethod
    def cycle_above(node: Node) -> list[str]:
        """Names of the cohorts that form a cycle above a node, from the first of the alphabet on; empty if none do."""
        way: list[Node] = []
        above = node.parent
        while above is not None and above not in way:
            way.append(above)
            above = above.parent
        if above is None:
            return []
        cycle = [each.name for each in way[way.index(above) :]]
        first = cycle.index(min(cycle))
        return cycle[first:] + cycle[:first]

    def set_idle(self, queue: Queue) -> None:
        """Let the heights of the cohorts above follow whether a queue admits."""
        queue.node.idle = not queue.active
        if not self.cyclic(queue.node):
            tree.measure(queue.node)

    def _mark(self, node: Node) -> None:
        self._dirty[f"{'q' if node.is_queue else 'c'}/{node.name}"] = node

    def settle(self) -> None:
        """Compute marked trees anew. Called before amounts are read."""
        finish(self.settling(Pace()))

    def settling(self, pace: Pace) -> Sliced[None]:
        """As `settle`, in slices: until the end nothing may be read or changed. Work that is left undone is still
        marked; a queue may then count two generations for one change, which says no more than one does."""
        roots: dict[int, Node] = {}
        for node in self._dirty.values():
            pace.left -= 0.5
            if pace.left <= 0:
                yield
                pace.renew()
            if not (self._cycles and self._in_cycle(node)):
                root = node.root
                roots[id(root)] = root
        for root in roots.values():
            if root.is_queue or not tree.too_deep(root):
                self._heal(root)
            else:
                self._deep.add(root.name)
                self.broken = True
                continue
            for _ in tree.rebuilding(root):
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
            for node in root.walk_queues():
                pace.left -= 0.5
                if pace.left <= 0:
                    yield
                    pace.renew()
                queue = self.cluster_queues.get(node.name)
                if queue is not None:
                    queue.generation += 1
        if self._deep:
            self._deep = {name for name in self._deep if name in self.cohorts and not self.cohorts[name].parent}
            self.broken = self._cycles or bool(self._deep)
        if self._dirty:
            self._dirty.clear()

    def _heal(self, root: Node) -> None:
        """A tree is not too deep, which it, or a part of it, may have been."""
        if not self._deep:
            return
        self._deep.discard(root.name)
        self.broken = self._cycles or bool(self._deep)
        self.healed += [node.name for node in root.walk_queues()]

    # Reservations

    def hold(self, queue: Queue, info: Info, *, counted: bool = False) -> None:
        """Count the usage of a workload in a queue, unless it is counted already."""
        queue.hold(info)
        self.holders[info.key] = queue.name
        self._seat(info)
        if not counted:
            self._count(queue.node, info.usage.add_to)

    def move(self, queue: Queue, before: Info, after: Info) -> None:
        """Count a workload that holds the same quota in other places; to be undone by moving it back."""
        self._vacate(before)
        queue.commons.relieve(after)
        if after.usage.places is not None:
            after.usage.places.occupy()
        self.hold(queue, after, counted=True)

    def release(self, key: str) -> Queue | None:
        """Stop counting a workload; its queue, if it held anything in one."""
        name = self.holders.pop(key, None)
        queue = self.cluster_queues.get(name) if name is not None else None
        if queue is None:
            gone = self.parentless[name].pop(key, None) if name is not None and name in self.parentless else None
            if gone is not None:
                self._vacate(gone)
            return None
        info = queue.release(key)
        self._count(queue.node, info.usage.remove_from)
        info.surroundings.nodes.release(key)
        queue.generation += 1
        return queue

    @staticmethod
    def _vacate(info: Info) -> None:
        """Count the places of a workload no more, and leave its quota as it is."""
        if info.usage.places is not None:
            info.usage.places.vacate()
            info.surroundings.nodes.release(info.key)

    @staticmethod
    def _seat(info: Info) -> None:
        """Let the pods of a workload count in its places."""
        if info.usage.places is not None:
            info.surroundings.nodes.hold(info.key, info.usage.places)

    def _count(self, node: Node, change: Callable[[Node], None]) -> None:
        parent = node.parent
        if self.cyclic(node):  # no way up; the tree is computed anew when the cycle is gone
            node.parent = None
            change(node)
            node.parent = parent
        else:
            change(node)

    def holder(self, key: str) -> Info | None:
        """The workload as it holds quota."""
        name = self.holders.get(key)
        if name is None:
            return None
        queue = self.cluster_queues.get(name)
        return queue.workloads.get(key) if queue is not None else self.parentless.get(name, {}).get(key)

    def hold_for_missing(self, name: str, info: Info) -> None:
        """Remember a reservation in a queue that does not exist."""
        waiting = self.parentless.setdefault(name, {})
        if (before := waiting.get(info.key)) is not None:
            self._vacate(before)
        waiting[info.key] = info
        if info.usage.places is not None:
            info.usage.places.occupy()
        self._seat(info)
        self.holders[info.key] = name
