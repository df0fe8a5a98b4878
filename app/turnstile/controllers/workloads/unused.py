"""Evicts a Workload that holds quota and whose pods have not run for a while (`JobOptions.unused_after`).

Judged from pods with a running container, init containers included: these use what the pod requests. Nothing is
written about a healthy job, whose Workload is only looked at again once in that time. The status of a job does not
count: it says that the job is ready for as long as pods that have succeeded are as many as may run at a time, or
since a cluster was ready once. It counts only for kinds whose pods come and go, or may not be known (`_by_status`).
The Workload is requeued as after the timeout of waitForPodsReady, and waits as long. Not in Kueue, where whatever is
admitted and never starts (a service account or a volume that does not exist, a node that no pod fits) keeps its quota
for ever.
"""

from collections.abc import Iterator
from typing import Any, Final

from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import jobreconciler
from turnstile.controllers.runtime.actions import Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.status import podsready
from turnstile.controllers.view.clusterview import ClusterView, NotRead
from turnstile.controllers.view.multikueue import dispatching
from turnstile.engine.causes import Eviction
from turnstile.jobs.integration import Integration
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.options import PodsReadyOptions

PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"


def follow_idle(cluster: ClusterView) -> None:
    """Note when pods of idle Workloads stop running, and forget Workloads that are gone."""

    def pod_changed(_: str, old: Pod | None, new: Pod | None) -> None:
        if old is not None and runs(old) and not (new is not None and runs(new)) and len(cluster.idle):
            for workload in charges.workloads_of(old, cluster):
                cluster.idle.ended(workload.metadata.uid, cluster.measured)

    def workload_changed(_: str, old: Workload | None, new: Workload | None) -> None:
        if old is not None and (new is None or not new.admitted or new.metadata.uid != old.metadata.uid):
            cluster.idle.forget(old.metadata.uid)

    cluster.pods.subscribe(pod_changed)
    cluster.workloads.subscribe(workload_changed)


def runs(pod: Pod) -> bool:
    """Whether a container of a pod runs. The phase says so only once the init containers have ended."""
    return pod.status.phase == "Running" or any(each.state.running for each in pod.status.init_container_statuses)


def evicted_unused(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Evict a Workload whose pods have not run for as long as the option says; None if that does not apply."""
    limit = cluster.options.unused_after
    if limit is None or not workload.admitted or workload.evicted or not workload.spec.active:
        return None
    if dispatching(workload, cluster.admission_checks) is not None:
        return None  # its pods run on another cluster, which evicts it if none does
    if not cluster.registry.jobs_of(workload):
        return None  # its creator may use it to keep quota free, or for pods that only the creator knows
    if not any(charges.pods_charged(workload).values()):
        return None  # it holds no quota, as a Job whose parallelism is 0
    uid, again = workload.metadata.uid, ReconcileResult([RequeueAfter(limit)], why="its pods are looked at again")
    if not cluster.pods.complete or in_use(workload, cluster):
        cluster.idle.forget(uid)
        return again
    left = limit - cluster.idle.seen(uid, cluster.measured)
    if left > 0:
        return ReconcileResult([RequeueAfter(left)], why="no pod of it runs")
    options = cluster.options.pods_ready or PodsReadyOptions()
    state = workload.status.requeue_state
    until = podsready.next_attempt((state.count or 0) if state is not None else 0, options, cluster.now)
    message = Eviction.PODS_IDLE.says(seconds=f"{limit:g}")
    draft = cluster.draft(workload)
    if until is not None:
        draft.requeue(until, counted=True)
    draft.evict(PODS_READY_TIMEOUT, message, cause=podsready.WAIT_FOR_START)
    event = Emit(workload, "Warning", f"EvictedDueTo{PODS_READY_TIMEOUT}", message)
    return ReconcileResult([draft.patch(), event], why=message)


def in_use(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a pod of a Workload runs, or its job says so of pods that may not be known."""
    if any(runs(pod) for pod in (*charges.pods_of(workload, cluster), *charges.own_pods(workload, cluster))):
        return True
    if not any(_by_status(each) for each in _integrations(workload, cluster)):
        return False
    try:
        return jobreconciler.pods_are_ready(workload, cluster)
    except NotRead:
        return True


def _integrations(workload: Workload, cluster: ClusterView) -> Iterator[Integration[Any]]:
    for key in cluster.registry.jobs_of(workload):
        if (found := cluster.registry.known.get(split_job_key(key)[0])) is not None:
            yield found


def _by_status(integration: Integration[Any]) -> bool:
    """Whether the status of a job counts, because its pods come and go, or may not be known as its pods."""
    return bool(integration.pods_label) or integration.handling.described
