"""The stores that MultiKueue reads on the manager beside those of `ClusterView`, and their indexes. Read-only."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.api.workload import AdmissionCheckState, Workload
from turnstile.jobs.registry import Registry
from turnstile.kube.store import Store

CONFIGS_BY_CLUSTER = "cluster"
"""Index of MultiKueueConfigs by each MultiKueueCluster that they name."""
WORKLOADS_BY_EXTERNAL_JOB = "external-job"
"""Index of Workloads by the key of a job that owns them, of a kind that another controller queues."""
CHECKS_BY_MULTIKUEUE_CONFIG = "multikueue-config"
"""Index of AdmissionChecks by the MultiKueueConfig that they name."""


@dataclass(slots=True)
class Elsewhere:
    """The leader's knowledge of what other clusters have."""

    holds: Callable[[Workload], bool] = lambda workload: False
    """Whether another cluster holds quota for a Workload, because pods of its copy may run there."""
    released: Callable[[Workload], Mapping[str, int] | None] = lambda workload: None
    """The pods, by pod set, whose quota another cluster has released early; None if the Workload runs on none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiKueue:
    """Which clusters there are, and which may be sent jobs."""

    configs: Store[MultiKueueConfig] = field(default_factory=Store)
    clusters: Store[MultiKueueCluster] = field(default_factory=Store)
    namespace: str = ""
    """The namespace of the Secrets with kubeconfigs."""
    served: Callable[[type[Kind]], bool] = lambda kind: True
    """Whether the manager has a kind of jobs."""
    external: Registry | None = None
    """The kinds of jobs that another controller queues, which are only sent to other clusters from here."""
    external_jobs: Mapping[type[Kind], Store[Any]] = field(default_factory=dict)
    elsewhere: Elsewhere = field(default_factory=Elsewhere)


def index_multikueue(
    configs: Store[MultiKueueConfig],
    checks: Store[AdmissionCheck],
    workloads: Store[Workload] | None = None,
    external: Registry | None = None,
) -> None:
    """Declare the indexes."""
    configs.add_index(CONFIGS_BY_CLUSTER, clusters_in)
    checks.add_index(CHECKS_BY_MULTIKUEUE_CONFIG, configs_in)
    if workloads is not None and external is not None:
        workloads.add_index(WORKLOADS_BY_EXTERNAL_JOB, external.jobs_of)


def is_multikueue(check: AdmissionCheck | None) -> bool:
    """Whether a check sends Workloads to other clusters."""
    return check is not None and check.spec is not None and check.spec.controller_name == names.MULTIKUEUE_CONTROLLER


def clusters_in(config: MultiKueueConfig) -> list[str]:
    """The clusters of a configuration, in its order."""
    return list(config.spec.clusters) if config.spec is not None else []


def configs_in(check: AdmissionCheck) -> list[str]:
    """Name of the MultiKueueConfig that a check names; no name if it names another kind."""
    found = check.spec.parameters if is_multikueue(check) and check.spec is not None else None
    wanted = MultiKueueConfig.GROUP, MultiKueueConfig.KIND
    return [found.name] if found is not None and found.name and (found.api_group, found.kind) == wanted else []


def dispatching(workload: Workload, checks: Store[AdmissionCheck]) -> AdmissionCheckState | None:
    """The state of the check that sends a Workload to other clusters; None if it has none."""
    found: Iterable[AdmissionCheckState] = workload.status.admission_checks
    return next((each for each in found if is_multikueue(checks.get(each.name))), None)
