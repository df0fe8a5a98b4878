"""tekton.dev PipelineRun: pending until admitted; its Workload reserves what its tasks need at a time.

One Workload a run. It is computed from the pipeline that is embedded in the run (`tasks`), or is what
the annotations `kueue.konflux-ci.dev/requests-<resource>` ask for, which users of tekton-kueue know. The pod set `main`
has all requests; `parallel` has none, and counts the further pods that run at a time, for queues with quota of `pods`.

The run waits with `spec.status: PipelineRunPending`, of which Tekton takes nothing into account until it is removed.
Its spec cannot be changed otherwise, so an admission is not written into it. Instead each pod of the run is gated
(Tekton copies the annotation that does it from the run to TaskRuns and pods) and started by the reconcile of the run,
the oldest first, as long as all pods that run request at most what is reserved (`pods_label`,
`turnstile.controllers.jobs.shared`). So more parallel tasks than were counted, retries, a TaskRun made by hand with the
labels of the run, or sidecars that were injected wait: quota is never exceeded, however wrong the computed needs are. A
pod that requests more than the whole run has reserved, such as that of a task by reference, is queued by itself.

A run cannot become pending again. To stop it is to cancel it, with its `finally` tasks, which run within what is
reserved; the run then has failed, and is not queued again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
import orjson

from turnstile.api import names
from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.meta import Kind, Object, tolerating_nulls
from turnstile.api.patch import JsonPatch
from turnstile.api.quantity import to_int
from turnstile.api.validation.errors import IMMUTABLE, FieldError, invalid
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition
from turnstile.jobs.integration import Asked, Change, Handling, Integration, Outcome, Stop
from turnstile.jobs.kinds.pipelinerun.tasks import Need, TaskOverrides, need_of
from turnstile.jobs.podsets import JobPodSet, PodSetInfo

PENDING: Final = "PipelineRunPending"
CANCELLED: Final = "CancelledRunFinally"
ENDING: Final = frozenset(("Cancelled", CANCELLED))
REQUESTS: Final = "kueue.konflux-ci.dev/requests-"
"""Prefix of the annotations that say what a run needs."""
PARALLEL: Final = "parallel"

_PODS: Final = "pods"
_PLACEMENT: Final = ("nodeSelector", "tolerations", "affinity", "runtimeClassName", "priorityClassName")
_ASSISTANT: Final = {"cpu": 50, "memory": 100 << 20}
"""Requests of Tekton's affinity assistant, a pod for each workspace with a volume."""


class _Template(Object):
    pod_template: dict[str, Any] = {}


class _Workspace(Object):
    persistent_volume_claim: dict[str, Any] | None = None
    volume_claim_template: dict[str, Any] | None = None


class _Spec(Object):
    status: str = ""
    pipeline_spec: msgspec.Raw = msgspec.Raw(b"null")
    task_run_specs: msgspec.Raw = msgspec.Raw(b"[]")
    task_run_template: msgspec.Raw = msgspec.Raw(b"{}")
    workspaces: msgspec.Raw = msgspec.Raw(b"[]")


class _Status(Object):
    conditions: list[JobCondition] = []
    start_time: str | None = None


class PipelineRun(Kind):
    """The fields of a PipelineRun that are read."""

    GROUP: ClassVar = "tekton.dev"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "PipelineRun"
    PLURAL: ClassVar = "pipelineruns"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_overrides: Final[Callable[[msgspec.Raw], list[TaskOverrides]]] = tolerating_nulls(
    msgspec.json.Decoder(list[TaskOverrides]).decode
)
_template: Final[Callable[[msgspec.Raw], _Template]] = tolerating_nulls(msgspec.json.Decoder(_Template).decode)
_workspaces: Final[Callable[[msgspec.Raw], list[_Workspace]]] = tolerating_nulls(
    msgspec.json.Decoder(list[_Workspace]).decode
)


