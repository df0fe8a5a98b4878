"""The decision log in the recorder's store: what `turnstile replay` needs to make a leader's decisions again.

A term is of use as far as no line is missing: the first one that cannot be put into the queue ends the lines of its
term.
"""

from collections.abc import Callable
from typing import Any

import orjson
import structlog

from turnstile.engine.instants import Instant
from turnstile.recorder.facts import Line
from turnstile.recorder.writer import Writer

log = structlog.get_logger(__name__)


class StoredDecisions:
    """Takes the lines of the decision log, as `controllers.scheduling.decisionlog.DecisionLog` does."""

    def __init__(self, writer: Writer, clock: Callable[[], Instant]) -> None:
        self._writer = writer
        self._clock = clock
        self._term = ""
        self._number = 0

    def append(self, line: dict[str, Any]) -> None:
        """Have a line stored. Lines leave half of the queue to what happens to Workloads."""
        if "leading" in line:
            self._term, self._number = f"{line['leading']}/{line['epoch']}", 0
        if not self._term:
            return
        if self._writer.half_full:
            log.warning("recorder.decisions_given_up", term=self._term, lines=self._number)
            self._term = ""
            return
        self._writer.put(Line(self._term, self._number, self._clock(), orjson.dumps(line).decode()))
        self._number += 1

    def flush(self) -> None:
        """The writer's thread does."""
