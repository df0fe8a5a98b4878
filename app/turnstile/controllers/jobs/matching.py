"""Finds the Workload that fits a job, among those that the job owns, and rewrites or deletes the others.

A Workload that fits is updated when its job changes; a Workload that does not fit is rewritten while it waits, else
replaced once the job has stopped. Must never start a job, and never create a Workload.
"""

from typing import Any, Final

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import to_plain
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs.groups import Grouping
from turnstile.controllers.jobs.reconcile import RETRY_SECONDS
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.jobs import podsets
from turnstile.jobs import workload as build
from turnstile.jobs.bases.serving import ServingSet
from turnstile.jobs.integration import NO_MATCHING_WORKLOAD
from turnstile.jobs.labels import max_execution_seconds, prebuilt_name, queue_name


class Matching(Grouping):
    """The part of a reconcile that finds the Workload of a job."""

    def _ensure_one_workload(self) -> tuple[Workload | None, str]:
        """The Workload that fits the job, if any; or the reason why the decision ends here."""
        if conflict := self._name_conflict():
            return None, conflict
        if prebuilt_name(self.job):
            return self._prebuilt()
        matching: Workload | None = None
        surplus: list[Workload] = []
        for workload in self.workloads:
            if matching is None and self._fits(workload):
                matching = workload
            else:
                surplus.append(workload)
        if matching is None and self.outcome is None and (self._to_stop or self._pods_hold_quota(surplus)):
            known = surplus[0].spec.pod_sets if len(surplus) == 1 else None
            complete = self._stop(
                known,
                reason=NO_MATCHING_WORKLOAD,
                message="No matching Workload; restoring pod templates according to existent Workload"
                if known is not None
                else "Missing Workload; unable to restore pod templates",
            )
            if not complete or any(charges.held(each, self.cluster, deleting=True) for each in surplus):
                return None, "the Workload that does not fit is kept until its pods are gone"
        elif matching is None and surplus and self.suspended and _rewritable(surplus[0]):
            self._rewrite(surplus[0])
            return None, "the Workload is brought in line with its job"
        if surplus:
            for workload in surplus:
                self._discard(workload)
            return None, "extra workloads" if matching else "no matching workloads"
        if matching is not None and (self._tidied(matching) or self._synchronize(matching)):
            return None, "the Workload follows its job"
        return matching, ""

    def _pods_hold_quota(self, workloads: list[Workload]) -> bool:
        """Whether pods of a stopped job still run under the quota of one of these Workloads."""
        active = self.integration.active(self.job)
        return any((each.quota_reserved and active) or charges.held(each, self.cluster) for each in workloads)

    def _prebuilt(self) -> tuple[Workload | None, str]:
        name = prebuilt_name(self.job)
        meta = self.job.metadata
        workload = self.cluster.workloads.get(f"{meta.namespace}/{name}")
        owner = workload.metadata.controller if workload is not None else None
        if workload is None or (owner is not None and owner.uid not in self._uids):
            self._stop(None, reason=NO_MATCHING_WORKLOAD, message="missing workload")
            self.actions.append(RequeueAfter(RETRY_SECONDS))
            return None, f"prebuilt workload not found: {name}"
        if owner is None and self._has_foreign_pods(workload):
            self.actions.append(RequeueAfter(RETRY_SECONDS))
            return None, f"prebuilt workload {name} is charged for pods of another job"
        if owner is None and not build.of_a_set(workload) and self._own(workload):
            return None, f"takes over prebuilt workload {name}"
        if not workload.finished and not self._fits(workload):
            if self.outcome is None and (self._to_stop or self._pods_hold_quota([workload])):
                known = None if self._group is not None else workload.spec.pod_sets
                stopped = self._stop(known, reason=NO_MATCHING_WORKLOAD, message="missing workload")
                if not stopped or self.actions or charges.held(workload, self.cluster):
                    return None, f"prebuilt workload {name} does not fit the job, which is stopped first"
            self._finish(workload, "OutOfSync", "The prebuilt workload is out of sync with its user job")
            return None, f"prebuilt workload {name} does not fit the job"
        return (None, "the Workload follows its job") if self._tidied(workload) else (workload, "")

    def _has_foreign_pods(self, workload: Workload) -> bool:
        """Whether pods of a job that is gone run under a Workload, or are not read yet: it was orphaned, and has no
        quota for other pods."""
        if build.of_a_set(workload):
            return False  # it is never left to another job: its name is made of the uid of its set
        if not self.cluster.pods.complete:
            return True
        pods = charges.pods_of(workload, self.cluster)
        return any((pod.metadata.controller or pod.metadata).uid not in self._uids for pod in pods)

    def _fits(self, workload: Workload) -> bool:
        """Kueue's EquivalentToWorkload: the same owner, time limit and pods."""
        if self._group is None:
            owner = workload.metadata.controller
            if owner is None or owner.uid != self.job.metadata.uid:
                return False
        elif workload.finished or workload.metadata.deletion_timestamp or build.of_a_set(workload):
            return True
        if workload.spec.maximum_execution_time_seconds != max_execution_seconds(self.job):
            return False
        if self._group is not None:
            return self._group.fits(self.job)
        if self.integration.unread(self.job):
            return True
        if workload.quota_reserved:
            try:
                infos = self.cluster.infos_of(workload, instead=_DELETED_FLAVOR)
            except PermanentError:
                infos = None
            if infos is not None and podsets.equivalent(self.pod_sets, workload, infos):
                return True
            if infos is not None and not self.suspended:
                return False
        return podsets.equivalent(self.pod_sets, workload, None)

    def _rewrite(self, workload: Workload) -> None:
        """Rewrite the Workload's spec in place: cheaper than a new Workload, and its position in the queue stays."""
        meta, priority = workload.metadata, self._priority()
        self._respecify(
            workload, lambda job: build.spec_change(job, self.integration.pod_sets(job), priority), self.pod_sets
        )
        self._emit("UpdatedWorkload", f"Updated not matching Workload for suspended job: {meta.key}")

    def _synchronize(self, workload: Workload) -> bool:
        """Copy priority class and admission gates of the job to the Workload. Returns whether anything was written."""
        meta = workload.metadata
        if workload.finished or meta.deletion_timestamp:
            return False
        body: dict[str, Any] = {}
        options = self.cluster.options
        gates = options.gates_of(self.job.metadata)
        if gates != options.gates_of(meta):
            body["metadata"] = {"annotations": {names.ADMISSION_GATED_BY: gates or None}}
            self._emit("UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gates}"')
        # A set changes its Workload itself; its pods may carry an older label.
        priority = None if build.of_a_set(workload) else self._class_priority(workload)
        if priority is not None:
            body["spec"] = {"priority": priority.value, "priorityClassRef": to_plain(priority.ref)}
            self._emit("UpdatedWorkload", f"Updated workload priority class: {meta.key}")
        if not body:
            return False
        self.actions.insert(0, fresh_patch(workload, body))
        return True

    def _class_priority(self, workload: Workload) -> build.Priority | None:
        """The priority of the class in the job's label, if the Workload has another and may be changed.

        The label comes before a PriorityClass of the pods, and before no class, but the API server takes that change
        only without a reservation. A Workload keeps its priority while the class of the label is missing or deleted:
        the rest of the reconcile must still stop the job if necessary, and notice its end.
        """
        if workload.quota_reserved and not _has_class_of_ours(workload):
            return None
        return self._labelled_priority(workload)

    def _labelled_priority(self, workload: Workload) -> build.Priority | None:
        """The priority of the class in the job's label, if that class exists and is not what the Workload has."""
        label = self.job.metadata.labels.get(names.PRIORITY_CLASS_LABEL)
        if not label:
            return None
        ref = workload.spec.priority_class_ref
        named = ref is not None and ref.name == label and _has_class_of_ours(workload)
        try:
            priority = build.workload_class_priority(label, self.cluster.workload_priority_classes)
        except build.PriorityClassMissing as error:
            if not named:
                self._emit(error.reason, str(error), warning=True)
            return None
        return None if named and (workload.spec.priority or 0) == priority.value else priority

    def _relabelled(self, workload: Workload) -> str:
        """A label of the job that its Workload can only follow without the quota that it holds: another queue, or a
        priority class in place of that of its pods. Empty if there is none.

        As in Kueue, a Workload without any class keeps its quota, and gets the class when it has lost its quota.
        """
        if (queue := self._another_queue(workload)) is not None:
            return f"The job is moved to LocalQueue {queue or '(none)'}"
        if prebuilt_name(self.job) or build.of_a_set(workload) != isinstance(self.integration, ServingSet):
            return ""  # its priority is not the job's to say
        ref = workload.spec.priority_class_ref
        if ref is None or _has_class_of_ours(workload) or self._labelled_priority(workload) is None:
            return ""
        return f"The job gets WorkloadPriorityClass {self.job.metadata.labels[names.PRIORITY_CLASS_LABEL]}"

    def _another_queue(self, workload: Workload) -> str | None:
        """The queue that the job names, or "" for none, if the Workload is to be moved to it; None if it stays.

        A Workload stays in its queue when its job names none any more, unless such jobs are managed too.
        """
        queue = queue_name(self.job)
        if not queue and not self.cluster.options.manage_jobs_without_queue_name:
            return None
        if queue == (workload.spec.queue_name or "") or not self.integration.follows_queue(self.job):
            return None
        return queue


_DELETED_FLAVOR: Final = ResourceFlavor()
"""Stands for a flavor that was deleted after the admission: the admitted counts still apply."""


def _has_class_of_ours(workload: Workload) -> bool:
    """Whether the priority is that of a WorkloadPriorityClass, which may be changed for another at any time."""
    ref = workload.spec.priority_class_ref
    return ref is not None and ref.kind == WorkloadPriorityClass.KIND


def _rewritable(workload: Workload) -> bool:
    return not (workload.quota_reserved or workload.finished or workload.metadata.deletion_timestamp)
