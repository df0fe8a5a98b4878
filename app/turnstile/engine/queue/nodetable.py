"""The node table of the state, kept in step with ResourceFlavors, Topologies, Nodes and the pods that are bound there.

ClusterQueues that admit only with room on nodes, and the pods of all Workloads that hold quota, are noted there too. A
change that leaves more free lets inadmissible Workloads be tried again. Must never place a pod.
"""

from collections.abc import Mapping, Sequence

from turnstile.api import names
from turnstile.api.core import Node
from turnstile.api.quantity import to_int
from turnstile.api.waitforroom import asks_for_room
from turnstile.engine.options import Options
from turnstile.engine.queue.activity import ActivityJudge
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.retries import Retries
from turnstile.engine.quota import clusterqueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.topology.capacity import PODS
from turnstile.engine.topology.eligibility import KEEPS_AWAY
from turnstile.engine.topology.fits import Overlay
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.room import Asked


class NodeTable:
    """Lets the nodes follow what is seen. Answers False where nothing changed that a cycle reads."""

    __slots__ = ("_activity", "_asking", "_by_default", "_failures", "_is_on", "_ledger", "_nodes", "_retries")

    def __init__(
        self,
        nodes: Nodes,
        activity: ActivityJudge,
        ledger: Ledger[ClusterQueue],
        retries: Retries,
        options: Options,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._by_default = options.wait_for_room
        self._asking: dict[str, None] = {}
        """ClusterQueues that admit Workloads only while nodes have room for their pods."""
        self._activity = activity
        self._retries = retries
        self._failures = options.node_failure_conditions
        self._is_on = options.gates.topology_aware_scheduling

    def follow_flavor(self, name: str) -> None:
        """Let the domains of a flavor be those of its Topology."""
        flavor = self._activity.flavors.get(name)
        topology = flavor.spec.topology_name if flavor is not None else None
        levels = self._activity.topologies.get(topology) if topology else None
        if flavor is None or topology is None or not levels or not self._is_on:
            self._nodes.drop_flavor(name)
        else:
            spec = flavor.spec
            self._nodes.put_flavor(name, topology, levels, spec.node_labels, spec.tolerations)

    def follow_topology(self, name: str) -> None:
        """The same of all flavors with a Topology."""
        for flavor in self._activity.flavors.values():
            if flavor.spec.topology_name == name:
                self.follow_flavor(flavor.metadata.name)
                self._retries.mark_all(self._activity.references.flavor(flavor.metadata.name))

    def put_node(self, node: Node) -> bool:
        """A Node exists or changed."""
        name = node.metadata.name
        if not node.takes_pods or node.is_broken(self._failures):
            return self._nodes.drop_node(name)
        allocatable = {resource: to_int(resource, value) for resource, value in node.status.allocatable.items()}
        taints = [taint for taint in node.spec.taints if taint.effect in KEEPS_AWAY]
        changed = self._nodes.put_node(name, labels=node.metadata.labels, allocatable=allocatable, taints=taints)
        if not changed:
            return False
        return self._retry(self._nodes.flavors_with(name)) | (self._nodes.room is not None and self._retry_room())

    def drop_node(self, name: str) -> bool:
        """A Node is gone."""
        return self._nodes.drop_node(name)

    def put_pod(self, key: str, node: str, requests: Mapping[str, int], workload: str) -> bool:
        """A pod is bound and may run, or asks for another amount. It names the Workload (`namespace/name`), if any."""
        return self._follow(self._nodes.put_pod(key, node, requests, workload)) | self._wake()

    def drop_pod(self, key: str) -> bool:
        """A pod is gone, or has ended."""
        return self._follow(self._nodes.drop_pod(key)) | self._wake()

    def drop_pods_of(self, workload: str) -> None:
        """The pods that name a Workload (`namespace/name`) are supposed to be gone."""
        info = self._ledger.holder(workload)
        for node in self._nodes.drop_pods_of(run_of(info) if info is not None else workload):
            self._follow(node)
        self._wake()

    def free(self, places: Places) -> None:
        """A Workload has given up places, in which Workloads of any ClusterQueue with the flavor may find room."""
        self._retry(self._nodes.flavors_freed(places))

    def _follow(self, node: str | None) -> bool:
        """Pods have left a node, if one is named. They come and go all the time, so Workloads are tried again only
        where there is room for more pods of a kind that found none."""
        if node is None:
            return False
        woken = self._retry(self._nodes.flavors_helped(node))
        return (self._nodes.room_helped(node) and self._retry_room()) or woken

    def _retry(self, flavors: Sequence[str]) -> bool:
        """Have Workloads that found no place in these flavors be tried again."""
        for flavor in flavors:
            self._retries.mark_all(self._activity.references.flavor(flavor))
        return bool(flavors)

    # Room without a Topology

    def follow_queue(self, queue: ClusterQueue) -> None:
        """Note whether a ClusterQueue admits only with room on nodes: with the first of them the pods of all Workloads
        that hold quota begin to count."""
        if asks_for_room(queue.api.metadata, self._by_default) and self._is_on:
            self._asking[queue.name] = None
        else:
            self._asking.pop(queue.name, None)
        if self._nodes.room is not None:
            concerned = [queue]
        elif self._asking:
            self._nodes.open_room()
            concerned = list(self._ledger.cluster_queues.values())
        else:
            return
        for each in concerned:
            for info in each.workloads.values():
                self.expect(info)

    def drop_queue(self, name: str) -> None:
        """A ClusterQueue is gone."""
        self._asking.pop(name, None)

    def asks(self, queue: str) -> bool:
        """Whether a ClusterQueue admits only with room on nodes."""
        return queue in self._asking

    def expect(self, info: Info, *, decided: bool = False) -> None:
        """A Workload holds quota, or holds it for other pods than before: those that are not bound need room. `decided`
        if a cycle gave it that."""
        room = self._nodes.room
        if room is None:
            return
        queue = self._ledger.cluster_queues.get(info.cluster_queue)
        asked = []
        for totals in info.totals if queue is not None and not info.evicted else ():
            assert queue is not None
            if totals.topology is None and (each := self.asked(queue, info, totals, totals.count)) is not None:
                asked.append(each)
        room.expect(run_of(info), info.key, asked, named=decided)
        self._wake()

    def forget(self, info: Info) -> None:
        """A Workload holds no quota any more."""
        if self._nodes.room is not None:
            self._nodes.room.forget(run_of(info), info.key)
            self._wake()

    def asked(
        self,
        queue: clusterqueue.ClusterQueue,
        info: Info,
        totals: PodSetTotals,
        pods: int,
        flavors: Sequence[str] | None = None,
    ) -> Asked | None:
        """The pods of a pod set as nodes see them, in its flavors or in others; None if no room is asked for them,
        because there are none, a Topology places them, or nodes are provisioned for them."""
        names_of = flavors if flavors is not None else sorted(set((totals.flavors or {}).values()))
        found = [flavor for name in names_of if (flavor := self._activity.flavors.get(name)) is not None]
        if pods <= 0 or any(
            each.spec.topology_name or self._activity.delays_places(queue, each.metadata.name) for each in found
        ):
            return None
        labels: dict[str, str] = {}
        for each in found:
            labels.update(each.spec.node_labels)
        called = ", ".join(each.metadata.name for each in found) or PODS
        return Asked(totals.name, pods, info.ask(totals), info.where(totals, found), called, labels)

    def leaving(self, victims: Sequence[Info]) -> Overlay:
        """The amounts, below zero, that are not in use once victims are gone."""
        return self._nodes.freed(run_of(each) for each in victims)

    def _wake(self) -> bool:
        """Have Workloads that found no room be tried again, if fewer pods are expected somewhere."""
        room = self._nodes.room
        return room is not None and room.wakes() and self._retry_room()

    def _retry_room(self) -> bool:
        room = self._nodes.room
        assert room is not None
        room.try_again()
        self._retries.mark_all(self._asking)
        return bool(self._asking)


def run_of(info: Info) -> str:
    """The name that the pods of a Workload have for it: of an elastic job the first of its slices."""
    first = info.workload.metadata.annotations.get(names.SLICE_NAME)
    return f"{info.namespace}/{first}" if first else info.key
