"""The decision log: what a leader knew, and what it decided on it, one line of JSON each, in the order it happened.

For whoever asks afterwards why a workload was let in, had to wait or had to go. A line says which version of which
object the ledger took in, or what became of a write; those before the first decision of a cycle are all that the cycle
knew. A decision is in the file before the writes that follow from it go out.

A file that cannot be written ends the log and nothing else. Must never change what is decided.
"""

from collections.abc import Callable
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
    """The file; it is appended to. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BufferedWriter | None = path.open("ab")

    def tell(self, line: dict[str, Any]) -> None:
        """One line more; it may stay in memory until `flush`."""
        self._do(lambda file: file.write(orjson.dumps(line) + b"\n"))

    def flush(self) -> None:
        """Hand all lines to the operating system, where they outlive this process."""
        self._do(lambda file: file.flush())

    def close(self) -> None:
        """Nothing more is told."""
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
    """A ledger that tells a log what it takes in and what its cycles decide. What is only tried, in a fork, is not
    told. `identity` and `epoch` say whose term begins."""

    __slots__ = ("_decided", "_log")

    def __init__(self, options: Options, decisions: DecisionLog, *, identity: str, epoch: int) -> None:
        super().__init__(options)
        self._log = decisions
        self._decided: list[tuple[int, Decision]] = []
        decisions.tell({"leading": identity, "epoch": epoch})

    def took(self, event: str, args: tuple[object, ...]) -> None:
        """Tell of an event."""
        if self.journal is None:
            self._log.tell({"event": event, **_facts(event, args)})

    def remember(self, decision: Decision) -> None:
        """Keep a decision until it is sure that its cycle comes to its end."""
        super().remember(decision)
        if self.journal is None:
            self._decided.append((self.scheduling_cycle, decision))

    def end_cycle(self, *, changed: bool, progress: bool) -> None:
        """Tell of what was decided, before what came meanwhile; nothing of a cycle that was left early."""
        for cycle, decision in self._decided:
            if cycle == self.scheduling_cycle:
                self._log.tell({"cycle": cycle, **_told(decision)})
        self._decided.clear()
        self._log.flush()
        super().end_cycle(changed=changed, progress=progress)


def _facts(event: str, args: tuple[object, ...]) -> dict[str, Any]:
    """Which object an event was about, and in which version."""
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
