"""Translates a configuration file into the options of jobs and engine, addresses and election times.

Pure functions of a loaded file. Must never start anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, cast

from turnstile.api import quantity
from turnstile.api.config import Configuration, Loaded, addresses, v1beta2
from turnstile.api.config.addresses import Address
from turnstile.api.config.frameworks import GATED, group_kind
from turnstile.api.config.tls import DEFAULTS, TlsOptions, parse
from turnstile.api.config.validation import NOTICES
from turnstile.api.durations import seconds
from turnstile.api.errors import InvalidValue
from turnstile.api.selectors import LabelSelector
from turnstile.controllers.metrics.labels import CustomLabel, MetricOptions, Source
from turnstile.engine.options import (
    AdmissionFairSharing,
    DeviceMapping,
    DeviceSource,
    FairSharing,
    Gates,
    Transformation,
    WaitForPodsReady,
)
from turnstile.engine.options import Options as EngineOptions
from turnstile.jobs.options import (
    AccessProvider,
    DefaultQueueRule,
    JobOptions,
    MultiKueueOptions,
    NodeFailureOptions,
    PodsReadyOptions,
    SubmissionOptions,
)
from turnstile.jobs.registry import ALL, Registry, described_kinds
from turnstile.kube.lease import MARGIN
from turnstile.recorder.notable import About

RELOADED = ("manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "defaultLocalQueues", "submission")
"""Fields that apply at once when the file changes; all other fields are read at the start only."""


@dataclass(frozen=True, slots=True)
class JobFlags:
    """Job options of the command line, which override the file; None for a flag that is not given."""

    without_queue_name: bool | None = None
    selector: LabelSelector | None = None

    def options(self, loaded: Loaded | None) -> JobOptions:
        """The job options of the file, with the flags applied."""
        options = JobOptions()
        if loaded is not None:
            options = job_options(loaded)
        if self.without_queue_name is not None:
            options = replace(options, manage_jobs_without_queue_name=self.without_queue_name)
        if self.selector is not None:
            options = replace(options, managed_jobs_namespace_selector=self.selector)
        return options


def job_options(loaded: Loaded) -> JobOptions:
    """The job options of the file."""
    config = loaded.configuration
    assert config.managed_jobs_namespace_selector is not None
    policies = config.object_retention_policies
    retention = (policies.workloads if policies is not None else None) or v1beta2.WorkloadRetention()
    integrations = config.integrations
    return JobOptions(
        manage_jobs_without_queue_name=config.manage_jobs_without_queue_name,
        managed_jobs_namespace_selector=config.managed_jobs_namespace_selector.selector(),
        pods_ready=_pods_ready(loaded),
        granular_reasons="UnadmittedWorkloadsObservability" in loaded.gates,
        copied_labels=_of_workloads(loaded, from_annotation=False),
        copied_annotations=_of_workloads(loaded, from_annotation=True),
        explicit_status="UnadmittedWorkloadsExplicitStatus" in loaded.gates,
        keep_finished=_kept(retention.after_finished),
        keep_deactivated=_kept(retention.after_deactivated_by_kueue),
        default_local_queues=tuple(
            DefaultQueueRule(
                namespaces=rule.namespace_selector.selector(),
                cluster_queue=rule.cluster_queue or "",
                cluster_queue_label=rule.cluster_queue_label or "",
            )
            for rule in config.default_local_queues or ()
        ),
        submission=SubmissionOptions(
            refused=frozenset(config.submission.refuse or ()), ignored=frozenset(config.submission.ignore or ())
        )
        if config.submission is not None
        else SubmissionOptions(),
        label_keys_to_copy=tuple(integrations.label_keys_to_copy or ()) if integrations is not None else (),
        provisioning_cleanup="CleanupProvisioningRequestsOnEviction" in loaded.gates,
        topologies="TopologyAwareScheduling" in loaded.gates,
        wait_for_room=config.wait_for_room,
        failure_recovery="FailureRecoveryPolicy" in loaded.gates,
        fast_quota_release="FastQuotaReleaseInPodIntegration" in loaded.gates,
        node_failures=NodeFailureOptions(
            replace="TASFailedNodeReplacement" in loaded.gates,
            on_pod_termination="TASReplaceNodeOnPodTermination" in loaded.gates,
            on_taints="TASReplaceNodeOnNodeTaints" in loaded.gates,
            conditions=frozenset(config.node_failure_conditions or ()),
        ),
        concurrent_admission="ConcurrentAdmission" in loaded.gates,
        effective_quotas="DynamicQuotaOrchestration" in loaded.gates,
        elastic_jobs="ElasticJobsViaWorkloadSlices" in loaded.gates,
        admission_gates="AdmissionGatedBy" in loaded.gates,
        default_priority_class="WorkloadPriorityClassDefaulting" in loaded.gates,
        reclaimable_pods="ReclaimablePods" in loaded.gates,
        multikueue=_multikueue(loaded),
        queue_labels_on_pods="AssignQueueLabelsForPods" in loaded.gates,
    )


_AUTOMATED = "MultiKueueManagerQuotaAutomation"


def _multikueue(loaded: Loaded) -> MultiKueueOptions | None:
    """How jobs are sent to other clusters; None while the gate is off."""
    if "MultiKueue" not in loaded.gates:
        return None
    orchestrated, automated = "MultiKueueOrchestratedPreemption" in loaded.gates, _AUTOMATED in loaded.gates
    multi = loaded.configuration.multi_kueue
    profile = multi.cluster_profile if multi is not None else None
    providers = _providers(profile) if "MultiKueueClusterProfile" in loaded.gates else None
    options = MultiKueueOptions(orchestrated=orchestrated, automated_quotas=automated, providers=providers)
    if multi is None:
        return options
    step = multi.incremental_dispatcher_config
    stepped = step is not None and "MultiKueueIncrementalDispatcherConfig" in loaded.gates
    return MultiKueueOptions(
        origin=multi.origin or options.origin,
        worker_lost_seconds=seconds(multi.worker_lost_timeout)
        if multi.worker_lost_timeout is not None
        else options.worker_lost_seconds,
        dispatcher=multi.dispatcher_name or options.dispatcher,
        step=(step.step_size or options.step) if step is not None and stepped else options.step,
        in_config_order="MultiKueueIncrementalDispatcherRespectConfigOrder" in loaded.gates,
        safe_paths="MultiKueueKubeConfigPathValidation" in loaded.gates,
        give_up_seconds=_kept(multi.give_up_timeout),
        keep_finished_seconds=_kept(multi.keep_finished) or options.keep_finished_seconds,
        orchestrated=orchestrated,
        automated_quotas=automated,
        external=external_frameworks(loaded),
        providers=providers,
    )


def _providers(profile: v1beta2.ClusterProfile | None) -> tuple[AccessProvider, ...]:
    """The programs that give credentials for ClusterProfiles."""
    given = (profile.access_providers or profile.credentials_providers or ()) if profile is not None else ()
    return tuple(
        AccessProvider(
            name=each.name,
            command=each.exec_config.command or "",
            args=tuple(each.exec_config.args or ()),
            env=tuple((variable.name, variable.value) for variable in each.exec_config.env or ()),
            api_version=each.exec_config.api_version or "",
            install_hint=each.exec_config.install_hint or "",
            provides_cluster=bool(each.exec_config.provide_cluster_info),
        )
        for each in given
    )


def external_frameworks(loaded: Loaded) -> tuple[str, ...]:
    """The kinds of jobs that another controller queues, and that are sent to other clusters from here."""
    multi = loaded.configuration.multi_kueue
    enabled = multi is not None and "MultiKueueAdaptersForCustomJobs" in loaded.gates
    given = (multi.external_frameworks or ()) if multi is not None and enabled else ()
    return tuple(f"{each.name}={each.plural}" if each.plural else each.name for each in given)


def _kept(duration: int | None) -> float | None:
    return seconds(duration) if duration is not None else None


def job_kinds(loaded: Loaded | None) -> Registry:
    """The job kinds that Turnstile queues: those the file names or describes; without a file all that need no gate."""
    if loaded is None:
        return Registry([each.framework for each in ALL if each.framework not in GATED])
    integrations = loaded.configuration.integrations
    assert integrations is not None
    described = described_kinds(integrations.custom_kinds or ())
    return Registry(
        [*(integrations.frameworks or ()), *(each.framework for each in described)],
        kinds=(*ALL, *described),
        external=[group_kind(each) for each in integrations.external_frameworks or ()],
        short_names="ShortWorkloadNames" in loaded.gates,
    )


def _waiting(loaded: Loaded) -> v1beta2.WaitForPodsReady | None:
    """The `waitForPodsReady` of the file. Without it no Workload is evicted for its pods, unlike in Kueue."""
    switched_off = "DisableWaitForPodsReady" in loaded.gates
    given = loaded.given("waitForPodsReady") and not switched_off
    return loaded.configuration.wait_for_pods_ready if given else None


def _pods_ready(loaded: Loaded) -> PodsReadyOptions | None:
    waiting = _waiting(loaded)
    if waiting is None:
        return None
    strategy = waiting.requeuing_strategy
    assert strategy is not None
    return PodsReadyOptions(
        timeout=seconds(waiting.timeout or 0),
        recovery_timeout=seconds(waiting.recovery_timeout) if waiting.recovery_timeout else None,
        backoff_base=strategy.backoff_base_seconds or 0,
        backoff_max=strategy.backoff_max_seconds or 0,
        backoff_limit=strategy.backoff_limit_count,
    )


def _blocking(loaded: Loaded) -> WaitForPodsReady:
    waiting = _waiting(loaded)
    strategy = waiting.requeuing_strategy if waiting is not None else None
    by_creation = strategy is not None and strategy.timestamp == "Creation"
    return WaitForPodsReady(
        block_admission=bool(waiting is not None and waiting.block_admission),
        requeuing_timestamp="Creation" if by_creation else "Eviction",
    )


def engine_options(loaded: Loaded) -> EngineOptions:
    """The engine options of the file: how quota is shared and counted."""
    resources = loaded.configuration.resources
    strategy = resources.quota_check_strategy if resources is not None else None
    preemption = loaded.configuration.preemption or v1beta2.Preemption()
    return EngineOptions(
        gates=_gates(loaded.gates),
        wait_for_room=loaded.configuration.wait_for_room,
        node_failure_conditions=frozenset(loaded.configuration.node_failure_conditions or ()),
        fair_sharing=_fair_sharing(loaded.configuration),
        admission_fair_sharing=_admission_fair_sharing(loaded.configuration),
        wait_for_pods_ready=_blocking(loaded),
        transformations=_transformations(loaded.configuration),
        exclude_resource_prefixes=tuple((resources.exclude_resource_prefixes or ()) if resources is not None else ()),
        device_mappings=_device_mappings(loaded.configuration),
        longest_minimum_run_time=seconds(preemption.longest_minimum_run_time)
        if preemption.longest_minimum_run_time is not None
        else EngineOptions().longest_minimum_run_time,
        quota_check_strategy="IgnoreUndeclared" if strategy == "IgnoreUndeclared" else "BlockUndeclared",
    )


def _gates(on: frozenset[str]) -> Gates:
    """The feature gates of the engine, whose fields are in snake case."""
    letters = {each.lower() for each in on}  # some words of their names are in capitals
    return Gates(**{field.name: field.name.replace("_", "") in letters for field in fields(Gates)})


def _fair_sharing(config: Configuration) -> FairSharing | None:
    if config.fair_sharing is None:
        return None
    named = config.fair_sharing.preemption_strategies or ()
    known = FairSharing().strategies
    return FairSharing(strategies=tuple(strategy for strategy in known if strategy in named))


def _admission_fair_sharing(config: Configuration) -> AdmissionFairSharing | None:
    sharing = config.admission_fair_sharing
    if sharing is None:
        return None
    return AdmissionFairSharing(
        usage_half_life=seconds(sharing.usage_half_life_time or 0),
        usage_sampling_interval=seconds(sharing.usage_sampling_interval or 0),
        resource_weights=dict(sharing.resource_weights or {}),
    )


def _transformations(config: Configuration) -> tuple[Transformation, ...]:
    given = (config.resources.transformations or ()) if config.resources is not None else ()
    return tuple(
        Transformation(
            input=each.input,
            outputs={name: quantity.parse(amount) for name, amount in (each.outputs or {}).items()},
            strategy="Replace" if each.strategy == "Replace" else "Retain",
            multiply_by=each.multiply_by or None,
        )
        for each in given
    )


def _device_mappings(config: Configuration) -> tuple[DeviceMapping, ...]:
    given = (config.resources.device_class_mappings or ()) if config.resources is not None else ()
    return tuple(
        DeviceMapping(resource=each.name, classes=tuple(each.device_class_names or ()), sources=_sources(each))
        for each in given
    )


def _sources(mapping: v1beta2.DeviceClassMapping) -> tuple[DeviceSource, ...]:
    named: list[tuple[Literal["counter", "capacity"], v1beta2.DeviceSource | None]] = []
    for source in mapping.sources or ():
        named += [("counter", source.counter), ("capacity", source.capacity)]
    return tuple(
        DeviceSource(kind=kind, name=each.name, driver=each.driver, selector=each.device_selector.cel.expression)
        for kind, each in named
        if each is not None and each.device_selector.cel is not None
    )


def webhook_address(loaded: Loaded) -> Address | None:
    """The address of the webhook, if the file gives one."""
    if not loaded.given("webhook", "port") and not loaded.given("webhook", "host"):
        return None
    webhook = loaded.configuration.webhook
    return webhook.host or addresses.EVERY_INTERFACE, webhook.port or 9443


def health_address(loaded: Loaded) -> Address | None:
    """The address of the probes, if the file gives one."""
    if not loaded.given("health", "healthProbeBindAddress"):
        return None
    return addresses.parse(loaded.configuration.health.health_probe_bind_address or "0")


def metrics_address(loaded: Loaded) -> Address | None:
    """The address of metrics besides the probes' address, if the file gives one."""
    if not loaded.given("metrics", "bindAddress"):
        return None
    return addresses.parse(loaded.configuration.metrics.bind_address or "0")


