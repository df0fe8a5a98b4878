"""Pod sets of a Workload that share their flavors, and what they ask of their ClusterQueue: the value of one search.

Must never know how flavors are found.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info
    from turnstile.engine.quota.podsets import PodSetTotals
    from turnstile.engine.quota.usage import Usage
    from turnstile.engine.topology.room import Asked

PODS: Final = "pods"
"""Name of the resource that is the number of pods."""


class Demand(NamedTuple):
    """Nothing of it changes while its flavors are searched."""

    queue: "ClusterQueue"
    info: "Info"
    members: Sequence[int]
    """Indexes of the pod sets, which is mostly one."""
    requests: dict[str, int]
    """Amount by resource, of all these pod sets together."""
    assumed: "Usage"
    """Usage of the pod sets of the Workload that have their flavors already."""
    pins: Mapping[str, str] | None
    """The only flavor allowed for each resource; None if all are."""
    replaced: "Mapping[int, PodSetTotals]"
    """The same pod sets, by index, of the Workload slice whose quota this Workload takes over; or the devices of their
    ResourceClaim, for which another Workload is charged. Flavors stay, and only the difference counts."""
    pods: Sequence[int] = ()
    """Pods that need room on nodes, by index of the pod set."""
    beside: "Sequence[Asked]" = ()
    """Pods of the pod sets that have their flavors already."""


def groups_of(totals: "list[PodSetTotals]") -> list[list[int]]:
    """Indexes of pod sets that share their flavors, in order of first appearance."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(totals):
        request = item.pod_set.topology_request if item.pod_set is not None else None
        name = request.pod_set_group_name if request is not None else None
        groups.setdefault(f"group {name}" if name else f"pod set {index}", []).append(index)
    return list(groups.values())
