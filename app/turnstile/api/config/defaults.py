"""Defaults of a configuration file: Kueue's defaults, and the names of this installation. Changes its argument."""

from dataclasses import dataclass
from typing import Final, TypeVar

from turnstile.api.config import v1beta1, v1beta2
from turnstile.api.config.frameworks import DEFAULT
from turnstile.api.config.section import Section
from turnstile.api.durations import SECOND

STRATEGIES: Final = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
FIT: Final = "turnstile.dev/multikueue-dispatcher-fit"
"""Nominates by what the queues of workers have free. Not in Kueue."""
RETAIN: Final = "Retain"
OLD_PODS_READY_TIMEOUT: Final = 5 * 60 * SECOND
"""The time in v1beta1; v1beta2 waits longer."""

_S = TypeVar("_S", bound=Section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Values that the installation decides, not the file. Durations of the leader election are in whole nanoseconds."""

    namespace: str
    service: str
    secret: str
    lease: str
    certificates: str
    lease_duration: int
    renew_deadline: int
    retry_period: int


def of_release(name: str, namespace: str) -> Installation:
    """An installation of Turnstile: objects carry the full name of the release. The leader election is Kueue's."""
    return Installation(
        namespace=namespace,
        service=f"{name}-webhook-service",
        secret=f"{name}-webhook-server-cert",
        lease=f"{name}-controller",
        certificates="/etc/turnstile/tls",
        lease_duration=15 * SECOND,
        renew_deadline=10 * SECOND,
        retry_period=2 * SECOND,
    )


def set_defaults(config: v1beta2.Configuration, installation: Installation) -> None:
    """Fill in what a v1beta2 file left out."""
    _set_shared(config, installation)
    waiting = config.wait_for_pods_ready = config.wait_for_pods_ready or v1beta2.WaitForPodsReady()
    _set_waiting(waiting, timeout=30 * 60 * SECOND, block_admission=False)
    if config.multi_kueue is not None:
        multi = config.multi_kueue
        if multi.dispatcher_name == INCREMENTAL:
            multi.incremental_dispatcher_config = (
                multi.incremental_dispatcher_config or v1beta2.IncrementalDispatcherConfig()
            )
            _default(multi.incremental_dispatcher_config, step_size=3)
    config.visibility_server = config.visibility_server or v1beta2.VisibilityServer()
    _default(config.visibility_server, bind_port=8082)


def set_defaults_v1beta1(config: v1beta1.Configuration, installation: Installation) -> None:
    """Fill in what a v1beta1 file left out. A section that is switched off stays bare."""
    _set_shared(config, installation)
    waiting = config.wait_for_pods_ready = config.wait_for_pods_ready or v1beta1.WaitForPodsReady()
    if waiting.enable:
        _set_waiting(waiting, timeout=OLD_PODS_READY_TIMEOUT, block_admission=True)
    if config.fair_sharing is not None and config.fair_sharing.enable and not config.fair_sharing.preemption_strategies:
        config.fair_sharing.preemption_strategies = list(STRATEGIES)


def _set_shared(config: v1beta2.Configuration | v1beta1.Configuration, installation: Installation) -> None:
    config.namespace = namespace = config.namespace if config.namespace is not None else installation.namespace
    if not config.webhook.port:
        config.webhook.port = 9443
    config.webhook.cert_dir = config.webhook.cert_dir or installation.certificates
    config.metrics.bind_address = config.metrics.bind_address or ":8443"
    if config.metrics.local_queue_metrics is None:
        config.metrics.local_queue_metrics = v1beta2.LocalQueueMetrics()
        config.metrics.local_queue_metrics.enable = True
    config.health.health_probe_bind_address = config.health.health_probe_bind_address or ":8081"
    _set_leader_election(config, installation)
    certificates = config.internal_cert_management = config.internal_cert_management or v1beta2.InternalCertManagement()
    _default(certificates, enable=True)
    if certificates.enable:
        _default(certificates, webhook_service_name=installation.service, webhook_secret_name=installation.secret)
    config.client_connection = config.client_connection or v1beta2.ClientConnection()
    _default(config.client_connection, qps=300.0, burst=500)
    if isinstance(config, v1beta1.Configuration):
        config.integrations = config.integrations or v1beta1.Integrations()
        config.multi_kueue = config.multi_kueue or v1beta1.MultiKueue()
    else:
        config.integrations = config.integrations or v1beta2.Integrations()
        config.multi_kueue = config.multi_kueue or v1beta2.MultiKueue()
    _default(config.integrations, frameworks=list(DEFAULT))
    multi = config.multi_kueue
    _default(multi, gc_interval=60 * SECOND, worker_lost_timeout=15 * 60 * SECOND, dispatcher_name=ALL_AT_ONCE)
    multi.origin = multi.origin or "multikueue"
    if config.admission_fair_sharing is not None:
        sharing = config.admission_fair_sharing
        sharing.usage_half_life_time = sharing.usage_half_life_time or 0
        sharing.usage_sampling_interval = sharing.usage_sampling_interval or 5 * 60 * SECOND
    for transformation in (config.resources.transformations or ()) if config.resources is not None else ():
        transformation.strategy = transformation.strategy or RETAIN
    if config.managed_jobs_namespace_selector is None:
        requirement = v1beta2.LabelSelectorRequirement()
        requirement.key, requirement.operator = "kubernetes.io/metadata.name", "NotIn"
        requirement.values = ["kube-system", namespace]
        config.managed_jobs_namespace_selector = v1beta2.Selector()
        config.managed_jobs_namespace_selector.match_expressions = [requirement]


def _set_leader_election(config: v1beta2.Configuration | v1beta1.Configuration, installation: Installation) -> None:
    election = config.leader_election = config.leader_election or v1beta2.LeaderElection()
    _default(election, leader_elect=True, resource_namespace="")
    election.lease_duration = election.lease_duration or installation.lease_duration
    election.renew_deadline = election.renew_deadline or installation.renew_deadline
    election.retry_period = election.retry_period or installation.retry_period
    election.resource_lock = election.resource_lock or "leases"
    election.resource_name = election.resource_name or installation.lease


def _set_waiting(
    waiting: v1beta2.WaitForPodsReady | v1beta1.WaitForPodsReady, *, timeout: int, block_admission: bool
) -> None:
    """A timeout of zero is one that was not given: nothing could start in it. A recovery timeout of zero means none."""
    waiting.timeout = waiting.timeout or timeout
    _default(waiting, block_admission=block_admission, recovery_timeout=waiting.timeout)
    waiting.requeuing_strategy = waiting.requeuing_strategy or v1beta2.RequeuingStrategy()
    _default(waiting.requeuing_strategy, timestamp="Eviction", backoff_base_seconds=60, backoff_max_seconds=3600)


def _default(section: _S, **values: object) -> None:
    for name, value in values.items():
        if getattr(section, name) is None:
            setattr(section, name, value)
