"""Who follows a state: repeats, in the same order, all that changes it, on a state that was equal when this began.

The engine is deterministic: equal states that take the same events and run cycles at the same times stay equal. Must
never change the state that it follows.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from app.engine.instants import Instant


class Follower(Protocol):
    """Hears what happens to a state, each time right after it happened."""

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """A method of the state was called that changes it: its name and arguments."""

    def cycled(self, now: Instant) -> None:
        """A cycle ended. No event was applied since it began."""

    def abandoned(self) -> None:
        """A cycle was closed before its end: where it stopped, and so what it leaves behind, cannot be repeated."""
