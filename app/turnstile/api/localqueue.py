"""LocalQueue: a namespace's door to a ClusterQueue."""

from typing import Annotated, ClassVar

import msgspec

from turnstile.api import names
from turnstile.api.clusterqueue import StopPolicy
from turnstile.api.meta import Conditions, Kind, Object
from turnstile.api.pods import Quantity
from turnstile.api.quota import FairSharing
from turnstile.api.schema import Column, Field, Int64, Rule, Subdomain, Time, always


class LocalQueueSpec(Object):
    """The ClusterQueue need not exist."""

    cluster_queue: Annotated[
        Subdomain | None, Field("ClusterQueue behind it.", rules=(Rule("self == oldSelf", "field is immutable"),))
    ] = None
    stop_policy: Annotated[StopPolicy, Field("Hold admits no more, HoldAndDrain evicts too.", defaulted=True)] = "None"
    fair_sharing: Annotated[FairSharing | None, Field("Weight among the queues of the ClusterQueue.")] = None


class LocalQueueResourceUsage(Object):
    """Amount of one resource in use."""

    name: Annotated[str, Field("Resource.")]
    total: Annotated[Quantity, Field("Amount in use.")] = 0


class LocalQueueFlavorUsage(Object):
    """Usage of one flavor."""

    name: Annotated[Subdomain, Field("ResourceFlavor.")]
    resources: Annotated[
        list[LocalQueueResourceUsage],
        Field("Usage a resource.", required=True, max_items=64, list_type="map", map_keys=("name",)),
    ] = always(list)


class AdmissionFairSharingStatus(Object):
    """Decayed usage of the queue."""

    consumed_resources: Annotated[dict[str, Quantity], Field("Decayed usage a resource.", required=True)] = always(dict)
    last_update: Annotated[Time, Field("When it was computed.", required=True)] = always(str)


class LocalQueueFairSharingStatus(Object):
    """Share of the queue among its siblings."""

    weighted_share: Annotated[Int64, Field("Borrowed part of the dominant resource, by weight.", required=True)] = (
        always(int)
    )
    admission_fair_sharing_status: Annotated[
        AdmissionFairSharingStatus | None, Field("Usage that decides the order.")
    ] = None


_FlavorUsages = Annotated[list[LocalQueueFlavorUsage], Field(max_items=64, list_type="map", map_keys=("name",))]


class LocalQueueStatus(Object):
    """Reservation counts quota reserved, usage counts admitted."""

    conditions: Conditions = ()
    pending_workloads: Annotated[int, Field("Workloads that wait.")] = always(int)
    reserving_workloads: Annotated[int, Field("Workloads that hold quota.")] = always(int)
    admitted_workloads: Annotated[int, Field("Workloads that may run.")] = always(int)
    flavors_reservation: Annotated[_FlavorUsages, Field("Quota held.")] = []
    flavors_usage: Annotated[_FlavorUsages, Field("Quota of admitted workloads.")] = []
    fair_sharing: Annotated[LocalQueueFairSharingStatus | None, Field("Share, while fair sharing is on.")] = None


class LocalQueue(Kind):
    """kueue.x-k8s.io LocalQueue."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "LocalQueue"
    PLURAL: ClassVar = "localqueues"
    NAMESPACED: ClassVar = True
    SHORT_NAMES: ClassVar = ("queue", "queues", "lq")
    COLUMNS: ClassVar = (
        Column("ClusterQueue", ".spec.clusterQueue"),
        Column("Pending Workloads", ".status.pendingWorkloads", type="integer"),
        Column("Admitted Workloads", ".status.admittedWorkloads", type="integer"),
    )

    spec: LocalQueueSpec = msgspec.field(default_factory=LocalQueueSpec)
    status: LocalQueueStatus = msgspec.field(default_factory=LocalQueueStatus)
