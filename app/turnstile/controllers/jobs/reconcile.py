"""One reconcile of one job: the objects it read, the actions decided so far, and the methods that add actions.

A Reconcile only collects actions. It must never execute an action, and never decide which actions a state requires.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, find_condition
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import PodSet, Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.runtime.actions import (
    Action,
    Create,
    Delete,
    Emit,
    Patch,
    PatchType,
    ReconcileResult,
    RequeueAfter,
    Whole,
)
from turnstile.controllers.runtime.writes import fresh, fresh_operations, fresh_patch
from turnstile.controllers.status.draft import StatusDraft
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import workload as build
from turnstile.jobs.integration import Change, GroupIntegration, Integration, Removal, Step
from turnstile.jobs.podsets import JobPodSet
from turnstile.kube import raws
from turnstile.kube.gate import Rank

RETRY_SECONDS: Final = 5.0
"""Seconds until a job is reconciled again that needs a missing object whose creation requeues no job."""
_AGAIN_IN_QUEUE: Final = frozenset(("Preempted", "NodeFailures"))
TEMPLATES_ARE_READ: Final = "its pod templates are being read"


def released(workload: Workload, *, deferrable: bool = False) -> list[Action]:
    """The patch that removes the finalizer `kueue.x-k8s.io/resource-in-use` from a Workload; empty without it."""
    meta = workload.metadata
    if names.RESOURCE_IN_USE not in meta.finalizers:
        return []
    rest = [finalizer for finalizer in meta.finalizers if finalizer != names.RESOURCE_IN_USE]
    return [fresh_patch(workload, {"metadata": {"finalizers": rest}}, deferrable=deferrable)]


def discarded(workload: Workload) -> list[Action]:
    """Remove the finalizer of a Workload that does not fit its job, then delete the Workload."""
    meta = workload.metadata
    actions = released(workload)
    if not meta.deletion_timestamp:
        actions.append(Delete(Workload, meta.namespace, meta.name, uid=meta.uid))
    return actions


def ended(workload: Workload, cluster: ClusterView) -> list[Action]:
    """Delete the pods of a Workload that has to release its quota, where no controller does: the job is gone, is being
    deleted and held by a finalizer, has ended, or was stopped and its controller does not know these pods."""
    if not workload.evicted and workload.spec.active:
        return []
    return left(workload, cluster) or hastened(workload, cluster)


def left(workload: Workload, cluster: ClusterView) -> list[Action]:
    """Delete the pods that a Workload is charged for and that are not being deleted yet."""
    found = [pod for pod in charges.pods_of(workload, cluster) if not pod.metadata.deletion_timestamp]
    seconds = patience.allowed([workload], cluster)
    return [patience.deletion(pod, at_most=seconds) for pod in found]


def hastened(workload: Workload, cluster: ClusterView) -> list[Action]:
    """Delete the pods that hold the quota of an evicted Workload for longer than `--victim-patience`."""
    late, again = patience.overstayed(workload, cluster)
    return [*late, *([RequeueAfter(again)] if again is not None else [])]


def taken_back(workload: Workload, cluster: ClusterView, *, requeues: bool) -> Patch:
    """Release the quota of an evicted Workload whose pods are gone, and set Requeued."""
    draft = cluster.draft(workload)
    end_eviction(draft, requeues=requeues)
    return draft.patch()


def end_eviction(draft: StatusDraft, *, requeues: bool) -> None:
    """Write the end of an eviction: the quota is released, and Requeued says whether the Workload is queued again."""
    condition = find_condition(draft.workload.status.conditions, wl.EVICTED)
    assert condition is not None
    again = condition.reason in _AGAIN_IN_QUEUE and requeues
    draft.set(wl.REQUEUED, "True" if again else "False", reason=condition.reason, message=condition.message)
    draft.unreserve(reason="PendingEvaluation", message=condition.message)


def put_on_hold(workload: Workload, cluster: ClusterView, message: str) -> list[Action]:
    """The patch that releases the quota of a Workload without pods, and keeps it out of its queue; empty if it is on
    hold already."""
    if workload.on_hold:
        return []
    draft = cluster.draft(workload)
    draft.unreserve(reason=wl.ON_HOLD, message=message)
    return [draft.patch()]


def taken_off_hold(workload: Workload, cluster: ClusterView) -> Patch:
    """Let a Workload back into its queue."""
    draft = cluster.draft(workload)
    draft.unreserve(reason="PendingEvaluation", message="The workload is not on hold any more")
    return draft.patch()


def job_patch(kind: type[Kind], job: Kind, change: Change, *, stops: bool = False) -> Patch:
    """The patch of a change of a job; with the resourceVersion if the change must not be applied to a newer version.
    `stops`: the change stops the job, and is not lost to a second conflict."""
    meta, body = (change.target or job).metadata, change.body
    type_: PatchType = "strategic" if change.strategic else "merge"
    if isinstance(body, JsonPatch):
        type_, content = "json", (fresh_operations(meta, body) if change.fresh else body).encode()
    else:
        content = orjson.dumps(fresh(meta, body) if change.fresh else body)
    uid = meta.uid if stops and change.fresh else ""
    return Patch(kind, meta.namespace, meta.name, content, type=type_, subresource=change.subresource, stops=uid)


@dataclass
class Reconcile:
    """One reconcile of one job. `actions` grows until the decision is made; `rank` is that of their writes."""

    integration: Integration[Any]
    job: Kind
    workloads: list[Workload]
    cluster: ClusterView
    actions: list[Action] = field(default_factory=list)
    rank: Rank = Rank.STOP

    @cached_property
    def pod_sets(self) -> list[JobPodSet]:
        """The pod sets of the job as it is now."""
        return self.integration.pod_sets(self.job)

    @cached_property
    def suspended(self) -> bool:
        """Whether no pod of the job can run."""
        return self.integration.suspended(self.job)

    @cached_property
    def outcome(self) -> Any:
        """How the job ended, if it has."""
        return self.integration.finished(self.job)

    @property
    def _uids(self) -> set[str]:
        return {each.metadata.uid for each in self.integration.members(self.job)}

    @cached_property
    def _owned(self) -> list[Workload]:
        """The Workloads of this very job, not of an earlier job of the same name."""
        uids = self._uids
        return [
            each
            for each in self.workloads
            if any(owner.uid in uids for owner in each.metadata.owner_references)
            or (self._group is not None and build.of_a_set(each))
        ]

    @property
    def _unfinished(self) -> list[Workload]:
        return [each for each in self._owned if not each.finished]

    def _unless_followed(self, why: str) -> str:
        """`why` the job is not managed; empty if the job is reconciled all the same, because its Workload holds quota
        or is still needed to stop or finish the job. A Workload that is not needed any more is deleted."""
        if not why:
            return ""
        if not self._unfinished:
            self._let_go()
            return why
        if raws.stripped(self.job):
            return TEMPLATES_ARE_READ
        to_restore = self._half_stopped or (self.suspended and self.integration.carries_admission(self.job))
        if to_restore or self.outcome is not None or any(each.quota_reserved for each in self._unfinished):
            return ""
        for workload in self._unfinished:
            self._discard(workload)
        return why

    def _let_go(self) -> None:
        """Remove the finalizers of a job that is not managed any more and has no unfinished Workload: the removal may
        have been cut short, and no other step does it."""
        if self._owned:
            self._finalize()
        elif self._group is not None and not self.workloads:
            self._add(self._group.dissolve(self.job))
        for each in self._owned:
            self.actions.extend(released(each, deferrable=each.metadata.deletion_timestamp is None))

    @property
    def _group(self) -> GroupIntegration[Any] | None:
        """The integration, if the job is a group."""
        return self.integration if isinstance(self.integration, GroupIntegration) else None

    @property
    def _half_stopped(self) -> bool:
        return self.integration.half_stopped(self.job)

    @property
    def _to_stop(self) -> bool:
        """Whether the job runs, or was suspended by another client and still has what admission added to its pods."""
        return not self.suspended or self.integration.carries_admission(self.job)

    def _priority(self) -> build.Priority:
        classes = build.PriorityClasses(self.cluster.workload_priority_classes, self.cluster.priority_classes)
        return build.priority_of(self.integration, self.job, classes)

    def _prepare(self) -> None:
        """Add the patch that prepares a job which has not been prepared by the webhook or a start, or was changed."""
        patch = JsonPatch()
        self.integration.prepare(self.job, patch)
        if patch and self.outcome is None:
            self.actions.append(self._patch(Change(patch, fresh=True)))

    def _stop(self, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str) -> bool:
        """Add the next steps that stop the job. Returns whether these steps complete the stop."""
        stop = self.integration.stop(self.job, pod_sets, reason=reason, message=message, now=self.cluster.now)
        seconds = patience.allowed(self._owned, self.cluster)
        self._add(stop.steps, seconds=seconds, stops=True)
        if stop.announce:
            deleted = [step.target for step in stop.steps if isinstance(step, Removal) and step.target is not None]
            self._emit("Stopped", message, about=deleted or None)
        return stop.complete

    def _add(
        self, steps: Iterable[Step], *, seconds: patience.Limit | None = patience.SHORT, stops: bool = False
    ) -> None:
        """Add the writes of an integration, which stop the job or not. Pods that are deleted have a limit of seconds,
        by default that of a pod that no Workload is charged for."""
        for step in steps:
            if isinstance(step, Change):
                self.actions.append(self._patch(step, stops=stops))
                continue
            target = step.target or self.job
            meta = target.metadata
            kind = self.integration.kind if step.target is None else type(step.target)
            if isinstance(target, Pod):
                self.actions.append(patience.deletion(target, at_most=seconds))
            else:
                self.actions.append(Delete(kind, meta.namespace, meta.name, uid=meta.uid))
            if step.event is not None:
                self._emit(*step.event, about=[target])

    def _discard(self, workload: Workload) -> None:
        self.actions.extend(discarded(workload))
        if not workload.metadata.deletion_timestamp:
            self._emit("DeletedWorkload", f"Deleted not matching Workload: {workload.metadata.key}")

    def _create(self, name: str, body: Callable[[Kind], Mapping[str, Any]], pod_sets: Iterable[JobPodSet]) -> None:
        """Create a Workload from the job."""
        whole = self._whole(body, pod_sets)
        content = orjson.dumps(body(self.job)) if whole is None else b""
        self.actions.append(Create(Workload, self.job.metadata.namespace, name, content, whole=whole))

    def _respecify(
        self, workload: Workload, spec: Callable[[Kind], Mapping[str, Any]], pod_sets: Iterable[JobPodSet]
    ) -> None:
        """Rewrite the spec of a Workload from the job."""

        def body(job: Kind) -> dict[str, Any]:
            return fresh(workload.metadata, {"spec": spec(job)})

        whole = self._whole(body, pod_sets)
        patch = fresh_patch(workload, {} if whole is not None else {"spec": spec(self.job)})
        self.actions.append(replace(patch, whole=whole))

    def _whole(self, body: Callable[[Kind], Mapping[str, Any]], pod_sets: Iterable[JobPodSet]) -> Whole | None:
        """How the body is made when it is sent, where the pod sets are of templates that are held reduced."""
        if not any(each.reduced for each in pod_sets):
            return None
        joined, source = self.integration.templates_in, self.job
        if joined is not None:
            found = self.cluster.jobs[joined].get(self.job.metadata.key)
            assert found is not None, "the templates came from it"
            source = found

        def made(whole: Kind) -> bytes:
            return orjson.dumps(body(whole if joined is None else self.integration.joined(self.job, whole)))

        return Whole(source, made)

    def _finish(self, workload: Workload, reason: str, message: str) -> None:
        draft = self.cluster.draft(workload)
        draft.finish(reason, message)
        self.actions.append(draft.patch())

    def _finalize(self) -> None:
        self._add(self.integration.finalize(self.job))

    def _patch(self, change: Change, *, stops: bool = False) -> Patch:
        kind = self.integration.kind if change.target is None else type(change.target)
        return job_patch(kind, self.job, change, stops=stops)

    def _hasten(self) -> None:
        """Shorten the grace period of the job's pods that terminate and that no Workload is charged for."""
        members = self.integration.members(self.job)
        found = [each for each in members if isinstance(each, Pod)]
        for each in members:
            found += self.cluster.pods.by_index(charges.PODS_BY_CHARGE, each.metadata.uid)
        late, again = patience.uncharged(found, self.cluster)
        self.actions += late
        if again is not None:
            self.actions.append(RequeueAfter(again))

    def _emit(self, reason: str, note: str, *, warning: bool = False, about: Sequence[Kind] | None = None) -> None:
        """Add an event on the objects `about`, by default on the job; for a group, on its oldest member."""
        for regarding in about or self.integration.members(self.job)[:1]:
            self.actions.append(Emit(regarding, "Warning" if warning else "Normal", reason, note))

    def _decision(self, why: str) -> ReconcileResult:
        return ReconcileResult(self.actions, why=why, rank=self.rank)
