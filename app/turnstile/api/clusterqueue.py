"""ClusterQueue: a team's quota and how it shares it."""

from typing import Annotated, ClassVar, Literal

import msgspec

from turnstile.api import names
from turnstile.api.meta import Conditions, Kind, Object
from turnstile.api.pods import Quantity
from turnstile.api.quota import EffectiveQuota, FairSharing, FairSharingStatus, ResourceGroups
from turnstile.api.schema import Column, Field, Rule, Subdomain, always
from turnstile.api.selectors import LabelSelector

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
QueueingStrategy = Literal["BestEffortFIFO", "StrictFIFO"]
FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]


class FlavorFungibility(Object):
    """When the flavor scan goes on to the next flavor instead of borrowing or preempting."""

    RULES: ClassVar = (
        Rule(
            "!has(self.preference) || "
            "(self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        ),
    )

    when_can_borrow: Annotated[FungibilityPolicy, Field("At a flavor that fits by borrowing.", defaulted=True)] = (
        "MayStopSearch"
    )
    when_can_preempt: Annotated[FungibilityPolicy, Field("At a flavor that fits by preempting.", defaulted=True)] = (
        "TryNextFlavor"
    )
    preference: Annotated[
        Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None, Field("Which of the two to take first.")
    ] = None


class BorrowWithinCohort(Object):
    """Preemption of lower priorities while borrowing. Classical preemption only."""

    policy: Annotated[Literal["Never", "LowerPriority"], Field("Whom to preempt.", defaulted=True)] = "Never"
    max_priority_threshold: Annotated[int | None, Field("Spare workloads of higher priority than this.")] = None


class Preemption(Object):
    """Who may be preempted for a workload of this queue."""

    RULES: ClassVar = (
        Rule(
            "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || "
            "self.borrowWithinCohort.policy == 'Never'",
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ),
    )

    reclaim_within_cohort: Annotated[
        Literal["Never", "LowerPriority", "Any"], Field("Of other queues, to get lent quota back.", defaulted=True)
    ] = "Never"
    within_cluster_queue: Annotated[
        Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"], Field("Of this queue.", defaulted=True)
    ] = "Never"
    borrow_within_cohort: Annotated[
        BorrowWithinCohort | None, Field("Of other queues, while borrowing.", default={})
    ] = None


class AdmissionCheckStrategyRule(Object):
    """A check that must pass; for all flavors if `onFlavors` is empty."""

    name: Annotated[str, Field("AdmissionCheck.", min_length=1, max_length=316)]
    on_flavors: Annotated[
        list[Subdomain], Field("Flavors it is for; all if empty.", max_items=64, list_type="set")
    ] = []


class AdmissionChecksStrategy(Object):
    """The checks of a queue."""

    admission_checks: Annotated[
        list[AdmissionCheckStrategyRule],
        Field("Checks that must pass.", required=True, min_items=1, max_items=64, list_type="map", map_keys=("name",)),
    ] = always(list)


class AdmissionScope(Object):
    """Whether LocalQueues are ordered by their usage."""

    admission_mode: Annotated[
        Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"], Field("How LocalQueues are ordered.")
    ]


class ConcurrentAdmissionConstraints(Object):
    """Limits of a migration."""

    last_acceptable_flavor_name: Annotated[Subdomain | None, Field("Flavors after this one are not tried.")] = None
    min_run_seconds: Annotated[
        int | None, Field("Seconds that a workload runs before it moves. Not in Kueue.", minimum=0)
    ] = None


class ConcurrentAdmissionMigration(Object):
    """How variants move to better flavors."""

    mode: Annotated[
        Literal["TryPreferredFlavors", "RetainFirstAdmission"] | None,
        Field("Whether to move at all.", required=True, max_length=253),
    ] = None
    constraints: Annotated[ConcurrentAdmissionConstraints | None, Field("Limits of the move.")] = None


class ConcurrentAdmissionPolicy(Object):
    """Gate ConcurrentAdmission."""

    migration: Annotated[ConcurrentAdmissionMigration, Field("How a running workload moves to a better flavor.")]


class ClusterQueueSpec(Object):
    """Quota, sharing and order. An absent namespaceSelector matches no namespace, an empty one all."""

    RULES: ClassVar = (
        Rule(
            "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(group, "
            "group.flavors.all(flavor, flavor.resources.all(resource, !has(resource.borrowingLimit))))",
            "borrowingLimit must be nil when cohort is empty",
        ),
    )

    resource_groups: ResourceGroups = []
    cohort_name: Annotated[Subdomain | None, Field("Cohort to borrow from and lend to.")] = None
    queueing_strategy: Annotated[
        QueueingStrategy, Field("Whether a head that does not fit blocks those behind it.", defaulted=True)
    ] = "BestEffortFIFO"
    namespace_selector: Annotated[
        LabelSelector | None, Field("Namespaces that may use it: none if absent, all if empty.", map_type="atomic")
    ] = None
    flavor_fungibility: Annotated[FlavorFungibility | None, Field("When to try the next flavor.", default={})] = None
    preemption: Annotated[Preemption | None, Field("Who may be preempted.", default={})] = None
    admission_checks_strategy: Annotated[AdmissionChecksStrategy | None, Field("Checks before admission.")] = None
    stop_policy: Annotated[StopPolicy, Field("Hold admits no more, HoldAndDrain evicts too.", defaulted=True)] = "None"
    fair_sharing: Annotated[FairSharing | None, Field("Weight among the members of the cohort.")] = None
    admission_scope: Annotated[AdmissionScope | None, Field("Order of the LocalQueues.")] = None
    concurrent_admission_policy: Annotated[
        ConcurrentAdmissionPolicy | None, Field("Try several flavors at once. Immutable.")
    ] = None


class ResourceUsage(Object):
    """Amount of one resource in use, and the part of it that is borrowed."""

    name: Annotated[str, Field("Resource.")]
    total: Annotated[Quantity, Field("Amount in use.")] = 0
    borrowed: Annotated[Quantity, Field("Part of it that is borrowed.")] = 0


class FlavorUsage(Object):
    """Usage of one flavor."""

    name: Annotated[Subdomain, Field("ResourceFlavor.")]
    resources: Annotated[
        list[ResourceUsage],
        Field("Usage a resource.", required=True, max_items=64, list_type="map", map_keys=("name",)),
    ] = always(list)


_FlavorUsages = Annotated[list[FlavorUsage], Field(max_items=64, list_type="map", map_keys=("name",))]


class ClusterQueueStatus(Object):
    """Reservation counts quota reserved, usage counts admitted."""

    conditions: Conditions = ()
    flavors_reservation: Annotated[_FlavorUsages, Field("Quota held.")] = []
    flavors_usage: Annotated[_FlavorUsages, Field("Quota of admitted workloads.")] = []
    pending_workloads: Annotated[int, Field("Workloads that wait.")] = always(int)
    reserving_workloads: Annotated[int, Field("Workloads that hold quota.")] = always(int)
    admitted_workloads: Annotated[int, Field("Workloads that may run.")] = always(int)
    fair_sharing: Annotated[FairSharingStatus | None, Field("Share, while fair sharing is on.")] = None
    effective_quotas: EffectiveQuota = None


class ClusterQueue(Kind):
    """kueue.x-k8s.io ClusterQueue. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "ClusterQueue"
    PLURAL: ClassVar = "clusterqueues"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("cq",)
    COLUMNS: ClassVar = (
        Column("Cohort", ".spec.cohortName"),
        Column("Strategy", ".spec.queueingStrategy", priority=1),
        Column("Pending Workloads", ".status.pendingWorkloads", type="integer"),
        Column("Admitted Workloads", ".status.admittedWorkloads", type="integer", priority=1),
    )

    spec: ClusterQueueSpec = msgspec.field(default_factory=ClusterQueueSpec)
    status: ClusterQueueStatus = msgspec.field(default_factory=ClusterQueueStatus)
