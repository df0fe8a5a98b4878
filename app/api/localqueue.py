"""LocalQueue: a namespace's door to a ClusterQueue."""

from typing import ClassVar

import msgspec

from app.api import names
from app.api.clusterqueue import StopPolicy
from app.api.meta import Condition, Kind, Object
from app.api.pods import Quantity
from app.api.quota import FairSharing


class LocalQueueSpec(Object):
    """The ClusterQueue need not exist."""

    cluster_queue: str | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None


class LocalQueueResourceUsage(Object):
    """Amount of one resource in use."""

    name: str
    total: Quantity = 0


class LocalQueueFlavorUsage(Object):
    """Usage of one flavor."""

    name: str
    resources: list[LocalQueueResourceUsage] = []


class AdmissionFairSharingStatus(Object):
    """Decayed usage of the queue."""

    consumed_resources: dict[str, Quantity] = {}
    last_update: str = ""


class LocalQueueFairSharingStatus(Object):
    """Share of the queue among its siblings."""

    weighted_share: int = 0
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class LocalQueueStatus(Object):
    """Reservation counts quota reserved, usage counts admitted."""

    conditions: list[Condition] = []
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0
    flavors_reservation: list[LocalQueueFlavorUsage] = []
    flavors_usage: list[LocalQueueFlavorUsage] = []
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(Kind):
    """kueue.x-k8s.io LocalQueue."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "LocalQueue"
    PLURAL: ClassVar = "localqueues"
    NAMESPACED: ClassVar = True

    spec: LocalQueueSpec = msgspec.field(default_factory=LocalQueueSpec)
    status: LocalQueueStatus = msgspec.field(default_factory=LocalQueueStatus)
