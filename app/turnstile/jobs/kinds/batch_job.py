"""batch/v1 Job: suspended by `spec.suspend`, stopped in up to three writes, admitted in part if it allows that.

Kubernetes lets the scheduling directives of a Job change only while it is suspended, has no start time (KEP-2926) and,
since 1.36, no active pod (KEP-5440). So stopping is: suspend, wait for the pods to go, clear the start time, restore
the template. The annotation `kueue.x-k8s.io/stopping` marks the way between; a Job that carries it does not count as
suspended, so that the next reconcile finishes the stop. A step that has nothing to change is not written. Source:
Kueue's pkg/controller/jobs/job, which does not wait.

The Job controller replaces a pod that is being deleted at once if `podReplacementPolicy` is `TerminatingOrFailed`,
which the API server sets where a Job says nothing. More pods would run than the Job is charged for, so a queued Job,
and a Job that is made by a queued job, gets `Failed`; it stays when the Job is stopped.

The parallelism of an elastic Job may change while it runs: its pods are gated, and as many run as have quota.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from turnstile.api import names
from turnstile.api.conditions import instant, timestamp
from turnstile.api.core import Job
from turnstile.api.errors import PermanentError
from turnstile.api.gotext import parse_bool, parse_int
from turnstile.api.numbers import clamped
from turnstile.api.patch import JsonPatch
from turnstile.api.remembered import remembered
from turnstile.api.validation.errors import FieldError, brought, forbidden, invalid
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import Template, TemplatedJob, annotations_of, reserved_label_errors
from turnstile.jobs.capabilities import AcknowledgedStops, Additions, Elastic, Importable, Reclaim
from turnstile.jobs.integration import Asked, Change, Right, Step, Stop
from turnstile.jobs.labels import is_elastic
from turnstile.jobs.podsets import Directives, JobPodSet, PodSetInfo, changes, merge
from turnstile.jobs.remote import RemoteCopies
from turnstile.jobs.topologyrequest import COMPLETION_INDEX, PREFERRED, REQUIRED, PodIndex, topology_errors

MIN_PARALLELISM_PATH: Final = f"metadata.annotations[{names.JOB_MIN_PARALLELISM}]"
SYNC_PATH: Final = f"metadata.annotations[{names.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"
INDEX: Final = PodIndex(COMPLETION_INDEX)
FAILED: Final = "Failed"
"""The `podReplacementPolicy` by which a pod is replaced when it has ended."""
_TEMPLATE_ANNOTATIONS: Final = "spec.template.metadata.annotations"

_MADE_BY_KUBERNETES: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid")
"""Labels that Kubernetes adds to identify this one Job; the Workload's template leaves them out."""
_KEPT: Final = (*_MADE_BY_KUBERNETES, "batch.kubernetes.io/job-name")
"""Labels that Kubernetes forbids to remove from a template."""
_NATIVE: Final = "kubernetes.io/job-controller"
_NOT_PLAIN_NEW_JOB: Final = (
    # Most Jobs are created with a queue name and nothing else of this group: no rule could refuse them.
    "request.operation != 'CREATE' || "
    "object.metadata.labels.exists(k, k.contains('kueue.x-k8s.io/') && k != 'kueue.x-k8s.io/priority-class' && "
    "(k != 'kueue.x-k8s.io/queue-name' || !object.metadata.labels[k].matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))) || "
    "(has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.contains('kueue.x-k8s.io/'))) || "
    "(has(object.spec.template.metadata) && has(object.spec.template.metadata.annotations) && "
    "object.spec.template.metadata.annotations.exists(k, k.contains('kueue.x-k8s.io/'))) || "
    "(has(object.spec.template.metadata) && has(object.spec.template.metadata.labels) && "
    "object.spec.template.metadata.labels.exists(k, k.contains('kueue.x-k8s.io/')))"
)