def visibility_address(loaded: Loaded) -> Address | None:
    """The address of the visibility API, if the file gives one."""
    server = loaded.configuration.visibility_server
    return listening(server) if server is not None and loaded.given("visibilityServer") else None


def listening(server: v1beta2.VisibilityServer) -> Address:
    """Where the visibility API listens."""
    return server.bind_address or addresses.EVERY_INTERFACE, server.bind_port or 8082


def metric_options(loaded: Loaded) -> MetricOptions:
    """Metrics of queues, and their labels."""
    metrics = loaded.configuration.metrics
    per_local_queue = metrics.local_queue_metrics
    selector = per_local_queue.local_queue_selector if per_local_queue is not None else None
    return MetricOptions(
        custom=_custom_labels(loaded),
        local_queues="LocalQueueMetrics" in loaded.gates and (per_local_queue is None or bool(per_local_queue.enable)),
        selector=selector.selector() if selector is not None else None,
        cohorts="MetricsForCohorts" in loaded.gates,
        resources=bool(metrics.enable_cluster_queue_resources),
        creation_latency="MetricForWorkloadCreationLatency" in loaded.gates,
        unadmitted="UnadmittedWorkloadsObservability" in loaded.gates,
    )


def _custom_labels(loaded: Loaded) -> tuple[CustomLabel, ...]:
    if "CustomMetricLabels" not in loaded.gates:
        return ()
    return tuple(
        CustomLabel(
            name=label.name,
            source=cast("Source", label.source_kind or "ClusterQueue"),
            key=label.source_label_key or label.source_annotation_key or label.name,
            from_annotation=bool(label.source_annotation_key),
            tracked=frozenset(label.tracked_values or ()),
        )
        for label in loaded.configuration.metrics.custom_labels or ()
    )


