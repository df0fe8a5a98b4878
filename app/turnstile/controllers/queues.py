"""Decides about the status of ClusterQueues, LocalQueues and Cohorts, with its figures and Active condition.

Figures come from the engine's ledger through `Books`; this module must never count. The caller coalesces status writes,
as a queue's figures change with every admission.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.conditions import set_condition, timestamp
from turnstile.api.localqueue import AdmissionFairSharingStatus, LocalQueue
from turnstile.api.meta import Condition, find_condition, to_plain
from turnstile.api.quantity import from_int
from turnstile.controllers import wakes
from turnstile.controllers.actions import Action, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.clusterview import CLUSTER_QUEUES_BY_CHECK, LOCAL_QUEUES_BY_CLUSTER_QUEUE, ClusterView
from turnstile.controllers.controller import Controller, Watch, every, itself
from turnstile.controllers.inuse import finalize, user_of_cluster_queue
from turnstile.controllers.status import condition_body
from turnstile.controllers.writes import encode

Keys = Iterator[str | None]

MIN_SAMPLE_SECONDS = 1.0
"""Minimum seconds between two samples of consumption, whose time is written in whole seconds."""


ADMITS_SECONDS = 0.5
"""Seconds until a deleted ClusterQueue to which an admission is only assumed is reconciled again."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Amount of one resource of one flavor, in the engine's integers (milli for cpu)."""

    flavor: str
    resource: str
    total: int
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """The ledger's counts for one queue. `reservation` is the reserved quota, `usage` that of admitted Workloads."""

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reservation: tuple[Amount, ...] = ()
    usage: tuple[Amount, ...] = ()
    share: int | None = None
    """Weighted share under fair sharing; None if it was not computed yet."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a ClusterQueue may admit, with Kueue's reason and message."""

    active: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Consumption:
    """Decayed usage of a LocalQueue as quantities, the time at which it was that, the time of the last sample, None if
    this process took none yet, and the seconds until the next sample."""

    resources: dict[str, str]
    counted: datetime
    sampled: datetime | None
    due: float


class Books(Protocol):
    """The ledger, as far as statuses need it."""

    @property
    def fair_sharing(self) -> bool:
        """Whether statuses have shares."""
        ...

    def cluster_queue(self, name: str) -> Figures:
        """Figures of a ClusterQueue; zeros if it is unknown."""
        ...

    def local_queue(self, key: str) -> Figures:
        """Figures of a LocalQueue; zeros if it is unknown."""
        ...

    def consumption(self, key: str, now: datetime) -> Consumption | None:
        """What a LocalQueue consumed, sampled now if that is due; None if usage is not sampled."""
        ...

    def activity(self, name: str) -> Activity:
        """Whether a ClusterQueue may admit."""
        ...

    def cohort_share(self, name: str) -> int | None:
        """Weighted share of a Cohort; None if it was not computed yet."""
        ...

    def admits(self, name: str) -> str:
        """A Workload that is admitted to a ClusterQueue by a write in flight, or what may admit one still; empty if
        nothing does."""
        ...


def decide_cluster_queue(name: str, cluster: ClusterView, books: Books) -> ReconcileResult:
    """Status and finalizer of one ClusterQueue; only the finalizer once it is being deleted and no Workload uses it."""
    queue = cluster.cluster_queues.get(name)
    if queue is None:
        return ReconcileResult(why="gone")
    user, later = "", []
    if queue.metadata.deletion_timestamp:
        user = user_of_cluster_queue(queue, cluster)
        if not user and (user := books.admits(name)):
            later.append(RequeueAfter(ADMITS_SECONDS))  # no object changes when an assumption is given up
    actions: list[Action] = [*finalize(queue, user=user), *later]
    if queue.metadata.deletion_timestamp and not user:
        return ReconcileResult(actions, why="deleted and unused")
    figures, activity = books.cluster_queue(name), books.activity(name)
    status: dict[str, Any] = {
        "pendingWorkloads": figures.pending,
        "reservingWorkloads": figures.reserving,
        "admittedWorkloads": figures.admitted,
        "flavorsReservation": _by_flavor(figures.reservation, with_borrowed=True),
        "flavorsUsage": _by_flavor(figures.usage, with_borrowed=True),
    }
    status |= _share(queue, figures.share, books)
    actions.extend(_status(queue, queue.status.conditions, activity, status, cluster))
    return ReconcileResult(actions, why=activity.message)


