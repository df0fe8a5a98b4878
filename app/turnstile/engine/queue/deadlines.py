"""When Workloads that wait are to be tried again because time alone changes what is decided about them.

A cycle notes the instant with each Workload that it refuses: the end of the first protection from preemption that it
met, or the time from which the ClusterQueue keeps quota for it. Must never read a clock.
"""

from turnstile.engine.instants import Instant


class Deadlines:
    """Instants by Workload."""

    __slots__ = ("_by_workload",)

    def __init__(self) -> None:
        self._by_workload: dict[str, Instant] = {}

    def follow(self, key: str, at: Instant | None) -> None:
        """A cycle looked at a Workload, and will decide differently at that instant; not by time alone if it is
        None."""
        if at is None:
            self._by_workload.pop(key, None)
        else:
            self._by_workload[key] = at

    def over(self, now: Instant) -> list[str]:
        """The Workloads whose instant has come. They are forgotten."""
        found = [key for key, at in self._by_workload.items() if at <= now]
        for key in found:
            del self._by_workload[key]
        return found

    @property
    def next(self) -> Instant | None:
        """The first instant to come; None if there is none."""
        return min(self._by_workload.values(), default=None)
