"""Prevents the deletion of cluster-scoped objects in use, by the finalizer `kueue.x-k8s.io/resource-in-use`.

One rule for all kinds, as in Kueue: an object has the finalizer until it is being deleted and no other object uses it.
Only the kind of the users differs. The finalizer may also have been added by Kueue. LocalQueues, Cohorts and priority
classes have none.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.controllers import wakes
from turnstile.controllers.runtime.actions import Patch, ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch, every, itself
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import (
    CLUSTER_QUEUES_BY_CHECK,
    CLUSTER_QUEUES_BY_FLAVOR,
    FLAVORS_BY_TOPOLOGY,
    WORKLOADS_BY_CLUSTER_QUEUE,
    ClusterView,
    checks_in,
    flavors_in,
    topologies_in,
)
from turnstile.kube.store import Store

T = TypeVar("T", bound=Kind)
U = TypeVar("U", bound=Kind)


def finalize(obj: Kind, *, user: str) -> list[Patch]:
    """The patch that adds or removes the finalizer, if needed; `user` names an object that uses `obj`, empty if none
    does."""
    meta = obj.metadata
    there = names.RESOURCE_IN_USE in meta.finalizers
    if meta.deletion_timestamp:
        if user or not there:
            return []
        wanted = [finalizer for finalizer in meta.finalizers if finalizer != names.RESOURCE_IN_USE]
    elif there:
        return []
    else:
        wanted = [*meta.finalizers, names.RESOURCE_IN_USE]
    return [fresh_patch(obj, {"metadata": {"finalizers": wanted}})]


def user_of_cluster_queue(queue: ClusterQueue, cluster: ClusterView) -> str:
    """A Workload that holds quota in a ClusterQueue; empty if none does. Admissions that are decided and not yet
    written are known to the ledger alone (`_admits` of `controllers.queues.statuses`)."""
    for key in cluster.workloads.keys_by_index(WORKLOADS_BY_CLUSTER_QUEUE, queue.metadata.name, ordered=False):
        workload = cluster.workloads.get(key)
        if workload is not None and workload.quota_reserved and not workload.finished:
            return f"Workload {key}"
    return ""


def controllers(cluster: ClusterView) -> list[Controller]:
    """The controllers that reconcile each kind when an object of it changes, or an object that may refer to it."""
    queues = cluster.cluster_queues
    return [
        _controller(cluster.flavors, ResourceFlavor, queues, CLUSTER_QUEUES_BY_FLAVOR, flavors_in),
        _controller(cluster.admission_checks, AdmissionCheck, queues, CLUSTER_QUEUES_BY_CHECK, checks_in),
        _controller(cluster.topologies, Topology, cluster.flavors, FLAVORS_BY_TOPOLOGY, topologies_in),
    ]


def _controller(
    objects: Store[T], kind: type[T], users: Store[U], index: str, names_in: Callable[[U], Iterable[str]]
) -> Controller:
    """The controller of a kind whose objects are used by name: `index` finds the users of a name, and `names_in` the
    names in a user."""

    def decide(name: str) -> ReconcileResult:
        obj = objects.get(name)
        if obj is None:
            return ReconcileResult(why="gone")
        user = next((f"{each.KIND} {each.metadata.name}" for each in users.by_index(index, name)), "")
        return ReconcileResult([*finalize(obj, user=user)], why=f"in use by {user}" if user else "unused")

    def referred(_: str, old: U | None, new: U | None) -> Iterable[str]:
        """The names to which a user refers or referred, if its spec has changed."""
        if not wakes.spec_concerned(old, new):
            return ()
        return dict.fromkeys(name for user in (old, new) if user is not None for name in names_in(user))

    return Controller(
        name=kind.KIND,
        kind=kind,
        decide=decide,
        watches=[Watch(objects, itself), Watch(users, referred)],
        initial=lambda: every(objects),
    )
