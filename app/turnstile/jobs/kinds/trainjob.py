"""trainer.kubeflow.org/v1alpha1 TrainJob: suspended by `spec.suspend`; its pod templates are in a JobSet.

A TrainJob names a runtime. Kubeflow Trainer makes a JobSet of both, under the TrainJob's name, suspended as long as the
TrainJob is; the JobSet is what is charged for. Kueue computes that JobSet itself, with Trainer's code; Turnstile reads
the one that Trainer made, so that it charges for what will run whatever the version of Trainer is. That also holds if
the runtime is changed later: a JobSet with more or larger pods than were admitted is suspended like any child
for which its owner's Workload does not charge (`controllers/jobs/children.py`).

Additions of an admission to the pods are written into the TrainJob as a runtime patch of the manager
`kueue.x-k8s.io/manager`, from which Trainer renders the JobSet again. The webhook adds an empty one; where the API
server drops it, because the Trainer is older than runtime patches, the TrainJob is not started. Trainer lets runtime
patches change only while the TrainJob is suspended and its pods are gone. A stop leaves a label and an annotation with
the name of the pod set in that patch, where Kueue leaves nothing: Trainer applies the JobSet by server-side apply,
which makes `metadata: null` of metadata that loses its last label or annotation, and the API server refuses that.
On other clusters (MultiKueue) a copy of the TrainJob runs. Kueue sets `managedBy`, and computes the pods. Trainer makes
no JobSet of a TrainJob that it leaves alone, so here the TrainJob keeps its controller and stays suspended, also if its
user has named MultiKueue. Trainer goes on writing its status, and takes out a failure: only the condition Complete
comes back from the copy.

Source: Kueue's pkg/controller/jobs/trainjob.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from turnstile.api import names
from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.meta import Kind, Object, to_plain
from turnstile.api.patch import JsonPatch
from turnstile.api.pods import PodSpec, Quantity
from turnstile.api.quantity import canonical
from turnstile.api.validation.errors import FieldError, invalid
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition, Template, TemplatedJob, annotations_of
from turnstile.jobs.capabilities import AcknowledgedStops, Additions, Importable, Reclaim, RenderedTemplates
from turnstile.jobs.integration import Asked, Change, Claim, Right, Stop
from turnstile.jobs.kinds.jobset import JobSet, JobSets
from turnstile.jobs.podsets import PodSetInfo, merge
from turnstile.jobs.remote import RemoteCopies
from turnstile.jobs.topologyrequest import topology_errors

MANAGER: Final = "kueue.x-k8s.io/manager"
_EMPTY: Final = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
_JOB_SETS: Final = JobSets()
_NO_PATCH: Final = (
    f"spec.runtimePatches has no entry of the manager {MANAGER}, which says on which nodes the pods run: this version "
    "of Kubeflow Trainer does not know runtimePatches and has to be upgraded, or the TrainJob was created while no "
    "webhook answered and has to be created again"
)
_CONTROLLER: Final = "trainer.kubeflow.org/trainjob-controller"
"""The `managedBy` of Trainer, which is its default."""
_LEAVE_OUT: Final = (
    "leave it out: Trainer has to make the JobSet here. Turnstile sends a copy to other clusters all the same, where "
    "the queue is for that"
)
_REMARK: Final = (
    f"spec.managedBy is {_CONTROLLER}, not {names.MULTIKUEUE_CONTROLLER}: a copy is sent to other clusters all the "
    "same. Leave it out of the manifest: it cannot be changed, so that another apply would be refused"
)
_CURE: Final = (
    'Adjust either the "TrainJob.spec.runtimePatches" or the "TrainingRuntime.Template" annotations for the '
    "corresponding Job"
)


class _JobSpecPatch(Object):
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _JobTemplatePatch(Object):
    spec: _JobSpecPatch | None = None


class _JobPatch(Object):
    name: str = ""
    template: _JobTemplatePatch | None = None

    @property
    def is_left(self) -> bool:
        """Whether this is what a stop leaves."""
        spec = self.template.spec if self.template is not None else None
        if spec is None:
            return False
        left: dict[str, Any] = _left(self.name)["template"]["spec"]["template"]
        return bool(_without_empty(msgspec.json.decode(spec.template)) == left)


class _JobSetSpecPatch(Object):
    replicated_jobs: list[_JobPatch] = []


class _JobSetPatch(Object):
    spec: _JobSetSpecPatch | None = None


class _RuntimeSpecPatch(Object):
    template: _JobSetPatch | None = None


class _RuntimePatch(Object):
    manager: str = ""
    training_runtime_spec: _RuntimeSpecPatch | None = None

    @property
    def jobs(self) -> list[_JobPatch]:
        """Changes of the patch in replicated Jobs."""
        runtime = self.training_runtime_spec
        spec = runtime.template.spec if runtime is not None and runtime.template is not None else None
        return spec.replicated_jobs if spec is not None else []


class _Resources(Object):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class _Trainer(Object):
    resources_per_node: _Resources | None = None


class _Spec(Object):
    suspend: bool | None = None
    managed_by: str | None = None
    trainer: _Trainer | None = None
    runtime_patches: list[_RuntimePatch] = []


class _JobStatus(Object):
    active: int = 0


class _Status(Object):
    conditions: list[JobCondition] = []
    jobs_status: list[_JobStatus] = []


class TrainJob(Kind):
    """The fields of a TrainJob that are read."""

    GROUP: ClassVar = "trainer.kubeflow.org"
    VERSION: ClassVar = "v1alpha1"
    KIND: ClassVar = "TrainJob"
    PLURAL: ClassVar = "trainjobs"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class Rendered(TrainJob):
    """A TrainJob with the JobSet that Trainer made for it."""

    job_set: JobSet = msgspec.field(default_factory=JobSet)


def _ended(job: TrainJob, status: dict[str, Any]) -> dict[str, Any] | None:
    """The condition by which a copy says that it is complete."""
    complete = [each for each in status.get("conditions") or () if each.get("type") == TrainJobs.success]
    return {"conditions": complete} if any(each.get("status") == "True" for each in complete) else None


def _misnames(job: TrainJob) -> bool:
    return job.spec.managed_by == names.MULTIKUEUE_CONTROLLER


class TrainJobs(
    TemplatedJob[TrainJob],
    AcknowledgedStops[TrainJob],
    Additions[TrainJob],
    Importable[TrainJob],
    RenderedTemplates[TrainJob],
    Reclaim[TrainJob],
):
    """Kueue's `trainer.kubeflow.org/trainjob`."""

    kind = TrainJob
    framework = "trainer.kubeflow.org/trainjob"
    summary = "suspended; a pod set for each replicated Job of the JobSet that Trainer makes"
    makes = frozenset({(JobSet.GROUP, JobSet.KIND)})
    needs = (JobSets.framework,)
    templates_in = JobSet
    success = "Complete"
    rights = (Right("trainjobs/status", ("patch",)),)  # of a copy on another cluster
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})
    copies = RemoteCopies[TrainJob](returned=_ended, reports_pods=False, misnames=_misnames, remark=_REMARK)

    def joined(self, job: TrainJob, made: Kind) -> TrainJob:
        """The TrainJob with its JobSet."""
        assert isinstance(made, JobSet)
        fields = {name: getattr(job, name) for name in TrainJob.__struct_fields__}
        return Rendered(**fields, job_set=made)

    def unread(self, job: TrainJob) -> str:
        """Whether Trainer has yet to make the JobSet, or to take an earlier admission out of it."""
        if not isinstance(job, Rendered):
            return "Trainer has not made the JobSet yet"
        if not self.carries_admission(job) and any(
            names.WORKLOAD in each.directives.annotations for each in self.templates(job)
        ):
            return "Trainer has not taken the earlier admission out of the JobSet yet"
        return ""

    def templates(self, job: TrainJob) -> list[Template]:
        """The templates of the JobSet. Raises LookupError if there is none yet."""
        if isinstance(job, Rendered):
            return _JOB_SETS.templates(job.job_set)
        raise LookupError(f"JobSet {job.metadata.key} not found")

    def claims(self, job: TrainJob) -> Sequence[Claim]:
        """One that names no pod set, since nothing is known of the pods of a TrainJob that another job makes."""
        return [Claim("", 1, PodSpec())]

    def pod_sets_of(self, child: Kind) -> Sequence[str]:
        """The pod sets of its JobSet. Trainer does not let runtime patches change while a TrainJob runs, so the JobSet
        of an imported TrainJob never names them itself."""
        return [each.as_pod_set().name for each in _JOB_SETS.templates(child)] if isinstance(child, JobSet) else ()

    def defaults(self, job: TrainJob, patch: JsonPatch) -> None:
        """Write amounts as Trainer does, and add an empty runtime patch of Turnstile's manager, which each start fills.

        Trainer's own webhook writes the amounts of each TrainJob that is changed in their canonical form, and its rule
        that they never change then refuses the change that starts a queued TrainJob.
        """
        given = job.spec.trainer.resources_per_node if job.spec.trainer is not None else None
        for field, amounts in (("limits", given.limits), ("requests", given.requests)) if given is not None else ():
            for resource, amount in amounts.items():
                with suppress(InvalidValue):  # the API server refuses it, or Trainer does
                    if (text := canonical(amount)) != amount:
                        patch.replace("spec", "trainer", "resourcesPerNode", field, resource, value=text)
        self._patch_runtime(job, patch)

    def _patch_runtime(self, job: TrainJob, patch: JsonPatch) -> None:
        if self._place(job) is not None:
            return
        if job.spec.runtime_patches:
            patch.add("spec", "runtimePatches", "-", value=_EMPTY)
        else:
            patch.add("spec", "runtimePatches", value=[_EMPTY])

    def create_errors(self, job: TrainJob) -> list[FieldError]:
        """Errors of the topology requests in runtime patches; those of the runtime are not known here. A TrainJob that
        Trainer leaves alone would wait for its JobSet for ever; in a queue for other clusters it was given back."""
        errors = list(_topology_errors(job))
        if _misnames(job):
            errors.append(invalid("spec.managedBy", job.spec.managed_by, _LEAVE_OUT))
        return errors

    def send_away(self, job: TrainJob, patch: JsonPatch) -> None:
        """Name Trainer in the place of MultiKueue: Kueue's users write that, and Kueue computes the pods itself."""
        patch.replace("spec", "managedBy", value=_CONTROLLER)

    def carries_admission(self, job: TrainJob) -> bool:
        """Whether the runtime patch of Turnstile's manager has more than what a stop leaves."""
        return any(
            patch.manager == MANAGER and any(not each.is_left for each in patch.jobs)
            for patch in job.spec.runtime_patches
        )

    def start(self, job: TrainJob, infos: Sequence[PodSetInfo]) -> Change | None:
        """Resume and fill the runtime patch, in one patch of the TrainJob.

        Trainer replaces the tolerations of a template by those of a runtime patch, so all of them are written. Raises
        PermanentError without such a patch: a Trainer that does not know runtime patches would run the pods anywhere.
        """
        if self.unread(job) or self.active(job):
            return None
        place = self._place(job)
        if place is None:
            raise PermanentError(_NO_PATCH)
        templates = self.templates(job)
        if len(infos) != len(templates):
            raise PermanentError(
                f"the JobSet has {len(templates)} pod sets, the admission {len(infos)}: delete the Workload to have it "
                "made anew"
            )
        filled = _patch_of([_given(*each) for each in zip(templates, infos, strict=True)])
        patch = JsonPatch()
        patch.replace("spec", "runtimePatches", place, value=filled)
        self._set_suspended(job, patch, value=False)
        return Change(patch, fresh=True)

    def stop(
        self, job: TrainJob, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime
    ) -> Stop:
        """Suspend; once the JobSet is suspended and has no pods, take the admission out of the runtime patch. The
        templates need not be restored: they are the runtime's."""
        if self.finished(job) is not None:
            return Stop()
        if not self.suspended(job):
            patch = JsonPatch()
            self._set_suspended(job, patch, value=True)
            self._patch_runtime(job, patch)  # which a webhook that did not answer has not added
            return Stop([Change(patch, fresh=True)], announce=True, complete=False)
        gone = not self.active(job)
        place = self._place(job)
        if place is None or not (gone and self.carries_admission(job)):
            return Stop(complete=gone)
        left = _patch_of([_left(each.name) for each in job.spec.runtime_patches[place].jobs])
        return Stop([Change(JsonPatch().replace("spec", "runtimePatches", place, value=left), fresh=True)])

    def active(self, job: TrainJob) -> bool:
        """Whether Trainer counts active Jobs, or the JobSet is not suspended or counts some."""
        if any(each.active > 0 for each in job.status.jobs_status):
            return True
        if not isinstance(job, Rendered):
            return False
        return not _JOB_SETS.suspended(job.job_set) or _JOB_SETS.active(job.job_set)

    def acknowledged(self, job: TrainJob) -> bool:
        """Whether the JobSet controller has read that the JobSet is suspended."""
        return not isinstance(job, Rendered) or _JOB_SETS.acknowledged(job.job_set)

    def pods_ready(self, job: TrainJob) -> bool:
        """Whether every replica of the JobSet is ready or has succeeded."""
        return isinstance(job, Rendered) and _JOB_SETS.pods_ready(job.job_set)

    def reclaimable(self, job: TrainJob) -> dict[str, int]:
        """The pods of replicas that have succeeded."""
        return _JOB_SETS.reclaimable(job.job_set) if isinstance(job, Rendered) else {}

    def significant(self, job: TrainJob) -> tuple[object, ...]:
        """The spec, the outcome, and whether Jobs are active; changes of the JobSet count by its own rules."""
        return job.spec, self.finished(job), self.active(job)

    def _place(self, job: TrainJob) -> int | None:
        """Index of the runtime patch of Turnstile's manager."""
        managers = [patch.manager for patch in job.spec.runtime_patches]
        return managers.index(MANAGER) if MANAGER in managers else None


