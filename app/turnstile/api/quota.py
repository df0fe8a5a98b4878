"""Quota as ClusterQueues and Cohorts declare it."""

from typing import Annotated, ClassVar

from turnstile.api.meta import Object
from turnstile.api.pods import Quantity
from turnstile.api.schema import Field, Int64, Rule, Subdomain, always


class ResourceQuota(Object):
    """Quota of one resource in one flavor. An absent limit is no limit."""

    name: Annotated[str, Field("Resource, such as cpu or nvidia.com/gpu.")]
    nominal_quota: Annotated[Quantity, Field("Amount of its own.", required=True)] = always(int)
    borrowing_limit: Annotated[Quantity | None, Field("Most that may be borrowed from the cohort.")] = None
    lending_limit: Annotated[Quantity | None, Field("Most that is lent to the cohort.")] = None


class FlavorQuotas(Object):
    """Quota of one flavor: one entry a covered resource, in the order of `coveredResources`."""

    name: Annotated[Subdomain, Field("ResourceFlavor.")]
    resources: Annotated[
        list[ResourceQuota],
        Field("Quota a resource.", required=True, min_items=1, max_items=64, list_type="map", map_keys=("name",)),
    ] = always(list)


class ResourceGroup(Object):
    """Resources that get their flavor together; flavors in order of preference."""

    RULES: ClassVar = (
        Rule(
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
        ),
    )

    covered_resources: Annotated[
        list[str], Field("Resources of the group.", required=True, min_items=1, max_items=64, list_type="atomic")
    ] = always(list)
    flavors: Annotated[
        list[FlavorQuotas],
        Field(
            "Flavors, the preferred first.",
            required=True,
            min_items=1,
            max_items=64,
            list_type="map",
            map_keys=("name",),
        ),
    ] = always(list)


ResourceGroups = Annotated[
    list[ResourceGroup], Field("Quota, by groups of resources.", max_items=16, list_type="atomic")
]


class OrchestratorRef(Object):
    """The object whose controller writes an effective quota."""

    api_group: Annotated[Subdomain, Field("API group of its kind.", required=True)]
    kind: Annotated[
        str, Field("Its kind.", required=True, min_length=1, max_length=63, pattern="^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$")
    ]
    name: Annotated[Subdomain, Field("Its name.", required=True)]


class EffectiveQuotas(Object):
    """Quota that another controller sets in the place of `spec.resourceGroups`, which stays as its owner wrote it. An
    empty list is quota of nothing."""

    orchestrator_ref: Annotated[OrchestratorRef, Field("Who writes it.", required=True)]
    resource_groups: Annotated[
        list[ResourceGroup],
        Field("Quota that holds now, whole.", required=True, max_items=16, list_type="atomic"),
    ] = always(list)


EffectiveQuota = Annotated[
    EffectiveQuotas | None, Field("Quota in the place of spec.resourceGroups; with the gate DynamicQuotaOrchestration.")
]


class FairSharing(Object):
    """Weight among siblings; 1 when absent."""

    weight: Annotated[Quantity, Field("Share of unused quota, relative to siblings.", default=1)] = "1"


class FairSharingStatus(Object):
    """Dominant resource share, weighted; the largest int64 for weight 0 while borrowing."""

    weighted_share: Annotated[Int64, Field("Borrowed part of the dominant resource, by weight.", required=True)] = (
        always(int)
    )
