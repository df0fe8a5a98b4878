"""Kueue's feature gates: their defaults, stages and dependencies, and what a setting of some makes of all.

The table is of Kueue's 0.20 line. Which gates Turnstile implements is `built`. Must never hold state: the code that
reads a setting passes the set of gates that are on.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from turnstile.api.validation.errors import FieldError, invalid

Stage = Literal["Alpha", "Beta", "GA", "Deprecated"]
PATH: Final = "featureGates"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `needs` names the gates without which it may not be on."""

    name: str
    default: bool
    stage: Stage = "Beta"
    needs: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        """Whether it can no longer be switched."""
        return self.stage == "GA"


_TAS: Final = "TopologyAwareScheduling"
_DRA: Final = "KueueDRAIntegration"
_REPLACEMENT: Final = "TASFailedNodeReplacement"

GATES: Final = (
    Gate("AdmissionFairSharing", default=True),
    Gate("AdmissionGatedBy", default=True),
    Gate("AssignQueueLabelsForPods", default=True),
    Gate("CleanupProvisioningRequestsOnEviction", default=True),
    Gate("ConcurrentAdmission", default=False, stage="Alpha"),
    Gate("CustomMetricLabels", default=False, stage="Alpha"),
    Gate("DeferRayServiceFinalizationForRedisCleanup", default=True),
    Gate("DisableWaitForPodsReady", default=False, stage="Alpha"),
    Gate("DynamicQuotaOrchestration", default=False, stage="Alpha"),
    Gate("ElasticJobsViaWorkloadSlices", default=True),
    Gate(
        "ElasticJobsViaWorkloadSlicesWithTAS",
        default=False,
        stage="Alpha",
        needs=("ElasticJobsViaWorkloadSlices", _TAS),
    ),
    Gate("FailureRecoveryPolicy", default=False, stage="Alpha"),
    Gate("FairSharingPreemptWithinNominal", default=True),
    Gate("FairSharingPrioritizeNonBorrowing", default=True),
    Gate("FastQuotaReleaseInPodIntegration", default=False, stage="Alpha"),
    Gate("FinishOrphanedWorkloads", default=True),
    Gate("FlavorFungibility", default=True),
    Gate("FlavorFungibilityPreserveScanProgress", default=True, needs=("FlavorFungibility",)),
    Gate(_DRA, default=True),
    Gate("KueueDRAIntegrationConsumableCapacity", default=False, stage="Alpha", needs=(_DRA,)),
    Gate("KueueDRAIntegrationExtendedResource", default=True, needs=(_DRA,)),
    Gate("KueueDRAIntegrationPartitionableDevices", default=True, needs=(_DRA,)),
    Gate("KueueDRARejectWorkloadsWhenDRADisabled", default=True),
    Gate("LWSImmutableGroupSize", default=True),
    Gate("LocalQueueMetrics", default=True),
    Gate("ManagedJobsNamespaceSelectorAlwaysRespected", default=True, stage="GA"),
    Gate("MetricForWorkloadCreationLatency", default=True),
    Gate("MetricsForCohorts", default=True),
    Gate("MultiKueue", default=True),
    Gate("MultiKueueAdaptersForCustomJobs", default=True),
    Gate("MultiKueueClusterProfile", default=False, stage="Alpha"),
    Gate("MultiKueueIncrementalDispatcherConfig", default=True),
    Gate("MultiKueueIncrementalDispatcherRespectConfigOrder", default=True),
    Gate("MultiKueueKubeConfigPathValidation", default=True),
    Gate("MultiKueueManagerQuotaAutomation", default=False, stage="Alpha"),
    Gate("MultiKueueOrchestratedPreemption", default=False, stage="Alpha"),
    Gate("MultiKueueRemoteSpecSync", default=True),
    Gate("PartialAdmission", default=True),
    Gate("PodIntegrationValidateGroupOwner", default=True),
    Gate("PrioritizePreemptorWorkloads", default=False, stage="Alpha"),
    Gate("PriorityBoost", default=False, stage="Alpha"),
    Gate("PrioritySortingWithinCohort", default=True),
    Gate("QuotaCheckStrategy", default=True),
    Gate("ReclaimablePods", default=True),
    Gate("RecomputeAssignmentUponPreemptionTargetsOverlap", default=True),
    Gate("RejectUpdatesToCQWithInvalidOnFlavors", default=False, stage="Alpha"),
    Gate("RemoveFinalizersWithStrictPatch", default=True),
    Gate("SchedulerLibraryIntegration", default=False, stage="Alpha"),
    Gate("SchedulingEquivalenceHashing", default=True),
    Gate("ShortWorkloadNames", default=False, stage="Alpha"),
    Gate("SkipAncestorCheckForDeletedWorkloads", default=True),
    Gate("SkipReassignmentForPodOwnedWorkloads", default=True),
    Gate("SparkApplicationIntegration", default=False, stage="Alpha"),
    Gate("TASAssignmentsEncodingByHostnamePrefix", default=True),
    Gate("TASBalancedPlacement", default=False, stage="Alpha", needs=(_TAS,)),
    Gate("TASCacheNodeMatchResults", default=True),
    Gate("TASCacheTopologyTree", default=True),
    Gate("TASCachingRemainingResources", default=True),
    Gate(_REPLACEMENT, default=True, needs=(_TAS,)),
    Gate("TASFailedNodeReplacementFailFast", default=True, needs=(_REPLACEMENT, _TAS)),
    Gate("TASHandleOverlappingFlavors", default=True, needs=(_TAS,)),
    Gate("TASMultiLayerTopology", default=True, needs=(_TAS,)),
    Gate("TASProfileMixed", default=True, needs=(_TAS,)),
    Gate("TASRecomputeAssignmentWithinSchedulingCycle", default=True, needs=(_TAS,)),
    Gate("TASReplaceNodeDueToNotReadyOverFixedTime", default=False, stage="Deprecated", needs=(_REPLACEMENT, _TAS)),
    Gate("TASReplaceNodeOnNodeTaints", default=True, needs=(_TAS,)),
    Gate("TASReplaceNodeOnPodTermination", default=True, needs=(_REPLACEMENT, _TAS)),
    Gate("TASRespectNodeAffinityPreferred", default=False, stage="Alpha", needs=(_TAS,)),
    Gate("TASValidateWorkloadSliceSize", default=True),
    Gate("TLSOptions", default=True, stage="GA"),
    Gate(_TAS, default=True),
    Gate("UnadmittedWorkloadsExplicitStatus", default=False, needs=("UnadmittedWorkloadsObservability",)),
    Gate("UnadmittedWorkloadsObservability", default=True),
    Gate("ValidateRayAndSparkJobUpdates", default=True),
    Gate("VectorizedResourceRequests", default=True),
    Gate("VisibilityOnDemand", default=True),
    Gate("WorkloadIdentifierAnnotations", default=True),
    Gate("WorkloadPriorityClassDefaulting", default=True),
    Gate("WorkloadRequestUseMergePatch", default=False, stage="Alpha"),
    Gate("WorkloadValidateResourcesAreNonNegative", default=True),
    Gate("WorkloadValidationForPodSetMetadata", default=True),
)
BY_NAME: Final = {gate.name: gate for gate in GATES}
GROUPS: Final[dict[str, Stage]] = {"AllAlpha": "Alpha", "AllBeta": "Beta"}
"""Gates that stand for all of a stage; one named itself wins over its group."""
DEFAULTS: Final = frozenset(gate.name for gate in GATES if gate.default)


