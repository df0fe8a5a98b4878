"""The log of a state: events that wait for the end of a cycle, and whether another cycle could decide anew.

Must never know what an event is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnstile.api.errors import InvalidValue
from turnstile.engine.decisions import Decision
from turnstile.engine.instants import Instant


class Listener:
    """Is told of all that happens to a state, in order. This one keeps nothing."""

    __slots__ = ()

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """A method that changes the state was called, and ended just now: its name and arguments."""

    def cycled(self, cycle: int, now: Instant, decisions: Sequence[Decision]) -> None:
        """A cycle ends, and no event was applied since it began."""

    def abandoned(self, cycle: int) -> None:
        """A cycle is closed before its end; the last that came to its end had that number."""


class Log:
    """Counts of events and cycles, and the events that came during the cycle that is under way."""

    __slots__ = ("_listener", "cycling", "deferred", "epoch", "quiet_at", "refused", "scheduling_cycle", "shape")

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener or Listener()
        self.deferred: list[Callable[[], object]] = []
        self.quiet_at = -1
        """The epoch in which no cycle will decide anything new; -1 if one may."""
        self.scheduling_cycle = 0
        """Number of cycles that came to their end, or the number of the cycle that is under way."""
        self.cycling = False
        self.epoch = 0
        """Number of changes by which a cycle may decide differently."""
        self.shape = 0
        """Number of changes of objects other than Workloads: of queues, quotas, flavors, limits."""
        self.refused: list[InvalidValue] = []
        """Errors of events that came during a cycle, for the driver to report and clear."""

    @property
    def quiet(self) -> bool:
        """Whether a cycle was seen to decide nothing new, and nothing changed since."""
        return self.quiet_at == self.epoch

    def defer(self, event: Callable[[], object]) -> None:
        """An event came during a cycle: it is applied when the cycle ends."""
        self.deferred.append(event)

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any], *, changed: bool, shape: bool) -> None:
        """An event was applied: whether it changed anything that a cycle reads, and whether other objects than
        Workloads."""
        if changed:
            self.epoch += 1
            if shape:
                self.shape += 1
        self._listener.took(event, args, named)

    def ended(self, now: Instant, decisions: Sequence[Decision], *, changed: bool, progress: bool) -> None:
        """The cycle came to its end. `changed` if others may decide differently now, `progress` if a head may."""
        self._listener.cycled(self.scheduling_cycle, now, decisions)
        self._end(changed=changed, progress=progress)

    def abandoned(self, cycle: int) -> None:
        """The cycle was closed before its end; the last that came to its end had that number."""
        self.scheduling_cycle = cycle
        self._listener.abandoned(self.scheduling_cycle)
        self._end(changed=True, progress=True)

    def _end(self, *, changed: bool, progress: bool) -> None:
        """Apply the events that came meanwhile."""
        self.cycling = False
        if changed:
            self.epoch += 1
        self.quiet_at = -1 if progress or changed else self.epoch
        deferred, self.deferred = self.deferred, []
        for event in deferred:
            try:
                event()
            except InvalidValue as error:  # who sent it is gone; the object counts as it was
                self.refused.append(error)
