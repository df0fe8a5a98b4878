"""The part of a reconcile that gives back the quota of pods that are done, and deletes pods that hold it too long.

Quota is given back by what runs: what a Workload holds is never less than what its pods that may run need. Must never
start or stop a job.
"""

from typing import Final

from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs.reconcile import RETRY_SECONDS, Reconcile, hastened, left
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.jobs import workload as build

_AGAIN_SECONDS: Final = 1.0
"""Seconds between two looks at pods that may run although the status of their job counts them as done."""


class Reclaiming(Reconcile):
    """A reconcile of a job whose Workload holds quota."""

    def _reclaim(self, workload: Workload) -> bool:
        """Write which pods give their quota back: of those that are charged for, no more than may not run. Returns
        whether anything was written."""
        if not self.cluster.options.reclaimable_pods:
            return False
        wanted = build.limited_reclaimable(workload, self.integration.reclaimable(self.job))
        if workload.quota_reserved:
            current = {each.name: each.count for each in workload.status.reclaimable_pods}
            if any(count > current.get(name, 0) for name, count in wanted.items()):
                if not self.cluster.pods.complete:
                    return False
                roles = self._group.roles(self.job) if self._group is not None else {}
                most = charges.most_reclaimable(workload, self.cluster, roles)
                if any(count > most.get(name, 0) for name, count in wanted.items()):
                    self.actions.append(RequeueAfter(_AGAIN_SECONDS))  # the end of a pod does not change the job
                    wanted = {name: found for name, count in wanted.items() if (found := min(count, most.get(name, 0)))}
            # The API refuses a smaller count while quota is reserved.
            wanted = {name: max(wanted.get(name, 0), current.get(name, 0)) for name in {**current, **wanted}}
        draft = self.cluster.draft(workload)
        draft.reclaim(wanted)
        if draft.changed:
            self.actions.append(draft.patch())
        return draft.changed

    def _end_pods(self, workload: Workload, *, stopped: bool) -> None:
        """Delete the pods for which a Workload keeps quota that it has to give up: those that take too long, and once
        the job is `stopped` all, because its own controller does not know those that are left."""
        stopped = stopped and not self.integration.active(self.job)
        rest = left(workload, self.cluster) if stopped else []
        self.actions += rest or hastened(workload, self.cluster)
        if stopped:
            self.actions.append(RequeueAfter(RETRY_SECONDS))  # there may be others by then

    @property
    def _idle(self) -> bool:
        """Whether the job is a group without a pod that may run."""
        return self._group is not None and self._group.idle(self.job)
