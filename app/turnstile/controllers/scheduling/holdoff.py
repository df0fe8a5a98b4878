"""Tells the ledger how long an eviction takes on the API server now: as long preemptors hold off.

On a server that is at ease that is no time at all. Must never decide who may preempt whom.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Final

from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import Change
from turnstile.engine import State
from turnstile.kube.window import Window

LOOK_SECONDS: Final = 0.25
"""Seconds between two looks at the server, and the step in which the hold-off changes."""
WRITES: Final = 3.0
"""Writes after each other until the quota of a victim is free: its eviction, the stop of its job, the release."""
LONGEST: Final = 5.0
"""Maximum hold-off in seconds."""


def seconds(window: Window) -> float:
    """Seconds that an eviction takes now; 0 if the server is at ease."""
    if window.at_ease:
        return 0.0
    return min(LONGEST, math.ceil(WRITES * window.latency / LOOK_SECONDS) * LOOK_SECONDS)


async def follow(window: Window, state: State, cluster: ClusterView, take: Callable[[Change], None]) -> None:
    """Report the hold-off whenever it changes, and its end to preemptors that wait for it."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now, hold_off = seconds(window), state.nominations.hold_off
        if now != hold_off.seconds or hold_off.waiting:
            take(partial(state.note_hold_off, now, cluster.now.timestamp()))
