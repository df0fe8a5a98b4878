"""Quota as ClusterQueues and Cohorts declare it."""

from app.api.meta import Object
from app.api.pods import Quantity


class ResourceQuota(Object):
    """Quota of one resource in one flavor. An absent limit is no limit."""

    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Object):
    """Quota of one flavor: one entry a covered resource, in the order of `coveredResources`."""

    name: str
    resources: list[ResourceQuota] = []


class ResourceGroup(Object):
    """Resources that get their flavor together; flavors in order of preference."""

    covered_resources: list[str] = []
    flavors: list[FlavorQuotas] = []


class FairSharing(Object):
    """Weight among siblings; 1 when absent."""

    weight: Quantity = "1"


class FairSharingStatus(Object):
    """Dominant resource share, weighted; the largest int64 for weight 0 while borrowing."""

    weighted_share: int = 0
