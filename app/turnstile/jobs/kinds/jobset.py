"""jobset.x-k8s.io JobSet: suspended by `spec.suspend`, a pod set for each replicated Job.

The JobSet controller copies the scheduling directives to the child Jobs before it resumes them. Source: Kueue's
pkg/controller/jobs/jobset.

The JobSet controller may have read a JobSet before it was suspended, and makes or resumes child Jobs until it reads the
JobSet again, seconds later if it was away. So the quota of a stopped JobSet is kept until the JobSet controller has set
the condition `Suspended`, and no child Job runs. Kueue does not wait, and exceeds the quota then.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Final

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition, Template, TemplatedJob, acknowledged_anew, suspended_at
from turnstile.jobs.capabilities import AcknowledgedStops, AwaitedChildren, Elastic, Importable, Reclaim
from turnstile.jobs.integration import Asked, Right, Stop
from turnstile.jobs.remote import RemoteCopies
from turnstile.jobs.topologyrequest import COMPLETION_INDEX, PodIndex

_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
_RESTARTS_ALWAYS: Final = "RestartJobSetAndIgnoreMaxRestarts"


class _JobSpec(Object):
    parallelism: int | None = None
    completions: int | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _JobTemplate(Object):
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _Dependency(Object):
    name: str = ""
    status: str = ""


class _ReplicatedJob(Object):
    name: str = ""
    replicas: int = 1
    depends_on: list[_Dependency] = []
    template: _JobTemplate = msgspec.field(default_factory=_JobTemplate)

    @property
    def pods_each(self) -> int:
        """Number of pods of one replica that run at a time."""
        spec = self.template.spec
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        return parallelism if spec.completions is None else min(parallelism, spec.completions)


class _FailureRule(Object):
    action: str = ""


class _FailurePolicy(Object):
    max_restarts: int = 0
    rules: list[_FailureRule] = []


class _Spec(Object):
    suspend: bool | None = None
    managed_by: str | None = None
    replicated_jobs: list[_ReplicatedJob] = []
    failure_policy: _FailurePolicy | None = None


class _ReplicatedJobStatus(Object):
    name: str = ""
    ready: int = 0
    succeeded: int = 0
    active: int = 0

    @property
    def up(self) -> int:
        """Replicas whose pods are all ready or have succeeded."""
        return self.ready + self.succeeded


class _Status(Object):
    conditions: list[JobCondition] = []
    replicated_jobs_status: list[_ReplicatedJobStatus] = []


class JobSet(Kind):
    """The fields of a JobSet that are read."""

    GROUP: ClassVar = "jobset.x-k8s.io"
    VERSION: ClassVar = "v1alpha2"
    KIND: ClassVar = "JobSet"
    PLURAL: ClassVar = "jobsets"
    NAMESPACED: ClassVar = True
    HAS_TEMPLATES: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class JobSets(
    TemplatedJob[JobSet],
    AcknowledgedStops[JobSet],
    AwaitedChildren[JobSet],
    Elastic[JobSet],
    Importable[JobSet],
    Reclaim[JobSet],
):
    """Kueue's `jobset.x-k8s.io/jobset`."""

    kind = JobSet
    framework = "jobset.x-k8s.io/jobset"
    summary = "suspended; a pod set for each replicated Job"
    grows = True
    makes = frozenset({("batch", "Job")})
    rights = (Right("jobsets/status", ("patch",)),)  # a stop resets a condition, for an acknowledgement
    copies = RemoteCopies[JobSet](lambda job: job.spec.managed_by, native=_CONTROLLER)
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})

    def templates(self, job: JobSet) -> list[Template]:
        """One template for each replicated Job."""
        return [
            Template(
                each.name,
                each.replicas * each.pods_each,
                each.template.spec.template,
                ("spec", "replicatedJobs", index, "template", "spec", "template"),
                index=PodIndex(COMPLETION_INDEX, _JOB_INDEX, each.replicas),
            )
            for index, each in enumerate(job.spec.replicated_jobs)
        ]

    def pod_sets_of(self, child: Kind) -> Sequence[str]:
        """The replicated Job that the JobSet controller names in a label of each Job. The templates of a JobSet cannot
        change while it runs, so the Jobs of an imported one never name a pod set themselves."""
        name = child.metadata.labels.get(_REPLICATED_JOB, "").lower()
        return (name,) if name else ()

    def active(self, job: JobSet) -> bool:
        """Whether any child Job is active."""
        return any(each.active > 0 for each in job.status.replicated_jobs_status)

    def stop(self, job: JobSet, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Suspend and restore in one patch, after one of the status if the condition Suspended is True still.

        It is True until the JobSet controller has resumed every child Job. It is set to False first, so that the JobSet
        controller sets it to True again when it has read that the JobSet is suspended.
        """
        stop = super().stop(job, pod_sets, reason=reason, message=message, now=now)
        if not stop.announce:
            return stop
        if (index := suspended_at(job.status.conditions)) is None:
            return replace(stop, complete=False)
        return acknowledged_anew(stop, JsonPatch().replace("status", "conditions", index, "status", value="False"))

    def acknowledged(self, job: JobSet) -> bool:
        """Whether the condition Suspended is True, or another controller manages the JobSet, which may not set it."""
        return suspended_at(job.status.conditions) is not None or job.spec.managed_by not in (None, _CONTROLLER)

    def pods_ready(self, job: JobSet) -> bool:
        """Whether every replica is ready or has succeeded, of the replicated Jobs that need not wait until another one
        is complete: the JobSet controller has made no pods of those yet. Kueue waits for them too."""
        status = {each.name: each for each in job.status.replicated_jobs_status}
        wanted = {each.name: each.replicas for each in job.spec.replicated_jobs}

        def succeeded(name: str) -> int:
            return status[name].succeeded if name in status else 0

        def waits(each: _ReplicatedJob) -> bool:
            return any(
                on.status == "Complete" and succeeded(on.name) < wanted.get(on.name, 0) for on in each.depends_on
            )

        return all(
            waits(each) or (each.name in status and status[each.name].up >= each.replicas) or not each.replicas
            for each in job.spec.replicated_jobs
        )

    def reclaimable(self, job: JobSet) -> dict[str, int]:
        """The pods of replicas that have succeeded, unless the JobSet may restart: a restart makes all replicas again.
        Kueue releases their quota in any case, so that after a restart more pods run than are charged."""
        if _restarts(job):
            return {}
        pods = {each.name: each.pods_each for each in job.spec.replicated_jobs}
        return {
            each.name.lower(): each.succeeded * pods[each.name]
            for each in job.status.replicated_jobs_status
            if each.succeeded > 0 and each.name in pods
        }

    def significant(self, job: JobSet) -> tuple[object, ...]:
        """The spec, the outcome, whether pods are active, the reclaimable pods, and whether a stop was read."""
        spec, outcome, active = job.spec, self.finished(job), self.active(job)
        return spec, outcome, active, self.reclaimable(job), suspended_at(job.status.conditions)


def _restarts(job: JobSet) -> bool:
    """Whether the failure of a replica may have all replicas made again, by the failure policy, which is immutable.
    Also if no restart is left: right after the last restart the counts are those of the run before."""
    policy = job.spec.failure_policy
    return policy is not None and (
        policy.max_restarts > 0 or any(rule.action == _RESTARTS_ALWAYS for rule in policy.rules)
    )