def decide_cohort(name: str, cluster: ClusterView, books: Books) -> ReconcileResult:
    """Status of one Cohort: its share, under fair sharing."""
    cohort = cluster.cohorts.get(name)
    if cohort is None:
        return ReconcileResult(why="gone")
    status = _share(cohort, books.cohort_share(name), books)
    if not status or to_plain(cohort.status.fair_sharing) == status["fairSharing"]:
        return ReconcileResult(why="nothing to do")
    return ReconcileResult([Patch(Cohort, "", name, encode({"status": status}), subresource="status", deferrable=True)])


def _share(obj: ClusterQueue | Cohort, share: int | None, books: Books) -> dict[str, Any]:
    """The part of a status with the weighted share; the field is removed when fair sharing is switched off."""
    if not books.fair_sharing:
        return {} if obj.status.fair_sharing is None else {"fairSharing": None}
    return {} if share is None else {"fairSharing": {"weightedShare": share}}


def decide_local_queue(key: str, cluster: ClusterView, books: Books) -> ReconcileResult:
    """Status of one LocalQueue. Under admission fair sharing the status contains the consumed resources, from which
    the next leader continues, and the LocalQueue is reconciled again when the next sample is due."""
    queue = cluster.local_queues.get(key)
    if queue is None:
        return ReconcileResult(why="gone")
    figures, activity = books.local_queue(key), local_queue_activity(queue, cluster, books)
    status: dict[str, Any] = {
        "pendingWorkloads": figures.pending,
        "reservingWorkloads": figures.reserving,
        "admittedWorkloads": figures.admitted,
        "flavorsReservation": _by_flavor(figures.reservation, with_borrowed=False),
        "flavorsUsage": _by_flavor(figures.usage, with_borrowed=False),
    }
    later: list[Action] = []
    consumption = books.consumption(key, cluster.now)
    if consumption is not None:
        if _sample_is_due(queue, consumption):
            status["fairSharing"] = _consumed(queue, consumption, cluster.now)
        later.append(RequeueAfter(max(consumption.due, MIN_SAMPLE_SECONDS)))
    actions = _status(queue, queue.status.conditions, activity, status, cluster)
    return ReconcileResult([*actions, *later], why=activity.message)


def _sample_is_due(queue: LocalQueue, consumption: Consumption) -> bool:
    """Whether the status has no sample or an older one. Between two samples nothing is written, although an admitted
    Workload changes the consumption at once: the next leader finds that admission in the Workload."""
    told = _told_consumption(queue)
    if consumption.sampled is None or told is None:
        return consumption.sampled is not None
    return not told.last_update or datetime.fromisoformat(told.last_update) < consumption.sampled.replace(microsecond=0)


def _consumed(queue: LocalQueue, consumption: Consumption, now: datetime) -> dict[str, Any]:
    told = _told_consumption(queue)
    dropped = dict.fromkeys(told.consumed_resources, None) if told is not None else {}
    return {
        "weightedShare": queue.status.fair_sharing.weighted_share if queue.status.fair_sharing is not None else 0,
        "admissionFairSharingStatus": {
            # The patch is a merge: a resource that is only left out would keep its old amount.
            "consumedResources": {**dropped, **consumption.resources},
            # Never a time that is still to come, which a clock that was set back would have the next leader wait for.
            "lastUpdate": timestamp(min(consumption.counted, now)),
        },
    }


def _told_consumption(queue: LocalQueue) -> AdmissionFairSharingStatus | None:
    shared = queue.status.fair_sharing
    return shared.admission_fair_sharing_status if shared is not None else None


def local_queue_activity(queue: LocalQueue, cluster: ClusterView, books: Books) -> Activity:
    """The Active condition of a LocalQueue."""
    if queue.spec.stop_policy != "None":
        return Activity(active=False, reason="Stopped", message="LocalQueue is stopped")
    refused = "Can't submit new workloads to clusterQueue"
    name = queue.spec.cluster_queue or ""
    if cluster.cluster_queues.get(name) is None:
        return Activity(active=False, reason="ClusterQueueDoesNotExist", message=refused)
    if not books.activity(name).active:
        return Activity(active=False, reason="ClusterQueueIsInactive", message=refused)
    return Activity(active=True, reason="Ready", message="Can submit new workloads to localQueue")


