"""What the recorder tells of Workloads, also of those that are gone. Must never read it in the event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.api.errors import InvalidValue
from app.engine.instants import Instant
from app.insight.whatif import stamp
from app.recorder.location import Location
from app.recorder.reading import Entry, Recorded, reading
from app.recorder.timelines import Timeline, timeline_of, words

FRESH_SECONDS: Final = 2.0
"""For so long what was read of a Workload is not read again."""
KEPT: Final = 256
SHOWN: Final = 200
"""Entries of one Workload that are shown, the latest ones."""
FOUND: Final = 50
"""Workloads that a search shows at most."""
_TITLES: Final = {
    "created": "Created",
    "tried": "Tried",
    "waiting": "Waits",
    "reserved": "Quota reserved",
    "usage": "Holds another amount",
    "released": "Quota released",
    "check": "Admission check",
    "admitted": "Admitted",
    "ready": "Pods ready",
    "evicted": "Evicted",
    "finished": "Finished",
    "deleted": "Deleted",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a timeline, in words."""

    at: str
    title: str
    lines: tuple[str, ...]
    others: tuple[str, ...]
    """Workloads that the lines name, by key."""


@dataclass(frozen=True, slots=True)
class Life:
    """A Workload that is recorded, and what happened to it, the latest first."""

    workload: Recorded
    events: tuple[Event, ...]
    earlier: int
    """Entries before those."""

    @property
    def created(self) -> str:
        """When it was."""
        return stamp(self.workload.created)

    @property
    def over(self) -> str:
        """When it finished or was deleted; empty if it did not."""
        return _stamp(self.workload.over)

    @property
    def gone(self) -> str:
        """When it was deleted; empty if it is not known to be."""
        return _stamp(self.workload.gone)


@dataclass(frozen=True, slots=True)
class Lives:
    """All Workloads that had one name, the newest first; or why nothing is known."""

    lives: tuple[Life, ...] = ()
    error: str = ""

    def of(self, uid: str) -> Life | None:
        """The one with a uid."""
        return next((life for life in self.lives if life.workload.uid == uid), None)


@dataclass(frozen=True, slots=True)
class Gone:
    """Workloads that are recorded as deleted and match a search: the latest, how many there are; or why it failed."""

    lives: tuple[Life, ...] = ()
    count: int = 0
    error: str = ""


class History:
    """The recorder's records, as pages ask for them."""

    def __init__(self, place: Location) -> None:
        self.place = place
        self._kept: OrderedDict[str, tuple[float, Lives]] = OrderedDict()

    async def of(self, namespace: str, name: str) -> Lives:
        """All Workloads that had a name."""
        key, now = f"{namespace}/{name}", asyncio.get_running_loop().time()
        at, found = self._kept.get(key, (float("-inf"), Lives()))
        if now >= at + FRESH_SECONDS:
            found = await asyncio.to_thread(self._read, namespace, name)
            self._kept[key] = now, found
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def _read(self, namespace: str, name: str) -> Lives:
        try:
            with reading(self.place) as reader:
                found = [timeline_of(reader, workload) for workload in reversed(reader.named(namespace, name))]
        except InvalidValue as error:
            return Lives(error=_said(error))
        return Lives(tuple(_life(each) for each in found))

    async def search(self, wanted: str) -> Gone:
        """Workloads that are gone, by parts of their names or namespaces."""
        return await asyncio.to_thread(self._search, wanted.lower().split())

    def _search(self, wanted: Sequence[str]) -> Gone:
        try:
            with reading(self.place) as reader:
                count, found = reader.gone(wanted, at_most=FOUND)
        except InvalidValue as error:
            return Gone(error=_said(error))
        return Gone(tuple(Life(each, (), 0) for each in found), count)


def _said(error: InvalidValue) -> str:
    return f"{error.value}: {error.cure}"


def _stamp(at: Instant | None) -> str:
    return "" if at is None else stamp(at)


def _life(told: Timeline) -> Life:
    shown = told.entries[-SHOWN:]
    events = tuple(_event(entry, told) for entry in reversed(shown))
    return Life(told.workload, events, len(told.entries) - len(shown))


def _event(entry: Entry, told: Timeline) -> Event:
    by = told.names.get(entry.detail.get("preemptor", ""))
    victims = [key for _, key, _ in entry.detail.get("preempts", ())]
    others = tuple(dict.fromkeys([*([by] if by else []), *victims]))
    return Event(stamp(entry.at), _TITLES.get(entry.what, entry.what), tuple(words(entry, told)), others)
