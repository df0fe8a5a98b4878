"""Lifts the scheduling gates that Kueue left in the pod templates of elastic jobs, and topology gates without a place.

A template that runs cannot be changed, so each pod that such a job makes after Kueue is gone has a gate that nobody but
Kueue lifts. Turnstile lifts it from pods that their Workload is charged for: as many of a pod set as it is charged for,
and none that requests more than it is charged for. The pod is placed like any other of its flavor, without a topology.
The topology gate of a pod whose pod set has a topology assignment is lifted by `controllers.topology` instead.

Must never lift the gate of a pod that waits for quota.
"""

from typing import Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.charging.podcharge import Charge, allowed_by
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.runtime.actions import Action, ReconcileResult
from turnstile.controllers.topology.ungater import assigned_pod_sets
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import pods
from turnstile.jobs.integration import Change

AT_ONCE: Final = 100
"""Pods whose gates one reconcile lifts at most; their changes have the Workload reconciled again."""


def lift(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """The patches that lift such gates from pods of a Workload."""
    if not workload.admitted or workload.evicted or not cluster.pods.complete:
        return None
    left = charges.left_gated_pods(workload, cluster)
    if not left:
        return None
    allowance = allowed_by(workload)
    alone = next(iter(allowance.counts)) if len(allowance.counts) == 1 else ""
    placed = assigned_pod_sets(workload)
    free = dict(allowance.counts)

    def pod_set_of(pod: Pod) -> str:
        return pod.metadata.labels.get(names.PODSET_LABEL) or alone

    waiting = {
        pod.metadata.key: pod
        for pod in left
        if pod_set_of(pod) not in placed or names.TOPOLOGY_GATE not in pods.gates(pod)
    }
    for pod in charges.pods_of(workload, cluster) if waiting else ():
        if pod.metadata.key not in waiting:
            free[pod_set_of(pod)] = free.get(pod_set_of(pod), 0) - 1
    charge, found = Charge(allowance, workload.metadata.namespace, cluster), list[Action]()
    for _, pod in sorted(waiting.items()):
        pod_set = pod_set_of(pod)
        if pod.metadata.deletion_timestamp or free.get(pod_set, 0) <= 0 or not charge.covers(pod_set, pod):
            continue
        free[pod_set] -= 1
        rest = [{"name": gate} for gate in pods.gates(pod) if gate not in pods.LEFT_GATES]
        found.append(job_patch(Pod, pod, Change({"spec": {"schedulingGates": rest or None}}, fresh=True, target=pod)))
    return ReconcileResult(found[:AT_ONCE], why="Kueue left gates on its pods") if found else None
