"""Records Kubernetes events (events.k8s.io/v1), shown by `kubectl describe`, without delaying the caller.

`emit` only queues an event; one writer task sends it, each event at a turn of the lowest rank of the gate
(`turnstile.kube.gate`): while other writes are made, an event goes out now and then, Warnings first. When the queue is
full the oldest Normal events are dropped and counted.

Events of the same object, type, reason, action and text form one series. The first occurrence is written once, the
following ones together as a higher count, at most once per interval. Another text starts another series, which
waits behind all Warnings like a Normal event. If one reason has more than `TEXTS` texts,
each further text replaces the newest one in its series, which is written once per interval, as a new event because the
text of an event cannot be changed. So one reason costs at most a few writes per object and interval. Events that tell
the same of many other objects are one series whatever their texts, as all events are in client-go, with the first text.

Never blocks its caller, never raises an error to its caller, and never writes anything but events.
"""

import asyncio
import contextlib
import datetime as dt
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import msgspec
import structlog

from turnstile.api import names
from turnstile.api.errors import AlreadyExists, ApiError, NotFound, ServerError, TooManyRequests, Unproven, WireError
from turnstile.api.meta import Kind, Object
from turnstile.kube.gate import Rank
from turnstile.kube.lease import micro_time
from turnstile.kube.transport import Transport

EventType = Literal["Normal", "Warning"]

NOTE_BYTES = 1024
WORD_BYTES = 128
NAME_LENGTH = 253
INSTANCE_LENGTH = 128

_ATTEMPTS = 4
_RETRY_PAUSE = 1.0
TEXTS = 10
"""Texts per object and reason with a series of their own; a text not seen for `window` seconds no longer counts."""
_log = structlog.get_logger(__name__)


