"""Whether a ClusterQueue admits: what it references must exist and be ready (Kueue: inactiveReason).

Must never look at usage.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from turnstile.api import names
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.quota.clusterqueue import ClusterQueue


class Check(NamedTuple):
    """An AdmissionCheck: whether it is ready, and the name of the controller that answers it."""

    active: bool
    controller: str


def problems(
    queue: ClusterQueue,
    *,
    flavors: Mapping[str, ResourceFlavor],
    checks: Mapping[str, Check],
    topologies: Mapping[str, tuple[str, ...] | None] | None,
) -> Iterator[tuple[str, str]]:
    """Reasons why it admits nothing, in the order they are reported, with their words. `flavors`, `checks` and
    `topologies` are those that exist; topologies are not looked for if they are None. One without levels exists, and no
    pod can be placed by it."""
    if queue.api.spec.stop_policy != "None":
        yield "Stopped", "is stopped"
    missing = [flavor for flavor in queue.flavors() if flavor not in flavors]
    if missing:
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"
    named = sorted({check.name for check in queue.checks})
    unknown = [name for name in named if name not in checks]
    if unknown:
        yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(unknown)}"
    found = {name: checks[name] for name in named if name in checks}
    inactive = [name for name, check in found.items() if not check.active]
    if inactive:
        yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(inactive)}"
    multi = [name for name, check in found.items() if check.controller == names.MULTIKUEUE_CONTROLLER]
    if len(multi) > 1:
        yield (
            "MultipleMultiKueueAdmissionChecks",
            f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {','.join(multi)}",
        )
    per_flavor = sorted({check.name for check in queue.checks if check.on_flavors and check.name in multi})
    if per_flavor:
        yield (
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}",
        )
    provisioning = [name for name, check in found.items() if check.controller == names.PROVISIONING_CONTROLLER]
    if multi and provisioning:
        both = f"{','.join(multi)}, {','.join(provisioning)}"
        yield (
            "MultiKueueWithProvisioningRequest",
            f"Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {both}",
        )
    if multi or topologies is None:
        return
    for name in queue.flavors():
        flavor = flavors.get(name)
        topology = flavor.spec.topology_name if flavor is not None else None
        if topology and topology not in topologies:
            yield "TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{name}"'
        elif topology and topologies[topology] is None:
            yield (
                "NotSupportedWithTopologyAwareScheduling",
                f'topology-aware scheduling is not built yet, and ResourceFlavor "{name}" names Topology "{topology}"',
            )