def _returned(job: Job, status: dict[str, Any]) -> dict[str, Any]:
    """The status of a copy, whose counters may be lower than those of an earlier copy: the API server refuses counters
    that fall."""
    for counter, before in (("failed", job.status.failed), ("succeeded", job.status.succeeded)):
        if (number := max(before, status.get(counter) or 0)) > 0:
            status[counter] = number
    return status


class BatchJob(TemplatedJob[Job], AcknowledgedStops[Job], Additions[Job], Elastic[Job], Importable[Job], Reclaim[Job]):
    """Kueue's `batch/job`."""

    kind = Job
    framework = "batch/job"
    summary = "suspended; may be admitted in part"
    makes = frozenset({("", "Pod")})
    partial = True
    grows = True
    stays_active = True
    success = "Complete"
    counts = {"spec.parallelism": 1, "spec.completions": None}
    rights = (Right("jobs/status", ("patch",)),)  # a stop clears the start time
    copies = RemoteCopies[Job](
        lambda job: job.spec.managed_by,
        native=_NATIVE,
        left_out=(
            ("spec", "selector"),
            ("spec", "manualSelector"),
            *(("spec", "template", "metadata", "labels", label) for label in _KEPT),
        ),
        late=True,
        returned=_returned,
        emptied=dict.fromkeys(("active", "ready", "terminating")),
        size=lambda _, counts: {"parallelism": sum(counts.values())},
    )
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED, "not-plain-new-job": _NOT_PLAIN_NEW_JOB})

    def create_errors(self, job: Job) -> list[FieldError]:
        """Errors of partial admission, of completions kept equal to parallelism, and of the topology request."""
        return self._errors(job, counted=True)

    def _errors(self, job: Job, *, counted: bool) -> list[FieldError]:
        """The create errors. `counted`: the Job's parallelism is the user's, not that of a partial admission."""
        annotations = job.metadata.annotations
        errors: list[FieldError] = []
        pods = _count(job)
        if (value := _minimum(job)) is not None:
            minimum = parse_int(value)
            if isinstance(minimum, str):
                errors.append(invalid(MIN_PARALLELISM_PATH, value, minimum))
            elif minimum <= 0 or (counted and minimum >= pods):
                errors.append(invalid(MIN_PARALLELISM_PATH, minimum, f"should be between 0 and {pods - 1}"))
            if is_elastic(job.metadata):
                detail = "partial admission and elastic job cannot be used together"
                errors.append(invalid(MIN_PARALLELISM_PATH, value, detail))
        if (value := annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM)) is not None:
            errors += _synchronization_errors(job, value)
        errors += reserved_label_errors(job, self.templates(job))
        template = annotations_of(job.spec.template)
        errors += topology_errors(template, _TEMPLATE_ANNOTATIONS, count=pods if counted else None)
        if is_elastic(job.metadata):
            errors += [
                forbidden(f"{_TEMPLATE_ANNOTATIONS}.{key}", f"{word} topology is not supported with elastic jobs")
                for key, word in ((REQUIRED, "required"), (PREFERRED, "preferred"))
                if key in template
            ]
        return errors

    def update_errors(self, old: Job, new: Job) -> list[FieldError]:
        """Errors of changes that are forbidden while the Job is not suspended."""
        # While a Job runs its parallelism is what was admitted, which may be its minimum.
        counted = self.suspended(new) or _minimum(new) != _minimum(old)
        errors = brought(self._errors(new, counted=counted), lambda: self._errors(old, counted=True))
        if old.spec.suspend:  # also during a stop, which restores the parallelism
            return errors
        if _minimum(old) is not None and _parallelism(old) != _parallelism(new):
            detail = "cannot change when partial admission is enabled and the job is not suspended"
            errors.append(forbidden("spec.parallelism", detail))
        if _completions_follow(old) != _completions_follow(new):
            errors.append(forbidden(SYNC_PATH, "field is immutable while the job is not suspended"))
        return errors

    def prepare(self, job: Job, patch: JsonPatch) -> None:
        """Have pods replaced only when they have ended."""
        if _is_replaced_early(job):
            patch.replace("spec", "podReplacementPolicy", value=FAILED)

    def templates(self, job: Job) -> list[Template]:
        """One template, with as many pods as run at a time."""
        return [Template(names.DEFAULT_PODSET, _count(job), job.spec.template, ("spec", "template"), index=INDEX)]

    def claimed(self, job: Job, pod_set: str) -> int:
        """All pods: the children of one owner are counted often, and have one template each."""
        return _count(job)

    def hold(self, job: Job, patch: JsonPatch) -> None:
        """Set `spec.suspend`, unless an interrupted stop has already set it."""
        if not job.spec.suspend:
            super().hold(job, patch)

    def suspended(self, job: Job) -> bool:
        """Whether `spec.suspend` is set and no stop is under way."""
        return bool(job.spec.suspend) and not _stopping(job)

    def half_stopped(self, job: Job) -> bool:
        """Whether the Job has the annotation that a stop's first step sets and its last step removes."""
        return _stopping(job)

    def carries_admission(self, job: Job) -> bool:
        """Whether the template has the label that every start adds and every stop removes."""
        return names.PODSET_LABEL in _directives(job).labels

    def active(self, job: Job) -> bool:
        """Whether the status counts active or terminating pods, or does not yet tell of the stop.

        A terminating pod still occupies its node. The Job controller may have read the Job before it was suspended, and
        creates pods, up to 500 at a time, before it writes what it did; only what it writes after it has read that the
        Job is suspended counts. Kueue counts active pods only, and exceeds the quota while pods terminate or are made.
        """
        return job.status.active != 0 or job.status.terminating != 0 or _unacknowledged(job)

    def acknowledged_since(self, job: Job, since: datetime) -> bool:
        """Whether the condition Suspended has become True since then: the Job controller says that a Job is resumed
        when it has made pods."""
        found = next((each.last_transition_time for each in job.status.conditions if each.type == "Suspended"), None)
        said = instant(found)
        return not _by_kubernetes(job) or (_is_acknowledged(job) and said is not None and said > since)

    def pod_sets(self, job: Job) -> list[JobPodSet]:
        """One pod set, `main`, with as many pods as run at a time."""
        return [
            JobPodSet(
                name=names.DEFAULT_PODSET,
                count=_count(job),
                min_count=_min_parallelism(job),
                template=_own_template(bytes(job.spec.template)),
                index=INDEX,
            )
        ]

    def start(self, job: Job, infos: Sequence[PodSetInfo]) -> Change | None:
        """Prepare, unsuspend and merge in one patch; a start time left by an earlier run is cleared first, in its own.

        None while pods of an earlier run are active, as of a Job that its user suspended: they and the new pods would
        together exceed the quota. Kubernetes also locks the template then.
        """
        if len(infos) != 1:
            raise PermanentError(f"a Job has one pod set, admission has {len(infos)}: let the Workload be made anew")
        current = _directives(job)
        template = changes(current, merge(current, infos[0]))
        if self.active(job):
            return None
        if template and job.status.start_time is not None:
            return Change({"status": {"startTime": None}}, subresource="status", fresh=True)
        spec: dict[str, Any] = {"suspend": False}
        if template:
            spec["template"] = template
        if _is_replaced_early(job):
            spec["podReplacementPolicy"] = FAILED
        spec.update(_partial(job, infos[0].count))
        return Change({"spec": spec}, fresh=True)

    def stop(self, job: Job, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Suspend; once no pod is active, clear the start time and restore the template; completed steps are left out.

        The condition Suspended is True until the Job controller has seen the Job start. It is set to False before the
        Job is suspended, so that the Job controller sets it to True again when it has seen that. A finished Job is not
        changed: no pod runs, and Kubernetes no longer allows its start time to be cleared.
        """
        if self.finished(job) is not None:
            return Stop()
        running = not job.spec.suspend
        restored = _restored(job, pod_sets)
        steps: list[Change] = []
        marked = _stopping(job)
        if running and _is_acknowledged(job):
            resumed = {
                "type": "Suspended",
                "status": "False",
                "reason": "JobResumed",
                "message": "Job resumed",
                "lastTransitionTime": timestamp(now),
            }
            steps.append(Change({"status": {"conditions": [resumed]}}, subresource="status", strategic=True))
        if running:
            body: dict[str, Any] = {"spec": {"suspend": True}}
            if restored and not marked:
                body["metadata"] = {"annotations": {names.JOB_STOPPING: "true"}}
                marked = True
            steps.append(Change(body))
        gone = not running and not self.active(job)
        if job.status.start_time is not None and gone:
            steps.append(Change({"status": {"startTime": None}}, subresource="status"))
        if (restored or marked) and (gone or not restored):
            body = {"spec": restored} if restored else {}
            if marked:
                body["metadata"] = {"annotations": {names.JOB_STOPPING: None}}
            steps.append(Change(body))
        if steps:
            steps[0] = replace(steps[0], fresh=True)
        return Stop(list[Step](steps), announce=running, complete=gone or not restored)

    def pods_ready(self, job: Job) -> bool:
        """Whether ready and succeeded pods, including uncounted ones, add up to the pod set's count, with the indexes
        that have failed for good. Kueue waits for pods of these, which are never made."""
        uncounted = job.status.uncounted_terminated_pods
        succeeded = job.status.succeeded + (len(uncounted.succeeded) if uncounted else 0)
        return succeeded + job.status.ready + _indexes(job, job.status.failed_indexes) >= _count(job)

    def reclaimable(self, job: Job) -> dict[str, int]:
        """Pods that will not be recreated, once fewer completions remain than may run at a time.

        Kueue always starts from the parallelism; where fewer completions are wanted, it releases the quota of running
        pods.
        """
        parallelism, count = _parallelism(job), _count(job)
        indexed, status = job.spec.completion_mode == "Indexed", job.status
        done = _indexes(job, status.completed_indexes, status.failed_indexes) if indexed else status.succeeded
        if parallelism <= 1 or done == 0:
            return {}
        completions = parallelism if job.spec.completions is None else job.spec.completions
        remaining = max(completions - done, 0)
        return {names.DEFAULT_PODSET: count - remaining} if remaining < count else {}

    def significant(self, job: Job) -> tuple[object, ...]:
        """The spec, the outcome and the reclaimable pods; for a suspended Job, also active pods and start time.

        Only stopping and starting depend on active pods and start time, so they are left out while the Job runs.
        """
        halted = (self.active(job), job.status.start_time) if job.spec.suspend else ()
        return job.spec, self.finished(job), self.reclaimable(job), halted


@remembered()
def _own_template(template: bytes) -> bytes:
    """The template without Kubernetes' labels; cached: a Job is reconciled repeatedly, and many share a template."""
    plain = orjson.loads(template)
    metadata = {key: part for key, part in (plain.get("metadata") or {}).items() if part is not None}
    labels = {key: part for key, part in metadata.pop("labels", {}).items() if key not in _MADE_BY_KUBERNETES}
    if labels:
        metadata["labels"] = labels
    plain["metadata"] = metadata
    return msgspec.json.encode(plain)  # exactly sized: orjson would keep 4 KB more per template


def _is_replaced_early(job: Job) -> bool:
    """Whether a pod of the Job is replaced while it ends. An API server without the field leaves it out."""
    return job.spec.pod_replacement_policy not in (None, FAILED)


def _stopping(job: Job) -> bool:
    return job.metadata.annotations.get(names.JOB_STOPPING) == "true"


def _is_acknowledged(job: Job) -> bool:
    """Whether the Job controller says that the Job is suspended."""
    return any(each.type == "Suspended" and each.status == "True" for each in job.status.conditions)


def _unacknowledged(job: Job) -> bool:
    """Whether Turnstile has suspended the Job, and the Job controller has not seen it yet."""
    return _stopping(job) and _by_kubernetes(job) and not _is_acknowledged(job)


def _by_kubernetes(job: Job) -> bool:
    return job.spec.managed_by in (None, _NATIVE)


def _or_one(number: int | None) -> int:
    return 1 if number is None else number


def _parallelism(job: Job) -> int:
    return _or_one(job.spec.parallelism)


def _count(job: Job) -> int:
    parallelism = _parallelism(job)
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _minimum(job: Job) -> str | None:
    return job.metadata.annotations.get(names.JOB_MIN_PARALLELISM)


def _min_parallelism(job: Job) -> int | None:
    """The minimum parallelism, None if it is not a number from 1 to the count.

    The webhook refuses such a Job; one created without the webhook is admitted in full.
    """
    least = clamped(job.metadata.annotations.get(names.JOB_MIN_PARALLELISM, ""))
    return least if least is not None and 0 < least <= _count(job) else None


def _completions_follow(job: Job) -> bool:
    return parse_bool(job.metadata.annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM, "")) is True


