"""Which Workloads have not run long enough to be preempted.

A ClusterQueue and a WorkloadPriorityClass may say how long their Workloads run at least (`api.timeannotations`). The
word of the class counts where both do, because it is about fewer Workloads. Must never choose victims.
"""

from collections.abc import Sequence

from turnstile.api.meta import Condition, find_condition
from turnstile.api.timeannotations import MINIMUM_RUN_TIME, annotated
from turnstile.api.workload import ADMITTED, PODS_READY
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.instants import Instant, instant
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info

_PODS_STARTED = "Started"
"""Reason of PodsReady until a pod has failed. With any other reason its time is that of a recovery."""


class Protections:
    """Minimum run times; one that is longer than `longest` seconds counts as `longest`."""

    __slots__ = ("_classes", "_longest")

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._classes: dict[str, float] = {}
        """Minimum run time by WorkloadPriorityClass, of those that state one."""

    def put_class(self, given: WorkloadPriorityClass) -> bool:
        """A WorkloadPriorityClass exists; whether its minimum run time changed."""
        name = given.metadata.name
        before = self._classes.pop(name, None)
        seconds = annotated(given.metadata, MINIMUM_RUN_TIME)
        if seconds is not None:
            self._classes[name] = seconds
        return seconds != before

    def drop_class(self, name: str) -> bool:
        """A WorkloadPriorityClass is gone; whether it stated a minimum run time."""
        return self._classes.pop(name, None) is not None

    def concern(self, queue: ClusterQueue) -> bool:
        """Whether any Workload of a ClusterQueue may be protected."""
        return queue.minimum_run_time is not None or bool(self._classes)

    def until(self, info: Info, queue: ClusterQueue) -> Instant | None:
        """When a Workload that holds quota in a ClusterQueue may be preempted; None if it may at any time."""
        least = queue.minimum_run_time
        ref = info.workload.spec.priority_class_ref
        if ref is not None and ref.kind == WorkloadPriorityClass.KIND:
            least = self._classes.get(ref.name, least)
        since = runs_since(info) if least else None
        return since + min(least, self._longest) if least and since is not None else None


def runs_since(info: Info) -> Instant | None:
    """Since when the pods of a Workload run (`began`). None of one that is not admitted: no pod of it runs."""
    if not info.admitted or info.reserved_at is None:
        return None
    return began(info.workload.status.conditions, info.reserved_at)


def began(conditions: Sequence[Condition], reserved_at: Instant) -> Instant:
    """When the run of a Workload began that has had its quota since then, as its status has it: when all pods were
    ready first, where Turnstile waits for that, and otherwise when it was admitted."""
    since = reserved_at
    admitted, ready = (find_condition(conditions, kind) for kind in (ADMITTED, PODS_READY))
    if admitted is not None and admitted.status == "True" and admitted.last_transition_time:
        since = max(since, instant(admitted.last_transition_time))
    if ready is not None and ready.status == "True" and ready.reason == _PODS_STARTED and ready.last_transition_time:
        since = max(since, instant(ready.last_transition_time))  # an earlier one is of another run
    return since
