"""Runs the visibility API: TLS, the front proxy's authorities, and the order of the pending Workloads."""

import asyncio

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.config.tls import TlsOptions
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.http.connections import Connections
from turnstile.http.health import Health
from turnstile.http.server import serve
from turnstile.http.tls import ServingCertificate
from turnstile.kube.caches import Caches
from turnstile.kube.frontproxy import Callers
from turnstile.kube.reviews import AccessReviews
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.visibility.application import VisibilityApp
from turnstile.visibility.queues import Leading, PendingWorkloads
from turnstile.visibility.users import ALLOWED_SECONDS, REFUSED_SECONDS, Doorkeeper

ASKED = 32
"""Questions to the API server under way at a time; more requests of unknown users are refused with 429."""
KEPT = 1024


class VisibilityServer:
    """One server of the visibility API. To be made before the caches start, because it adds a kind to them.

    `certificate` is what it serves; the caller loads it.
    """

    def __init__(
        self,
        transport: Transport,
        caches: Caches,
        *,
        workloads: Store[Workload],
        local_queues: Store[LocalQueue],
        cluster_queues: Store[ClusterQueue],
        options: Options,
        tls: TlsOptions,
        leading: Leading,
    ) -> None:
        self.certificate = ServingCertificate(options=tls)
        self._caches = caches
        self._pending = PendingWorkloads(
            workloads=workloads,
            local_queues=local_queues,
            cluster_queues=cluster_queues,
            options=options,
            leading=leading,
        )
        reviews = AccessReviews(
            transport, allowed_seconds=ALLOWED_SECONDS, refused_seconds=REFUSED_SECONDS, asked=ASKED, kept=KEPT
        )
        self._doorkeeper = Doorkeeper(reviews, Callers(reviews, caches, self.certificate.trust))

    async def run(self, address: tuple[str, int], *, stop: asyncio.Event, drain_seconds: float) -> None:
        """Serve until `stop` is set."""
        health = Health({"caches": self._caches_fault}, certificate=self.certificate)
        app = VisibilityApp(self._pending, self._doorkeeper, health=health)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._pending.follow(), name="order of pending Workloads")
            await serve(
                app,
                host=address[0],
                port=address[1],
                health=health,
                stop=stop,
                connections=Connections(),
                drain_seconds=drain_seconds,
            )
            following.cancel()

    def _caches_fault(self) -> str:
        missing = self._caches.missing()
        return f"not synced: {', '.join(missing)}" if missing else ""