def _status(
    queue: ClusterQueue | LocalQueue,
    conditions: Sequence[Condition],
    activity: Activity,
    status: dict[str, Any],
    cluster: ClusterView,
) -> list[Action]:
    kept = find_condition(conditions, "Active")
    generation = queue.metadata.generation
    wanted = ("True" if activity.active else "False", activity.reason, activity.message, generation)
    # A new queue's status gets zeros too, so that people read `0`, not a blank.
    changed: dict[str, Any] = {
        name: value
        for name, value in status.items()
        if (kept is None and value is not None) or _told(queue, name) != value
    }
    if kept is None or (kept.status, kept.reason, kept.message, kept.observed_generation) != wanted:
        new = set_condition(
            conditions,
            type="Active",
            status="True" if activity.active else "False",
            reason=activity.reason,
            message=activity.message,
            now=cluster.now,
            observed_generation=generation,
        )
        changed["conditions"] = [condition_body(condition) for condition in new]
    if not changed:
        return []
    body = encode({"status": changed})
    meta = queue.metadata
    # Clients wait for the Active condition; figures may be a little old.
    deferrable = "conditions" not in changed
    return [Patch(type(queue), meta.namespace, meta.name, body, subresource="status", deferrable=deferrable)]


_ATTRIBUTES = {
    "pendingWorkloads": "pending_workloads",
    "reservingWorkloads": "reserving_workloads",
    "admittedWorkloads": "admitted_workloads",
    "flavorsReservation": "flavors_reservation",
    "flavorsUsage": "flavors_usage",
    "fairSharing": "fair_sharing",
}


def _told(queue: ClusterQueue | LocalQueue, name: str) -> Any:
    """The value of a status field; None if it is absent or an empty list."""
    value = to_plain(getattr(queue.status, _ATTRIBUTES[name]))
    return None if value == [] else value


def _by_flavor(amounts: tuple[Amount, ...], *, with_borrowed: bool) -> list[dict[str, Any]] | None:
    """Amounts as the status lists them, with flavors and resources in the ledger's order. None without amounts: a queue
    without flavors, or without its ClusterQueue, has no such list."""
    flavors: dict[str, list[dict[str, Any]]] = {}
    for amount in amounts:
        entry: dict[str, Any] = {"name": amount.resource, "total": from_int(amount.resource, amount.total)}
        if with_borrowed:
            entry["borrowed"] = from_int(amount.resource, amount.borrowed)
        flavors.setdefault(amount.flavor, []).append(entry)
    return [{"name": flavor, "resources": resources} for flavor, resources in flavors.items()] or None


def controllers(cluster: ClusterView, books: Books) -> list[Controller]:
    """The controllers that reconcile queues and Cohorts when these change; `controllers.queuefigures` adds the keys of
    those whose figures have changed. Statuses are read from the ledger, so each change is applied to the ledger
    first."""

    def cohort_changed(_: str, old: Cohort | None, new: Cohort | None) -> Keys | None:
        """A new parent may create a cycle of Cohorts, in which no Workload is admitted, or break a cycle."""
        return in_cohorts() if _parent_of(old) != _parent_of(new) else None

    def in_cohorts() -> Keys:
        for queue in cluster.cluster_queues.values(ordered=True):
            yield queue.metadata.name if queue.spec.cohort_name else None

    def check_changed(name: str, _: object, __: object) -> list[str]:
        """ClusterQueues with the check: a ClusterQueue admits only while a controller serves each of its checks."""
        return cluster.cluster_queues.keys_by_index(CLUSTER_QUEUES_BY_CHECK, name)

    def cluster_queue_changed(name: str, old: ClusterQueue | None, new: ClusterQueue | None) -> Keys | None:
        if not wakes.members_concerned(old, new):
            return None
        return iter(cluster.local_queues.keys_by_index(LOCAL_QUEUES_BY_CLUSTER_QUEUE, name))

    return [
        Controller(
            name=ClusterQueue.KIND,
            kind=ClusterQueue,
            decide=lambda name: decide_cluster_queue(name, cluster, books),
            watches=[
                Watch(cluster.cluster_queues, itself, after_ledger=True),
                Watch(cluster.cohorts, many=cohort_changed, after_ledger=True),
                Watch(cluster.admission_checks, check_changed, after_ledger=True),
            ],
            initial=lambda: every(cluster.cluster_queues),
            workers=2,
        ),
        Controller(
            name=LocalQueue.KIND,
            kind=LocalQueue,
            decide=lambda key: decide_local_queue(key, cluster, books),
            watches=[
                Watch(cluster.local_queues, itself, after_ledger=True),
                Watch(cluster.cluster_queues, many=cluster_queue_changed, after_ledger=True),
            ],
            initial=lambda: every(cluster.local_queues),
            workers=2,
        ),
        Controller(
            name=Cohort.KIND,
            kind=Cohort,
            decide=lambda name: decide_cohort(name, cluster, books),
            watches=[Watch(cluster.cohorts, itself)],
            initial=lambda: every(cluster.cohorts),
        ),
    ]


def _parent_of(cohort: Cohort | None) -> str:
    return (cohort.spec.parent_name or "") if cohort is not None else ""
