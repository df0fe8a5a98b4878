"""The node table of the state, kept in step with ResourceFlavors, Topologies, Nodes and the pods that are bound there.

A change that leaves more free lets inadmissible Workloads be tried again. Must never place a pod.
"""

from collections.abc import Mapping, Sequence

from turnstile.api.core import Node
from turnstile.api.quantity import to_int
from turnstile.engine.options import Options
from turnstile.engine.queue.activity import ActivityJudge
from turnstile.engine.queue.retries import Retries
from turnstile.engine.topology.eligibility import KEEPS_AWAY
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.places import Places


class NodeTable:
    """Lets the nodes follow what is seen. Answers False where nothing changed that a cycle reads."""

    __slots__ = ("_activity", "_failures", "_is_on", "_nodes", "_retries")

    def __init__(self, nodes: Nodes, activity: ActivityJudge, retries: Retries, options: Options) -> None:
        self._nodes = nodes
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
        return self._retry(self._nodes.flavors_with(name)) if changed else False

    def drop_node(self, name: str) -> bool:
        """A Node is gone."""
        return self._nodes.drop_node(name)

    def put_pod(self, key: str, node: str, requests: Mapping[str, int], workload: str) -> bool:
        """A pod is bound and may run, or asks for another amount. It names the Workload (`namespace/name`), if any."""
        return self._follow(self._nodes.put_pod(key, node, requests, workload))

    def drop_pod(self, key: str) -> bool:
        """A pod is gone, or has ended."""
        return self._follow(self._nodes.drop_pod(key))

    def drop_pods_of(self, workload: str) -> None:
        """The pods that name a Workload (`namespace/name`) are supposed to be gone."""
        for node in self._nodes.drop_pods_of(workload):
            self._follow(node)

    def free(self, places: Places) -> None:
        """A Workload has given up places, in which Workloads of any ClusterQueue with the flavor may find room."""
        self._retry(self._nodes.flavors_freed(places))

    def _follow(self, node: str | None) -> bool:
        """Pods have left a node, if one is named. They come and go all the time, so Workloads are tried again only
        where there is room for more pods of a kind that found none."""
        return node is not None and self._retry(self._nodes.flavors_helped(node))

    def _retry(self, flavors: Sequence[str]) -> bool:
        """Have Workloads that found no place in these flavors be tried again."""
        for flavor in flavors:
            self._retries.mark_all(self._activity.references.flavor(flavor))
        return bool(flavors)
