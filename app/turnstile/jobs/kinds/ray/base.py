"""Ray kinds: KubeRay makes one head pod, and the pods of each worker group, from the spec of a RayCluster.

RayCluster, RayJob and RayService differ in where that spec is, and in how they end. A change of what a running job asks
for would have KubeRay make pods before the reconciler has stopped the job, so the webhook suspends the job in the same
write. Must never write counts: a start and a stop change templates only. Source: Kueue's pkg/controller/jobs/
raycluster.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.api.validation.errors import FieldError, forbidden, invalid, too_many
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import Template, TemplatedJob, holds_growth
from turnstile.jobs.capabilities import Elastic
from turnstile.jobs.integration import Asked, Claim
from turnstile.jobs.kinds.ray import pods as ray_pods
from turnstile.jobs.labels import is_elastic
from turnstile.jobs.podsets import JobPodSet

J = TypeVar("J", bound=Kind)

OPERATOR: Final = "ray.io/kuberay-operator"
"""The `managedBy` of KubeRay."""
RAY: Final = "ray.io"
HEAD: Final = "head"
"""Name of the head's pod set; no worker group may have it."""
MAX_POD_SETS: Final = 18
_FAULT_TOLERANT: Final = "ray.io/ft-enabled"


class _HeadGroup(Object):
    template: msgspec.Raw = msgspec.Raw(b"{}")


