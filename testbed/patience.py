"""How long to wait before giving up. Knows nothing of Kubernetes.

A limit of a wait is for a machine that is free. It says that nothing will come any more, never how fast something is:
on a crowded machine all that is waited for takes as much longer as there are more processes than cores, and so does
the wait.
"""

import os
import time
from typing import Final

_LEAST: Final = 2.0
"""What the load average of the last minute does not show yet."""


class Patience:
    """`seconds` on a free machine, from now on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    @property
    def waited(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether it is time to give up."""
        waited = self.waited
        return waited > self._seconds and waited > self._seconds * stretch()


def stretch() -> float:
    """By how much everything takes longer now than on a free machine; rather too much than too little."""
    return max(_LEAST, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
