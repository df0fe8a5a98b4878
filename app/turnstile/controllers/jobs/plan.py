"""The decision of a step: the writes that it collects in a `Plan`, and the `Outcome` that it returns.

A Plan only collects actions. It must never execute an action, and never decide which actions a state requires.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import PodSet, Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.jobs.children import running_children
from turnstile.controllers.jobs.release import discarded
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, Patch, PatchType, RequeueAfter, Whole
from turnstile.controllers.runtime.writes import fresh, fresh_operations, fresh_patch
from turnstile.jobs.integration import Change, Integration, Removal
from turnstile.jobs.podsets import JobPodSet
from turnstile.kube.gate import Rank


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision of a step. Without a reason the actions are taken, and the next step goes on."""

    actions: Sequence[Action]
    why: str = ""
    """The reason why the decision about the job ends here."""
    rank: Rank | None = None
    """The rank of the writes of the whole decision, if this step says so."""


Step = Callable[[JobView], Outcome | None]
"""One step in the life of a job: its outcome, or None where the step is not for the job as it is now. Pure."""


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
class Plan:
    """The writes of one step about the job of a view, in order."""

    view: JobView
    actions: list[Action] = field(default_factory=list)
    rank: Rank | None = None

    def ends(self, why: str) -> Outcome:
        """The decision ends with this step."""
        return Outcome(self.actions, why, self.rank)

    def goes_on(self) -> Outcome | None:
        """The next step goes on."""
        return Outcome(self.actions, rank=self.rank) if self.actions else None

    # --- the job

    def prepare(self) -> None:
        """Prepare a job that has not been prepared by the webhook or a start, or was changed."""
        view, patch = self.view, JsonPatch()
        view.integration.additions.prepare(view.job, patch)
        if patch and view.outcome is None:
            self.patch(Change(patch, fresh=True))

    def patch(self, change: Change, *, stops: bool = False) -> None:
        """Change an object of the job."""
        kind = self.view.integration.kind if change.target is None else type(change.target)
        self.actions.append(job_patch(kind, self.view.job, change, stops=stops))

    def stop(self, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str) -> bool:
        """Add the next steps that stop the job, and its children where its own controller need not. Returns whether
        these steps complete the stop, and no child runs."""
        view = self.view
        stop = view.integration.stop(view.job, pod_sets, reason=reason, message=message, now=view.cluster.now)
        self.add(stop.steps, seconds=patience.allowed(view.owned, view.cluster), stops=True)
        if stop.announce:
            deleted = [step.target for step in stop.steps if isinstance(step, Removal) and step.target is not None]
            self.emit("Stopped", message, about=deleted or None)
        return self.stop_children() and stop.complete

    def stop_children(self) -> bool:
        """Suspend the children where the job's own controller need not. Returns whether no child runs any more."""
        view = self.view
        children, awaited = running_children(view.integration, view.job, view.cluster), view.integration.children
        for child in children if awaited is not None and awaited.stops_children else ():
            integration = view.cluster.registry.of(child)
            if not (integration.suspended(child) or child.metadata.deletion_timestamp):
                self.suspend(integration, child)
                self.emit("Suspended", "Kueue managed child job suspended", about=[child])
        return not children

    def suspend(self, integration: Integration[Any], job: Kind) -> bool:
        """Suspend a job. Returns whether its kind has a suspend field."""
        suspension = integration.suspension
        if suspension is not None:
            self.actions.append(job_patch(integration.kind, job, suspension.suspend(job), stops=True))
        return suspension is not None

    def add(
        self, steps: Iterable[Change | Removal], *, seconds: patience.Limit | None = patience.SHORT, stops: bool = False
    ) -> None:
        """Add the writes of an integration, which stop the job or not. Pods that are deleted have a limit of seconds,
        by default that of a pod that no Workload is charged for."""
        for step in steps:
            if isinstance(step, Change):
                self.patch(step, stops=stops)
                continue
            target = step.target or self.view.job
            meta = target.metadata
            kind = self.view.integration.kind if step.target is None else type(step.target)
            if isinstance(target, Pod):
                self.actions.append(patience.deletion(target, at_most=seconds))
            else:
                self.actions.append(Delete(kind, meta.namespace, meta.name, uid=meta.uid))
            if step.event is not None:
                self.emit(*step.event, about=[target])

    def finalize(self) -> None:
        """Remove the finalizers of the job's objects."""
        if (gated := self.view.integration.gated_pods) is not None:
            self.add(gated.finalize(self.view.job))

    def dissolve(self) -> None:
        """Remove the finalizer of members that are being deleted, in a group without a Workload."""
        if self.view.group is not None:
            self.add(self.view.group.dissolve(self.view.job))

    def tidy(self) -> None:
        """Delete members of a group that its Workload does not charge for, and let those go that were replaced."""
        if self.view.group is not None:
            self.add(self.view.group.tidy(self.view.job))

    def hasten(self) -> None:
        """Shorten the grace period of the job's pods that terminate and that no Workload is charged for."""
        view = self.view
        found = [each for each in view.members if isinstance(each, Pod)]
        for each in view.members:
            found += view.cluster.pods.by_index(charges.PODS_BY_CHARGE, each.metadata.uid)
        late, again = patience.uncharged(found, view.cluster)
        self.actions += late
        self.wake(again)

    # --- its Workloads

    def resize(self, workload: Workload, counts: Mapping[str, int]) -> None:
        """Write other numbers of pods into a Workload, and nothing else."""
        patch, meta = JsonPatch(), workload.metadata
        for index, pod_set in enumerate(workload.spec.pod_sets):
            if counts.get(pod_set.name, pod_set.count) != pod_set.count:
                patch.replace("spec", "podSets", index, "count", value=counts[pod_set.name])
        content = fresh_operations(meta, patch).encode()
        self.actions.append(Patch(Workload, meta.namespace, meta.name, content, type="json"))

    def create(self, name: str, body: Callable[[Kind], Mapping[str, Any]], pod_sets: Iterable[JobPodSet]) -> None:
        """Create a Workload from the job."""
        job, whole = self.view.job, self._whole(body, pod_sets)
        content = orjson.dumps(body(job)) if whole is None else b""
        self.actions.append(Create(Workload, job.metadata.namespace, name, content, whole=whole))

    def respecify(
        self, workload: Workload, spec: Callable[[Kind], Mapping[str, Any]], pod_sets: Iterable[JobPodSet]
    ) -> None:
        """Rewrite the spec of a Workload from the job."""

        def body(job: Kind) -> dict[str, Any]:
            return fresh(workload.metadata, {"spec": spec(job)})

        whole = self._whole(body, pod_sets)
        patch = fresh_patch(workload, {} if whole is not None else {"spec": spec(self.view.job)})
        self.actions.append(replace(patch, whole=whole))

    def _whole(self, body: Callable[[Kind], Mapping[str, Any]], pod_sets: Iterable[JobPodSet]) -> Whole | None:
        """How the body is made when it is sent, where the pod sets are of templates that are held reduced."""
        if not any(each.reduced for each in pod_sets):
            return None
        integration, job = self.view.integration, self.view.job
        rendering, source = integration.rendering, job
        if rendering is not None:
            found = self.view.cluster.jobs[rendering.templates_in].get(job.metadata.key)
            assert found is not None, "the templates came from it"
            source = found

        def made(whole: Kind) -> bytes:
            return orjson.dumps(body(whole if rendering is None else rendering.joined(job, whole)))

        return Whole(source, made)

    def discard(self, workload: Workload) -> None:
        """Delete a Workload that does not fit the job."""
        self.actions.extend(discarded(workload))
        if not workload.metadata.deletion_timestamp:
            self.emit("DeletedWorkload", f"Deleted not matching Workload: {workload.metadata.key}")

    def finish(self, workload: Workload, reason: str, message: str) -> None:
        """Write that a Workload is finished."""
        draft = self.view.cluster.draft(workload)
        draft.finish(reason, message)
        self.actions.append(draft.patch())

    # --- events and time

    def emit(self, reason: str, note: str, *, warning: bool = False, about: Sequence[Kind] | None = None) -> None:
        """Add an event on the objects `about`, by default on the job; for a group, on its oldest member."""
        for regarding in about or self.view.members[:1]:
            self.actions.append(Emit(regarding, "Warning" if warning else "Normal", reason, note))

    def wake(self, seconds: float | None) -> None:
        """Reconcile the job again after so many seconds, if any are given."""
        if seconds is not None:
            self.actions.append(RequeueAfter(seconds))
