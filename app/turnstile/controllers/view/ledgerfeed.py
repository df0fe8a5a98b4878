"""Applies changes of the stores to the engine's state.

Nodes and pods are followed from the first Topology on, or the first ClusterQueue that waits for room on nodes. There
are more changes of them than of all other kinds together, so those that no decision reads (heartbeats, the readiness
of a pod) end here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import State
from turnstile.engine.intake import FEEDING, PLACES, Feed
from turnstile.engine.intake import placing as placing_objects
from turnstile.jobs.pods import is_bound, is_over
from turnstile.kube.store import Store

Change = Callable[[], None]
"""Applies one change of a store to the ledger; raises if the ledger cannot interpret the object."""


def follow(
    state: State,
    cluster: ClusterView,
    *,
    take: Callable[[Change], None],
    edit: Callable[[Change, Kind, Kind], bool] | None = None,
    begin: Callable[[Iterable[Change]], None] | None = None,
    later: Callable[[Change], None] | None = None,
) -> list[Callable[[], None]]:
    """Pass every object of the stores, and then every change, to `take`, which applies it. Returns the functions that
    end this. The objects may be many: with `begin`, they are passed to it as iterables instead, to be applied in slices
    before the changes that `take` receives meanwhile. Changes of objects that exist are offered to `edit` first, which
    returns whether it took them. Those of nodes and pods are passed to `later`, if it is given."""

    stores: dict[type[Kind], Store[Any]] = {
        Namespace: cluster.namespaces,
        ResourceFlavor: cluster.flavors,
        DeviceClass: cluster.device_classes,
        ResourceClaimTemplate: cluster.claim_templates,
        ResourceClaim: cluster.claims,
        ResourceSlice: cluster.resource_slices,
        Topology: cluster.topologies,
        AdmissionCheck: cluster.admission_checks,
        LimitRange: cluster.limit_ranges,
        RuntimeClass: cluster.runtime_classes,
        WorkloadPriorityClass: cluster.workload_priority_classes,
        Cohort: cluster.cohorts,
        ClusterQueue: cluster.cluster_queues,
        LocalQueue: cluster.local_queues,
        Workload: cluster.workloads,
    }

    def attend(store: Store[Any], feed: Feed) -> Callable[[], None]:
        def put(value: Kind) -> None:
            feed.put(state, value, cluster.now.timestamp())

        def drop(key: str) -> None:
            feed.drop(state, key, cluster.now.timestamp())

        def held() -> Iterator[Change]:
            keys = store.keys()
            for key in keys:
                value = store.get(key)
                if value is not None:
                    yield partial(put, value)

        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            if new is None:
                take(partial(drop, key))
            elif edit is None or old is None or not edit(partial(put, new), old, new):
                take(partial(put, new))

        if begin is not None:
            begin(held())
        return store.subscribe(changed, replay=begin is None)

    undo = [attend(stores[kind], feed) for kind, feed in FEEDING.items()]
    if not state.options.gates.topology_aware_scheduling:
        return undo
    placing = False
    hand = later or take

    def place(store: Store[Any], feed: Feed, matters: Callable[[Any, Any], bool]) -> None:
        def put(value: Kind) -> None:
            feed.put(state, value, cluster.now.timestamp())

        def drop(key: str) -> None:
            feed.drop(state, key, cluster.now.timestamp())

        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            if not matters(old, new):
                return
            hand(partial(drop, key) if new is None else partial(put, new))

        def held() -> Iterator[Change]:
            keys = store.keys()
            for key in keys:
                value = store.get(key)
                if value is not None and matters(None, value):
                    yield partial(put, value)

        if begin is not None:
            begin(held())
        undo.append(store.subscribe(changed, replay=begin is None))

    def begin_placing(matters: Callable[[Any], bool], _: str, __: Kind | None, new: Kind | None) -> None:
        nonlocal placing
        if new is not None and not placing and matters(new):
            placing = True
            place(cluster.nodes, PLACES[Node], partial(_node_matters, state.options.node_failure_conditions))
            place(cluster.pods, PLACES[Pod], _pod_matters)

    for kind, matter in placing_objects(wait_for_room=state.options.wait_for_room).items():
        undo.append(stores[kind].subscribe(partial(begin_placing, matter), replay=True))
    return undo


def _node_matters(failures: Collection[str], old: Node | None, new: Node | None) -> bool:
    """Whether a change of a node decides where pods go; `failures` are conditions of one that does not work."""
    if old is None or new is None:
        return True
    return (
        old.takes_pods != new.takes_pods
        or old.is_broken(failures) != new.is_broken(failures)
        or old.status.allocatable != new.status.allocatable
        or old.metadata.labels != new.metadata.labels
        or old.spec.taints != new.spec.taints
    )


def _pod_matters(old: Pod | None, new: Pod | None) -> bool:
    """Whether a change of a pod decides what is free on a node."""
    if old is not None and new is not None and old.spec == new.spec:
        named = [each.metadata.annotations.get(names.WORKLOAD) for each in (old, new)]
        return is_over(old) != is_over(new) or named[0] != named[1]
    return any(each is not None and is_bound(each) for each in (old, new))
