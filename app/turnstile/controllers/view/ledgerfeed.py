"""Applies changes of the stores to the engine's state."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import State
from turnstile.engine.intake import FEEDING, Feed
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
) -> list[Callable[[], None]]:
    """Pass every object of the stores, and then every change, to `take`, which applies it. Returns the functions that
    end this. The objects may be many: with `begin`, they are passed to it as iterables instead, to be applied in slices
    before the changes that `take` receives meanwhile. Changes of objects that exist are offered to `edit` first, which
    returns whether it took them."""

    stores: dict[type[Kind], Store[Any]] = {
        Namespace: cluster.namespaces,
        ResourceFlavor: cluster.flavors,
        DeviceClass: cluster.device_classes,
        Topology: cluster.topologies,
        AdmissionCheck: cluster.admission_checks,
        LimitRange: cluster.limit_ranges,
        RuntimeClass: cluster.runtime_classes,
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

    return [attend(stores[kind], feed) for kind, feed in FEEDING.items()]
