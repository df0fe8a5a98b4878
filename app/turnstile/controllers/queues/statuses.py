"""Decides about the status of ClusterQueues, LocalQueues and Cohorts, with its figures and Active condition.

The engine's state counts; this module never does. The caller coalesces status writes, because a queue's figures change
with every admission.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.conditions import set_condition, timestamp
from turnstile.api.localqueue import AdmissionFairSharingStatus, LocalQueue
from turnstile.api.meta import Condition, Kind, find_condition, to_plain
from turnstile.api.quantity import from_int
from turnstile.controllers import wakes
from turnstile.controllers.queues.inuse import finalize, user_of_cluster_queue
from turnstile.controllers.runtime.actions import Action, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch, every, itself
from turnstile.controllers.runtime.writes import encode
from turnstile.controllers.status.draft import condition_body
from turnstile.controllers.view.clusterview import CLUSTER_QUEUES_BY_CHECK, LOCAL_QUEUES_BY_CLUSTER_QUEUE, ClusterView
from turnstile.engine import State
from turnstile.engine.instants import Instant
from turnstile.engine.questions import Activity, Counts, FlavorUsage
from turnstile.engine.quota.shares import Share

Keys = Iterator[str | None]

MIN_SAMPLE_SECONDS = 1.0
"""Minimum seconds between two samples of consumption, whose time is written in whole seconds."""


ADMITS_SECONDS = 0.5
"""Seconds until a deleted ClusterQueue to which an admission is only assumed is reconciled again."""


class CountedShares:
    """Weighted shares of ClusterQueues and Cohorts, each as it was last computed. During a cycle, which simulates usage
    on the tree, the state has no share to give."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._counted: dict[tuple[type[Kind], str], Share] = {}

    @property
    def on(self) -> bool:
        """Whether fair sharing is on, so that statuses have shares."""
        return self._state.options.fair_sharing is not None

    def count(self, kind: type[Kind], name: str) -> None:
        """Compute the share of a ClusterQueue or Cohort again, for `get` to return. Never call this during a cycle."""
        share = self._state.questions.weighted_share(name, cohort=kind is Cohort)
        if share is None:
            self._counted.pop((kind, name), None)
        else:
            self._counted[kind, name] = share

    def get(self, kind: type[Kind], name: str) -> Share | None:
        """Weighted share of a ClusterQueue or Cohort; None if it was not computed yet."""
        return self._counted.get((kind, name))


def decide_cluster_queue(name: str, cluster: ClusterView, state: State, shares: CountedShares) -> ReconcileResult:
    """Status and finalizer of one ClusterQueue; only the finalizer once it is being deleted and no Workload uses it."""
    queue = cluster.cluster_queues.get(name)
    if queue is None:
        return ReconcileResult(why="gone")
    user, later = "", []
    if queue.metadata.deletion_timestamp:
        user = user_of_cluster_queue(queue, cluster)
        if not user and (user := _admits(name, state)):
            later.append(RequeueAfter(ADMITS_SECONDS))  # no object changes when an assumption is given up
    actions: list[Action] = [*finalize(queue, user=user), *later]
    if queue.metadata.deletion_timestamp and not user:
        return ReconcileResult(actions, why="deleted and unused")
    activity = state.questions.active_reason(name)
    status = {
        **_counts(state.questions.queue_counts(name)),
        "flavorsReservation": _by_flavor(state.questions.queue_usage(name), with_borrowed=True),
        "flavorsUsage": _by_flavor(state.questions.queue_usage(name, admitted_only=True), with_borrowed=True),
        **_share(queue, shares),
    }
    actions.extend(_status(queue, queue.status.conditions, activity, status, cluster))
    return ReconcileResult(actions, why=activity.message)


def _admits(name: str, state: State) -> str:
    """The Workload whose admission to a ClusterQueue is assumed; or the scheduler, which may admit a Workload until the
    state knows that the ClusterQueue is being deleted. Empty if nothing admits."""
    queue = state.cluster_queues.get(name)
    if queue is not None and not queue.terminating:
        return "the scheduler"
    return next(
        (f"Workload {key}" for key, each in state.reservations.assumed.items() if each.cluster_queue == name), ""
    )


def decide_cohort(name: str, cluster: ClusterView, shares: CountedShares) -> ReconcileResult:
    """Status of one Cohort: its share, under fair sharing."""
    cohort = cluster.cohorts.get(name)
    if cohort is None:
        return ReconcileResult(why="gone")
    status = _share(cohort, shares)
    if not status or to_plain(cohort.status.fair_sharing) == status["fairSharing"]:
        return ReconcileResult(why="nothing to do")
    return ReconcileResult([Patch(Cohort, "", name, encode({"status": status}), subresource="status", deferrable=True)])


def _counts(counts: Counts) -> dict[str, Any]:
    """The part of a status with the numbers of Workloads."""
    return {
        "pendingWorkloads": counts.pending,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
    }


def _share(obj: ClusterQueue | Cohort, shares: CountedShares) -> dict[str, Any]:
    """The part of a status with the weighted share; the field is removed when fair sharing is switched off."""
    if not shares.on:
        return {} if obj.status.fair_sharing is None else {"fairSharing": None}
    share = shares.get(type(obj), obj.metadata.name)
    return {} if share is None else {"fairSharing": {"weightedShare": share.status}}


