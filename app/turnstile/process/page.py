"""The page in the cluster, as a role of a process: the objects it follows, its certificate, and who its readers are.

To be made before the caches start, because it adds kinds to them. Must never run in a process that decides or answers
admission reviews: its questions take the CPU of both.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from turnstile.api.config.tls import TlsOptions
from turnstile.api.core import PriorityClass
from turnstile.engine import Options
from turnstile.http.health import Health
from turnstile.http.tls import ServingCertificate
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube.caches import Caches
from turnstile.kube.frontproxy import Callers
from turnstile.kube.reviews import AccessReviews
from turnstile.kube.transport import Transport
from turnstile.process.aside import Aside
from turnstile.process.sources import Followed
from turnstile.recorder.location import Location
from turnstile.web.questions import SECONDS, Questions
from turnstile.web.rights import ALLOWED_SECONDS, KEPT, REFUSED_SECONDS
from turnstile.web.server import PageServer

ASKED: Final = 64
"""Questions to the API server about tokens that are under way at a time, and so many about rights."""


class ClusterPage:
    """One server of the page. `certificate` is what it serves; the caller loads it."""

    def __init__(
        self,
        transport: Transport,
        caches: Caches,
        *,
        engine: Options,
        registry: Registry,
        jobs: Callable[[], JobOptions],
        clock: Callable[[], datetime],
        lease: tuple[str, str],
        recorder: Location | None,
        tls: TlsOptions,
    ) -> None:
        self.certificate = ServingCertificate(options=tls)
        self._reviews = self._reviewing(transport)
        # Two limits, so that invalid tokens cannot exhaust the budget for SubjectAccessReviews.
        self._callers = Callers(self._reviewing(transport), caches, self.certificate.trust)
        source = Followed(caches, {}, lease, also=[PriorityClass], wait_for_room=engine.wait_for_room)
        self._server = PageServer(
            source,
            engine,
            clock,
            Aside(),
            where="this cluster",
            lease="/".join(lease),
            recorder=recorder,
            adding=Aside(seconds=SECONDS),
            shared=True,
            pods=transport.request,
        )
        self._questions = Questions(self._server.world, Aside(seconds=SECONDS), registry, jobs, recorder)

    @staticmethod
    def _reviewing(transport: Transport) -> AccessReviews:
        return AccessReviews(
            transport, allowed_seconds=ALLOWED_SECONDS, refused_seconds=REFUSED_SECONDS, asked=ASKED, kept=KEPT
        )

    async def run(self, address: tuple[str, int], *, health: Health, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        await self._server.run_in_cluster(
            address,
            stop=stop,
            health=health,
            callers=self._callers,
            reviews=self._reviews,
            questions=self._questions,
        )
