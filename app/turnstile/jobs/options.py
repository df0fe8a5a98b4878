"""Which jobs are managed: the part of the configuration that the webhooks and the reconcilers must agree on.

If they disagreed, a webhook could suspend a job that no reconciler ever starts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turnstile.api import names
from turnstile.api.config.defaults import ALL_AT_ONCE, FIT
from turnstile.api.meta import ObjectMeta
from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Label that every namespace carries with its own name as value."""


def namespaces(*, without: Iterable[str], labels: Mapping[str, str] | None = None) -> LabelSelector:
    """A selector of the namespaces that carry all of `labels`, except those named in `without`."""
    excluded = LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=sorted(set(without)))
    return LabelSelector(match_labels=dict(labels or {}), match_expressions=[excluded])


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsReadyOptions:
    """How long pods may take to become ready, and when a job evicted for that is requeued; in seconds.

    Without `recovery_timeout` Turnstile waits for failed pods indefinitely; without `backoff_limit` requeues are
    unlimited.
    """

    timeout: float = 1800.0
    recovery_timeout: float | None = None
    backoff_base: float = 60.0
    backoff_max: float = 3600.0
    backoff_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailureOptions:
    """When a node has failed on which a Workload has places. `replace` is the gate TASFailedNodeReplacement: failed
    nodes are looked for. `on_pod_termination` is the gate TASReplaceNodeOnPodTermination: pods that run on a node that
    is not ready are waited for, instead of 30 seconds. `on_taints` is the gate TASReplaceNodeOnNodeTaints."""

    replace: bool = True
    on_pod_termination: bool = True
    on_taints: bool = True
    conditions: frozenset[str] = frozenset()
    """Types of node conditions that are True of a node that does not work. Not in Kueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultQueueRule:
    """To which ClusterQueue the LocalQueue `default` of selected namespaces leads: a named one, or the one that the
    value of a label of the namespace names."""

    namespaces: LabelSelector
    cluster_queue: str = ""
    cluster_queue_label: str = ""

    def cluster_queue_for(self, labels: Mapping[str, str]) -> str:
        """The ClusterQueue for a namespace with these labels; empty if the rule has none for it."""
        if not self.namespaces.matches(labels):
            return ""
        return self.cluster_queue or labels.get(self.cluster_queue_label, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOptions:
    """The treatment of a submitted job that cannot be admitted as things are: by the names of what may be wrong it is
    refused, or accepted without a word; else accepted with a warning. Not in Kueue."""

    refused: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessProvider:
    """The program that gives credentials for worker clusters whose ClusterProfile names this provider."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provides_cluster: bool = False
    """Whether the program is told which cluster it is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiKueueOptions:
    """How jobs are sent to other clusters. `origin` is the value of the label on everything that is created there;
    `step` and `in_config_order` are about the incremental dispatcher."""

    origin: str = "multikueue"
    worker_lost_seconds: float = 900.0
    dispatcher: str = ALL_AT_ONCE
    step: int = 3
    in_config_order: bool = True
    safe_paths: bool = True
    """Gate MultiKueueKubeConfigPathValidation: kubeconfig files are read below one folder only."""
    give_up_seconds: float | None = None
    """Seconds for which a Workload holds quota while no worker admits it; None: without a limit. Not in Kueue."""
    keep_finished_seconds: float = 0.0
    """Seconds for which the copy of a finished job stays on its worker, with its pods. Not in Kueue."""
    orchestrated: bool = False
    """Gate MultiKueueOrchestratedPreemption: one worker at a time may preempt for a Workload."""
    external: tuple[str, ...] = ()
    """Kinds of jobs that another controller queues, as `Kind.version.group`, or `Kind.version.group=plural` where the
    name in URLs is said; else each cluster's discovery says it."""
    providers: tuple[AccessProvider, ...] | None = None
    """The programs that give credentials for ClusterProfiles; None while the gate MultiKueueClusterProfile is off."""
    automated_quotas: bool = False
    """Gate MultiKueueManagerQuotaAutomation: quotas follow those of the workers, where a MultiKueueConfig asks so."""

    @property
    def reads_queues(self) -> bool:
        """Whether the queues of workers are read."""
        return self.automated_quotas or self.dispatcher == FIT


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options under Kueue's names. The default selector excludes kube-system and Turnstile's namespace, like Kueue's.

    `pods_ready` is None if Turnstile does not wait for pods to become ready. `granular_reasons` is the gate
    UnadmittedWorkloadsObservability, `provisioning_cleanup` the gate CleanupProvisioningRequestsOnEviction.
    `label_keys_to_copy` are the labels that a Workload gets from its job when it is created.
    """

    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: LabelSelector = field(
        default_factory=lambda: namespaces(without=("kube-system", "turnstile-system"))
    )
    pods_ready: PodsReadyOptions | None = None
    granular_reasons: bool = True
    copied_labels: tuple[str, ...] = ()
    """Labels that a new Workload gets from its job, for the labels of metrics."""
    copied_annotations: tuple[str, ...] = ()
    """Annotations likewise."""
    explicit_status: bool = False
    """Gate UnadmittedWorkloadsExplicitStatus: conditions are written before the first decision about a Workload."""
    keep_finished: float | None = None
    """Seconds after which a finished Workload is deleted; None: never."""
    keep_deactivated: float | None = None
    """Seconds after which a job is deleted whose Workload Turnstile has deactivated; None: never."""
    default_local_queues: tuple[DefaultQueueRule, ...] = ()
    """Rules of which the first with an answer decides where a namespace's queue `default` leads. Not in Kueue."""
    submission: SubmissionOptions = SubmissionOptions()
    label_keys_to_copy: tuple[str, ...] = ()
    provisioning_cleanup: bool = True
    topologies: bool = True
    """Gate TopologyAwareScheduling: Workloads say which topology their pods ask for and how the pods are numbered."""
    wait_for_room: bool = False
    """Whether ClusterQueues that do not say otherwise admit Workloads only while nodes have room. Not in Kueue."""
    node_failures: NodeFailureOptions = NodeFailureOptions()
    failure_recovery: bool = False
    """Gate FailureRecoveryPolicy: pods on unreachable nodes are ended, where an annotation says that this is safe."""
    concurrent_admission: bool = False
    """Gate ConcurrentAdmission: in a ClusterQueue with a policy for it, variants compete for a Workload."""
    effective_quotas: bool = False
    """Gate DynamicQuotaOrchestration: the quota in the status of a ClusterQueue or Cohort holds, if there is one."""
    elastic_jobs: bool = True
    """Gate ElasticJobsViaWorkloadSlices: the annotation that asks for an elastic job is validated."""
    admission_gates: bool = True
    """Gate AdmissionGatedBy."""
    default_priority_class: bool = True
    """Gate WorkloadPriorityClassDefaulting."""
    fast_quota_release: bool = False
    """Gate FastQuotaReleaseInPodIntegration: pods that are queued by themselves give their quota back as soon as they
    are being deleted, though they may run on until their grace period is over."""
    reclaimable_pods: bool = True
    """Gate ReclaimablePods: pods that are done release their quota while the job runs."""
    multikueue: MultiKueueOptions | None = MultiKueueOptions()
    """None while the gate MultiKueue is off."""
    queue_labels_on_pods: bool = True
    """Gate AssignQueueLabelsForPods: an admission adds the names of both queues to the labels of the pods."""
    victim_patience: float | None = 300.0
    """Seconds that the pods of an evicted Workload have to end; None: as long as they like. The option of the command
    line, which the engine has too."""

    unused_after: float | None = None
    """Seconds after which an admitted Workload is evicted of which no pod has run; None: never. Not in Kueue."""

    def gates_of(self, meta: ObjectMeta) -> str:
        """The admission gates of a job or Workload, as its annotation lists them; empty while they do not count."""
        return meta.annotations.get(names.ADMISSION_GATED_BY, "") if self.admission_gates else ""