def decide_local_queue(key: str, cluster: ClusterView, state: State) -> ReconcileResult:
    """Status of one LocalQueue. Under admission fair sharing the status contains the consumed resources, from which
    the next leader continues, and the LocalQueue is reconciled again when the next sample is due."""
    queue = cluster.local_queues.get(key)
    if queue is None:
        return ReconcileResult(why="gone")
    activity = local_queue_activity(queue, cluster, state)
    status = {
        **_counts(state.questions.local_queue_counts(key)),
        "flavorsReservation": _by_flavor(state.questions.local_queue_usage(key), with_borrowed=False),
        "flavorsUsage": _by_flavor(state.questions.local_queue_usage(key, admitted_only=True), with_borrowed=False),
    }
    later: list[Action] = []
    due = state.sample_usage(key, cluster.now.timestamp())
    if due is not None:
        if _sample_is_due(queue, state.sharing.last_sample(key)):
            status["fairSharing"] = _consumed(queue, *state.sharing.consumed(key), cluster.now)
        later.append(RequeueAfter(max(due, MIN_SAMPLE_SECONDS)))
    actions = _status(queue, queue.status.conditions, activity, status, cluster)
    return ReconcileResult([*actions, *later], why=activity.message)


def _sample_is_due(queue: LocalQueue, sampled: Instant | None) -> bool:
    """Whether the status has no sample or an older one than the last, which this process took. Between two samples
    nothing is written, although an admitted Workload changes the consumption at once: the next leader finds that
    admission in the Workload."""
    reported = _reported_consumption(queue)
    if sampled is None or reported is None:
        return sampled is not None
    return not reported.last_update or datetime.fromisoformat(reported.last_update).timestamp() < int(sampled)


def _consumed(
    queue: LocalQueue, resources: Mapping[str, str], counted: Instant | None, now: datetime
) -> dict[str, Any]:
    reported = _reported_consumption(queue)
    dropped = dict.fromkeys(reported.consumed_resources, None) if reported is not None else {}
    at = now if counted is None else datetime.fromtimestamp(counted, UTC)
    return {
        "weightedShare": queue.status.fair_sharing.weighted_share if queue.status.fair_sharing is not None else 0,
        "admissionFairSharingStatus": {
            # The patch is a merge: a resource that is only left out would keep its old amount.
            "consumedResources": {**dropped, **resources},
            # Never a time that is still to come, which a clock that was set back would have the next leader wait for.
            "lastUpdate": timestamp(min(at, now)),
        },
    }


def _reported_consumption(queue: LocalQueue) -> AdmissionFairSharingStatus | None:
    shared = queue.status.fair_sharing
    return shared.admission_fair_sharing_status if shared is not None else None


def local_queue_activity(queue: LocalQueue, cluster: ClusterView, state: State) -> Activity:
    """The Active condition of a LocalQueue."""
    if queue.spec.stop_policy != "None":
        return Activity(active=False, reason="Stopped", message="LocalQueue is stopped")
    refused = "Can't submit new workloads to clusterQueue"
    name = queue.spec.cluster_queue or ""
    if cluster.cluster_queues.get(name) is None:
        return Activity(active=False, reason="ClusterQueueDoesNotExist", message=refused)
    if not state.questions.active_reason(name).active:
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
        if (kept is None and value is not None) or _value(queue, name) != value
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


def _value(queue: ClusterQueue | LocalQueue, name: str) -> Any:
    """The value of a status field; None if it is absent or an empty list."""
    value = to_plain(getattr(queue.status, _ATTRIBUTES[name]))
    return None if value == [] else value


def _by_flavor(amounts: Iterable[FlavorUsage], *, with_borrowed: bool) -> list[dict[str, Any]] | None:
    """Amounts as the status lists them, with flavors and resources in the ledger's order. None without amounts: a queue
    without flavors, or without its ClusterQueue, has no such list."""
    flavors: dict[str, list[dict[str, Any]]] = {}
    for amount in amounts:
        entry: dict[str, Any] = {"name": amount.resource, "total": from_int(amount.resource, amount.total)}
        if with_borrowed:
            entry["borrowed"] = from_int(amount.resource, amount.borrowed)
        flavors.setdefault(amount.flavor, []).append(entry)
    return [{"name": flavor, "resources": resources} for flavor, resources in flavors.items()] or None


def controllers(cluster: ClusterView, state: State, shares: CountedShares) -> list[Controller]:
    """The controllers that reconcile queues and Cohorts when these change; `controllers.queues.queuefigures` adds the
    keys of those whose figures have changed. Statuses are read from the ledger, so each change is applied to the ledger
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
            decide=lambda name: decide_cluster_queue(name, cluster, state, shares),
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
            decide=lambda key: decide_local_queue(key, cluster, state),
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
            decide=lambda name: decide_cohort(name, cluster, shares),
            watches=[Watch(cluster.cohorts, itself)],
            initial=lambda: every(cluster.cohorts),
        ),
    ]


def _parent_of(cohort: Cohort | None) -> str:
    return (cohort.spec.parent_name or "") if cohort is not None else ""