def parse_flag(text: str) -> dict[str, bool]:
    """The setting in `A=true,B=false`. Raises ValueError in the words of Kubernetes' flag."""
    settings = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = item.partition("=")
        if not separator:
            raise ValueError(f"missing bool value for {name}")
        word = value.strip()
        if word in ("1", "t", "T", "TRUE", "true", "True"):
            settings[name.strip()] = True
        elif word in ("0", "f", "F", "FALSE", "false", "False"):
            settings[name.strip()] = False
        else:
            fault = f'strconv.ParseBool: parsing "{word}": invalid syntax'
            raise ValueError(f"invalid value of {name.strip()}={word}, err: {fault}")
    return settings


def enabled(settings: Mapping[str, bool]) -> frozenset[str]:
    """Names of the gates that are on under a setting. Unknown names change nothing."""
    on = set(DEFAULTS)
    for group, stage in GROUPS.items():
        if group in settings:
            members = {gate.name for gate in GATES if gate.stage == stage}
            on = on | members if settings[group] else on - members
    for name, value in settings.items():
        if name in BY_NAME and not BY_NAME[name].locked:
            (on.add if value else on.discard)(name)
    return frozenset(on)


def setting_errors(settings: Mapping[str, bool] | None, *, flag: str = "") -> list[FieldError]:
    """Faults of the gates of a file and of the flag: both given, unknown or locked ones, missing parents."""
    if flag and settings is not None:
        detail = "feature gates for CLI and configuration cannot both specified"
        return [invalid(PATH, dict(settings), detail)]
    try:
        chosen: Mapping[str, bool] = parse_flag(flag) if flag else settings or {}
    except ValueError as error:
        return [invalid(PATH, flag, str(error))]
    shown: object = flag or dict(chosen)
    faults = [fault for name in sorted(chosen) if (fault := _fault(name, on=chosen[name]))]
    if not faults:
        faults = dependency_faults(enabled(chosen))
    if not faults:
        return []
    return [invalid(PATH, shown, faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")]


def dependency_faults(on: Collection[str]) -> list[str]:
    """A sentence for each gate that is on without the gates it needs."""
    return [
        f"{gate.name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
        for gate in GATES
        if gate.name in on and (missing := sorted(name for name in gate.needs if name not in on))
    ]


def _fault(name: str, *, on: bool) -> str:
    gate = BY_NAME.get(name)
    if gate is None:
        return "" if name in GROUPS else f"unrecognized feature gate: {name}"
    if gate.locked and on != gate.default:
        state = "true" if gate.default else "false"
        return f"cannot set feature gate {name} to {'true' if on else 'false'}, feature is locked to {state}"
    return ""
