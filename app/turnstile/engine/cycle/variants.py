"""Concurrent admission (alpha gate): variants of one workload, each for its own flavor, compete for quota.

A variant is a Workload owned by its parent Workload and allowed one flavor; the earlier the flavor in the queue's first
resource group, the more favorable. Source: KEP on concurrent admission, Kueue's scheduler. Must never change anything.
"""

from typing import TYPE_CHECKING

from turnstile.engine.causes import Eviction

if TYPE_CHECKING:
    from turnstile.engine.queue.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info


def parent(info: "Info") -> str | None:
    """UID of the Workload that this one is a variant of, if it is one."""
    owner = info.workload.metadata.controller
    return owner.uid if owner is not None and owner.kind == "Workload" else None


def place(info: "Info", queue: "ClusterQueue") -> int | None:
    """Index of its flavor among those of the queue's first resource group; None if it has none there."""
    if not queue.groups:
        return None
    flavors = queue.groups[0].flavors
    given = [flavor for item in info.totals if item.flavors for flavor in item.flavors.values()]
    found = [flavors.index(flavor) for flavor in (given or info.allowed_flavors or ()) if flavor in flavors]
    return min(found, default=None)


def admitted_siblings(info: "Info", queue: "ClusterQueue") -> "list[tuple[int, Info]]":
    """Variants of the same parent that are admitted in the queue, with the place of their flavor. A mere reservation
    waits for its checks, and the others go on meanwhile."""
    uid = parent(info)
    if uid is None:
        return []
    found = []
    for key in sorted(queue.workloads):
        other = queue.workloads[key]
        if key != info.key and other.admitted and parent(other) == uid:
            where = place(other, queue)
            if where is not None:
                found.append((where, other))
    return found


def acceptable(where: int, queue: "ClusterQueue") -> bool:
    """Whether a migration to the flavor at that place is allowed by `lastAcceptableFlavorName`."""
    policy = queue.api.spec.concurrent_admission_policy
    constraints = policy.migration.constraints if policy is not None else None
    last = constraints.last_acceptable_flavor_name if constraints is not None else None
    if last is None or not queue.groups or last not in queue.groups[0].flavors:
        return True
    return where <= queue.groups[0].flavors.index(last)


def migration_message(uid: str) -> str:
    """Kueue's message of a variant that makes way for a better one."""
    return Eviction.MIGRATED.says(uid=uid)
