"""Answers questions about the store for many who ask, over connections that are kept between questions.

For a process that lives long. Must never be called in an event loop: each question is asked in the caller's thread.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeVar

import structlog

from turnstile.api.errors import InvalidValue
from turnstile.recorder.connection import Connection, Refused, Unavailable
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, opened, unreadable

T = TypeVar("T")

IDLE_SECONDS: Final = 60.0
"""A connection that was not used for so long is not used again: what stands between may have forgotten it."""
AGAIN_SECONDS: Final = 5.0
"""Seconds for which a store that could not be reached is not tried again."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Kept:
    connection: Connection
    used: float


class Readers:
    """Questions to one store. As many connections are open as threads ask at a time."""

    def __init__(self, location: Location, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._location = location
        self._clock = clock
        self._lock = Lock()
        self._free: list[_Kept] = []
        self._failed: InvalidValue | None = None
        self._again = float("-inf")
        self._closed = False

    def close(self) -> None:
        """Close the connections, those in use when they have answered."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for each in free:
            each.connection.close()

    def ask(self, question: Callable[[Reader], T]) -> T:
        """The answer. Raises InvalidValue if the store cannot be read; for a while after that, at once."""
        with self._lock:
            kept = self._free.pop() if self._free else None
            if kept is None and self._failed is not None and self._clock() < self._again:
                raise InvalidValue(self._failed.field, self._failed.value, self._failed.cure)
        try:
            if kept is not None and self._usable(kept):
                with suppress(Unavailable):  # it was closed meanwhile, or the server started anew: another one tells
                    return self._answer(kept.connection, question)
            return self._answer(opened(self._location), question)
        except Refused as error:  # a fault of the question
            raise unreadable(self._location, str(error)) from None
        except Unavailable as error:
            failed = unreadable(self._location, str(error))
        except InvalidValue as error:
            failed = error
        self._note(failed)
        raise failed

    def _usable(self, kept: _Kept) -> bool:
        usable = self._clock() < kept.used + IDLE_SECONDS and not kept.connection.lost
        if not usable:
            kept.connection.close()
        return usable

    def _answer(self, connection: Connection, question: Callable[[Reader], T]) -> T:
        try:
            answer = question(Reader(connection))
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._failed = None
            if keep := not self._closed:
                self._free.append(_Kept(connection, self._clock()))
        if not keep:
            connection.close()
        return answer

    def _note(self, failed: InvalidValue) -> None:
        with self._lock:
            news = self._failed is None or str(self._failed) != str(failed)
            self._failed, self._again = failed, self._clock() + AGAIN_SECONDS
        if news:
            _log.warning("recorder.cannot_read", store=str(self._location), error=failed.cure)
