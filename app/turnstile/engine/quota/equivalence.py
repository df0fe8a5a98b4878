"""Scheduling equivalence: workloads that the scheduler cannot tell apart share a hash.

Must never depend on the process: equal workloads hash equal everywhere.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from turnstile.api.rollout import Rollout
from turnstile.engine.quota.podsets import PodSetTotals

_encode = msgspec.json.Encoder(order="sorted").encode


def scheduling_hash(
    pod_set_totals: Sequence[PodSetTotals],
    priority: int,
    allowed_flavors: frozenset[str] | None,
    rollout: Rollout | None,
    namespace: str | None = None,
) -> str:
    """16 hex digits; what is hashed follows Kueue (pod shapes, effective counts and requests, effective priority). The
    namespace is given for Workloads that name ResourceClaims, because a name is another claim in another namespace."""
    pod_sets = []
    for totals in pod_set_totals:
        spec = totals.pod_set.template.spec if totals.pod_set is not None else None
        shape: list[object] = []
        if spec is not None:
            shape = [
                [
                    [container.resources.requests if container.resources else None, container.ports]
                    for container in spec.containers
                ],
                [
                    [container.resources.requests if container.resources else None, container.ports]
                    for container in spec.init_containers
                ],
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.runtime_class_name,
                spec.priority,
                spec.topology_spread_constraints,
                spec.overhead,
                spec.resource_claims,
                spec.resources.requests if spec.resources else None,
            ]
        request = totals.pod_set.topology_request if totals.pod_set is not None else None
        pod_sets.append([totals.name, shape, totals.count, totals.requests, totals.min_count, request])
    content: list[object] = [pod_sets, priority]
    if allowed_flavors is not None:
        content.append(sorted(allowed_flavors))
    if rollout is not None:
        content.append(rollout)
    if namespace is not None:
        content.append(namespace)
    return hashlib.sha256(_encode(content)).hexdigest()[:16]
