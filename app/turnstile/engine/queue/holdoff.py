"""Hold-off: how long a preemptor waits, on a busy API server, for quota to come free before it has others preempted.

An eviction is several writes, which take long on a busy server, and what its victim did is lost. So a preemptor first
waits as long as an eviction would take: quota that comes free in that time is kept for it, and no Workload is lost. It
never waits for more than twice as long as it would have without hold-off. On a server that is at ease there is none.
Must never decide who may preempt whom.
"""

import math
from typing import Final

from turnstile.engine.instants import Instant

_OVER: Final = -math.inf
"""Since when a preemptor waits whose hold-off is over, whatever evictions take later."""


class HoldOff:
    """The hold-off as it is now, and the preemptors that wait for its end."""

    __slots__ = ("_since", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds that an eviction takes now; 0 on a server that is at ease."""
        self._since: dict[str, Instant] = {}
        """Since when a preemptor could have had others preempted, by its key."""

    def over(self, key: str, now: Instant) -> bool:
        """Whether a preemptor has waited long enough."""
        return not self.seconds or self._since.get(key, now) + self.seconds <= now

    def begin(self, key: str, now: Instant) -> None:
        """A preemptor found victims, and waits; if it does so already, nothing changes."""
        self._since.setdefault(key, now)

    def end(self, key: str) -> None:
        """A Workload has quota, or waits no more."""
        self._since.pop(key, None)

    def note(self, seconds: float, now: Instant) -> bool:
        """Take in how long an eviction takes from now on; whether any preemptor has waited for as long."""
        self.seconds = seconds
        ended = [key for key, since in self._since.items() if _OVER < since <= now - seconds]
        self._since.update(dict.fromkeys(ended, _OVER))
        return bool(ended)

    @property
    def waiting(self) -> bool:
        """Whether any preemptor waits for the end of its hold-off."""
        return any(since > _OVER for since in self._since.values())
