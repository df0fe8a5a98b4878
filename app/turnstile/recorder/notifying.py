"""Follows the Workloads of the leader and hands on what people are told of. Only the leader runs this.

A term begins with what the objects show, as far as it happened in the last minutes: the leader before may have ended
before it sent that. A receiver knows a notice that comes twice by its id. Must never send, nor decide anything.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

import structlog

from turnstile.api.workload import Workload
from turnstile.engine.decisions import Decision
from turnstile.kube.slices import Slice
from turnstile.kube.store import Store
from turnstile.recorder.facts import Fact, of_change
from turnstile.recorder.notable import About, Notice, of_decision, of_fact

AGAIN_SECONDS: Final = 300.0
"""The next leader tells again of the last so many seconds."""

log = structlog.get_logger(__name__)


class Notifying:
    """The notices of one leader in one term, given to `put`."""

    def __init__(
        self,
        workloads: Store[Workload],
        *,
        about: Collection[About],
        clock: Callable[[], datetime],
        put: Callable[[Notice], None],
    ) -> None:
        self._workloads = workloads
        self._about = about
        self._clock = clock
        self._put = put
        self._hopeless: dict[str, str] = {}
        """Workloads, by uid, that are known never to start, and by which mark that was told."""

    async def begin(self) -> Callable[[], None]:
        """Follow the Workloads, after all that there are; returns what ends it."""
        end = self._workloads.subscribe(self._changed)
        turn = Slice()
        keys = self._workloads.keys()
        for key in keys:
            workload = self._workloads.get(key)
            if workload is not None:
                self._changed(key, None, workload)
            if turn.over:
                await turn.rest()
        return end

    def tried(self, decision: Decision) -> None:
        """The scheduler decided about a Workload."""
        try:
            notice = of_decision(decision, self._clock().timestamp())
        except Exception:  # a fault of ours must not keep a decision from being written
            log.exception("notifications.broken", workload=decision.key)
            return
        if notice is None:
            self._hopeless.pop(decision.uid, None)
        elif self._hopeless.get(decision.uid) != notice.mark:
            self._hopeless[decision.uid] = notice.mark
            self._report(notice)

    def _changed(self, _: str, old: Workload | None, new: Workload | None) -> None:
        if new is None:
            if old is not None:
                self._hopeless.pop(old.metadata.uid, None)
            return
        now = self._clock().timestamp()
        for record in of_change(old, new, now):
            if isinstance(record, Fact) and record.at >= now - AGAIN_SECONDS:
                notice = of_fact(new, record)
                if notice is not None:
                    self._report(notice)

    def _report(self, notice: Notice) -> None:
        if notice.about in self._about:
            self._put(notice)
