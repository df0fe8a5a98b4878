"""Lifts the gates of an elastic job's pods, as far as its Workload charges for them, and those that Kueue left.

Each pod of an elastic job starts gated, also one that is made in the place of another. Its gate is lifted as long as
fewer pods of its pod set run than the admitted slice charges for and the job asks for by now, and only if it requests
no more than is charged for a pod. The template of a job that runs cannot be changed, so what another slice adds (the
flavor, a ProvisioningRequest) is added to the pod together with that. The topology gate of a pod whose pod set has a
topology assignment is lifted by `controllers.topology` instead.

Where a gate was lifted in the moment in which the job shrank, pods beyond the charge are deleted: these are writes of
two objects, and nothing orders them. Must never lift the gate of a pod that waits for quota.
"""

from dataclasses import replace
from typing import Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.charging.podcharge import Charge, allowed_by
from turnstile.controllers.jobs import slices
from turnstile.controllers.jobs.jobreconciler import pods_asked_for
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.runtime.actions import Action, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.topology.ungater import assigned_pod_sets, covers
from turnstile.controllers.view.clusterview import WORKLOADS_BY_CHAIN, ClusterView, NotRead
from turnstile.jobs import pods
from turnstile.jobs.integration import Change
from turnstile.jobs.labels import is_elastic
from turnstile.jobs.podsets import PodSetInfo
from turnstile.wording.grammar import sentence
from turnstile.wording.standing import cannot_start

AT_ONCE: Final = 100
"""Pods whose gates one reconcile lifts at most; their changes have the Workload reconciled again."""
_UNREAD: Final = ReconcileResult([RequeueAfter(RETRY_SECONDS)], why="pods that were not read may run")
"""The answer while the watch of pods fails. When it goes on, no event may follow that reconciles the Workload."""


def lift(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """The patches that lift such gates from pods of a Workload."""
    if not workload.admitted or workload.evicted:
        return None
    left = charges.left_gated_pods(workload, cluster)
    if not left:
        return None
    if not cluster.pods.complete:
        return _UNREAD
    allowance = allowed_by(workload)
    alone = next(iter(allowance.counts)) if len(allowance.counts) == 1 else ""
    placed = assigned_pod_sets(workload)
    elastic = is_elastic(workload.metadata)
    try:
        asked = pods_asked_for(workload, cluster) if elastic else {}
        added = _added(workload, cluster)
    except (LookupError, NotRead, PermanentError) as error:
        return ReconcileResult([RequeueAfter(RETRY_SECONDS)], why=str(error))
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
    shrinks = {name: count - asked[name] for name, count in allowance.counts.items() if asked.get(name, count) < count}
    held_back = False

    for _, pod in sorted(waiting.items()):
        pod_set = pod_set_of(pod)
        if pod.metadata.deletion_timestamp or free.get(pod_set, 0) <= 0:
            continue
        if free[pod_set] <= shrinks.get(pod_set, 0):
            held_back = True
            continue
        if not (covers(charge, pod_set, pod, workload, cluster) if elastic else charge.covers(pod_set, pod)):
            continue
        try:
            found.append(job_patch(Pod, pod, _ungated(pod, added.get(pod_set))))
        except PermanentError as error:  # it was made from a template that another slice has filled in
            found.append(Emit(pod, "Warning", "CannotStart", sentence(cannot_start(str(error)))))
            continue
        free[pod_set] -= 1
    found = found[:AT_ONCE]
    if held_back:  # a job that asks for more again, within what is charged still, does not change the Workload
        found.append(RequeueAfter(RETRY_SECONDS))
    return ReconcileResult(found, why="its pods may run as far as it charges for them") if found else None


def stop_surplus(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """The deletions of pods of an elastic job that run beyond the charge of its admitted slice, the newest first. Its
    controller makes others in their place, which start gated."""
    if not (is_elastic(workload.metadata) and workload.admitted and not workload.evicted):
        return None
    if not cluster.pods.complete:
        return _UNREAD
    if _is_replaced(workload, cluster):
        return None
    charged, running = charges.pods_charged(workload), dict[str, list[Pod]]()
    alone = next(iter(charged)) if len(charged) == 1 else ""
    for pod in charges.pods_of(workload, cluster):
        if pods.is_bound(pod) or not pods.gates(pod):
            running.setdefault(pod.metadata.labels.get(names.PODSET_LABEL) or alone, []).append(pod)
    found = list[Action]()
    for name, most in charged.items():
        beyond = len(running.get(name, ())) - most
        if beyond <= 0:
            continue
        staying = [pod for pod in running[name] if not pod.metadata.deletion_timestamp]
        staying.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
        for pod in reversed(staying[-beyond:]):
            note = (
                f"Pod {pod.metadata.name} is deleted: more pods run than Workload {workload.metadata.name} charges for"
            )
            found += [patience.deletion(pod, at_most=patience.SHORT), Emit(workload, "Warning", "NotCharged", note)]
    return ReconcileResult(found[: 2 * AT_ONCE], why="more of its pods run than it charges for") if found else None


def _is_replaced(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a slice in the place of this one has been admitted: it charges for the pods of both."""
    return any(
        slices.replaced_by(each) == workload.metadata.key and each.admitted
        for chain in slices.chain_of(workload)
        for each in cluster.workloads.by_index(WORKLOADS_BY_CHAIN, chain)
    )


def _added(workload: Workload, cluster: ClusterView) -> dict[str, PodSetInfo]:
    """The additions of the admission to each pod set of an elastic job, without what names the Workload: a pod names
    the slice from whose template it was made, and the chain. Raises LookupError and PermanentError."""
    if not is_elastic(workload.metadata):
        return {}
    return {
        each.name: replace(
            each,
            annotations={key: value for key, value in each.annotations.items() if key not in _NAMES},
            scheduling_gates=tuple(gate for gate in each.scheduling_gates if gate != names.ELASTIC_GATE),
        )
        for each in cluster.infos_of(workload)
    }


_NAMES: Final = (names.WORKLOAD, names.SLICE_NAME)


def _ungated(pod: Pod, info: PodSetInfo | None) -> Change:
    if info is not None:
        return pods.started(pod, info)
    rest = [{"name": gate} for gate in pods.gates(pod) if gate not in pods.LEFT_GATES]
    return Change({"spec": {"schedulingGates": rest or None}}, fresh=True, target=pod)
