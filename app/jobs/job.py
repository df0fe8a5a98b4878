"""batch/v1 Job: suspended by `spec.suspend`, stopped in up to three writes.

Kubernetes lets the scheduling directives of a Job change only while it is suspended, has no start time (KEP-2926) and,
since 1.36, no active pod (KEP-5440). So stopping is: suspend, wait for the pods to go, clear the start time, restore
the template. The annotation `kueue.x-k8s.io/stopping` marks the way between; a Job that carries it does not count as
suspended, so that whoever comes next finishes the stop. A step that has nothing to change is not written. Source:
Kueue's pkg/controller/jobs/job, which does not wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from app.api import names
from app.api.core import Job
from app.api.errors import PermanentError
from app.api.workload import PodSet
from app.jobs.base import Change, Integration, Outcome, Step, Stop
from app.jobs.podsets import Directives, JobPodSet, PodSetInfo, changes, merge

_MADE_BY_KUBERNETES: Final = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid")
"""Labels of a Job's template that tell of this Job only; a Workload goes without them."""
_KEPT: Final = (*_MADE_BY_KUBERNETES, "batch.kubernetes.io/job-name")
"""Labels that Kubernetes forbids to take from a template."""


class BatchJob(Integration[Job]):
    """Kueue's `batch/job`."""

    kind = Job
    framework = "batch/job"

    def suspended(self, job: Job) -> bool:
        """Unless a stop has begun and not ended."""
        return bool(job.spec.suspend) and not _stopping(job)

    def half_stopped(self, job: Job) -> bool:
        """By the annotation that the first step sets and the last one takes away."""
        return _stopping(job)

    def carries_admission(self, job: Job) -> bool:
        """By the label that every start adds and every stop takes away."""
        return names.PODSET_LABEL in _directives(job).labels

    def active(self, job: Job) -> bool:
        """While any pod is counted as active, or as terminating: it still has its place on a node then.

        Kueue looks at the active ones only, and is over quota while pods take their time to stop.
        """
        return job.status.active != 0 or job.status.terminating != 0

    def finished(self, job: Job) -> Outcome | None:
        """By the conditions Complete and Failed."""
        for condition in job.status.conditions:
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                return Outcome(success=condition.type == "Complete", message=condition.message)
        return None

    def pod_sets(self, job: Job) -> list[JobPodSet]:
        """One, `main`, of as many pods as run at a time."""
        return [
            JobPodSet(
                name=names.DEFAULT_PODSET,
                count=_count(job),
                min_count=_min_parallelism(job),
                template=_own_template(bytes(job.spec.template)),
            )
        ]

    def start(self, job: Job, infos: Sequence[PodSetInfo]) -> Change | None:
        """Unsuspend and merge in one patch; a start time left by an earlier run is cleared first, by itself.

        Kubernetes locks the template while pods of an earlier run are active: a start that changes it waits for them.
        """
        if len(infos) != 1:
            raise PermanentError(f"a Job has one pod set, admission has {len(infos)}: let the Workload be made anew")
        current = _directives(job)
        template = changes(current, merge(current, infos[0]))
        if template and self.active(job):
            return None
        if template and job.status.start_time is not None:
            return _versioned(job, Change({"status": {"startTime": None}}, subresource="status"))
        spec: dict[str, Any] = {"suspend": False}
        if template:
            spec["template"] = template
        spec.update(_partial(job, infos[0].count))
        return _versioned(job, Change({"spec": spec}))

    def stop(self, job: Job, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Suspend; once no pod is active clear the start time and restore; what is so already is not written.

        A Job that has ended is left as it is: no pod runs, and Kubernetes lets its start time be cleared no more.
        """
        if self.finished(job) is not None:
            return Stop()
        running = not job.spec.suspend
        restored = _restored(job, pod_sets)
        steps: list[Change] = []
        marked = _stopping(job)
        if running:
            body: dict[str, Any] = {"spec": {"suspend": True}}
            if restored and not marked:
                body["metadata"] = {"annotations": {names.JOB_STOPPING: "true"}}
                marked = True
            steps.append(Change(body))
        gone = not self.active(job)
        if job.status.start_time is not None and gone:
            steps.append(Change({"status": {"startTime": None}}, subresource="status"))
        if (restored or marked) and (gone or not restored):
            body = {"spec": restored} if restored else {}
            if marked:
                body["metadata"] = {"annotations": {names.JOB_STOPPING: None}}
            steps.append(Change(body))
        if steps:
            steps[0] = _versioned(job, steps[0])
        return Stop(list[Step](steps), announce=running, complete=gone or not restored)

    def suspend(self, job: Job) -> Change | None:
        """`spec.suspend: true`."""
        return _versioned(job, Change({"spec": {"suspend": True}}))

    def pods_ready(self, job: Job) -> bool:
        """Ready and succeeded pods, those not yet counted too, make up the pod set."""
        uncounted = job.status.uncounted_terminated_pods
        succeeded = job.status.succeeded + (len(uncounted.succeeded) if uncounted else 0)
        return succeeded + job.status.ready >= _count(job)

    def reclaimable(self, job: Job) -> dict[str, int]:
        """Pods that will not be made again, once fewer completions remain than may run at a time."""
        parallelism = _parallelism(job)
        done = _terminal_indexes(job) if job.spec.completion_mode == "Indexed" else job.status.succeeded
        if parallelism <= 1 or done == 0:
            return {}
        completions = parallelism if job.spec.completions is None else job.spec.completions
        remaining = max(completions - done, 0)
        return {names.DEFAULT_PODSET: parallelism - remaining} if remaining < parallelism else {}

    def significant(self, job: Job) -> tuple[object, ...]:
        """The spec, and of the status what its counters add up to.

        How many pods run, and since when, is of interest only while none should: stopping and starting depend on it.
        """
        halted = (self.active(job), job.status.start_time) if job.spec.suspend else ()
        return job.spec, self.finished(job), self.reclaimable(job), halted

    def managed_by(self, job: Job) -> str | None:
        """`spec.managedBy`."""
        return job.spec.managed_by


@lru_cache(maxsize=256)
def _own_template(template: bytes) -> bytes:
    """Without what Kubernetes added. Each Job is looked at several times in a row, and many have the same pods."""
    plain = orjson.loads(template)
    metadata = {key: part for key, part in (plain.get("metadata") or {}).items() if part is not None}
    labels = {key: part for key, part in metadata.pop("labels", {}).items() if key not in _MADE_BY_KUBERNETES}
    if labels:
        metadata["labels"] = labels
    plain["metadata"] = metadata
    return msgspec.json.encode(plain)  # of its own size: orjson leaves 4 KB behind what is kept


def _stopping(job: Job) -> bool:
    return job.metadata.annotations.get(names.JOB_STOPPING) == "true"


def _parallelism(job: Job) -> int:
    return 1 if job.spec.parallelism is None else job.spec.parallelism


def _count(job: Job) -> int:
    parallelism = _parallelism(job)
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _min_parallelism(job: Job) -> int | None:
    """Absent if it is not a number: the webhook refuses such a Job, and one that came past it is admitted in full."""
    text = job.metadata.annotations.get(names.JOB_MIN_PARALLELISM, "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None


def _completions_follow(job: Job) -> bool:
    return job.metadata.annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM, "").lower() in ("true", "t", "1")


def _partial(job: Job, count: int) -> dict[str, int]:
    """The part of the spec that makes so many pods run at a time, if the Job allows fewer than it asks for."""
    if _min_parallelism(job) is None or count == _parallelism(job):
        return {}
    return {"parallelism": count, **({"completions": count} if _completions_follow(job) else {})}


def _directives(job: Job) -> Directives:
    view = JobPodSet(name="", count=0, template=bytes(job.spec.template)).view
    return Directives.of(view)


def _restored(job: Job, pod_sets: Sequence[PodSet] | None) -> dict[str, Any]:
    """The merge patch of the spec that gives back what the Workload keeps; empty if nothing differs or nobody knows."""
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


def _versioned(job: Job, change: Change) -> Change:
    metadata: Mapping[str, Any] = change.body.get("metadata", {})
    return replace(
        change, body={**change.body, "metadata": {**metadata, "resourceVersion": job.metadata.resource_version}}
    )


def _terminal_indexes(job: Job) -> int:
    """How many indexes below `completions` have completed or failed, each counted once."""
    end = job.spec.completions or 0
    runs = sorted([*_index_runs(job.status.completed_indexes), *_index_runs(job.status.failed_indexes)])
    done = reached = 0
    for first, last in runs:
        start, stop = max(first, reached), min(last + 1, end)
        if start < stop:
            done += stop - start
            reached = stop
    return done


def _index_runs(text: str) -> Iterator[tuple[int, int]]:
    """First and last index of each run in `1,3-5,7`, as Jobs report them; what is no run is skipped."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            yield int(first), int(last or first)
