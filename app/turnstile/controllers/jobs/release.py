"""How a Workload gives up its quota: the writes that end its pods, release its reservation and remove its finalizer.

Each function returns the actions and decides nothing about the job. Must never admit or start anything.
"""

from typing import Final

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.core import Pod
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.runtime.actions import Action, Delete, Patch, RequeueAfter
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.status.draft import StatusDraft
from turnstile.controllers.view.clusterview import ClusterView

RETRY_SECONDS: Final = 5.0
"""Seconds until a job is reconciled again that needs a missing object whose creation requeues no job."""
_AGAIN_IN_QUEUE: Final = frozenset(("Preempted", "NodeFailures"))


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
        late, again = patience.forsaken(workload, cluster)
        late += [patience.deletion(pod, at_most=patience.SHORT) for pod in _ended_by_nobody(workload, cluster)]
        return [*late, *([RequeueAfter(again)] if again is not None else [])]
    return left(workload, cluster) or hastened(workload, cluster)


def _ended_by_nobody(workload: Workload, cluster: ClusterView) -> list[Pod]:
    """The pods that share what a Workload reserves by a label alone, without a controller: neither the end nor the
    deletion of their job ends them, and they would hold its quota for as long as their author likes."""
    owners = (cluster.registry.known_owner(each) for each in workload.metadata.owner_references)
    if not any(each is not None and each.pods_label for each in owners):
        return []
    found = charges.pods_of(workload, cluster)
    return [pod for pod in found if pod.metadata.controller is None and not pod.metadata.deletion_timestamp]


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
