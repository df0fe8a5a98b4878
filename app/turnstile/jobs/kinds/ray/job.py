"""ray.io RayJob: suspended by `spec.suspend`, the pod sets of its RayCluster, and one for the pod that submits it.

KubeRay deletes the RayCluster of a suspended RayJob. A RayJob for an existing RayCluster (`clusterSelector`) has no
cluster of its own and is not queued; the Job that submits it is. Source: Kueue's pkg/controller/jobs/rayjob.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from turnstile.api.core import Job, Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, Object
from turnstile.api.validation.errors import FieldError, invalid, required
from turnstile.jobs.bases.templated import Template
from turnstile.jobs.capabilities import Exceptions, Importable
from turnstile.jobs.integration import Change, Outcome, Right
from turnstile.jobs.kinds.ray import pods as ray_pods
from turnstile.jobs.kinds.ray.base import HEAD, OPERATOR, RAY, ClusterSpec, WorkerGroup
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.kinds.ray.owner import RayOwner
from turnstile.jobs.podsets import PodSetInfo
from turnstile.jobs.remote import RemoteCopies

SUBMITTER: Final = "submitter"
"""Name of the pod set of the pod that submits the RayJob."""
_ENDED: Final = frozenset(("Complete", "Failed"))
_REFUSED: Final = "ValidationFailed"
_IDLE: Final = frozenset(("", "Suspended", _REFUSED))
"""KubeRay's report on a RayJob for which it makes nothing."""
_NO_SPEC: Final = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"


_SUBMITTING: Final = ("Running", "Waiting")
"""Deployment states in which KubeRay has found all pods of the RayCluster running."""


class _Spec(Object):
    suspend: bool | None = None
    managed_by: str | None = None
    shutdown_after_job_finishes: bool | None = None
    submission_mode: str = ""
    cluster_selector: dict[str, str] = {}
    ray_cluster_spec: ClusterSpec | None = None
    submitter_pod_template: msgspec.Raw = msgspec.Raw(b"null")


class _ClusterStatus(Object):
    state: str = ""


class _Status(Object):
    job_status: str = ""
    job_deployment_status: str = ""
    message: str = ""
    ray_cluster_name: str = ""
    ray_cluster_status: _ClusterStatus = msgspec.field(default_factory=_ClusterStatus)


