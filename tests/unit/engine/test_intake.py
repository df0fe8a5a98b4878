"""All kinds that the state can take are in the list of kinds that feed it."""

from typing import Any, Final

import msgspec

from tests.unit.engine import builders as b
from turnstile.api.core import Pod
from turnstile.engine import Options, State
from turnstile.engine.intake import FEEDING, PLACES
from turnstile.engine.log import Listener

POD: Final = msgspec.json.decode(b'{"metadata":{"name":"a","namespace":"team"},"spec":{"nodeName":"n"}}', type=Pod)


class Recorder(Listener):
    """Remembers which events were applied."""

    __slots__ = ("applied",)

    def __init__(self) -> None:
        self.applied: set[str] = set()

    def took(self, event: str, args: Any, named: Any) -> None:
        """Remember an event."""
        self.applied.add(event)


def test_each_kind_that_the_state_can_take_is_fed() -> None:
    """Each `put_` and `drop_` event of the state belongs to a kind of the list: an event without a kind would leave its
    objects out of all decisions."""
    recorder = Recorder()
    state = State(Options(), recorder)
    meta = {"name": "a", "namespace": "team", "uid": "u", "creationTimestamp": b.STAMP}
    spec = {"levels": [{"nodeLabel": "rack"}], "controllerName": "c"}
    for kind, feed in (FEEDING | PLACES).items():
        given: Any = (
            msgspec.convert({"metadata": meta, "spec": spec, "handler": "h", "value": 1}, kind)
            if kind is not Pod
            else POD
        )
        feed.put(state, given, b.NOW)
        feed.drop(state, given.metadata.key, b.NOW)
    events = {name for name in dir(State) if name.startswith(("put_", "drop_"))}
    assert recorder.applied & events == events


def test_each_kind_says_whether_it_has_namespaces() -> None:
    """Who may not list a kind everywhere is asked about one namespace, if the kind has any."""
    for kind in FEEDING | PLACES:
        assert isinstance(kind.NAMESPACED, bool), kind.KIND
