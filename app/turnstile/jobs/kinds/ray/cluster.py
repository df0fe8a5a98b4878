"""ray.io RayCluster: suspended by `spec.suspend`, a pod set for its head and for each worker group.

A RayCluster that a RayJob or RayService makes follows that object. Source: Kueue's pkg/controller/jobs/raycluster.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, Object
from turnstile.api.patch import JsonPatch
from turnstile.api.validation.errors import FieldError, forbidden
from turnstile.jobs.bases.templated import JobCondition
from turnstile.jobs.capabilities import Additions, Exceptions, Importable
from turnstile.jobs.integration import Change, Handling, Outcome, Right
from turnstile.jobs.kinds.ray.base import OPERATOR, RAY, ClusterSpec, RayKind, is_fault_tolerant
from turnstile.jobs.kinds.ray.pods import FIXED, GROUP, NODE_TYPE
from turnstile.jobs.labels import is_elastic
from turnstile.jobs.naming import group_of
from turnstile.jobs.podsets import PodSetInfo, differ_in_counts
from turnstile.jobs.remote import RemoteCopies

_READY: Final = "ready"
_SUSPENDED: Final = "suspended"
_RECREATE: Final = "Recreate"
_PODS_FIRST: Final = "foregroundDeletion"
"""The garbage collector's finalizer of an object that goes when what it owns is gone."""
_CLEANS_REDIS: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"


class _Status(Object):
    state: str = ""
    conditions: list[JobCondition] = []


class RayCluster(Kind):
    """The fields of a RayCluster that are read."""

    GROUP: ClassVar = RAY
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "RayCluster"
    PLURAL: ClassVar = "rayclusters"
    NAMESPACED: ClassVar = True

    spec: ClusterSpec = msgspec.field(default_factory=ClusterSpec)
    status: _Status = msgspec.field(default_factory=_Status)


class RayClusters(RayKind[RayCluster], Additions[RayCluster], Exceptions[RayCluster], Importable[RayCluster]):
    """Kueue's `ray.io/raycluster`."""

    kind = RayCluster
    framework = "ray.io/raycluster"
    summary = "suspended; a pod set for the head and for each worker group"
    added = FIXED
    pod_marks = (NODE_TYPE, GROUP)
    handling = Handling(serves=True)
    makes = frozenset({("", "Pod"), ("batch", "Job")})
    copies = RemoteCopies[RayCluster](lambda job: job.spec.managed_by, native=OPERATOR)
    rights = (Right("rayclusters/status", ("patch",)),)  # of a copy on another cluster
    inelastic = (
        "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
        f'ElasticJobsViaWorkloadSlices feature gate and set the "{names.ELASTIC_JOB}": "true" annotation'
    )

    def cluster(self, job: RayCluster) -> ClusterSpec:
        """`spec`."""
        return job.spec

    def cluster_errors(self, job: RayCluster, spec: ClusterSpec) -> list[FieldError]:
        """Those of all Ray kinds; no other cluster runs a RayCluster that scales itself."""
        errors = super().cluster_errors(job, spec)
        if spec.autoscaling and is_elastic(job.metadata) and spec.managed_by == names.MULTIKUEUE_CONTROLLER:
            detail = "in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster"
            errors.append(forbidden("spec.enableInTreeAutoscaling", detail))
        return errors

    def defaults(self, job: RayCluster, patch: JsonPatch) -> None:
        """Have the RayCluster of an admitted RayJob deleted after its pods.

        KubeRay retries a RayJob when the RayCluster object is gone, and would run the pods of two. A RayCluster that
        cleans up Redis stays until its pods are gone in any case, and its cleanup Job must not be deleted with them.
        """
        owner, finalizers = job.metadata.controller, job.metadata.finalizers
        if owner is None or (group_of(owner), owner.kind) != (RAY, "RayJob") or not self.carries_admission(job):
            return
        if _PODS_FIRST in finalizers or is_fault_tolerant(job, job.spec):
            return
        patch.add("metadata", "finalizers", value=[*finalizers, _PODS_FIRST])

    def mark_running(self, job: RayCluster, infos: Sequence[PodSetInfo]) -> Change | None:
        """Add the admission to the templates. KubeRay makes later pods of them, and keeps the pods that run, unless
        `upgradeStrategy` says that all pods are made anew when the spec changes."""
        strategy = job.spec.upgrade_strategy
        if strategy is not None and strategy.type == _RECREATE:
            raise PermanentError("upgradeStrategy: KubeRay makes all pods anew when the templates change")
        return self.marked(job, infos)

    def update_errors(self, old: RayCluster, new: RayCluster) -> list[FieldError]:
        """Requests of a running RayCluster must not change if the Workload of its owner is charged for it; numbers of
        pods may where gates hold those that are not charged."""
        errors = super().update_errors(old, new)
        owner = new.metadata.controller
        if owner is None or self.suspended(old) or self.suspended(new) or not self.carries_admission(old):
            return errors
        before, after = self.pod_sets(old), self.pod_sets(new)
        if before != after and not (self.is_growth_gated(new) and differ_in_counts(before, after)):
            errors.append(forbidden("spec", f"{owner.kind} {owner.name} is charged for its pods: change that object"))
        return errors

    def active(self, job: RayCluster) -> bool:
        """Whether KubeRay has not reported that all pods are gone.

        KubeRay makes no pod between that report and the report that it resumes the cluster. A cluster that was created
        suspended, and not changed since, has never had a pod.
        """
        if self.suspended(job) and job.metadata.generation <= 1:
            return False
        for condition in job.status.conditions:
            if condition.type == "RayClusterSuspended":
                return condition.status != "True"
        return job.status.state != _SUSPENDED

    def finished(self, job: RayCluster) -> Outcome | None:
        """Always None: a RayCluster runs until it is deleted."""
        return None

    def winds_down(self, job: RayCluster) -> bool:
        """Whether a Job that cleans up Redis is still to run."""
        return _CLEANS_REDIS in job.metadata.finalizers

    def pods_ready(self, job: RayCluster) -> bool:
        """Whether KubeRay reports the state `ready`."""
        return job.status.state == _READY

    def significant(self, job: RayCluster) -> tuple[object, ...]:
        """The spec, and whether pods are active."""
        return job.spec, self.active(job)
