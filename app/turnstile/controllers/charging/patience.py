"""How long pods that are stopped may take to end. The only rule for it.

The grace period of a pod is a tenant's word, and may be a year. The pods of a Workload that has to give its quota up
have until `--victim-patience` seconds after that, and each pod of a job that is gone, is being deleted or has ended has
them from its own deletion on: a grace period within the patience is never cut, since the program may write a
checkpoint. After that, and where no Workload is charged for a pod, SHORT_SECONDS are left. Kubernetes takes a second
deletion that shortens the grace period of a pod which is terminating already.

Must never delete a pod by force: only its node knows when its processes have ended.
"""

from collections.abc import Iterable
from datetime import timedelta
from itertools import islice
from typing import Final, NamedTuple

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.conditions import instant, later
from turnstile.api.core import Pod
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.runtime.actions import Delete
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import pods

MOST_DELETIONS: Final = 100
"""Pods whose time is over that are deleted in one reconcile."""
SHORT_SECONDS: Final = 10
"""Grace period of a pod that no Workload is charged for, or whose time is over; its own if that is shorter."""

_CHECK_SECONDS: Final = 5.0
"""Seconds between two looks at a job whose pods take long to stop."""
_SKEW: Final = timedelta(minutes=5)
"""Part of the clock of the API server that may be ahead of this one."""


class Limit(NamedTuple):
    """Grace periods of up to `kept` seconds are kept, longer ones cut to `cut`."""

    kept: float
    cut: float


SHORT: Final = Limit(SHORT_SECONDS, SHORT_SECONDS)


def deletion(pod: Pod, *, at_most: Limit | None) -> Delete:
    """The deletion of a pod with its own grace period, within a limit if there is one."""
    meta = pod.metadata
    cut = int(at_most.cut) if at_most is not None and pods.grace_seconds(pod) > at_most.kept else None
    return Delete(Pod, meta.namespace, meta.name, uid=meta.uid, grace_seconds=cut)


def allowed(workloads: Iterable[Workload], cluster: ClusterView) -> Limit | None:
    """The limit for pods that are stopped now, by the Workloads of their job; None if there is no patience. Until the
    patience is over a grace period within it is kept, and a longer one gets what is left of it."""
    patience = cluster.options.victim_patience
    limit = SHORT
    for workload in workloads:
        if workload.quota_reserved and not workload.finished:
            if patience is None:
                return None
            left = _seconds_left(workload, patience, cluster)
            if left is None or left > 0:
                seconds = patience if left is None else left
                limit = max(limit, Limit(max(patience, SHORT.kept), max(seconds, SHORT.cut)))
    return limit


def overstayed(workload: Workload, cluster: ClusterView) -> tuple[list[Delete], float | None]:
    """The deletions of pods that hold the quota of a Workload for longer than the patience, and the seconds until the
    next look; None if all will end in time by themselves."""
    patience = cluster.options.victim_patience
    if patience is None or not workload.quota_reserved or workload.finished:
        return [], None
    left = _seconds_left(workload, patience, cluster)
    late = [each for each in charges.pods_of(workload, cluster) if not _ends_within(each, patience)]
    if left is None or not late:
        return [], None
    if left > 0:
        return [], left
    return _some(late), SHORT_SECONDS


def forsaken(workload: Workload, cluster: ClusterView) -> tuple[list[Delete], float | None]:
    """The deletions of pods that terminate for longer than the patience, of a Workload whose job is gone, is being
    deleted or has ended; and the seconds until the next look, None if all will end in time by themselves. These
    pods hold quota and nodes that their job does not need any more, and a preemptor may have no right to evict them."""
    patience = cluster.options.victim_patience
    if patience is None:
        return [], None
    late = [
        each
        for each in charges.pods_of(workload, cluster)
        if each.metadata.deletion_timestamp and not _ends_within(each, patience)
    ]
    waits = {each.metadata.key: _seconds_since_deletion(each, patience, cluster) for each in late}
    over = [each for each in late if waits[each.metadata.key] <= 0]
    left = [seconds for seconds in waits.values() if seconds > 0]
    return _some(over), min((*left, *([SHORT_SECONDS] if over else []))) if late else None


