"""The decision log: the input and the decisions of a leader's cycles, one line of JSON each, in order.

The log explains later why a Workload was admitted, waited or was evicted. A line names a decision, the version of
an object that was applied to the ledger, or the outcome of a write; the lines before the first decision of a cycle are
the whole input of that cycle. A decision is in the file before its writes are sent.

A file that cannot be written ends the log and nothing else. Must never change a decision.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import Any, Protocol

import orjson
import structlog

from turnstile.api.meta import Kind
from turnstile.engine import Decision, Options
from turnstile.engine.instants import Instant
from turnstile.engine.log import Listener
from turnstile.engine.logformat import decided, plain_event, plain_options

log = structlog.get_logger(__name__)


class DecisionLog:
    """The log file, opened for appending. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedWriter | None = path.open("ab")

    def append(self, line: dict[str, Any]) -> None:
        """Append one line; it may stay in memory until `flush`."""
        self._do(lambda file: file.write(orjson.dumps(line) + b"\n"))

    def flush(self) -> None:
        """Write all lines to the operating system, so that they survive the end of this process."""
        self._do(lambda file: file.flush())

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        self._do(lambda file: file.close())
        self._file = None

    def _do(self, act: Callable[[BufferedWriter], object]) -> None:
        if self._file is None:
            return
        try:
            act(self._file)
        except OSError as error:
            log.warning("decisions.unlogged", path=str(self._path), error=str(error))
            with suppress(OSError):
                self._file.close()
            self._file = None


class Decisions(Protocol):
    """Where the lines go."""

    def append(self, line: dict[str, Any]) -> None:
        """Take one line."""

    def flush(self) -> None:
        """Keep all lines through the end of this process, if that is possible without waiting."""


class TermLog(Listener):
    """Logs the events applied to the ledger of a leader and the decisions of its cycles. `identity` and `epoch`
    identify the term of leadership. With `objects` the log has all that is needed to make the decisions again
    (`insight.replay`); the options are those of the ledger."""

    __slots__ = ("_log", "_objects")

    def __init__(
        self, decisions: Decisions, options: Options, *, identity: str, epoch: int, objects: bool = False
    ) -> None:
        self._log = decisions
        self._objects = objects
        term = {"leading": identity, "epoch": epoch}
        decisions.append(term | {"options": plain_options(options)} if objects else term)

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Log an event."""
        line = {"event": event, **_facts(event, args)}
        self._log.append(line | plain_event(args, named) if self._objects else line)

    def cycled(self, cycle: int, now: Instant, decisions: Sequence[Decision]) -> None:
        """Log the decisions of a cycle, whose time is part of its input."""
        for decision in decisions:
            self._log.append({"cycle": cycle, **decided(decision)})
        if self._objects:
            self._log.append({"cycled": cycle, "now": now})
        self._log.flush()

    def abandoned(self, cycle: int) -> None:
        """Log that a cycle was closed before its end: what it leaves behind cannot be repeated."""
        if self._objects:
            self._log.append({"abandoned": cycle})
        self._log.flush()


def _facts(event: str, args: tuple[object, ...]) -> dict[str, Any]:
    """Key and version of the object of an event."""
    about = args[0]
    if isinstance(about, Kind):
        meta = about.metadata
        return {"key": meta.key, "uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"key": about, "resourceVersion": args[1]} if event == "confirm" and len(args) > 1 else {"key": about}
