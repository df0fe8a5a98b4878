"""A model of quota that watches a cluster from outside: which Jobs run, and whether they may.

It counts from the Jobs that are unsuspended and unfinished, never from what Turnstile says of itself.
"""

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.client import Api, Json, resource_path

QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class Limits:
    """Quota of one queue in whole cpus; a borrowing limit of None means no limit, a lending limit likewise."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


def ceiling(queue: str, limits: Mapping[str, Limits]) -> int:
    """The most that a queue of one flat cohort may ever use."""
    own = limits[queue]
    lent = sum(
        other.nominal if other.lending is None else min(other.lending, other.nominal)
        for name, other in limits.items()
        if name != queue
    )
    return own.nominal + (lent if own.borrowing is None else min(lent, own.borrowing))


def available(queue: str, limits: Mapping[str, Limits], usage: Mapping[str, int]) -> int:
    """What a queue of one flat cohort may still take (Kueue's arithmetic, worked out anew)."""
    local = {n: max(0, x.nominal - x.lending) if x.lending is not None else 0 for n, x in limits.items()}
    shared = sum(x.nominal - local[n] for n, x in limits.items())
    used = sum(max(0, usage.get(n, 0) - local[n]) for n in limits)
    from_parent = shared - used
    own = limits[queue]
    if own.borrowing is not None:
        stored = own.nominal - local[queue]
        from_parent = min(stored - max(0, usage.get(queue, 0) - local[queue]) + own.borrowing, from_parent)
    return max(0, local[queue] - usage.get(queue, 0)) + from_parent


def cpus(job: Json) -> int:
    """Whole cpus that a Job of the history asks for."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    return int(container["resources"]["requests"]["cpu"]) * int(job["spec"]["parallelism"])


def finished(job: Json) -> bool:
    """Whether the Job is complete or failed."""
    return any(
        c["type"] in ("Complete", "Failed") and c["status"] == "True"
        for c in job.get("status", {}).get("conditions", ())
    )


def running(job: Json) -> bool:
    """Whether the Job counts: unsuspended and unfinished."""
    return not job["spec"].get("suspend") and not finished(job)


@dataclass
class Observer(threading.Thread):
    """Lists the Jobs of a namespace over and over and notes every overshoot.

    A Job that newly runs must have fitted when it was let in. What is still running was running at that moment too, so
    the sum of all that runs must be within the limits of the last few seconds (the ones in force when it was decided).
    """

    api: Api
    namespace: str
    limits: dict[str, Limits]
    grace: float = 3.0
    observations: int = 0
    overshoots: list[str] = field(default_factory=list)
    errors: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._lock = threading.Lock()
        self._history: list[tuple[float, dict[str, Limits]]] = [(time.monotonic(), dict(self.limits))]
        self._end = threading.Event()
        self._seen: set[str] = set()

    def __hash__(self) -> int:
        return id(self)

    def edit(self, queue: str, limits: Limits) -> None:
        """Tell the observer of an edit of quota, before it is made when it grows and after it when it shrinks."""
        with self._lock:
            self.limits[queue] = limits
            self._history.append((time.monotonic(), dict(self.limits)))

    def stop(self) -> None:
        """End observing."""
        self._end.set()
        self.join()

    def run(self) -> None:
        """Observe until stopped."""
        while not self._end.wait(0.02):
            try:
                self.observe()
            except (OSError, http.client.HTTPException):
                self.errors += 1

    def observe(self) -> None:
        """Look once."""
        jobs = self.api.items(resource_path("batch/v1", "jobs", namespace=self.namespace))
        usage: dict[str, int] = {}
        now_running = {}
        for job in jobs:
            if running(job):
                queue = job["metadata"]["labels"][QUEUE]
                usage[queue] = usage.get(queue, 0) + cpus(job)
                now_running[job["metadata"]["uid"]] = queue
        fresh = {queue for uid, queue in now_running.items() if uid not in self._seen}
        self._seen = set(now_running)
        self.observations += 1
        if not fresh:
            return
        with self._lock:
            since = time.monotonic() - self.grace
            recent = [limits for at, limits in self._history if at >= since] + [
                [limits for at, limits in self._history if at < since or at == self._history[0][0]][-1]
            ]
        total = sum(usage.values())
        if total > max(sum(x.nominal for x in limits.values()) for limits in recent):
            self.overshoots.append(f"cohort runs {total}: {usage} with {recent[-1]}")
        for queue in fresh:
            if usage[queue] > max(ceiling(queue, limits) for limits in recent):
                self.overshoots.append(f"{queue} runs {usage[queue]} with {recent}")
