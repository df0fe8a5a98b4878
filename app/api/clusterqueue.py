"""ClusterQueue: a team's quota and how it shares it."""

from typing import ClassVar, Literal

import msgspec

from app.api import names
from app.api.meta import Condition, Kind, Object
from app.api.pods import Quantity
from app.api.quota import FairSharing, FairSharingStatus, ResourceGroup
from app.api.selectors import LabelSelector

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
QueueingStrategy = Literal["BestEffortFIFO", "StrictFIFO"]
FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]


class FlavorFungibility(Object):
    """When the flavor scan goes on to the next flavor instead of borrowing or preempting."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None


class BorrowWithinCohort(Object):
    """Preemption of lower priorities while borrowing. Classical preemption only."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: int | None = None


class Preemption(Object):
    """Who may be preempted for a workload of this queue."""

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None


class AdmissionCheckStrategyRule(Object):
    """A check that must pass; for all flavors if `onFlavors` is empty."""

    name: str
    on_flavors: list[str] = []


class AdmissionChecksStrategy(Object):
    """The checks of a queue."""

    admission_checks: list[AdmissionCheckStrategyRule] = []


class AdmissionScope(Object):
    """Whether LocalQueues are ordered by their usage."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]


class ConcurrentAdmissionConstraints(Object):
    """Limits of a migration."""

    last_acceptable_flavor_name: str | None = None


class ConcurrentAdmissionMigration(Object):
    """How variants move to better flavors."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    constraints: ConcurrentAdmissionConstraints | None = None


class ConcurrentAdmissionPolicy(Object):
    """Gate ConcurrentAdmission."""

    migration: ConcurrentAdmissionMigration


class ClusterQueueSpec(Object):
    """Quota, sharing and order. An absent namespaceSelector matches no namespace, an empty one all."""

    resource_groups: list[ResourceGroup] = []
    cohort_name: str | None = None
    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility | None = None
    preemption: Preemption | None = None
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ResourceUsage(Object):
    """Amount of one resource in use, and the part of it that is borrowed."""

    name: str
    total: Quantity = 0
    borrowed: Quantity = 0


class FlavorUsage(Object):
    """Usage of one flavor."""

    name: str
    resources: list[ResourceUsage] = []


class ClusterQueueStatus(Object):
    """Reservation counts quota reserved, usage counts admitted."""

    conditions: list[Condition] = []
    flavors_reservation: list[FlavorUsage] = []
    flavors_usage: list[FlavorUsage] = []
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(Kind):
    """kueue.x-k8s.io ClusterQueue. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "ClusterQueue"
    PLURAL: ClassVar = "clusterqueues"
    NAMESPACED: ClassVar = False

    spec: ClusterQueueSpec = msgspec.field(default_factory=ClusterQueueSpec)
    status: ClusterQueueStatus = msgspec.field(default_factory=ClusterQueueStatus)
