"""All kinds that the state can take are in the list of kinds that feed it."""

from typing import Any, Final

import msgspec

from tests.unit.engine import builders as b
from turnstile.engine import Options, State
from turnstile.engine.intake import FEEDING

OF_THE_ENGINE: Final = {"drop_penalty"}
"""Methods that end what the engine itself began, and take no object out."""


class Recorder(State):
    """A state that remembers which of its events were applied."""

    __slots__ = ("applied",)

    def __init__(self) -> None:
        self.applied: set[str] = set()
        super().__init__(Options())

    def took(self, name: str, args: Any, kwargs: Any) -> None:
        """Remember an event."""
        self.applied.add(name)


def test_each_kind_that_the_state_can_take_is_fed() -> None:
    """Each `put_` and `drop_` event of the state belongs to a kind of the list: an event without a kind would leave its
    objects out of all decisions."""
    state = Recorder()
    meta = {"name": "a", "namespace": "team", "uid": "u", "creationTimestamp": b.STAMP}
    spec = {"levels": [], "controllerName": "c"}
    for kind, feed in FEEDING.items():
        given = msgspec.convert({"metadata": meta, "spec": spec, "handler": "h"}, kind)
        feed.put(state, given, b.NOW)
        feed.drop(state, given.metadata.key, b.NOW)
    events = {name for name in dir(State) if name.startswith(("put_", "drop_"))}
    assert state.applied & events == events - OF_THE_ENGINE