def _given(template: Template, info: PodSetInfo) -> dict[str, Any]:
    """Additions of an admission to a replicated Job. Raises PermanentError if the template wants something else."""
    merged = merge(template.directives, info)
    metadata = {"annotations": dict(info.annotations), "labels": dict(info.labels)}
    spec: dict[str, Any] = {
        "nodeSelector": dict(info.node_selector),
        "tolerations": [to_plain(each) for each in merged.tolerations] if info.tolerations else [],
        "schedulingGates": [{"name": gate} for gate in info.scheduling_gates],
    }
    return _of_pods(template.pod_set, {"metadata": _without_empty(metadata), "spec": _without_empty(spec)})


def _left(name: str) -> dict[str, Any]:
    """The rest of the patch after a stop."""
    mark = {names.PODSET_LABEL: name.lower()}
    return _of_pods(name, {"metadata": {"annotations": mark, "labels": mark}})


def _of_pods(name: str, template: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "template": {"spec": {"template": template}}}


def _patch_of(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _without_empty(value: Any) -> Any:
    """A plain value without members that are empty: the API server may add `metadata: {}` or `spec: {}`."""
    if not isinstance(value, dict):
        return value
    parts = {name: _without_empty(part) for name, part in value.items()}
    return {name: part for name, part in parts.items() if part not in ({}, [], None, "")}


def _topology_errors(job: TrainJob) -> Iterator[FieldError]:
    requests: dict[str, dict[str, str]] = {}
    for patch in job.spec.runtime_patches:
        for each in patch.jobs:
            if each.template is not None and each.template.spec is not None:
                requests.setdefault(each.name, {}).update(annotations_of(each.template.spec.template))
    for name, annotations in requests.items():
        for error in topology_errors(annotations, f"job[{name}].annotations"):
            yield replace(error, detail=f"{error.detail}. {_CURE}")
