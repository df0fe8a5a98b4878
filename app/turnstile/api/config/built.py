"""Options of Kueue's configuration that Turnstile has not built, or that have no effect here: a sentence for each.

A file that switches on what Turnstile does not implement is refused; what is on by default and not implemented yet is
ignored without a message; a field that is valid in Kueue's file but has no effect here is a warning. A change that
implements one of these removes its entry.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from turnstile.api.config import addresses, features, tls
from turnstile.api.config.defaults import Installation
from turnstile.api.config.document import Document, Problem, dotted
from turnstile.api.config.frameworks import FRAMEWORKS_PATH, GATED, group_kind
from turnstile.api.config.kinds import FRAMEWORKS
from turnstile.api.config.v1beta2 import Configuration
from turnstile.api.durations import SECOND, render

HEEDED: Final = frozenset((
    "AdmissionFairSharing", "AdmissionGatedBy", "AssignQueueLabelsForPods", "CleanupProvisioningRequestsOnEviction",
    "ConcurrentAdmission", "CustomMetricLabels", "DisableWaitForPodsReady",
    "DynamicQuotaOrchestration", "ElasticJobsViaWorkloadSlices",
    "FailureRecoveryPolicy", "FairSharingPreemptWithinNominal", "FastQuotaReleaseInPodIntegration",
    "FairSharingPrioritizeNonBorrowing", "FlavorFungibility", "FlavorFungibilityPreserveScanProgress",
    "KueueDRAIntegration", "KueueDRAIntegrationConsumableCapacity", "KueueDRAIntegrationExtendedResource",
    "KueueDRAIntegrationPartitionableDevices", "KueueDRARejectWorkloadsWhenDRADisabled",
    "LocalQueueMetrics", "MetricForWorkloadCreationLatency", "MetricsForCohorts", "MultiKueue",
    "MultiKueueAdaptersForCustomJobs", "MultiKueueClusterProfile",
    "MultiKueueIncrementalDispatcherConfig", "MultiKueueIncrementalDispatcherRespectConfigOrder",
    "MultiKueueKubeConfigPathValidation", "MultiKueueManagerQuotaAutomation",
    "MultiKueueOrchestratedPreemption",
    "PartialAdmission", "PrioritizePreemptorWorkloads", "PriorityBoost", "PrioritySortingWithinCohort",
    "QuotaCheckStrategy", "ReclaimablePods", "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "RejectUpdatesToCQWithInvalidOnFlavors", "SchedulingEquivalenceHashing", "ShortWorkloadNames",
    "SkipReassignmentForPodOwnedWorkloads", "SparkApplicationIntegration",
    "TASBalancedPlacement", "TASFailedNodeReplacement", "TASFailedNodeReplacementFailFast",
    "TASHandleOverlappingFlavors", "TASMultiLayerTopology", "TASProfileMixed",
    "TASRecomputeAssignmentWithinSchedulingCycle", "TASReplaceNodeOnNodeTaints", "TASReplaceNodeOnPodTermination",
    "TASRespectNodeAffinityPreferred", "TASValidateWorkloadSliceSize",
    "TopologyAwareScheduling", "UnadmittedWorkloadsExplicitStatus", "UnadmittedWorkloadsObservability",
    "VisibilityOnDemand", "WorkloadPriorityClassDefaulting", "WorkloadValidateResourcesAreNonNegative",
    "WorkloadValidationForPodSetMetadata",
))  # fmt: skip
"""Gates that can be switched both ways."""

ALWAYS_ON: Final = frozenset((
    "DeferRayServiceFinalizationForRedisCleanup", "FinishOrphanedWorkloads", "LWSImmutableGroupSize",
    "ManagedJobsNamespaceSelectorAlwaysRespected", "PodIntegrationValidateGroupOwner",
    "SkipAncestorCheckForDeletedWorkloads", "TLSOptions", "ValidateRayAndSparkJobUpdates",
    "WorkloadIdentifierAnnotations",
))  # fmt: skip
"""Gates whose behaviour cannot be switched off."""

WITHOUT_EFFECT: Final = frozenset((
    "RemoveFinalizersWithStrictPatch", "SchedulerLibraryIntegration", "TASAssignmentsEncodingByHostnamePrefix",
    "TASCacheNodeMatchResults",
    "TASCacheTopologyTree", "TASCachingRemainingResources", "VectorizedResourceRequests",
    "WorkloadRequestUseMergePatch",
))  # fmt: skip
"""Gates about how Kueue is written; nothing to be seen depends on them."""

_TAS: Final = "failure of a node after a fixed time is not built yet"
_MULTIKUEUE: Final = "this part of MultiKueue is not built yet"
_ELASTIC: Final = "growth of elastic jobs whose pods have places in a topology is not built yet"

_BY_PREFIX: Final = (
    ("TAS", _TAS), ("MultiKueue", _MULTIKUEUE), ("Elastic", _ELASTIC),
)  # fmt: skip

UNBUILT: Final[Mapping[str, str]] = {
    gate.name: sentence
    for gate in features.GATES
    for prefix, sentence in _BY_PREFIX
    if gate.name.startswith(prefix) and gate.name not in HEEDED | WITHOUT_EFFECT
}
"""The sentence for each gate that is not built."""

_LEAVE_OUT: Final = "leave it out"


def hidden_sections(config: Configuration, document: Document) -> Iterator[tuple[str, ...]]:
    """Paths whose defaults mean nothing; an effective configuration does not show them."""
    if not document.given("waitForPodsReady"):
        yield ("waitForPodsReady",)
    if not document.given("visibilityServer"):
        yield ("visibilityServer",)
    if not document.given("multiKueue"):
        yield ("multiKueue",)
    yield from (("clientConnection",), ("controller",))
    if config.internal_cert_management is not None and config.internal_cert_management.enable:
        yield ("webhook", "certDir")


def refusals(
    config: Configuration, document: Document, gates: Collection[str], *, frameworks: Collection[str], flag: str
) -> Iterator[Problem]:
    """Problems of options that the file, or the flag of the gates, switches on and that are not built. `frameworks`
    names the job kinds that are built."""
    yield from _gate_refusals(config, document, gates, flag)
    yield from _framework_refusals(config, document, frameworks, gates)

    def refuse(path: tuple[str | int, ...], message: str, cure: str = _LEAVE_OUT) -> Problem:
        return Problem(dotted(path), document.line(path), message, cure)

    profile = config.multi_kueue.cluster_profile if config.multi_kueue is not None else None
    for each in (profile.access_providers or profile.credentials_providers or ()) if profile is not None else ():
        if each.exec_config.interactive_mode == "Always":
            where = ("multiKueue", "clusterProfile", "interactiveMode")
            yield refuse(where, f"the program of provider {each.name} gets no terminal", "give IfAvailable or Never")
    if config.pprof_bind_address:
        yield refuse(("pprofBindAddress",), "there is no Go profiler here")
    curves = (config.tls and config.tls.curve_preferences) or []
    if len(curves) > 1 or any(curve not in tls.SINGLE_CURVES for curve in curves):
        message = f"Python's ssl can be given one curve, and none with ML-KEM, not {curves}"
        cure = f"leave it out, or give one of {', '.join(map(str, tls.SINGLE_CURVES))}"
        yield refuse(("tls", "curvePreferences"), message, cure)
    yield from _fixed(config, document)
    yield from _election_refusals(config, document)
    yield from _address_refusals(config, document)


def _fixed(config: Configuration, document: Document) -> Iterator[Problem]:
    """Options that have only one value here."""
    election, health = config.leader_election, config.health
    for path, value, only, why in (
        (("leaderElection", "leaderElect"), election and election.leader_elect, True, "only a leader may write"),
        (("leaderElection", "resourceLock"), election and election.resource_lock, "leases", "the lock is a Lease"),
        (("health", "readinessEndpointName"), health.readiness_endpoint_name, "readyz", "the path is fixed"),
        (("health", "livenessEndpointName"), health.liveness_endpoint_name, "healthz", "the path is fixed"),
    ):
        if value is not None and str(value).strip("/") != str(only):
            shown = "true" if only is True else only
            yield Problem(
                dotted(path), document.line(path), f"cannot be changed: {why}", f"leave it out or say {shown}"
            )


def _election_refusals(config: Configuration, document: Document) -> Iterator[Problem]:
    election = config.leader_election
    if election is None:
        return
    lease, deadline, retry = election.lease_duration or 0, election.renew_deadline or 0, election.retry_period or 0

    def refuse(name: str, message: str) -> Problem:
        path = ("leaderElection", name)
        return Problem(dotted(path), document.line(path), message, "Kueue's are 15s, 10s and 2s")

    if lease < SECOND or lease % SECOND:
        yield refuse("leaseDuration", f"must be whole seconds, at least 1s, not {render(lease)}")
    elif not 0 < deadline <= lease - SECOND // 2:
        message = f"must be above 0s and at least half a second below leaseDuration ({render(lease)})"
        yield refuse("renewDeadline", f"{message}, not {render(deadline)}")
    elif not 0 < retry < deadline:
        yield refuse(
            "retryPeriod", f"must be above 0s and below renewDeadline ({render(deadline)}), not {render(retry)}"
        )


def _address_refusals(config: Configuration, document: Document) -> Iterator[Problem]:
    for path, text in (
        (("health", "healthProbeBindAddress"), config.health.health_probe_bind_address),
        (("metrics", "bindAddress"), config.metrics.bind_address),
    ):
        try:
            addresses.parse(text or "0")
        except ValueError as error:
            yield Problem(dotted(path), document.line(path), f"{error}, not {text!r}")
    port = config.webhook.port or 0
    if not 0 < port < 65536:
        yield Problem("webhook.port", document.line(("webhook", "port")), f"must be 1 to 65535, not {port}")


def _gate_refusals(config: Configuration, document: Document, gates: Collection[str], flag: str) -> Iterator[Problem]:
    explicit = features.parse_flag(flag) if flag else config.feature_gates or {}
    for gate in features.GATES:
        path = ("featureGates", *([gate.name] if gate.name in explicit else []))
        source = "--feature-gates" if flag else dotted(path)
        line = 0 if flag else document.line(path)
        on = gate.name in gates
        if gate.name in UNBUILT and on and (explicit.get(gate.name) or not gate.default):
            name = f"{gate.name}: " if flag or gate.name not in explicit else ""
            yield Problem(source, line, f"{name}{UNBUILT[gate.name]}", "leave the gate out or set it to false")
        if gate.name in ALWAYS_ON and not on:
            name = f"{gate.name}: " if flag or gate.name not in explicit else ""
            yield Problem(source, line, f"{name}cannot be switched off: it is always on here", "leave the gate out")


def _framework_refusals(
    config: Configuration, document: Document, frameworks: Collection[str], gates: Collection[str]
) -> Iterator[Problem]:
    named = (config.integrations.frameworks or []) if config.integrations is not None else []
    custom = (config.integrations.custom_kinds or []) if config.integrations is not None else []
    described = {each.framework for each in custom}
    for index, framework in enumerate(named):
        if framework not in frameworks and framework not in described:
            path = ("integrations", "frameworks", index)
            known = ", ".join(sorted(frameworks))
            message = f"jobs of the framework {framework} cannot be queued yet"
            yield Problem(dotted(path), document.line(path), message, f"take it out; built are {known}")
        elif GATED.get(framework, "") not in ("", *gates):
            path = ("integrations", "frameworks", index)
            message = f"jobs of the framework {framework} are queued only with the feature gate {GATED[framework]}"
            yield Problem(dotted(path), document.line(path), message, "set the gate to true, or take the framework out")
    kinds = {name: group_kind(FRAMEWORKS[name]) for name in frameworks if name in FRAMEWORKS}
    for index, each in enumerate(custom):
        built = [name for name, kind in kinds.items() if each.framework == name or kind == (each.group, each.kind)]
        if built:
            path = ("integrations", "customKinds", index)
            message = f"{built[0]} is built: its jobs need no description"
            cure = f"take the entry out, and name {built[0]} in integrations.frameworks"
            yield Problem(dotted(path), document.line(path), message, cure)


def warnings(
    config: Configuration, document: Document, gates: Collection[str], installation: Installation
) -> Iterator[Problem]:
    """Warnings about options that have no effect, or that a reader should know of."""

    def warn(*path: str, message: str) -> Problem:
        return Problem(dotted(path), document.line(path), message)

    given = document.given
    if document.data.get("apiVersion", "").endswith("/v1beta1"):
        yield warn("apiVersion", message="v1beta1 is deprecated: write config.kueue.x-k8s.io/v1beta2")
    if not document.given(*FRAMEWORKS_PATH):
        message = "is missing: as by Kueue, batch/job alone is queued; jobs of every other kind start at once"
        yield Problem(dotted(FRAMEWORKS_PATH), document.line(FRAMEWORKS_PATH), message, "name the kinds to queue")
    if given("waitForPodsReady") and "DisableWaitForPodsReady" in gates:
        yield warn("waitForPodsReady", message="is switched off by the gate DisableWaitForPodsReady")
    if given("queueVisibility"):
        yield warn("queueVisibility", message="is ignored, as by Kueue since 0.14")
    if given("integrations", "podOptions"):
        yield warn("integrations", "podOptions", message="is ignored: managedJobsNamespaceSelector decides")
    if given("clientConnection"):
        message = "has no effect: the rate of requests follows what the API server answers"
        yield warn("clientConnection", message=message)
    for name in ("groupKindConcurrency", "cacheSyncTimeout"):
        if given("controller", name):
            yield warn("controller", name, message="has no effect: reconcilers share one event loop")
    certificates, election = config.internal_cert_management, config.leader_election
    managed = certificates is not None and certificates.enable
    for path, value, actual in (
        (("internalCertManagement", "webhookServiceName"),
         certificates.webhook_service_name if certificates is not None and managed else None, installation.service),
        (("internalCertManagement", "webhookSecretName"),
         certificates.webhook_secret_name if certificates is not None and managed else None, installation.secret),
        (("leaderElection", "resourceName"), election and election.resource_name, installation.lease),
        (("leaderElection", "resourceNamespace"),
         (election and election.resource_namespace) or None, installation.namespace),
    ):  # fmt: skip
        if given(*path) and value is not None and value != actual:
            yield warn(*path, message=f"has no effect: the release names its objects, here {actual}")
    if given("webhook", "certDir") and managed:
        yield warn("webhook", "certDir", message="has no effect while internalCertManagement makes the certificate")
    if given("visibilityServer") and "VisibilityOnDemand" not in gates:
        yield warn("visibilityServer", message="is switched off by the gate VisibilityOnDemand")
    if config.resources is not None and config.resources.quota_check_strategy and "QuotaCheckStrategy" not in gates:
        yield warn("resources", "quotaCheckStrategy", message="is switched off by the gate QuotaCheckStrategy")
    if config.metrics.custom_labels and "CustomMetricLabels" not in gates:
        yield warn("metrics", "customLabels", message="is switched off by the gate CustomMetricLabels")
    if given("metrics", "localQueueMetrics") and "LocalQueueMetrics" not in gates:
        yield warn("metrics", "localQueueMetrics", message="is switched off by the gate LocalQueueMetrics")
    if config.admission_fair_sharing is not None and "AdmissionFairSharing" not in gates:
        yield warn("admissionFairSharing", message="is switched off by the gate AdmissionFairSharing")
    for name in sorted(config.feature_gates or {}):
        if name in WITHOUT_EFFECT:
            yield warn("featureGates", name, message="has no effect: it is about how Kueue is written")
