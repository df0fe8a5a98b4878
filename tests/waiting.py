"""Waiting in an event loop for what happens on a real clock."""

import asyncio
from collections.abc import Callable

from testbed.patience import Patience


async def until(look: Callable[[], object], *, seconds: float = 5, what: str) -> None:
    """Wait until `look` returns something true; after so many seconds, or longer on a machine that is not free, fail
    and say that `what`."""
    patience = Patience(seconds)
    while not look():
        assert not patience.over, f"after {patience.waited:.3g} s: {what}"
        await asyncio.sleep(0.01)