class WorkerGroup(Object):
    """The fields of a worker group that are read. `suspend` is not: a suspended group may be resumed at any time."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    template: msgspec.Raw = msgspec.Raw(b"{}")

    def pods(self, *, autoscaling: bool) -> int:
        """The most pods that the group may have: KubeRay raises `replicas` to `minReplicas`, the autoscaler up to
        `maxReplicas`."""
        replicas = max(1 if self.replicas is None else self.replicas, self.min_replicas or 0)
        if autoscaling:
            replicas = max(replicas, self.max_replicas or 0)
        return replicas * max(self.num_of_hosts, 1)

    def sized(self, other: "WorkerGroup | None") -> "WorkerGroup":
        """The group with the numbers of pods of another one."""
        if other is None:
            return self
        sizes = {"replicas": other.replicas, "min_replicas": other.min_replicas, "num_of_hosts": other.num_of_hosts}
        return msgspec.structs.replace(self, **sizes)


class _AutoscalerOptions(Object):
    resources: dict[str, Any] | None = None


class _UpgradeStrategy(Object):
    type: str = ""


class ClusterSpec(Object):
    """The fields of a RayClusterSpec that are read."""

    suspend: bool | None = None
    managed_by: str | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: _AutoscalerOptions | None = None
    upgrade_strategy: _UpgradeStrategy | None = None
    gcs_fault_tolerance_options: dict[str, Any] | None = None
    head_group_spec: _HeadGroup = msgspec.field(default_factory=_HeadGroup)
    worker_group_specs: list[WorkerGroup] = []

    @property
    def autoscaling(self) -> bool:
        """Whether a container of the head pod changes the number of workers."""
        return bool(self.enable_in_tree_autoscaling)


class RayKind(TemplatedJob[J], Elastic[J]):
    """A kind with the spec of a RayCluster."""

    asked = Asked(
        defaulting={"new-or-queued": conditions.NEW_OR_QUEUED},
        defaulting_unless_all=True,
        updates=True,
        validating_queued=True,
        validating={"queued-now-or-before": conditions.QUEUED},
    )
    cluster_path: ClassVar[tuple[str, ...]] = ("spec",)
    """Where the RayCluster's spec is in the object."""
    cluster_field: ClassVar[str] = "spec"
    """The same place as Kueue's messages spell it."""
    grows: ClassVar[bool] = True
    inelastic: ClassVar[str] = "a kueue managed job should only use autoscaling when workload slicing is enabled"
    """Why a job that is not elastic may not scale itself."""

    @abstractmethod
    def cluster(self, job: J) -> ClusterSpec | None:
        """The spec of the RayCluster; None if the object has none."""

    def added_to_head(self, job: J, spec: ClusterSpec) -> list[dict[str, Any]]:
        """The containers that KubeRay adds to the head pod."""
        options = spec.autoscaler_options
        return [ray_pods.autoscaler(options.resources if options is not None else None)] if spec.autoscaling else []

    def templates(self, job: J) -> list[Template]:
        """The head's template, then one for each worker group."""
        spec = self.cluster(job)
        if spec is None:
            return []
        groups = enumerate(spec.worker_group_specs)
        return [
            Template(HEAD, 1, spec.head_group_spec.template, (*self.cluster_path, "headGroupSpec", "template")),
            *(
                Template(
                    group.group_name,
                    group.pods(autoscaling=spec.autoscaling and not _grows_by_gates(spec)),
                    group.template,
                    (*self.cluster_path, "workerGroupSpecs", index, "template"),
                )
                for index, group in groups
            ),
        ]

    def elastic_templates(self, job: J) -> list[Template]:
        """Those of the RayCluster."""
        depth = len(self.cluster_path)
        return [each for each in super().elastic_templates(job) if each.path[:depth] == self.cluster_path]

    def pod_sets(self, job: J) -> list[JobPodSet]:
        """A pod set for each template, with what KubeRay adds to the pods."""
        return self._with_additions(job, together=True)

    def claims(self, job: J) -> Sequence[Claim]:
        """One for each pod set, with what KubeRay adds to the pods. A worker claims no resource that only other pods
        name: the Workload of its owner, which may be of an earlier version, need not charge it for that."""
        return [Claim.of(each.template, each.count) for each in self._with_additions(job, together=False)]

    def _with_additions(self, job: J, *, together: bool) -> list[JobPodSet]:
        """The pod sets. `together`: a worker is charged also for a resource that other pods of the job name."""
        found, spec = super().pod_sets(job), self.cluster(job)
        if spec is None:
            return found
        head, workers, others = (
            found[0],
            found[1 : len(spec.worker_group_specs) + 1],
            found[1 + len(spec.worker_group_specs) :],
        )
        head = replace(
            head,
            template=ray_pods.head_template(
                head.template, self.added_to_head(job, spec), fault_tolerant=is_fault_tolerant(job, spec)
            ),
        )
        named = [ray_pods.named_resources(each.template) for each in (head, *workers, *others)] if together else []
        beside = tuple(sorted({name for each in named for name in each}))
        workers = [replace(each, template=ray_pods.worker_template(each.template, beside)) for each in workers]
        return [head, *workers, *others]

    def outgrown(self, old: J, new: J) -> bool:
        """Whether the pod sets differ."""
        return self.pod_sets(old) != self.pod_sets(new)

    def create_errors(self, job: J) -> list[FieldError]:
        """Errors of the RayCluster's spec, then those of the templates."""
        spec = self.cluster(job)
        return ([] if spec is None else self.cluster_errors(job, spec)) + super().create_errors(job)

    def cluster_errors(self, job: J, spec: ClusterSpec) -> list[FieldError]:
        """Errors of the RayCluster's spec."""
        errors: list[FieldError] = []
        autoscaling, groups = f"{self.cluster_field}.enableInTreeAutoscaling", f"{self.cluster_field}.workerGroupSpecs"
        if spec.autoscaling and not is_elastic(job.metadata):
            errors.append(invalid(autoscaling, True, self.inelastic))
        if len(spec.worker_group_specs) >= MAX_POD_SETS:
            errors.append(too_many(groups, len(spec.worker_group_specs) + 1, MAX_POD_SETS))
        return errors + [
            forbidden(f"{groups}[{index}].groupName", f'"{HEAD}" is reserved for the head group')
            for index, each in enumerate(spec.worker_group_specs)
            if each.group_name == HEAD
        ]


def _grows_by_gates(spec: ClusterSpec) -> bool:
    """Whether gates hold the pods of a RayCluster that scales itself until there is quota for them: then it is charged
    for the pods that it has, and not for the most that it may have."""
    templates = (spec.head_group_spec.template, *(each.template for each in spec.worker_group_specs))
    return all(holds_growth(bytes(each)) for each in templates)


def is_fault_tolerant(job: Kind, spec: ClusterSpec) -> bool:
    """Whether the head keeps its state in Redis, which a Job cleans up after the cluster's deletion."""
    annotated = job.metadata.annotations.get(_FAULT_TOLERANT, "").lower() == "true"
    return annotated or spec.gcs_fault_tolerance_options is not None