def _of_workloads(loaded: Loaded, *, from_annotation: bool) -> tuple[str, ...]:
    """Keys that a Workload must have of its job, so that metrics can show them."""
    return tuple(
        label.key
        for label in _custom_labels(loaded)
        if label.source == "Workload" and label.from_annotation == from_annotation
    )


@dataclass(frozen=True, slots=True)
class NotificationOptions:
    """The webhook for CloudEvents. `source` says which Turnstile they are from; the files are read when it is used."""

    url: str
    about: frozenset[About]
    source: str
    token_file: str | None = None
    ca_file: str | None = None


def notifications(loaded: Loaded | None, *, source: str) -> NotificationOptions | None:
    """The webhook of the file, if it names one."""
    given = loaded.configuration.notifications if loaded is not None else None
    if given is None or not given.url:
        return None
    about = cast("frozenset[About]", frozenset(given.events or NOTICES))
    return NotificationOptions(
        given.url, about, given.source or source, given.token_file or None, given.ca_file or None
    )


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """The collector for traces, and attributes of the resource that sends them; the files are read at the start."""

    endpoint: str
    resource: Mapping[str, str] = field(default_factory=dict)
    token_file: str | None = None
    ca_file: str | None = None


def traces(loaded: Loaded | None) -> TraceOptions | None:
    """The collector of the file, if it names one."""
    given = loaded.configuration.traces if loaded is not None else None
    if given is None or not given.endpoint:
        return None
    resource = dict(given.resource_attributes or {})
    return TraceOptions(given.endpoint, resource, given.token_file or None, given.ca_file or None)


