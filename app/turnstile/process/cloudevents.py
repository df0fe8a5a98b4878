"""Sends notices about Workloads as CloudEvents 1.0 to the one webhook that the configuration names.

Structured mode: a JSON object of eight attributes, written here, for which a package of its own would bring more code
than it saves. At least once: an event is sent until it is taken, for ten minutes at most, and its id is the same every
time. The event loop never waits: the queue is bounded, and what does not fit is dropped and counted. The URL comes from
the administrator's file alone, no redirect is followed, and no answer is read: no one else decides where requests go.
"""

import asyncio
import ssl
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import aiohttp
import orjson
import structlog

from turnstile import __version__
from turnstile.process.configured import NotificationOptions
from turnstile.recorder.notable import Notice
from turnstile.recorder.notifying import Notifying

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
TYPES: Final = "dev.turnstile.workload."
"""How the type of each event begins."""
WAITING: Final = 1000
"""Events that may wait to be sent."""
TIMEOUT_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = (1.0, 30.0)
"""Seconds between two attempts to send an event: at first, and at most."""
GIVE_UP_SECONDS: Final = 600.0
"""Seconds after which an event is given up."""
LATER: Final = (408, 425, 429)
"""Status codes besides 5xx with which a webhook says that an event may be taken later."""

Cause = Literal["full", "refused", "failed"]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Stats:
    """Counts of one process. Read by the metrics."""

    sent: int = 0
    failures: int = 0
    dropped: "Counter[Cause]" = field(default_factory=Counter)
    failing: str = ""
    """Why the webhook takes nothing now; empty if it does."""


class CloudEvents:
    """The queue of one process, and the task that sends while it leads."""

    def __init__(
        self,
        options: NotificationOptions,
        *,
        waiting: int = WAITING,
        again_seconds: tuple[float, float] = AGAIN_SECONDS,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self.stats = Stats()
        self._options = options
        self._most = waiting
        self._again = again_seconds
        self._give_up = give_up_seconds
        self._queue: deque[tuple[float, Notice]] = deque()
        """Each with the time when it is given up."""
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Events that wait to be sent."""
        return len(self._queue)

    def put(self, notice: Notice) -> None:
        """Have a notice sent; it is dropped if too many wait."""
        if len(self._queue) >= self._most:
            self.stats.dropped["full"] += 1
            return
        self._queue.append((asyncio.get_running_loop().time() + self._give_up, notice))
        self._wake.set()

    async def run(self, notifying: Notifying) -> None:
        """Follow one term and send until cancelled. The next leader derives again those events that wait then."""
        self._queue.clear()
        end = await notifying.begin()
        try:
            await self._send()
        finally:
            end()

    async def _send(self) -> None:
        context = await asyncio.to_thread(self._tls)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=1), timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            while True:
                while not self._queue:
                    self._wake.clear()
                    await self._wake.wait()
                await self._deliver(session, *self._queue[0])
                self._queue.popleft()

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._options.ca_file)

    async def _deliver(self, session: aiohttp.ClientSession, until: float, notice: Notice) -> None:
        """Send one event until it is taken, refused, or too old."""
        stats, clock = self.stats, asyncio.get_running_loop().time
        pause = self._again[0]
        body = orjson.dumps(event(notice, source=self._options.source))
        while True:
            status, why = await self._post(session, body)
            if 200 <= status < 300:
                stats.sent += 1
                self._works()
                return
            if status and status < 500 and status not in LATER:
                stats.dropped["refused"] += 1
                self._fails(why)
                return
            self._fails(why)
            if clock() + pause > until:
                stats.dropped["failed"] += 1
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._again[1])

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> tuple[int, str]:
        """The status of one attempt, 0 without an answer, and why it failed."""
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": f"turnstile/{__version__}"}
        try:
            if self._options.token_file is not None:  # read every time: a mounted Secret may have been renewed
                token = await asyncio.to_thread(Path(self._options.token_file).read_text)
                headers["Authorization"] = f"Bearer {token.strip()}"
            async with session.post(self._options.url, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status, f"the webhook answered {answer.status}"
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return 0, f"{type(error).__name__}: {error}"

    def _fails(self, why: str) -> None:
        """Count a failure, and log it if the one before was another."""
        before, self.stats.failing = self.stats.failing, why
        self.stats.failures += 1
        if before != why:
            log.warning("notifications.failing", error=why, waiting=len(self))

    def _works(self) -> None:
        if self.stats.failing:
            self.stats.failing = ""
            log.info("notifications.sent_again")


def event(notice: Notice, *, source: str) -> dict[str, object]:
    """The event, as the JSON format of CloudEvents has it."""
    return {
        "specversion": "1.0",
        "id": f"{notice.uid}/{notice.about}/{notice.mark}",
        "source": source,
        "type": f"{TYPES}{notice.about}",
        "subject": f"namespaces/{notice.namespace}/workloads/{notice.name}",
        "time": datetime.fromtimestamp(notice.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": notice.data,
    }