def outnumbering(workload: Workload, cluster: ClusterView) -> tuple[list[Delete], float | None]:
    """The deletions of pods of an admitted job that terminate beside the pods made in their place, more than the
    Workload is charged for, and have longer than the patience for it; and the seconds until the next look, None without
    such pods. Operators that replace a pod at once would let a job have any number of pods that its user has deleted
    with a year to stop."""
    patience = cluster.options.victim_patience
    if patience is None or not charges.has_slow_pods(workload, cluster):
        return [], None
    found: dict[str, list[Pod]] = {}
    for pod in charges.pods_of(workload, cluster):
        found.setdefault(pod.metadata.labels.get(names.PODSET_LABEL, ""), []).append(pod)
    charged = charges.pods_charged(workload)
    outnumber: list[Pod] = []
    again: float | None = None
    for pod_set, each in found.items():
        late = [pod for pod in each if pod.metadata.deletion_timestamp and not _ends_within(pod, patience)]
        late.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
        again = _CHECK_SECONDS if late else again
        beyond = max(len(each) - charged.get(pod_set, 0), 0)
        outnumber += late[:beyond]
    return _some(outnumber), again


def uncharged(found: Iterable[Pod], cluster: ClusterView) -> tuple[list[Delete], float | None]:
    """The deletions that shorten the grace period of terminating pods which no Workload is charged for, and the seconds
    until the next look; None if no such pod may run for longer than a short time."""
    late = [
        each
        for each in found
        if charges.may_run(each)
        and not pods.is_gated(each)
        and not _ends_within(each, SHORT_SECONDS)
        and not _released_early(each, cluster)
        and not any(owner.quota_reserved and not owner.finished for owner in charges.workloads_of(each, cluster))
    ]
    return _some(each for each in late if each.metadata.deletion_timestamp), 1.0 if late else None


def _released_early(pod: Pod, cluster: ClusterView) -> bool:
    """Whether a pod that was queued by itself has given its quota back while it terminates, and keeps its grace period
    within the patience nevertheless (gate FastQuotaReleaseInPodIntegration)."""
    meta, patience = pod.metadata, cluster.options.victim_patience
    if not (cluster.options.fast_quota_release and meta.deletion_timestamp and names.MANAGED_LABEL in meta.labels):
        return False
    return patience is None or _seconds_since_deletion(pod, patience, cluster) > 0


def _some(late: Iterable[Pod]) -> list[Delete]:
    """The deletions of the first of these pods; the others follow at the next look."""
    return [deletion(each, at_most=SHORT) for each in islice(late, MOST_DELETIONS)]


def _seconds_left(workload: Workload, patience: float, cluster: ClusterView) -> float | None:
    """Seconds until the patience with a Workload is over; None if it need not give its quota up."""
    evicted = find_condition(workload.status.conditions, wl.EVICTED)
    evicted_at = evicted.last_transition_time if evicted is not None and workload.evicted else None
    since = instant(evicted_at or workload.metadata.deletion_timestamp)
    return cluster.left(since, patience) if since is not None else None


def _seconds_since_deletion(pod: Pod, patience: float, cluster: ClusterView) -> float:
    """Seconds of the patience that are left since a terminating pod was deleted for the first time: its deletion
    timestamp is that moment and its grace period. None are left where these are more than dates can hold."""
    meta = pod.metadata
    try:
        end = instant(meta.deletion_timestamp)
    except ValueError:
        return 0.0
    began = later(end, -(meta.deletion_grace_period_seconds or 0)) if end is not None else None
    return cluster.left(began, patience) if began is not None and began <= cluster.now + _SKEW else 0.0


def _ends_within(pod: Pod, seconds: float) -> bool:
    """Whether a pod is terminating, with a grace period of at most so many seconds."""
    meta = pod.metadata
    granted = meta.deletion_grace_period_seconds
    return bool(meta.deletion_timestamp) and (granted is None or granted <= max(seconds, SHORT_SECONDS))
