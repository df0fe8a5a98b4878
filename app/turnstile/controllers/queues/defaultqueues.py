"""Keeps a LocalQueue named `default` in each namespace that a rule of `defaultLocalQueues` selects. Not in Kueue.

The queue is made, put back after a deletion, replaced when its rule names another ClusterQueue (the field is immutable)
and no Workload holds quota through it, and deleted when no rule selects the namespace any more and no unfinished
Workload is left in it. A LocalQueue without the label that Turnstile gives it belongs to its author and is never
touched. Without any rule nothing is decided, so that a configuration without the section leaves all queues as they are.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from turnstile.api import names
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.validation.labels import subdomain_faults
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Create, Delete, Emit, ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch, every
from turnstile.controllers.runtime.writes import encode
from turnstile.controllers.view.clusterview import WORKLOADS_BY_QUEUE, ClusterView

MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "turnstile")
"""The label of the LocalQueues that this controller made, and its value."""


def decide(namespace: str, cluster: ClusterView) -> ReconcileResult:
    """The writes that one namespace needs; none while its `default` queue is another author's."""
    rules = cluster.options.default_local_queues
    found = cluster.namespaces.get(namespace)
    if not rules or found is None or found.metadata.deletion_timestamp:
        return ReconcileResult(why="no rule" if not rules else "gone")
    queue = cluster.local_queues.get(_queue_key(namespace))
    if queue is not None and not is_kept(queue):
        return ReconcileResult(why="its default queue is not Turnstile's")
    wanted = cluster_queue_for(found, cluster)
    if wanted and (faults := subdomain_faults(wanted)):
        note = (
            f"LocalQueue {names.DEFAULT_LOCAL_QUEUE} is not made: {wanted!r} is no name of a ClusterQueue: {faults[0]}"
        )
        return ReconcileResult([Emit(found, "Warning", "InvalidClusterQueue", note)], why=note)
    if queue is None:
        return ReconcileResult([_create(namespace, wanted)], why=f"to {wanted}") if wanted else ReconcileResult()
    if queue.spec.cluster_queue == wanted:
        return ReconcileResult(why="as it should be")
    if user := _user(namespace, cluster, waiting=not wanted):
        return ReconcileResult(why=f"kept for Workload {user}")
    if queue.metadata.deletion_timestamp:
        return ReconcileResult(why="being deleted")
    meta = queue.metadata
    return ReconcileResult([Delete(LocalQueue, namespace, meta.name, uid=meta.uid)], why=f"not to {wanted or 'any'}")


def cluster_queue_for(namespace: Namespace, cluster: ClusterView) -> str:
    """The ClusterQueue that the first rule with an answer names for a namespace; empty if no rule has one, or if jobs
    of the namespace are not managed."""
    labels = namespace.metadata.labels
    if not cluster.options.managed_jobs_namespace_selector.matches(labels):
        return ""
    return next(filter(None, (rule.cluster_queue_for(labels) for rule in cluster.options.default_local_queues)), "")


def is_kept(queue: LocalQueue) -> bool:
    """Whether Turnstile made a LocalQueue, and its label is still there."""
    label, value = MANAGED_BY
    return queue.metadata.labels.get(label) == value


def controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles a namespace when its labels, its `default` queue or Workloads in that change."""

    def relabelled(name: str, old: Namespace | None, new: Namespace | None) -> Iterable[str]:
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return ()
        return (name,)

    def queue_changed(key: str, _old: LocalQueue | None, _new: LocalQueue | None) -> Iterable[str]:
        namespace, _, name = key.partition("/")
        return (namespace,) if name == names.DEFAULT_LOCAL_QUEUE else ()

    def workload_left(_: str, old: Workload | None, new: Workload | None) -> Iterable[str]:
        """The namespace of a Workload that has ended or given its quota back: its queue may be what waited for that."""
        if old is None or old.spec.queue_name != names.DEFAULT_LOCAL_QUEUE or not cluster.options.default_local_queues:
            return ()
        ended = not old.finished and (new is None or new.finished)
        returned = old.quota_reserved and new is not None and not new.quota_reserved
        moved = new is not None and new.spec.queue_name != old.spec.queue_name
        return (old.metadata.namespace,) if ended or returned or moved else ()

    return Controller(
        name="DefaultLocalQueue",
        kind=LocalQueue,
        decide=lambda namespace: decide(namespace, cluster),
        watches=[
            Watch(cluster.namespaces, relabelled),
            Watch(cluster.local_queues, queue_changed),
            Watch(cluster.workloads, workload_left),
        ],
        initial=lambda: every(cluster.namespaces),
    )


def _user(namespace: str, cluster: ClusterView, *, waiting: bool) -> str:
    """A Workload that keeps the queue: with quota, or with `waiting` any that has not finished; empty without one."""
    workloads: Iterator[Workload] = iter(cluster.workloads.by_index(WORKLOADS_BY_QUEUE, _queue_key(namespace)))
    return next(
        (each.metadata.name for each in workloads if not each.finished and (waiting or each.quota_reserved)), ""
    )


def _queue_key(namespace: str) -> str:
    return f"{namespace}/{names.DEFAULT_LOCAL_QUEUE}"


def _create(namespace: str, cluster_queue: str) -> Create:
    label, value = MANAGED_BY
    body = {
        "apiVersion": names.API_VERSION,
        "kind": LocalQueue.KIND,
        "metadata": {"name": names.DEFAULT_LOCAL_QUEUE, "namespace": namespace, "labels": {label: value}},
        "spec": {"clusterQueue": cluster_queue},
    }
    return Create(LocalQueue, namespace, names.DEFAULT_LOCAL_QUEUE, encode(body))