class PipelineRuns(Integration[PipelineRun]):
    """`tekton.dev/pipelinerun`."""

    kind = PipelineRun
    framework = "tekton.dev/pipelinerun"
    summary = "pending; its pods gated, and started within what the run has reserved"
    needs = ("pod",)
    pods_label = "tekton.dev/pipelineRun"
    handling = Handling(top_level=True, keeps_reassignment=False, takes_prebuilt=False)
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})

    def suspended(self, job: PipelineRun) -> bool:
        """Whether the run is pending."""
        return job.spec.status == PENDING

    def held(self, job: PipelineRun) -> bool:
        """Whether the run is pending and will have its pods gated."""
        return self.suspended(job) and names.POD_SUSPENDING_PARENT in job.metadata.annotations

    def hold(self, job: PipelineRun, patch: JsonPatch) -> None:
        """Make the run pending, and add the annotation that gets its pods gated."""
        annotations = job.metadata.annotations
        if names.POD_SUSPENDING_PARENT not in annotations:
            key = names.POD_SUSPENDING_PARENT
            patch.put(annotations, "metadata", "annotations", key=key, value=self.framework)
        if not self.suspended(job):
            patch.add("spec", "status", value=PENDING)

    def create_errors(self, job: PipelineRun) -> list[FieldError]:
        """Errors of the annotations that say what the run needs."""
        errors: list[FieldError] = []
        for key, value in _asked_for(job).items():
            try:
                to_int(key.removeprefix(REQUESTS), value)
            except InvalidValue as error:
                errors.append(invalid(f"metadata.annotations[{key}]", value, error.cure))
        return errors

    def update_errors(self, old: PipelineRun, new: PipelineRun) -> list[FieldError]:
        """Once the run has started, what it needs and how its pods are held must not change."""
        errors = super().update_errors(old, new)
        if self.suspended(new):
            return errors
        before, after = old.metadata.annotations, new.metadata.annotations
        for key in sorted({*_asked_for(old), *_asked_for(new), names.POD_SUSPENDING_PARENT}):
            if before.get(key) != after.get(key) and (key in before or key.startswith(REQUESTS)):
                errors.append(invalid(f"metadata.annotations[{key}]", after.get(key, ""), IMMUTABLE))
        return errors

    def active(self, job: PipelineRun) -> bool:
        """Whether the run has begun, and has not ended: tasks may begin until then."""
        return bool(job.status.start_time) and self.finished(job) is None

    def finished(self, job: PipelineRun) -> Outcome | None:
        """The outcome that the condition Succeeded reports."""
        for condition in job.status.conditions:
            if condition.type == "Succeeded" and condition.status in ("True", "False"):
                return Outcome(success=condition.status == "True", message=condition.message)
        return None

    def pod_sets(self, job: PipelineRun) -> list[JobPodSet]:
        """One pod with all requests, and the further pods that run at a time."""
        need, placement = _need(job), _placement(job)
        main = JobPodSet(name=names.DEFAULT_PODSET, count=1, template=_pod(need.requests, placement))
        if need.pods < 2:
            return [main]
        nothing = dict.fromkeys(need.requests, "0")
        return [main, JobPodSet(name=PARALLEL, count=need.pods - 1, template=_pod(nothing, placement))]

    def start(self, job: PipelineRun, infos: Sequence[PodSetInfo]) -> Change:
        """Let Tekton begin. The assignment of the admission is added to each pod when that pod is started."""
        return Change({"spec": {"status": None}}, fresh=True)

    def stop(
        self, job: PipelineRun, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime
    ) -> Stop:
        """Cancel the run; `finally` tasks still run. Complete once the run has ended."""
        if self.suspended(job) or self.finished(job) is not None:
            return Stop()
        if job.spec.status in ENDING:
            return Stop(complete=not self.active(job))
        return Stop([Change({"spec": {"status": CANCELLED}}, fresh=True)], announce=True, complete=False)

    def pods_ready(self, job: PipelineRun) -> bool:
        """Whether Tekton has begun: pods come and go with the tasks."""
        return bool(job.status.start_time)

    def significant(self, job: PipelineRun) -> tuple[object, ...]:
        """The spec, the outcome, and whether the run has begun."""
        return job.spec, self.finished(job), self.active(job)


def _asked_for(job: PipelineRun) -> dict[str, str]:
    """The annotations that say what a run needs."""
    return {key: value for key, value in job.metadata.annotations.items() if key.startswith(REQUESTS)}


def _need(job: PipelineRun) -> Need:
    """The need of a run at a time: by its annotations, or else by its tasks. Raises PermanentError."""
    try:
        if asked := {key.removeprefix(REQUESTS): value for key, value in _asked_for(job).items()}:
            amounts = {name: to_int(name, value) for name, value in asked.items()}
            return Need(amounts, max(amounts.pop(_PODS, 1), 1))
        need = need_of(job.spec.pipeline_spec, _overrides(job.spec.task_run_specs))
        assistants = sum(
            each.persistent_volume_claim is not None or each.volume_claim_template is not None
            for each in _workspaces(job.spec.workspaces)
        )
    except InvalidValue as error:
        raise PermanentError(str(error)) from None
    except msgspec.ValidationError:
        return Need({}, 1)  # Tekton, which knows the types, refuses such a run
    amounts = dict(need.amounts)
    for name, amount in _ASSISTANT.items():
        amounts[name] = amounts.get(name, 0) + amount * assistants
    return Need(amounts, max(need.pods + assistants, 1))


def _placement(job: PipelineRun) -> dict[str, Any]:
    """Demands of the run on the nodes of its pods."""
    try:
        found = _template(job.spec.task_run_template).pod_template
    except msgspec.ValidationError:
        return {}
    return {key: found[key] for key in _PLACEMENT if found.get(key) is not None}


def _pod(requests: dict[str, str], placement: dict[str, Any]) -> bytes:
    """The pod template of a pod set."""
    container = {"name": "tasks", "resources": {"requests": requests} if requests else {}}
    return orjson.dumps({"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container], **placement}})