class RayJob(Kind):
    """The fields of a RayJob that are read."""

    GROUP: ClassVar = RAY
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "RayJob"
    PLURAL: ClassVar = "rayjobs"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class RayJobs(RayOwner[RayJob], Exceptions[RayJob], Importable[RayJob]):
    """Kueue's `ray.io/rayjob`."""

    kind = RayJob
    framework = "ray.io/rayjob"
    summary = "suspended; a pod set for the head, for each worker group and for the submitter"
    makes = frozenset({(RAY, "RayCluster"), ("batch", "Job")})
    copies = RemoteCopies[RayJob](lambda job: job.spec.managed_by, native=OPERATOR)
    rights = (Right("rayjobs/status", ("patch",)),)  # of a copy on another cluster
    cluster_path = ("spec", "rayClusterSpec")
    cluster_field = "spec.rayClusterSpec"

    def cluster(self, job: RayJob) -> ClusterSpec | None:
        """`spec.rayClusterSpec`; None for a RayJob that uses an existing cluster. Raises PermanentError if it has
        neither."""
        if job.spec.ray_cluster_spec is None and not job.spec.cluster_selector:
            raise PermanentError(f"spec.rayClusterSpec: Required value: {_NO_SPEC}")
        return None if job.spec.cluster_selector else job.spec.ray_cluster_spec

    def cluster_name(self, job: RayJob) -> str:
        """`status.rayClusterName`."""
        return job.status.ray_cluster_name

    def with_sizes(self, job: RayJob, groups: Mapping[str, WorkerGroup]) -> RayJob:
        """The RayJob with other sizes in `spec.rayClusterSpec`."""
        spec = job.spec.ray_cluster_spec
        if spec is None:
            return job
        found = [each.sized(groups.get(each.group_name)) for each in spec.worker_group_specs]
        return replace(job, spec=replace(job.spec, ray_cluster_spec=replace(spec, worker_group_specs=found)))

    def added_to_head(self, job: RayJob, spec: ClusterSpec) -> list[dict[str, Any]]:
        """Those of all Ray kinds, and the submitter of a RayJob in SidecarMode."""
        added = super().added_to_head(job, spec)
        if job.spec.submission_mode == "SidecarMode":
            added.append(ray_pods.submitter(spec.head_group_spec.template))
        return added

    def templates(self, job: RayJob) -> list[Template]:
        """Those of the RayCluster, then the submitter's in K8sJobMode; a start writes that of KubeRay if the user gave
        none."""
        found = super().templates(job)
        if found and job.spec.submission_mode == "K8sJobMode":
            raw = job.spec.submitter_pod_template
            absent = bytes(raw) == b"null"
            if absent:
                raw = msgspec.Raw(ray_pods.submitter_template(found[0].raw))
            found.append(Template(SUBMITTER, 1, raw, ("spec", "submitterPodTemplate"), absent=absent))
        return found

    def readable_templates(self, job: RayJob) -> list[Template]:
        """None for a RayJob without a RayCluster."""
        return [] if job.spec.ray_cluster_spec is None else self.templates(job)

    def pod_sets_of(self, child: Kind) -> Sequence[str]:
        """The pod sets of its RayCluster, or the submitter's."""
        if isinstance(child, RayCluster):
            return (HEAD, *(each.group_name.lower() for each in child.spec.worker_group_specs))
        return (SUBMITTER,) if isinstance(child, Job) else ()

    def pod_set_of(self, pod: Pod, child: Kind) -> str:
        """The pod set that KubeRay names in the labels of a pod, or the submitter's."""
        return ray_pods.pod_set(pod.metadata.labels) if isinstance(child, RayCluster) else SUBMITTER

    def mark_running(self, job: RayJob, infos: Sequence[PodSetInfo]) -> Change | None:
        """Add the admission to the templates: KubeRay makes another RayCluster from them when it retries the RayJob."""
        return self.marked(job, infos)

    def held(self, job: RayJob) -> bool:
        """Whether it is suspended, or uses an existing cluster: KubeRay refuses to suspend such a RayJob."""
        return self.suspended(job) or bool(job.spec.cluster_selector and job.spec.ray_cluster_spec is None)

    def skip(self, job: RayJob) -> str:
        """A RayJob that uses an existing cluster has no pods of its own."""
        return "it uses an existing RayCluster" if job.spec.cluster_selector else ""

    def lends_queue(self, job: RayJob) -> bool:
        """One that uses an existing cluster: the Job that submits it in K8sJobMode needs quota."""
        return bool(job.spec.cluster_selector)

    def create_errors(self, job: RayJob) -> list[FieldError]:
        """Errors of where it runs, then those of its RayCluster."""
        spec, selector = job.spec, job.spec.cluster_selector
        if selector and spec.ray_cluster_spec is not None:
            detail = "a kueue managed job should not use an existing cluster"
            return [invalid("spec.clusterSelector", dict(selector), detail)]
        if selector:
            return []
        if spec.ray_cluster_spec is None:
            return [required("spec.rayClusterSpec", _NO_SPEC)]
        errors: list[FieldError] = []
        if not spec.shutdown_after_job_finishes:
            detail = "a kueue managed job should delete the cluster after finishing"
            errors.append(invalid("spec.shutdownAfterJobFinishes", False, detail))
        return errors + super().create_errors(job)

    def active(self, job: RayJob) -> bool:
        """Whether KubeRay has not deleted the RayCluster; one that is left reports itself."""
        return job.status.job_deployment_status not in _IDLE

    def on_hold(self, job: RayJob) -> bool:
        """Whether KubeRay refuses to run it."""
        return job.status.job_deployment_status == _REFUSED

    def finished(self, job: RayJob) -> Outcome | None:
        """The outcome that KubeRay reports at the end."""
        if job.status.job_deployment_status not in _ENDED:
            return None
        return Outcome(success=job.status.job_status == "SUCCEEDED", message=job.status.message)

    def pods_ready(self, job: RayJob) -> bool:
        """Whether its RayCluster has, or has had, the state `ready`.

        KubeRay begins to submit the job in that state, but copies the state only once the head reports about the job,
        which may take long; of a job that a user submits it never does before that. Kueue reads the copy.
        """
        status = job.status
        return status.ray_cluster_status.state == "ready" or status.job_deployment_status in _SUBMITTING

    def significant(self, job: RayJob) -> tuple[object, ...]:
        """The spec, the name of its RayCluster, the outcome, whether pods are active, and whether KubeRay refuses to
        run it."""
        return job.spec, self.cluster_name(job), self.finished(job), self.active(job), self.on_hold(job)
