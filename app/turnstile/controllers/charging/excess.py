"""Finds pods of an admitted job for which its Workload does not charge, where a tenant can have any number made.

The controllers of most kinds make the pods that their object describes, and the object is compared with its Workload.
But the program in a Spark driver makes the executors itself, and a Deployment that an AppWrapper wraps may be scaled,
which changes no object that has a Workload. So the pods of these kinds are counted. A pod counts once it is some
seconds old: its controller may have made it in the place of one whose deletion is not requested yet. A pod that is
being deleted does not count. Must never decide what becomes of the job.
"""

from typing import Final, NamedTuple

from turnstile.api import names
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.charging.podcharge import Allowance, Charge, allowed_by
from turnstile.controllers.view.clusterview import ClusterView

SETTLED_SECONDS: Final = 5.0
"""Age of a pod from which on it counts."""


class Excess(NamedTuple):
    """Why a Workload does not charge for a pod, and the seconds until that counts; 0 if it does now."""

    problem: str
    seconds: float


def excess(workload: Workload, cluster: ClusterView) -> Excess | None:
    """The pod beyond what a Workload charges for that counts first, if any."""
    allowance, used = allowed_by(workload), dict[str, int]()
    charge = Charge(allowance, workload.metadata.namespace, cluster)
    running = [pod for pod in charges.pods_of(workload, cluster) if not pod.metadata.deletion_timestamp]
    running.sort(key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    found = (
        Excess(problem, _unsettled_seconds(pod, cluster))
        for pod in running
        if (problem := _problem(pod, allowance, used, charge))
    )
    return min(found, key=lambda each: each.seconds, default=None)


def _problem(pod: Pod, allowance: Allowance, used: dict[str, int], charge: Charge) -> str:
    meta = pod.metadata
    pod_set = meta.labels.get(names.PODSET_LABEL, "")
    if pod_set not in allowance.counts:
        return f"Pod {meta.name} names no pod set of it (label {names.PODSET_LABEL})"
    if more := charge.exceeded_by_pod(pod_set, pod):
        return f"Pod {meta.name} requests more {more} than it charges for a pod of pod set '{pod_set}'"
    used[pod_set] = used.get(pod_set, 0) + 1
    if used[pod_set] > (charged := allowance.counts[pod_set]):
        return f"Pod {meta.name} is one of more than {charged} pods of pod set '{pod_set}'"
    return ""


def _unsettled_seconds(pod: Pod, cluster: ClusterView) -> float:
    created = instant(pod.metadata.creation_timestamp)
    if created is None:
        return 0.0
    return cluster.left(created, SETTLED_SECONDS)
