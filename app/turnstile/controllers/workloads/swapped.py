"""Deactivates an admitted Workload whose claim was made anew and asks for more devices than it is charged for.

The charge is fixed when quota is reserved, but the pods that are created later get the devices of the ResourceClaim or
ResourceClaimTemplate as it is then. Both are immutable, so a tenant changes one by deleting it and creating another of
its name. Must never look at devices that change by themselves: the charge for a part of one may differ when a driver
publishes anew.
"""

from collections.abc import Iterator

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import find_condition
from turnstile.api.quantity import from_int, to_int
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Emit, ReconcileResult
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import ClusterView, claims_in

NOT_CHARGED = "NotCharged"


def deactivate(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Evicted alone, it would be charged for the new claim and run on; but its pods may have devices of that
    already."""
    if not workload.quota_reserved or not workload.spec.active or workload.evicted:
        return None
    made = sorted(_made_anew(workload, cluster))
    more = next(_not_charged(workload, cluster), "") if made else ""
    if not more:
        return None
    note = f"Workload '{workload.metadata.key}' is deactivated: {made[0]} was made anew: {more}"
    deactivated = fresh_patch(workload, {"spec": {"active": False}})
    return ReconcileResult([deactivated, Emit(workload, "Warning", NOT_CHARGED, note)], why=note)


def _made_anew(workload: Workload, cluster: ClusterView) -> Iterator[str]:
    """Its claims and templates of claims that were created since quota was reserved, or in the same second."""
    reserved = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    since = instant(reserved.last_transition_time) if reserved is not None else None
    if since is None:
        return
    for key in claims_in(workload):
        for found in (cluster.claims.get(key), cluster.claim_templates.get(key)):
            created = instant(found.metadata.creation_timestamp) if found is not None else None
            if found is not None and created is not None and created >= since:
                yield f"{found.KIND} {found.metadata.name}"


def _not_charged(workload: Workload, cluster: ClusterView) -> Iterator[str]:
    """Sentences on the devices that its pods may get beyond the charge."""
    try:
        charges = cluster.counting.charges(workload)
    except InvalidValue:
        return
    admission = workload.status.admission
    if charges is None or charges.problem is not None or admission is None:
        return
    counts = {each.name: each.count for each in workload.spec.pod_sets}
    for assigned in admission.pod_set_assignments:
        pods = assigned.count if assigned.count is not None else counts.get(assigned.name, 0)
        single, once = charges.counts.get(assigned.name, {}), charges.once.get(assigned.name, {})
        for resource in sorted({*single, *once}):
            wanted = single.get(resource, 0) * pods + once.get(resource, 0)
            held = to_int(resource, assigned.resource_usage.get(resource, 0))
            if wanted > held:
                asked = from_int(resource, wanted)
                charged = from_int(resource, held)
                yield f"pod set '{assigned.name}' asks for {asked} {resource}, and is charged for {charged}"
