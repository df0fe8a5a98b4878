"""The recorder's records of Workloads, also of those that are gone, as far as their reader is shown them.

Must never read the records in the event loop, and never hold a page up while they cannot be read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from turnstile.api.errors import InvalidValue
from turnstile.engine.instants import Instant, stamp
from turnstile.recorder.folding import attempted, folded, is_attempt
from turnstile.recorder.location import Location
from turnstile.recorder.readers import Readers
from turnstile.recorder.reading import Entry, Reader, Recorded
from turnstile.recorder.scope import EVERYTHING, Scope
from turnstile.recorder.timelines import Timeline, others, timeline_of, words
from turnstile.wording.causes import waiting

T = TypeVar("T")

FRESH_SECONDS: Final = 2.0
"""For so long what was read is not read again."""
IDLE_PART: Final = 10.0
"""And so many times as long as it took to read."""
SOON_SECONDS: Final = 0.4
"""Seconds for which a page waits for records; what comes later arrives as an event."""
AT_ONCE: Final = 4
"""Questions that are asked at a time, each over a connection of its own."""
QUEUED: Final = 64
"""Questions that are under way, those that wait for their turn included; no page asks more."""
KEPT: Final = 256
"""Answers that are remembered."""
SHOWN: Final = 100
"""Entries of one Workload that are shown, the latest ones, attempts that failed one after the other as one."""
FOUND: Final = 50
"""Workloads that a search shows at most."""
_TITLES: Final = {
    "created": ("Created", ""),
    "tried": ("Waits", "warm"),
    "waiting": ("Waits", "warm"),
    "reserved": ("Quota reserved", "good"),
    "pods": ("Pods", ""),
    "usage": ("Holds another amount", ""),
    "released": ("Quota released", ""),
    "check": ("Admission check", ""),
    "admitted": ("Admitted", "good"),
    "ready": ("Pods ready", "good"),
    "evicted": ("Evicted", "bad"),
    "finished": ("Finished", "over"),
    "deleted": ("Deleted", "over"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a timeline, in words; attempts that failed one after the other are one."""

    at: str
    title: str
    tone: str
    """The kind of news: `good`, `bad`, `warm` (it waits), `over`, or empty."""
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
    def kind(self) -> str:
        """The kind of its job, or its own."""
        return self.workload.owner_kind or "Workload"

    @property
    def job(self) -> str:
        """The name of its job, or its own."""
        return self.workload.owner_name or self.workload.name

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
    late: bool = False
    """Whether the answer is still to come."""

    def of(self, uid: str) -> Life | None:
        """The one with a uid."""
        return next((life for life in self.lives if life.workload.uid == uid), None)


@dataclass(frozen=True, slots=True)
class Gone:
    """Workloads that are recorded as deleted and match a search: the latest, how many there are; or why it failed."""

    lives: tuple[Life, ...] = ()
    count: int = 0
    error: str = ""
    late: bool = False
    """Whether the answer is still to come."""


@dataclass(frozen=True, slots=True)
class Records:
    """Whether the records can be read, and from when to when they tell."""

    since: str = ""
    """Empty if nothing is recorded."""
    latest: str = ""
    """When what was recorded last happened."""
    error: str = ""
    late: bool = False
    """Whether the answer is still to come."""


@dataclass(slots=True)
class _Asked:
    """A question, and what is known of its answer."""

    answer: Any = None
    error: BaseException | None = None
    fresh_until: float = float("-inf")
    under_way: "asyncio.Future[Any] | None" = None
    missed: bool = False
    """Whether a page was made without the answer that is under way."""


class _Late(Exception):
    """The answer is still to come."""


