"""The Configuration of `config.kueue.x-k8s.io/v1beta2`, field by field.

A field that is absent from a file is None here until defaults are set. Names on the wire are Kueue's. Types alone are
checked here; what a value must satisfy is `validation`. Must never know what Turnstile has built.
"""

from typing import Annotated, Final

import msgspec
from pydantic import BeforeValidator, Field, PlainSerializer

from turnstile.api import quantity
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.config.durations import Duration, Nanoseconds
from turnstile.api.config.section import Section
from turnstile.api.errors import InvalidValue
from turnstile.api.selectors import LabelSelector

API_VERSION: Final = "config.kueue.x-k8s.io/v1beta2"
KIND: Final = "Configuration"

Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[
    float, Field(allow_inf_nan=False), PlainSerializer(lambda value: int(value) if value == int(value) else value)
]


def _quantity(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("must be a quantity, for example 4, 250m or 16Gi")  # noqa: TRY004 -- pydantic wants ValueError
    try:
        return quantity.canonical(value)
    except InvalidValue as error:
        raise ValueError(f"must be a quantity, for example 4, 250m or 16Gi: {error.cure}") from None


QuantityText = Annotated[str, BeforeValidator(_quantity)]


class Webhook(Section):
    """Where admission reviews are answered."""

    port: int | None = None
    host: str | None = None
    cert_dir: str | None = None


class LeaderElection(Section):
    """How one replica is chosen to write."""

    leader_elect: bool | None = None
    lease_duration: Duration | None = None
    renew_deadline: Duration | None = None
    retry_period: Duration | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class LabelSelectorRequirement(Section):
    """One requirement of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Selector(Section):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None

    def selector(self) -> LabelSelector:
        """The selector that the rest of Turnstile matches with."""
        return msgspec.convert(self.plain(), LabelSelector)


class CustomLabel(Section):
    """A label of metrics, taken from an object."""

    name: str = ""
    source_label_key: str | None = None
    source_annotation_key: str | None = None
    source_kind: str | None = None
    tracked_values: list[str] | None = None


class LocalQueueMetrics(Section):
    """Which LocalQueues have metrics of their own."""

    enable: bool | None = None
    local_queue_selector: Selector | None = None


class Metrics(Section):
    """Metrics, and where they are served."""

    bind_address: str | None = None
    enable_cluster_queue_resources: bool | None = None
    custom_labels: list[CustomLabel] | None = None
    local_queue_metrics: LocalQueueMetrics | None = None


class Health(Section):
    """Where probes are answered."""

    health_probe_bind_address: str | None = None
    readiness_endpoint_name: str | None = None
    liveness_endpoint_name: str | None = None


class Controller(Section):
    """How reconcilers run."""

    group_kind_concurrency: dict[str, int] | None = None
    cache_sync_timeout: Nanoseconds | None = None


class Tls(Section):
    """TLS of the servers."""

    min_version: str | None = None
    cipher_suites: list[str] | None = None
    curve_preferences: list[Int32] | None = None


class InternalCertManagement(Section):
    """Whether the serving certificate is made and renewed by the controller."""

    enable: bool | None = None
    webhook_service_name: str | None = None
    webhook_secret_name: str | None = None


class RequeuingStrategy(Section):
    """When a workload whose pods were not ready is tried again."""

    timestamp: str | None = None
    backoff_limit_count: Int32 | None = None
    backoff_base_seconds: Int32 | None = None
    backoff_max_seconds: Int32 | None = None


class WaitForPodsReady(Section):
    """The fate of a workload whose pods do not become ready."""

    timeout: Duration | None = None
    block_admission: bool | None = None
    requeuing_strategy: RequeuingStrategy | None = None
    recovery_timeout: Duration | None = None


class ClientConnection(Section):
    """Limits of the client of the API server."""

    qps: Number | None = None
    burst: Int32 | None = None


class Integrations(Section):
    """Which job kinds are queued."""

    frameworks: list[str] | None = None
    external_frameworks: list[str] | None = None
    label_keys_to_copy: list[str] | None = None
    custom_kinds: list[CustomKind] | None = None
    """Not in Kueue."""


class ExternalFramework(Section):
    """A job kind dispatched without an adapter of its own."""

    name: str = ""
    plural: str | None = None
    """Its name in URLs, where Kubernetes would guess another. Not in Kueue."""


class EnvironmentVariable(Section):
    """A variable of a command's environment."""

    name: str = ""
    value: str = ""


class ExecConfig(Section):
    """A command that yields credentials, as in a kubeconfig."""

    command: str | None = None
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None
    api_version: str | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class AccessProvider(Section):
    """Who gives access to the cluster of a ClusterProfile."""

    name: str = ""
    exec_config: ExecConfig = Field(default_factory=ExecConfig)


class ClusterProfile(Section):
    """Access by ClusterProfile; `credentials_providers` is the old name of `access_providers`."""

    access_providers: list[AccessProvider] | None = None
    credentials_providers: list[AccessProvider] | None = None


class IncrementalDispatcherConfig(Section):
    """How many clusters are tried at once."""

    step_size: Int32 | None = None


class MultiKueue(Section):
    """Dispatch to other clusters."""

    gc_interval: Duration | None = None
    origin: str | None = None
    worker_lost_timeout: Duration | None = None
    dispatcher_name: str | None = None
    external_frameworks: list[ExternalFramework] | None = None
    incremental_dispatcher_config: IncrementalDispatcherConfig | None = None
    give_up_timeout: Duration | None = None
    """Not in Kueue."""
    keep_finished: Duration | None = None
    """Not in Kueue."""
    cluster_profile: ClusterProfile | None = None


class FairSharing(Section):
    """Fair sharing between ClusterQueues; its presence turns it on."""

    preemption_strategies: list[str] | None = None


class AdmissionFairSharing(Section):
    """Order among the LocalQueues of a ClusterQueue by past usage; its presence turns it on."""

    usage_half_life_time: Duration | None = None
    usage_sampling_interval: Duration | None = None
    resource_weights: dict[str, Number] | None = None


class Transformation(Section):
    """One resource counted as others."""

    input: str = ""
    strategy: str | None = None
    multiply_by: str | None = None
    outputs: dict[str, QuantityText] | None = None


class Cel(Section):
    """A CEL expression over a device."""

    expression: str = ""


class DeviceSelector(Section):
    """Which devices of a driver count."""

    cel: Cel | None = None


class DeviceSource(Section):
    """A counter or a capacity of a driver's devices."""

    name: str = ""
    driver: str = ""
    device_selector: DeviceSelector = Field(default_factory=DeviceSelector)


class DeviceClassSource(Section):
    """The counted part of a device; exactly one of the two."""

    counter: DeviceSource | None = None
    capacity: DeviceSource | None = None


class DeviceClassMapping(Section):
    """A quota resource for the devices of some DeviceClasses."""

    name: str = ""
    device_class_names: list[str] | None = None
    sources: list[DeviceClassSource] | None = None


class Resources(Section):
    """How requests are counted against quota."""

    exclude_resource_prefixes: list[str] | None = None
    transformations: list[Transformation] | None = None
    device_class_mappings: list[DeviceClassMapping] | None = None
    quota_check_strategy: str | None = None


class WorkloadRetention(Section):
    """When Workloads that are over are deleted."""

    after_finished: Duration | None = None
    after_deactivated_by_kueue: Duration | None = None


class ObjectRetentionPolicies(Section):
    """How long objects that are over are kept."""

    workloads: WorkloadRetention | None = None


class DefaultLocalQueue(Section):
    """Where the LocalQueue `default` of selected namespaces leads; exactly one of the two names of a ClusterQueue."""

    namespace_selector: Selector = Field(default_factory=Selector)
    cluster_queue: str | None = None
    cluster_queue_label: str | None = None


class Submission(Section):
    """The fate of submitted jobs that cannot be admitted as things are, by the names of what is wrong with them."""

    refuse: list[str] | None = None
    ignore: list[str] | None = None


class Notifications(Section):
    """The webhook that learns of Workloads by CloudEvents; its presence turns them on."""

    url: str | None = None
    events: list[str] | None = None
    source: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


class Traces(Section):
    """The collector of OpenTelemetry that gets the lives of Workloads; its presence turns them on."""

    endpoint: str | None = None
    resource_attributes: dict[str, str] | None = None
    token_file: str | None = None
    ca_file: str | None = None


class Preemption(Section):
    """Limits of preemption that Kueue does not have."""

    longest_minimum_run_time: Duration | None = None


class VisibilityServer(Section):
    """Where the visibility API is served."""

    bind_address: str | None = None
    bind_port: Int32 | None = None


class Configuration(Section):
    """The whole file."""

    api_version: str | None = None
    kind: str | None = None
    namespace: str | None = None
    webhook: Webhook = Field(default_factory=Webhook)
    leader_election: LeaderElection | None = None
    metrics: Metrics = Field(default_factory=Metrics)
    health: Health = Field(default_factory=Health)
    pprof_bind_address: str | None = None
    controller: Controller | None = None
    tls: Tls | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: Selector | None = None
    internal_cert_management: InternalCertManagement | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    client_connection: ClientConnection | None = None
    integrations: Integrations | None = None
    multi_kueue: MultiKueue | None = None
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    resources: Resources | None = None
    feature_gates: dict[str, bool] | None = None
    object_retention_policies: ObjectRetentionPolicies | None = None
    visibility_server: VisibilityServer | None = None
    default_local_queues: list[DefaultLocalQueue] | None = None
    """Not in Kueue."""
    submission: Submission | None = None
    """Not in Kueue."""
    notifications: Notifications | None = None
    """Not in Kueue."""
    traces: Traces | None = None
    """Not in Kueue."""
    preemption: Preemption | None = None
    """Not in Kueue."""
    wait_for_room: bool = False
    """Not in Kueue."""
    node_failure_conditions: list[str] | None = None
    """Not in Kueue."""
