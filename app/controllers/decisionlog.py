"""The decision log: the input and the decisions of a leader's cycles, one line of JSON each, in order.

The log explains later why a Workload was admitted, waited or was evicted. A line names a decision, the version of
an object that was applied to the ledger, or the outcome of a write; the lines before the first decision of a cycle are
the whole input of that cycle. A decision is in the file before its writes are sent.

A file that cannot be written ends the log and nothing else. Must never change a decision.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import Any

import orjson
import structlog

from app.api.meta import Kind
from app.engine import Decision, Options, State

log = structlog.get_logger(__name__)


class DecisionLog:
    """The log file, opened for appending. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedWriter | None = path.open("ab")

    def tell(self, line: dict[str, Any]) -> None:
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


class LoggedState(State):
    """A ledger that logs the events applied to it and the decisions of its cycles. `identity` and `epoch` identify the
    term of leadership."""

    __slots__ = ("_decided", "_log")

    def __init__(self, options: Options, decisions: DecisionLog, *, identity: str, epoch: int) -> None:
        super().__init__(options)
        self._log = decisions
        self._decided: list[tuple[int, Decision]] = []
        decisions.tell({"leading": identity, "epoch": epoch})

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Log an event."""
        super().took(event, args, named)
        self._log.tell({"event": event, **_facts(event, args)})

    def remember(self, decision: Decision) -> None:
        """Store a decision until its cycle ends."""
        super().remember(decision)
        self._decided.append((self.scheduling_cycle, decision))

    def end_cycle(self, *, changed: bool, progress: bool) -> None:
        """Log the cycle's decisions, before the events that arrived meanwhile; never those of an aborted cycle."""
        for cycle, decision in self._decided:
            if cycle == self.scheduling_cycle:
                self._log.tell({"cycle": cycle, **_told(decision)})
        self._decided.clear()
        self._log.flush()
        super().end_cycle(changed=changed, progress=progress)


def _facts(event: str, args: tuple[object, ...]) -> dict[str, Any]:
    """Key and version of the object of an event."""
    about = args[0]
    if isinstance(about, Kind):
        meta = about.metadata
        return {"key": meta.key, "uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"key": about, "resourceVersion": args[1]} if event == "confirm" and len(args) > 1 else {"key": about}


def _told(decision: Decision) -> dict[str, Any]:
    return {
        "key": decision.key,
        "uid": decision.uid,
        "generation": decision.generation,
        "resourceVersion": decision.workload.metadata.resource_version,
        "clusterQueue": decision.cluster_queue,
        "outcome": decision.outcome,
        "reason": decision.condition_reason,
        "requeue": decision.requeue_reason,
        "message": decision.message,
        "explanation": decision.explanation,
        "borrowing": decision.borrowing,
        "victims": [
            {
                "key": victim.key,
                "uid": victim.uid,
                "clusterQueue": victim.cluster_queue,
                "reason": victim.reason,
                "new": victim.new,
            }
            for victim in decision.victims
        ],
    }