class History:
    """The recorder's records, as pages ask for them. `notify` is called when an answer came for which a page did not
    wait."""

    def __init__(self, place: Location, notify: Callable[[], None]) -> None:
        self.place = place
        self._notify = notify
        self._readers = Readers(place)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="recorder")
        self._asked: OrderedDict[Hashable, _Asked] = OrderedDict()
        self._under_way = 0

    def close(self) -> None:
        """Ask no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._readers.close()

    async def of(self, namespace: str, name: str, scope: Scope = EVERYTHING) -> Lives:
        """All Workloads that had a name."""
        try:
            return await self._ask((namespace, name, scope.key), partial(_lives, namespace, name, scope))
        except _Late:
            return Lives(late=True)
        except InvalidValue as error:
            return Lives(error=said(error, scope))

    async def search(self, wanted: str, scope: Scope = EVERYTHING) -> Gone:
        """Workloads that are gone, by parts of their names or namespaces."""
        parts = tuple(wanted.replace("\0", "").lower().split())
        try:
            return await self._ask((parts, scope.key), partial(_gone, parts, scope))
        except _Late:
            return Gone(late=True)
        except InvalidValue as error:
            return Gone(error=said(error, scope))

    async def records(self) -> Records:
        """Whether the records can be read now, for who may see them all."""
        try:
            return await self._ask(_records, _records)
        except _Late:
            return Records(late=True)
        except InvalidValue as error:
            return Records(error=said(error, EVERYTHING))

    async def _ask(self, about: Hashable, question: Callable[[Reader], T]) -> T:
        """The answer, or the one before while another is late. Raises InvalidValue, and _Late."""
        asked = self._asked.setdefault(about, _Asked())
        self._asked.move_to_end(about)
        while len(self._asked) > KEPT:
            self._asked.popitem(last=False)
        loop = asyncio.get_running_loop()
        if asked.under_way is None and loop.time() >= asked.fresh_until and self._under_way < QUEUED:
            self._under_way += 1
            asked.under_way = loop.run_in_executor(self._threads, self._readers.ask, question)
            asked.under_way.add_done_callback(partial(self._take, asked, loop.time()))
        if asked.under_way is not None:
            await asyncio.wait({asked.under_way}, timeout=SOON_SECONDS)
            asked.missed |= asked.under_way is not None
        if asked.error is not None:
            raise asked.error.with_traceback(None)  # else the traceback of the kept error grows with each page
        if asked.answer is None:
            raise _Late
        answer: T = asked.answer
        return answer

    def _take(self, asked: _Asked, began: float, answered: "asyncio.Future[object]") -> None:
        """An answer came."""
        asked.under_way = None
        self._under_way -= 1
        if answered.cancelled():
            return  # closed meanwhile
        now = asyncio.get_running_loop().time()
        asked.error = answered.exception()
        if asked.error is None:
            asked.answer = answered.result()
            asked.fresh_until = now + max(FRESH_SECONDS, IDLE_PART * (now - began))
        else:
            asked.fresh_until = now + FRESH_SECONDS
        if asked.missed:
            asked.missed = False
            self._notify()


def _lives(namespace: str, name: str, scope: Scope, reader: Reader) -> Lives:
    found = [each for each in reader.named(namespace, name) if scope.shows(namespace, each.created)]
    return Lives(tuple(_life(timeline_of(reader, each), scope) for each in reversed(found)))


def _gone(parts: Sequence[str], scope: Scope, reader: Reader) -> Gone:
    count, found = reader.gone(parts, scope=scope, at_most=FOUND)
    return Gone(tuple(Life(each, (), 0) for each in found), count)


def _records(reader: Reader) -> Records:
    return Records(_stamp(reader.since()), _stamp(reader.latest()))


def said(error: InvalidValue, scope: Scope) -> str:
    """Why the records cannot be read. Where they are is not told to all."""
    return f"{error.value}: {error.cure}" if scope.whole else "the log of the page's process has the reason"


def _stamp(at: Instant | None) -> str:
    return "" if at is None else stamp(at)


def _life(timeline: Timeline, scope: Scope) -> Life:
    groups = list(folded(timeline.entries))
    shown = groups[-SHOWN:]
    events = tuple(_event(group, timeline, scope) for group in reversed(shown))
    return Life(timeline.workload, events, len(groups) - len(shown))


def _event(group: Sequence[Entry], timeline: Timeline, scope: Scope) -> Event:
    entry = group[-1]
    title, tone = _TITLES.get(entry.what, (entry.what, ""))
    if is_attempt(entry):
        reason = waiting(entry.message) if entry.message else ""
        lines = tuple(line for line in (reason, *_amounts(group, timeline, scope)) if line)
        return Event(stamp(group[0].at), attempted(group) or title, tone, lines, ())
    lines = tuple(words(entry, timeline, scope))
    title = "Preempts" if entry.what == "tried" else title
    return Event(stamp(entry.at), title, tone, lines, tuple(others(entry, timeline, scope)))


def _amounts(group: Sequence[Entry], timeline: Timeline, scope: Scope) -> Sequence[str]:
    """The amounts of the last attempt of which they are recorded, without what its message says."""
    tried = [entry for entry in group if "short" in entry.detail]
    return words(tried[-1], timeline, scope)[1:] if tried else ()
