"""Translates a configuration file into the options of jobs and engine, addresses and election times.

Pure functions of a loaded file. Must never start anything.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from app.api import quantity
from app.api.config import Configuration, Loaded, addresses, v1beta2
from app.api.config.addresses import Address
from app.api.config.durations import seconds
from app.api.config.frameworks import group_kind
from app.api.selectors import LabelSelector
from app.engine.options import AdmissionFairSharing, FairSharing, Gates, Transformation, WaitForPodsReady
from app.engine.options import Options as EngineOptions
from app.jobs.bases.configured import ConfiguredJobs
from app.jobs.options import DefaultQueueRule, JobOptions, PodsReadyOptions
from app.jobs.registry import ALL, Registry

RELOADED = ("manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "defaultLocalQueues")
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
    return JobOptions(
        manage_jobs_without_queue_name=config.manage_jobs_without_queue_name,
        managed_jobs_namespace_selector=config.managed_jobs_namespace_selector.selector(),
        pods_ready=_pods_ready(loaded),
        granular_reasons="UnadmittedWorkloadsObservability" in loaded.gates,
        default_local_queues=tuple(
            DefaultQueueRule(
                namespaces=rule.namespace_selector.selector(),
                cluster_queue=rule.cluster_queue or "",
                cluster_queue_label=rule.cluster_queue_label or "",
            )
            for rule in config.default_local_queues or ()
        ),
    )


def job_kinds(loaded: Loaded | None) -> Registry:
    """The job kinds that Turnstile queues: those the file names or describes; without a file all that need no gate."""
    if loaded is None:
        return Registry([each.framework for each in ALL if not each.gate])
    integrations = loaded.configuration.integrations
    assert integrations is not None
    described = [ConfiguredJobs(entry) for entry in integrations.custom_kinds or ()]
    return Registry(
        [*(integrations.frameworks or ()), *(each.framework for each in described)],
        kinds=(*ALL, *described),
        external=[group_kind(each) for each in integrations.external_frameworks or ()],
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
    return EngineOptions(
        gates=_gates(loaded.gates),
        fair_sharing=_fair_sharing(loaded.configuration),
        admission_fair_sharing=_admission_fair_sharing(loaded.configuration),
        wait_for_pods_ready=_blocking(loaded),
        transformations=_transformations(loaded.configuration),
        exclude_resource_prefixes=tuple((resources.exclude_resource_prefixes or ()) if resources is not None else ()),
        quota_check_strategy="IgnoreUndeclared" if strategy == "IgnoreUndeclared" else "BlockUndeclared",
    )


def _gates(on: frozenset[str]) -> Gates:
    """The feature gates of the engine, whose fields are in snake case."""
    return Gates(
        **{field.name: "".join(word.capitalize() for word in field.name.split("_")) in on for field in fields(Gates)}
    )


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


def local_queue_metrics(loaded: Loaded) -> bool:
    """Whether the metrics of LocalQueues are exported, if metrics are served."""
    wanted = loaded.configuration.metrics.local_queue_metrics
    return "LocalQueueMetrics" in loaded.gates and (wanted is None or bool(wanted.enable))


def certificate_files(loaded: Loaded) -> tuple[Path, Path] | None:
    """The serving certificate and key files if `internalCertManagement` is disabled, else None."""
    managed = loaded.configuration.internal_cert_management
    if managed is None or managed.enable:
        return None
    directory = Path(loaded.configuration.webhook.cert_dir or "")
    return directory / "tls.crt", directory / "tls.key"


@dataclass(frozen=True, slots=True)
class Election:
    """Times of the leader election in seconds. Kueue has one period for renewals and retries."""

    lease_duration: int = 4
    renew_deadline: float = 3.0
    renew_period: float = 1.0
    retry_period: float = 0.4


def election(loaded: Loaded) -> Election:
    """The election times of the file; the defaults are shorter than Kueue's."""
    times = loaded.configuration.leader_election
    assert times is not None
    retry, deadline = seconds(times.retry_period or 0), seconds(times.renew_deadline or 0)
    return Election(
        lease_duration=int(seconds(times.lease_duration or 0)),
        renew_deadline=deadline,
        renew_period=retry if loaded.given("leaderElection", "retryPeriod") else min(1.0, deadline / 2),
        retry_period=retry,
    )
