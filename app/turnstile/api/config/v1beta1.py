"""The Configuration of `config.kueue.x-k8s.io/v1beta1`, where it differs from v1beta2.

Switches named `enable` where v1beta2 goes by presence, two sections that are ignored since, and fields that came later
left out. Must never hold a default.
"""

from typing import Final

from pydantic import Field

from turnstile.api.config import v1beta2
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.config.durations import Duration
from turnstile.api.config.section import Section
from turnstile.api.config.v1beta2 import Int32

API_VERSION: Final = "config.kueue.x-k8s.io/v1beta1"


class WaitForPodsReady(Section):
    """As in v1beta2, with a switch."""

    enable: bool | None = None
    timeout: Duration | None = None
    block_admission: bool | None = None
    requeuing_strategy: v1beta2.RequeuingStrategy | None = None
    recovery_timeout: Duration | None = None


class FairSharing(Section):
    """As in v1beta2, with a switch."""

    enable: bool | None = None
    preemption_strategies: list[str] | None = None


class ClusterQueueVisibility(Section):
    """Ignored: pending workloads are no longer in the status of a ClusterQueue."""

    max_count: Int32 | None = None


class QueueVisibility(Section):
    """Ignored: pending workloads are no longer in the status of a ClusterQueue."""

    cluster_queues: ClusterQueueVisibility | None = None
    update_interval_seconds: Int32 | None = None


class PodOptions(Section):
    """Ignored: `managedJobsNamespaceSelector` decides."""

    namespace_selector: v1beta2.Selector | None = None
    pod_selector: v1beta2.Selector | None = None


class Integrations(Section):
    """As in v1beta2, with the options of pods."""

    frameworks: list[str] | None = None
    external_frameworks: list[str] | None = None
    pod_options: PodOptions | None = None
    label_keys_to_copy: list[str] | None = None
    custom_kinds: list[CustomKind] | None = None


class MultiKueue(Section):
    """Dispatch to other clusters."""

    gc_interval: Duration | None = None
    origin: str | None = None
    worker_lost_timeout: Duration | None = None
    dispatcher_name: str | None = None
    external_frameworks: list[v1beta2.ExternalFramework] | None = None


class DeviceClassMapping(Section):
    """A quota resource for the devices of some DeviceClasses."""

    name: str = ""
    device_class_names: list[str] | None = None


class Resources(Section):
    """How requests are counted against quota."""

    exclude_resource_prefixes: list[str] | None = None
    transformations: list[v1beta2.Transformation] | None = None
    device_class_mappings: list[DeviceClassMapping] | None = None


class CustomLabel(Section):
    """A label of metrics, taken from a ClusterQueue."""

    name: str = ""
    source_label_key: str | None = None
    source_annotation_key: str | None = None


class Metrics(Section):
    """Metrics, and where they are served."""

    bind_address: str | None = None
    enable_cluster_queue_resources: bool | None = None
    custom_labels: list[CustomLabel] | None = None
    local_queue_metrics: v1beta2.LocalQueueMetrics | None = None


class Configuration(Section):
    """The whole file."""

    api_version: str | None = None
    kind: str | None = None
    namespace: str | None = None
    webhook: v1beta2.Webhook = Field(default_factory=v1beta2.Webhook)
    leader_election: v1beta2.LeaderElection | None = None
    metrics: Metrics = Field(default_factory=Metrics)
    health: v1beta2.Health = Field(default_factory=v1beta2.Health)
    pprof_bind_address: str | None = None
    controller: v1beta2.Controller | None = None
    tls: v1beta2.Tls | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: v1beta2.Selector | None = None
    default_local_queues: list[v1beta2.DefaultLocalQueue] | None = None
    submission: v1beta2.Submission | None = None
    notifications: v1beta2.Notifications | None = None
    traces: v1beta2.Traces | None = None
    wait_for_room: bool = False
    node_failure_conditions: list[str] | None = None
    internal_cert_management: v1beta2.InternalCertManagement | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    client_connection: v1beta2.ClientConnection | None = None
    integrations: Integrations | None = None
    queue_visibility: QueueVisibility | None = None
    multi_kueue: MultiKueue | None = None
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: v1beta2.AdmissionFairSharing | None = None
    resources: Resources | None = None
    feature_gates: dict[str, bool] | None = None
    object_retention_policies: v1beta2.ObjectRetentionPolicies | None = None
