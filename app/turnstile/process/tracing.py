"""Sends the spans of Workloads to a collector of OpenTelemetry by OTLP over HTTP, with the official SDK.

The SDK is an extra (`turnstile-queue[otel]`), imported when the configuration asks for traces. The event loop puts
values into a bounded queue; a thread encodes and sends them. Spans that do not fit or are not taken are counted.
Must never hold up the leader, and never raise into it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from turnstile import __version__
from turnstile.api.errors import NotInstalled
from turnstile.api.workload import Workload
from turnstile.kube.slices import Slice
from turnstile.kube.store import Store
from turnstile.process.configured import TraceOptions
from turnstile.recorder.facts import Fact, of_change
from turnstile.recorder.spans import Lives, Span

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import ReadableSpan

WAITING: Final = 10_000
"""Spans that may wait to be sent."""
BATCH: Final = 512
"""Spans of one request."""
GATHER_SECONDS: Final = 1.0
"""Seconds for which spans are gathered before they are sent."""
TIMEOUT_SECONDS: Final = 5.0
"""Seconds for which a request may last, with all that the SDK tries again: the end of the process waits for it."""
AGAIN_SECONDS: Final = 300.0
"""Spans that ended so many seconds before a term are sent again in it: the leader before may not have come to it."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Stats:
    """Counts of one process. Read by the metrics."""

    sent: int = 0
    dropped: int = 0
    failing: bool = False


class Tracing:
    """The queue of one process, and the task that sends while it leads."""

    def __init__(
        self,
        options: TraceOptions,
        *,
        clock: Callable[[], datetime],
        waiting: int = WAITING,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        self.stats = Stats()
        self._options = options
        self._clock = clock
        self._most = waiting
        self._gather = gather_seconds
        self._queue: deque[Span] = deque()
        self._exporter = _exporter(options)

    def __len__(self) -> int:
        """Spans that wait to be sent."""
        return len(self._queue)

    async def run(self, workloads: Store[Workload]) -> None:
        """Follow the Workloads of one term, and send until cancelled."""
        horizon, lives = self._clock().timestamp() - AGAIN_SECONDS, Lives()
        self._queue.clear()

        def changed(_: str, old: Workload | None, new: Workload | None) -> None:
            for span in _ended(lives, old, new, self._clock().timestamp()):
                if span.end >= horizon:
                    self._put(span)

        end = workloads.subscribe(changed)
        try:
            turn = Slice()
            keys = workloads.keys()
            for key in keys:
                workload = workloads.get(key)
                if workload is not None:
                    changed(key, None, workload)
                if turn.over:
                    await turn.rest()
            while True:
                await asyncio.sleep(self._gather)
                while self._queue:
                    await self._send()
        finally:
            end()

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _put(self, span: Span) -> None:
        if len(self._queue) >= self._most:
            self.stats.dropped += 1
        else:
            self._queue.append(span)

    async def _send(self) -> None:
        """Send a batch. The SDK tries again by itself for a while; then the batch is dropped."""
        batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
        try:
            taken = await asyncio.to_thread(self._export, batch)
        except Exception:  # a fault of the SDK must not end the term
            log.exception("traces.broken")
            taken = False
        if taken:
            self.stats.sent += len(batch)
            if self.stats.failing:
                log.info("traces.sent_again", endpoint=self._options.endpoint)
        else:
            self.stats.dropped += len(batch)
            if not self.stats.failing:
                log.warning("traces.not_taken", endpoint=self._options.endpoint, spans=len(batch))
        self.stats.failing = not taken

    def _export(self, batch: Sequence[Span]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        return self._exporter.export([readable(span, self._options) for span in batch]) is SpanExportResult.SUCCESS


def _ended(lives: Lives, old: Workload | None, new: Workload | None, now: float) -> list[Span]:
    """The spans that ended between two versions of a Workload."""
    if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
        spans = lives.gone(old, now)
        return spans if new is None else [*spans, *_ended(lives, None, new, now)]
    facts = [record for record in of_change(old, new, now) if isinstance(record, Fact)]
    return [span for fact in facts if new is not None for span in lives.follow(new, fact)]


def _exporter(options: TraceOptions) -> "OTLPSpanExporter":
    """The exporter of the SDK. Raises NotInstalled without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        raise NotInstalled("traces in the configuration", error, extra="otel") from None
    headers = None
    if options.token_file is not None:
        headers = {"Authorization": f"Bearer {Path(options.token_file).read_text().strip()}"}
    return OTLPSpanExporter(
        options.endpoint, certificate_file=options.ca_file, headers=headers, timeout=TIMEOUT_SECONDS
    )


def readable(span: Span, options: TraceOptions) -> "ReadableSpan":
    """The span as the SDK has it."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    def context(number: int) -> SpanContext:
        return SpanContext(span.trace, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        span.name,
        context=context(span.span),
        parent=context(span.parent) if span.parent else None,
        resource=Resource({"service.name": "turnstile", "service.version": __version__, **options.resource}),
        attributes=span.attributes,
        status=Status(StatusCode.ERROR, span.failed) if span.failed else Status(StatusCode.UNSET),
        start_time=round(span.begin * 1e9),
        end_time=round(span.end * 1e9),
        instrumentation_scope=InstrumentationScope("turnstile", __version__),
    )