def certificate_files(loaded: Loaded) -> tuple[Path, Path] | None:
    """The serving certificate and key files if `internalCertManagement` is disabled, else None."""
    managed = loaded.configuration.internal_cert_management
    if managed is None or managed.enable:
        return None
    directory = Path(loaded.configuration.webhook.cert_dir or "")
    return directory / "tls.crt", directory / "tls.key"


def tls_options(loaded: Loaded | None) -> TlsOptions:
    """The versions, cipher suites and curves of all servers."""
    given = loaded.configuration.tls if loaded is not None else None
    return parse(given) if given is not None else DEFAULTS


@dataclass(frozen=True, slots=True)
class Election:
    """Times of the leader election in seconds, as Kueue has them."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    @property
    def renew_period(self) -> float:
        """Seconds between two renewals that succeed: the retry period, but a second at least."""
        return min(max(self.retry_period, 1.0), self.renew_deadline / 2)

    def check(self) -> None:
        """Raise InvalidValue if two processes could lead with these times, or if no process could."""
        deadline, most = self.renew_deadline, self.lease_duration - MARGIN
        if self.lease_duration < 1:
            raise InvalidValue("leaseDuration", self.lease_duration, "use whole seconds, at least 1")
        if not 0 < deadline <= most:
            raise InvalidValue("renewDeadline", deadline, f"use at most {most:g} s, half a second below leaseDuration")
        if not 0 < self.retry_period < deadline:
            raise InvalidValue("retryPeriod", self.retry_period, f"use less than renewDeadline, {deadline:g} s")


def election(loaded: Loaded | None) -> Election:
    """The election times of the file."""
    times = loaded.configuration.leader_election if loaded is not None else None
    if times is None:
        return Election()
    return Election(
        lease_duration=int(seconds(times.lease_duration or 0)),
        renew_deadline=seconds(times.renew_deadline or 0),
        retry_period=seconds(times.retry_period or 0),
    )
