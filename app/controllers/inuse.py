"""Prevents the deletion of cluster-scoped objects in use, by the finalizer `kueue.x-k8s.io/resource-in-use`.

One rule for all kinds, as in Kueue: an object has the finalizer until it is being deleted and no other object uses it.
Only the kind of the users differs. The finalizer may also have been added by Kueue. LocalQueues, Cohorts and priority
classes have none.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from app.api import names
from app.api.admissioncheck import AdmissionCheck
from app.api.clusterqueue import ClusterQueue
from app.api.meta import Kind
from app.api.resourceflavor import ResourceFlavor
from app.api.topology import Topology
from app.controllers import wakes
from app.controllers.actions import Patch, ReconcileResult
from app.controllers.clusterview import (
    CLUSTER_QUEUES_BY_CHECK,
    CLUSTER_QUEUES_BY_FLAVOR,
    FLAVORS_BY_TOPOLOGY,
    WORKLOADS_BY_CLUSTER_QUEUE,
    ClusterView,
    checks_in,
    flavors_in,
)
from app.controllers.controller import Controller, Watch, every, itself
from app.controllers.writes import fresh_patch
from app.kube.store import Store

T = TypeVar("T", bound=Kind)


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
    written are known to the ledger alone (`controllers.queues.Books.admits`)."""
    for key in cluster.workloads.keys_by_index(WORKLOADS_BY_CLUSTER_QUEUE, queue.metadata.name, ordered=False):
        workload = cluster.workloads.get(key)
        if workload is not None and workload.quota_reserved and not workload.finished:
            return f"Workload {key}"
    return ""


def decide_flavor(name: str, cluster: ClusterView) -> ReconcileResult:
    """Finalizer of a ResourceFlavor, which ClusterQueues use."""
    return _decide(cluster.flavors.get(name), cluster.cluster_queues, CLUSTER_QUEUES_BY_FLAVOR)


def decide_check(name: str, cluster: ClusterView) -> ReconcileResult:
    """Finalizer of an AdmissionCheck, which ClusterQueues use."""
    return _decide(cluster.admission_checks.get(name), cluster.cluster_queues, CLUSTER_QUEUES_BY_CHECK)


def decide_topology(name: str, cluster: ClusterView) -> ReconcileResult:
    """Finalizer of a Topology, which ResourceFlavors use."""
    return _decide(cluster.topologies.get(name), cluster.flavors, FLAVORS_BY_TOPOLOGY)


def _decide(obj: Kind | None, users: Store[T], index: str) -> ReconcileResult:
    if obj is None:
        return ReconcileResult(why="gone")
    by = next((f"{each.KIND} {each.metadata.name}" for each in users.by_index(index, obj.metadata.name)), "")
    return ReconcileResult([*finalize(obj, user=by)], why=f"in use by {by}" if by else "unused")


def controllers(cluster: ClusterView) -> list[Controller]:
    """The controllers that reconcile each kind when an object of it changes, or an object that may refer to it."""
    return [
        Controller(
            name=ResourceFlavor.KIND,
            kind=ResourceFlavor,
            decide=lambda name: decide_flavor(name, cluster),
            watches=[Watch(cluster.flavors, itself), Watch(cluster.cluster_queues, _referred(flavors_in))],
            initial=lambda: every(cluster.flavors),
        ),
        Controller(
            name=AdmissionCheck.KIND,
            kind=AdmissionCheck,
            decide=lambda name: decide_check(name, cluster),
            watches=[Watch(cluster.admission_checks, itself), Watch(cluster.cluster_queues, _referred(checks_in))],
            initial=lambda: every(cluster.admission_checks),
        ),
        Controller(
            name=Topology.KIND,
            kind=Topology,
            decide=lambda name: decide_topology(name, cluster),
            watches=[Watch(cluster.topologies, itself), Watch(cluster.flavors, _topologies)],
            initial=lambda: every(cluster.topologies),
        ),
    ]


def _referred(
    names_in: Callable[[ClusterQueue], Iterable[str]],
) -> Callable[[str, ClusterQueue | None, ClusterQueue | None], Iterable[str]]:
    """`Watch.keys`: the names to which a ClusterQueue refers or referred, if its spec has changed."""

    def changed(_: str, old: ClusterQueue | None, new: ClusterQueue | None) -> Iterable[str]:
        if not wakes.spec_concerned(old, new):
            return ()
        return dict.fromkeys(name for queue in (old, new) if queue is not None for name in names_in(queue))

    return changed


def _topologies(_: str, old: ResourceFlavor | None, new: ResourceFlavor | None) -> list[str]:
    return [flavor.spec.topology_name for flavor in (old, new) if flavor is not None and flavor.spec.topology_name]
