"""The part of a reconcile that only groups need: a Workload of the group's name, owned by all its members, which
changes as members are added, fail and are replaced. Nothing here concerns a job that is a single object.

Must never start or stop a member for lack of quota: `controllers.jobs.jobreconciler` does that for groups as for any
job.
"""

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.meta import find_condition, to_plain
from turnstile.api.workload import Workload
from turnstile.controllers.jobs.reconcile import Reconcile
from turnstile.controllers.runtime.actions import Emit
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.jobs import workload as build
from turnstile.jobs.integration import NO_MATCHING_WORKLOAD
from turnstile.jobs.labels import prebuilt_name

_FAILED = ("PodsFailed", "Some Failed pods need replacement")
_REPLACED = ("PodsReady", "No pods need replacement")


class Grouping(Reconcile):
    """A reconcile of a job that may be a group."""

    def _name_conflict(self) -> str:
        """Why the group cannot be admitted: a Workload of its name was not made for a group. Empty if there is none.

        Running members are stopped; members that are being deleted lose their finalizer.
        """
        if self._group is None or prebuilt_name(self.job):
            return ""
        name = self.integration.workload_name(self.job)
        workload = self.cluster.workloads.get(f"{self.job.metadata.namespace}/{name}")
        if workload is None:
            return ""
        owner = workload.metadata.controller
        of_group = workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true"
        if of_group and (owner is None or (owner.kind, owner.api_version) == ("Pod", "v1")):
            return ""
        self._emit(
            "WorkloadNameConflict",
            f'A Workload named "{name}" already exists but is not a pod group workload; this pod group cannot be '
            "admitted",
            warning=True,
        )
        self._stop(None, reason=NO_MATCHING_WORKLOAD, message="missing workload")
        self._dissolve()
        return f"the Workload {name} is not a group's"

    def _tidied(self, workload: Workload) -> bool:
        """Delete excess members, remove the finalizer of replaced members, and add the other members as owners of the
        Workload. Returns whether anything was written."""
        if self._group is None or workload.finished or workload.metadata.deletion_timestamp:
            return False
        before = len(self.actions)
        self._add(self._group.tidy(self.job))
        owns = not build.of_a_set(workload) and self._own(workload)
        return owns or len(self.actions) > before

    def _own(self, workload: Workload) -> bool:
        """Add the job as owner of a Workload that no other object controls. Returns whether anything was written."""
        meta = workload.metadata
        owners = {each.uid for each in meta.owner_references}
        missing = [each for each in self.integration.owners(self.job) if each.metadata.uid not in owners]
        if not missing and not self.integration.controls:
            return False
        added = [build.owner_reference(self.integration, each) for each in missing or (self.job,)]
        metadata: dict[str, object] = {"ownerReferences": [*(to_plain(each) for each in meta.owner_references), *added]}
        if self.integration.controls:
            metadata["labels"] = build.job_uid_label(self.job)
        self.actions.append(fresh_patch(workload, {"metadata": metadata}))
        if not self.integration.controls:
            note = f"Added {len(missing)} owner reference(s)"
            self.actions.append(Emit(workload, "Normal", "OwnerReferencesAdded", note))
        return True

    def _remove_excess(self) -> None:
        """Delete members that a Workload created now would not charge for."""
        if self._group is not None:
            self._add(self._group.tidy(self.job))

    def _dissolve(self) -> None:
        """Remove the finalizer of members that are being deleted, in a group without a Workload."""
        if self._group is not None:
            self._add(self._group.dissolve(self.job))

    def _tell_uncovered(self) -> None:
        """Warn of members that stay gated because the group's prebuilt Workload does not charge for them."""
        for member in self._group.uncovered(self.job) if self._group is not None else ():
            note = f"Pod {member.metadata.name} stays gated: it requests more than a role of the prebuilt workload"
            self._emit("PodExceedsRoleRequests", note, warning=True, about=[member])

    def _tell_of_replacements(self, workload: Workload) -> bool:
        """Update the condition WaitingForReplacementPods. Returns whether it was written."""
        if self._group is None:
            return False
        condition = find_condition(workload.status.conditions, wl.WAITING_FOR_REPLACEMENT_PODS)
        waited = condition is not None and condition.status == "True"
        evicted = find_condition(workload.status.conditions, wl.EVICTED)
        if not self._group.incomplete(self.job):
            if not waited:
                return False
            status, (reason, message) = "False", _REPLACED
        elif evicted is not None and evicted.status == "True":
            status, reason, message = "True", evicted.reason, evicted.message
        elif condition is not None and waited:
            return False
        else:
            status, (reason, message) = "True", _FAILED
        draft = self.cluster.draft(workload)
        draft.set(wl.WAITING_FOR_REPLACEMENT_PODS, status, reason=reason, message=message)  # type: ignore[arg-type]
        if draft.changed:
            self.actions.append(draft.patch())
        return draft.changed
