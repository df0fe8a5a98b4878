"""Those who look on while this process leads: the decision log, the flight recorder, CloudEvents and traces.

Each is there only if the settings ask for it, and each is bounded and loses its own records rather than delay the
leader. Must never decide anything, nor write to the API server.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from turnstile.controllers.scheduling.decisionlog import DecisionLog, Decisions, TermLog
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import Decision, State
from turnstile.process.cloudevents import CloudEvents
from turnstile.process.settings import Settings
from turnstile.process.views import recorded_pods
from turnstile.recorder.decisions import StoredDecisions
from turnstile.recorder.notifying import Notifying
from turnstile.recorder.recording import Recording
from turnstile.recorder.writer import Writer

if TYPE_CHECKING:
    from turnstile.process.tracing import Tracing


class Observers:
    """The observers of one process. They outlive its terms of leadership, and are given one term at a time."""

    def __init__(self, settings: Settings, *, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._clock = clock
        self._log = DecisionLog(settings.decision_log) if settings.decision_log is not None else None
        leads = settings.role.controller
        self.flight = self._flight() if leads else None
        self.notices = CloudEvents(settings.notifications) if leads and settings.notifications is not None else None
        self.tracing = self._tracing() if leads else None

    def start(self) -> None:
        """Open the file of the flight recorder, in a thread of its own."""
        if self.flight is not None:
            self.flight.start()

    def close(self) -> None:
        """Close the decision log, the flight recorder and the connection of traces."""
        if self.tracing is not None:
            self.tracing.close()
        if self._log is not None:
            self._log.close()
        if self.flight is not None:
            self.flight.close()

    def state(self, epoch: int) -> State:
        """The empty state of the engine for a term, whose calls are logged if the settings ask for that."""
        settings, engine = self._settings, self._settings.engine
        decisions: Decisions
        if self._log is not None:
            decisions, objects = self._log, settings.decision_log_objects
        elif self.flight is not None and settings.recorder_decisions:
            decisions, objects = StoredDecisions(self.flight, lambda: self._clock().timestamp()), True
        else:
            return State(engine)
        return State(engine, TermLog(decisions, engine, identity=settings.identity, epoch=epoch, objects=objects))

    def follow(self, cluster: ClusterView, tasks: asyncio.TaskGroup) -> Callable[[Decision], None]:
        """Follow the objects of a term by tasks that end with it; returns who is told each decision."""
        observers: list[Callable[[Decision], None]] = []
        if self.flight is not None:
            recording = Recording(
                self.flight,
                workloads=cluster.workloads,
                cluster_queues=cluster.cluster_queues,
                cohorts=cluster.cohorts,
                pods=recorded_pods(cluster),
                clock=self._clock,
            )
            observers.append(recording.tried)
            tasks.create_task(recording.run(), name="recording")
        if self.tracing is not None:
            tasks.create_task(self.tracing.run(cluster.workloads), name="traces")
        options = self._settings.notifications
        if self.notices is not None and options is not None:
            notices = self.notices
            notifying = Notifying(cluster.workloads, about=options.about, clock=self._clock, put=notices.put)
            observers.append(notifying.tried)
            tasks.create_task(notices.run(notifying), name="notifications")

        def report(decision: Decision) -> None:
            for observer in observers:
                observer(decision)

        return report

    def _flight(self) -> Writer | None:
        place, retention = self._settings.recorder, self._settings.retention
        if place is None:
            return None
        return Writer(place, retention=retention, clock=lambda: self._clock().timestamp())

    def _tracing(self) -> "Tracing | None":
        """The sender of traces, if the file names a collector: otherwise the SDK of OpenTelemetry is not imported."""
        if self._settings.traces is None:
            return None
        from turnstile.process.tracing import Tracing

        return Tracing(self._settings.traces, clock=self._clock)