def _synchronization_errors(job: Job, value: str) -> list[FieldError]:
    synchronized = parse_bool(value)
    if isinstance(synchronized, str):
        return [invalid(SYNC_PATH, value, synchronized)]
    errors: list[FieldError] = []
    if synchronized:
        if job.spec.completion_mode in {None, "NonIndexed"}:
            errors.append(invalid(SYNC_PATH, value, "should not be enabled for NonIndexed jobs"))
        if _or_one(job.spec.completions) != _parallelism(job):
            key = names.JOB_COMPLETIONS_EQUAL_PARALLELISM
            detail = f"should be equal to parallelism when {key} annotation is true"
            errors.append(invalid("spec.completions", job.spec.completions, detail))
    return errors


def _partial(job: Job, count: int) -> dict[str, int]:
    """The part of the spec that sets the parallelism to `count`, if the Job allows partial admission."""
    if _min_parallelism(job) is None or count == _parallelism(job):
        return {}
    return {"parallelism": count, **({"completions": count} if _completions_follow(job) else {})}


def _directives(job: Job) -> Directives:
    view = JobPodSet(name="", count=0, template=bytes(job.spec.template)).view
    return Directives.of(view)


def _restored(job: Job, pod_sets: Sequence[PodSet] | None) -> dict[str, Any]:
    """The merge patch of the spec that restores the Workload's pod set; empty if nothing differs."""
    if pod_sets is None or len(pod_sets) != 1:
        return {}
    current, wanted = _directives(job), Directives.of(pod_sets[0].template)
    kept = {key: value for key, value in current.labels.items() if key in _KEPT}
    spec: dict[str, Any] = {}
    template = changes(current, replace(wanted, labels={**wanted.labels, **kept}))
    if template:
        spec["template"] = template
    if pod_sets[0].min_count is not None:
        spec.update(_partial(job, pod_sets[0].count))
    return spec


def _indexes(job: Job, *reported: str) -> int:
    """How many indexes below `completions` are in the lists that the status reports, each counted once."""
    end = job.spec.completions or 0
    runs = sorted(run for text in reported for run in _index_runs(text))
    done = reached = 0
    for first, last in runs:
        start, stop = max(first, reached), min(last + 1, end)
        if start < stop:
            done += stop - start
            reached = stop
    return done


def _index_runs(text: str) -> Iterator[tuple[int, int]]:
    """First and last index of each run in `1,3-5,7`, as Jobs report them; invalid parts are skipped."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = clamped(first), clamped(last if dash else first)
        if begin is not None and end is not None:
            yield begin, end
