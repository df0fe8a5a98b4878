"""Applies changes of the stores to the engine's ledger, and reads the figures of queue statuses from the ledger."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
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
from turnstile.controllers.clusterview import ClusterView
from turnstile.controllers.queues import Activity, Amount, Consumption, Figures
from turnstile.engine import State
from turnstile.engine.intake import FEEDING, Feed
from turnstile.engine.quota.shares import Share
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


class LedgerBooks:
    """Implements `controllers.queues.Books` by reading the engine's ledger."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shares: dict[tuple[type[Kind], str], Share] = {}

    @property
    def fair_sharing(self) -> bool:
        """Whether shares are computed."""
        return self._state.options.fair_sharing is not None

    def count_share(self, kind: type[Kind], name: str) -> None:
        """Compute the share of a ClusterQueue or Cohort again, for `cluster_queue` and `cohort_share` to return. Never
        call this during a cycle, which simulates usage on the tree."""
        share = self._state.weighted_share(name, cohort=kind is Cohort)
        if share is None:
            self._shares.pop((kind, name), None)
        else:
            self._shares[kind, name] = share

    def cohort_share(self, name: str) -> int | None:
        """Weighted share of a Cohort; None if it was not computed yet."""
        share = self.share(Cohort, name)
        return share.status if share is not None else None

    def share(self, kind: type[Kind], name: str) -> Share | None:
        """Weighted share of a ClusterQueue or Cohort as it was last computed; None if it was not yet."""
        return self._shares.get((kind, name))

    def cluster_queue(self, name: str) -> Figures:
        """Figures of a ClusterQueue; zeros if it is unknown."""
        state = self._state
        pending, reserving, admitted = state.queue_counts(name)
        share = self.share(ClusterQueue, name)
        return Figures(
            pending=pending,
            reserving=reserving,
            admitted=admitted,
            reservation=tuple(Amount(*usage) for usage in state.queue_usage(name)),
            usage=tuple(Amount(*usage) for usage in state.queue_usage(name, admitted_only=True)),
            share=share.status if share is not None else None,
        )

    def local_queue(self, key: str) -> Figures:
        """Figures of a LocalQueue; zeros if it is unknown."""
        state = self._state
        pending, reserving, admitted = state.local_queue_counts(key)
        return Figures(
            pending=pending,
            reserving=reserving,
            admitted=admitted,
            reservation=tuple(Amount(*usage) for usage in state.local_queue_usage(key)),
            usage=tuple(Amount(*usage) for usage in state.local_queue_usage(key, admitted_only=True)),
        )

    def consumption(self, key: str, now: datetime) -> Consumption | None:
        """What a LocalQueue consumed, sampled if that is due; None if usage is not sampled."""
        state = self._state
        due = state.sample_usage(key, now.timestamp())
        if due is None:
            return None
        resources, since = state.consumed(key)
        counted = now if since is None else datetime.fromtimestamp(since, UTC)
        sampled = state.last_sample(key)
        return Consumption(
            resources=resources,
            counted=counted,
            sampled=datetime.fromtimestamp(sampled, UTC) if sampled is not None else None,
            due=due,
        )

    def admits(self, name: str) -> str:
        """A Workload whose admission to a ClusterQueue is assumed; or the cycle or the change that the ledger has yet
        to take in, until it knows that the ClusterQueue is being deleted."""
        queue = self._state.cluster_queues.get(name)
        if queue is not None and not queue.terminating:
            return "the scheduler"
        return next((f"Workload {key}" for key, each in self._state.assumed.items() if each.cluster_queue == name), "")

    def activity(self, name: str) -> Activity:
        """Whether a ClusterQueue may admit."""
        return Activity(*self._state.active_reason(name))
