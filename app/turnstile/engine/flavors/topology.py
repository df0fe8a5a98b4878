"""Whether a flavor with a topology, or without one, suits a pod set that asks for a topology, or does not.

Source: Kueue's flavorassigner. Must never look at quota, nor place pods.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import TopologyRequest
from turnstile.engine.causes import Cause

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.podsets import PodSetTotals


def topology_mismatch(
    queue: "ClusterQueue",
    totals: "PodSetTotals",
    request: TopologyRequest | None,
    flavor: ResourceFlavor,
    *,
    flavors: Mapping[str, ResourceFlavor],
    topologies: Mapping[str, tuple[str, ...]],
) -> str | None:
    """Why the flavor does not suit the pod set; None if it does. `flavors` are all that exist, `topologies` the node
    labels of the levels of each."""
    name, topology = flavor.metadata.name, flavor.spec.topology_name
    if request is None or not request.is_explicit:
        found = [flavors.get(each) for each in queue.flavors()] if topology is not None else []
        if all(each is not None and each.spec.topology_name is not None for each in found):
            return None
        return Cause.ONLY_TOPOLOGY.says(flavor=name)
    if topology is None:
        group = next((group for group in queue.groups if name in group.flavors), None)
        if group is not None and group.covered.isdisjoint(totals.pod_requests):
            return None
        return Cause.NO_TOPOLOGY.says(flavor=name)
    levels = topologies.get(topology)
    if levels is None:
        return Cause.TOPOLOGY_UNKNOWN.says(flavor=name)
    wanted = [
        request.required,
        request.preferred,
        request.pod_set_slice_required_topology,
        *(each.topology for each in request.podset_slice_required_topology_constraints),
    ]
    if any(level is not None and level not in levels for level in wanted):
        return Cause.LEVEL_MISSING.says(flavor=name)
    return None