class ObjectReference(Object):
    """corev1.ObjectReference."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class EventSeries(Object):
    """eventsv1.EventSeries."""

    count: int
    last_observed_time: str


class Event(Kind):
    """events.k8s.io/v1 Event."""

    GROUP: ClassVar = "events.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Event"
    PLURAL: ClassVar = "events"
    NAMESPACED: ClassVar = True

    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = msgspec.field(default_factory=ObjectReference)
    note: str = ""
    type: str = ""


@dataclass(slots=True)
class Stats:
    """Counts since the start; `turnstile.process.metrics` exports them."""

    emitted: int = 0
    created: int = 0
    """Events written."""
    repeated: int = 0
    """Series written again with a higher count."""
    dropped: Counter[tuple[EventType, str]] = field(default_factory=Counter)
    """By (type, cause). Causes: `full` (the queue), `refused` (by the server), `failed` (too many attempts)."""


_About = tuple[str, EventType, str, str]
"""Object, type, reason and action: what events with different texts have in common."""


@dataclass(slots=True, eq=False)
class _Series:
    """An event of an object and its recurrences. `rank` is the type that decides its priority among events."""

    about: _About
    rank: EventType
    regarding: ObjectReference
    type: EventType
    reason: str
    action: str
    note: str
    first: dt.datetime
    last: dt.datetime
    seen_at: float
    count: int = 1
    name: str = ""  # set at the first write
    due_at: float = 0.0
    written_note: str | None = None
    attempts: int = 0


class Recorder:
    """Records events of one controller. `await run()` writes them; `emit` may be called before, and at any time.

    `capacity` bounds the new events that wait to be written. An event continues a series if its text recurs within
    `window` seconds (client-go ends a series after six minutes, too); a series is written again at most every
    `interval` seconds. When cancelled, `run` has `flush` seconds to write the events that wait, without turns.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        controller: str = names.FIELD_MANAGER,
        instance: str,
        capacity: int = 2000,
        window: float = 360.0,
        interval: float = 30.0,
        flush: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._transport = transport
        self._controller = controller
        self._instance = instance[:INSTANCE_LENGTH]
        self._capacity = capacity
        self._window = window
        self._interval = interval
        self._flush = flush
        self._clock = clock
        self._wall = wall
        self._texts: OrderedDict[_About, dict[str, _Series]] = OrderedDict()
        self._new: dict[EventType, OrderedDict[_Series, None]] = {"Warning": OrderedDict(), "Normal": OrderedDict()}
        self._repeats: OrderedDict[_Series, None] = OrderedDict()  # in the order in which they are due
        self._writing: _Series | None = None
        self._wake = asyncio.Event()
        self.stats = Stats()

    def __len__(self) -> int:
        """Number of new events that wait to be written."""
        return sum(len(waiting) for waiting in self._new.values())

    @property
    def remembered(self) -> int:
        """Number of objects and reasons whose next event may continue a series."""
        return len(self._texts)

    def emit(
        self,
        regarding: Kind,
        *,
        type: EventType,  # noqa: A002
        reason: str,
        note: str,
        action: str = "",
        one_series: bool = False,
    ) -> None:
        """Record an event of an object. `action` is what the controller did; it defaults to the reason. `one_series`:
        another text begins no other series."""
        self.stats.emitted += 1
        meta = regarding.metadata
        action = action or reason
        about = (meta.uid or f"{regarding.KIND}/{meta.key}", type, reason, action)
        now, moment = self._clock(), self._wall()
        series = self._series_of(about, note, now, one=one_series)
        if series is not None:
            self._texts.move_to_end(about)
            series.seen_at, series.last = now, moment
            series.count += 1
            if series.written_note is not None and series not in self._repeats and series is not self._writing:
                self._repeat(series)
            return
        rank: EventType = "Normal" if about in self._texts else type
        series = _Series(about, rank, _reference(regarding), type, reason, action, note, moment, moment, now)
        if self._make_room(series):
            self._texts.setdefault(about, {})[note] = series
            self._texts.move_to_end(about)
            self._forget_old(now)
            self._new[rank][series] = None
            self._wake.set()

    def _forget_old(self, now: float) -> None:
        """Forget what cannot be continued any more, and the oldest beyond the capacity."""
        while self._texts:
            oldest = next(iter(self._texts.values()))
            if len(self._texts) <= self._capacity and any(
                now - each.seen_at <= self._window for each in oldest.values()
            ):
                return
            self._texts.popitem(last=False)

    def _series_of(self, about: _About, note: str, now: float, *, one: bool) -> _Series | None:
        """The series that an event continues, or None if the event begins a series. With `one` it continues any.

        With `TEXTS` series already, a new text continues the newest series and replaces its text.
        """
        texts = self._texts.get(about)
        if texts is None:
            return None
        for text, series in list(texts.items()):
            if now - series.seen_at > self._window:
                del texts[text]
        if not texts:
            del self._texts[about]
            return None
        if one:
            return next(iter(texts.values()))
        if note not in texts and len(texts) >= TEXTS:
            text = next(reversed(texts))
            series = texts[note] = texts.pop(text)
            series.note = note
        return texts.get(note)

    async def run(self) -> None:
        """Write events until cancelled, then for at most `flush` seconds more."""
        try:
            while True:
                self._wake.clear()
                if (seconds := self._seconds_until_due()) != 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), seconds)
                    continue
                async with self._transport.gate.turn(Rank.EVENT):
                    if (series := self._next()) is None:
                        continue
                    retry_after = await self._write(series)
                await asyncio.sleep(retry_after)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._flush):
                    await self._drain()

    # --- waiting events -----------------------------------------------------------------------------------------------

    def _make_room(self, new: _Series) -> bool:
        """Drop the oldest event of the lowest rank if the queue is full; return False if the new event is dropped."""
        if len(self) < self._capacity:
            return True
        victims: EventType = "Normal" if self._new["Normal"] else "Warning"
        if victims == "Warning" and new.rank == "Normal":
            self.stats.dropped[new.type, "full"] += 1
            return False
        dropped, _ = self._new[victims].popitem(last=False)
        self._forget(dropped, "full")
        return True

    def _forget(self, series: _Series, cause: str) -> None:
        self.stats.dropped[series.type, cause] += 1
        texts = self._texts.get(series.about, {})
        if texts.get(series.note) is series:
            del texts[series.note]
            if not texts:
                del self._texts[series.about]

    def _repeat(self, series: _Series) -> None:
        series.due_at = self._clock() + self._interval
        self._repeats[series] = None
        self._wake.set()

    def _next(self) -> _Series | None:
        """Remove and return the series to write now, or None."""
        for waiting in self._new.values():
            if waiting:
                return waiting.popitem(last=False)[0]
        if self._repeats and next(iter(self._repeats)).due_at <= self._clock():
            return self._repeats.popitem(last=False)[0]
        return None

    def _seconds_until_due(self) -> float | None:
        """Seconds until a series is to be written, 0 if one is now; None if none waits."""
        if len(self):
            return 0
        if self._repeats:
            return max(0, next(iter(self._repeats)).due_at - self._clock())
        return None

    async def _drain(self) -> None:
        if self._writing is not None:  # the write was cancelled: whether the server has it is unknown
            await self._write(self._writing)
        for waiting in (*self._new.values(), self._repeats):
            while waiting:
                pause = await self._write(waiting.popitem(last=False)[0])
                await asyncio.sleep(pause)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, series: _Series) -> float:
        """Write a series. Returns the seconds to wait before the next one."""
        self._writing = series
        pause = 0.0
        try:
            if series.written_note == series.note:
                await self._raise_count(series)
            else:
                await self._create(series)
        except (WireError, ServerError, TooManyRequests, Unproven) as error:
            if self._may_try_again(series, error):
                pause = _RETRY_PAUSE * series.attempts
        except ApiError as error:  # the namespace is terminating, or the object's name is no valid event name
            _log.info("event.refused", reason=series.reason, regarding=series.about[0], error=str(error))
            self._forget(series, "refused")
        except Exception:  # one event that cannot be written must not stop the writer
            _log.exception("event.unwritable", reason=series.reason, regarding=series.about[0])
            self._forget(series, "failed")
        else:
            series.attempts = 0
        self._writing = None
        return pause

    def _may_try_again(self, series: _Series, error: Exception) -> bool:
        series.attempts += 1
        if series.attempts >= _ATTEMPTS:
            _log.warning("event.failed", reason=series.reason, regarding=series.about[0], error=str(error))
            self._forget(series, "failed")
            return False
        if series.written_note is not None:
            self._repeat(series)
        else:
            self._new[series.rank][series] = None
            self._new[series.rank].move_to_end(series, last=False)
        return True

    async def _create(self, series: _Series) -> None:
        if series.written_note is not None:  # a new text: a new event whose count starts at 1
            series.first, series.name, series.written_note = series.last, "", None
            series.count = 1
        series.name = series.name or self._event_name(series)
        note, count = series.note, series.count
        body = Event(
            api_version="events.k8s.io/v1",
            kind="Event",
            event_time=micro_time(series.first),
            series=EventSeries(count=count, last_observed_time=micro_time(series.last)) if count > 1 else None,
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=_cut(series.action, WORD_BYTES),
            reason=_cut(series.reason, WORD_BYTES),
            regarding=series.regarding,
            note=_cut(note, NOTE_BYTES),
            type=series.type,
        )
        body.metadata.name, body.metadata.namespace = series.name, series.regarding.namespace or "default"
        # An earlier attempt may have succeeded: then its name exists, and nothing is left to do.
        with contextlib.suppress(AlreadyExists):
            await self._transport.request(
                "POST",
                Event.collection_path(body.metadata.namespace),
                params={"fieldManager": names.FIELD_MANAGER},
                body=msgspec.json.encode(body),
                write="create events",
            )
        series.written_note = note
        self.stats.created += 1
        self._go_on(series, count)

    async def _raise_count(self, series: _Series) -> None:
        count = series.count
        body = {"series": EventSeries(count=count, last_observed_time=micro_time(series.last))}
        try:
            await self._transport.request(
                "PATCH",
                Event.path(series.name, series.regarding.namespace or "default"),
                params={"fieldManager": names.FIELD_MANAGER},
                body=msgspec.json.encode(body),
                content_type="application/merge-patch+json",
                retry="always",
                write="merge events",
            )
        except NotFound:  # the server deletes events after an hour
            await self._create(series)
            return
        self.stats.repeated += 1
        self._go_on(series, count)

    def _go_on(self, series: _Series, count: int) -> None:
        """Queue the series again for the next interval if `emit` raised its count during the write."""
        if series.count != count and series not in self._repeats:
            self._repeat(series)

    def _event_name(self, series: _Series) -> str:
        """`<name of the object>.<hash>`, within the limits of a name."""
        text = "\0".join((*series.about, self._instance, series.first.isoformat(), series.note))
        digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
        return f"{series.regarding.name[: NAME_LENGTH - len(digest) - 1].rstrip('.-')}.{digest}"


def _reference(regarding: Kind) -> ObjectReference:
    meta = regarding.metadata
    return ObjectReference(
        api_version=f"{regarding.GROUP}/{regarding.VERSION}" if regarding.GROUP else regarding.VERSION,
        kind=regarding.KIND,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, cut between characters and marked with dots."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode(errors="ignore") + "..."
