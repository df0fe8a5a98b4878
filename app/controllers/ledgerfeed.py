"""Applies changes of the stores to the engine's ledger, and reads the figures of queue statuses from the ledger."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from app.api.admissioncheck import AdmissionCheck
from app.api.clusterqueue import ClusterQueue
from app.api.cohort import Cohort
from app.api.meta import Kind
from app.controllers.clusterview import ClusterView
from app.controllers.queues import Activity, Amount, Consumption, Figures
from app.engine import State
from app.engine.quota.shares import Share
from app.kube.store import Store

T = TypeVar("T", bound=Kind)


Change = Callable[[], None]
"""Applies one change of a store to the ledger; raises if the ledger cannot interpret the object."""


def follow(
    state: State,
    cluster: ClusterView,
    *,
    take: Callable[[Change], None],
    begin: Callable[[Iterable[Change]], None] | None = None,
) -> list[Callable[[], None]]:
    """Pass every object of the stores, and then every change, to `take`, which applies it. Returns the functions that
    end this. The objects may be many: with `begin`, they are passed to it as iterables instead, to be applied in slices
    before the changes that `take` receives meanwhile."""

    def held(store: Store[T], put: Callable[[T], None]) -> Iterator[Change]:
        keys = store.keys()
        for key in keys:
            value = store.get(key)
            if value is not None:
                yield partial(put, value)

    def attend(store: Store[T], put: Callable[[T], None], drop: Callable[[str], None]) -> Callable[[], None]:
        def changed(key: str, old: T | None, new: T | None) -> None:
            take(partial(drop, key) if new is None else partial(put, new))

        if begin is not None:
            begin(held(store, put))
        return store.subscribe(changed, replay=begin is None)

    def now() -> float:
        return cluster.now.timestamp()

    def put_check(check: AdmissionCheck) -> None:
        controller = check.spec.controller_name if check.spec is not None else ""
        state.put_admission_check(check.metadata.name, active=check.active, controller=controller)

    return [
        attend(
            cluster.namespaces, lambda n: state.put_namespace(n.metadata.name, n.metadata.labels), state.drop_namespace
        ),
        attend(cluster.flavors, state.put_flavor, state.drop_flavor),
        attend(cluster.admission_checks, put_check, state.drop_admission_check),
        attend(
            cluster.limit_ranges, lambda r: state.put_limit_range(r, now()), lambda k: state.drop_limit_range(k, now())
        ),
        attend(
            cluster.runtime_classes,
            lambda r: state.put_runtime_class(r, now()),
            lambda k: state.drop_runtime_class(k, now()),
        ),
        attend(cluster.cohorts, state.put_cohort, state.drop_cohort),
        attend(cluster.cluster_queues, lambda q: state.put_cluster_queue(q, now()), state.drop_cluster_queue),
        attend(cluster.local_queues, lambda q: state.put_local_queue(q, now()), state.drop_local_queue),
        attend(cluster.workloads, lambda w: state.put_workload(w, now()), state.drop_workload),
    ]


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
