"""Runs the visibility API: TLS, the front proxy's authorities, and the order of the pending Workloads."""

import asyncio

import msgspec
import structlog

from app.api.clusterqueue import ClusterQueue
from app.api.core import ConfigMap
from app.api.errors import InvalidValue
from app.api.localqueue import LocalQueue
from app.api.workload import Workload
from app.engine import Options
from app.http.connections import Connections
from app.http.health import Health
from app.http.server import serve
from app.http.tls import ServingCertificate
from app.kube.caches import Caches
from app.kube.reviews import AccessReviews
from app.kube.store import Store
from app.kube.transport import Transport
from app.visibility.application import VisibilityApp
from app.visibility.queues import Leading, PendingWorkloads
from app.visibility.users import (
    ALLOWED_SECONDS,
    CONFIG_MAP,
    NAMESPACE,
    REFUSED_SECONDS,
    Doorkeeper,
    FrontProxy,
    front_proxy,
)

ASKED = 32
"""Questions to the API server under way at a time; more requests of unknown users are refused with 429."""
KEPT = 1024

_log = structlog.get_logger(__name__)


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
        leading: Leading,
    ) -> None:
        self.certificate = ServingCertificate()
        self._caches = caches
        self._pending = PendingWorkloads(
            workloads=workloads,
            local_queues=local_queues,
            cluster_queues=cluster_queues,
            options=options,
            leading=leading,
        )
        self._proxy = FrontProxy()
        reviews = AccessReviews(
            transport, allowed_seconds=ALLOWED_SECONDS, refused_seconds=REFUSED_SECONDS, asked=ASKED, kept=KEPT
        )
        self._doorkeeper = Doorkeeper(reviews, lambda: self._proxy)
        # Without the right to read it the front proxy is not known, and only bearers of tokens are answered.
        self._config_maps = caches.of(
            ConfigMap, namespace=NAMESPACE, params={"fieldSelector": f"metadata.name={CONFIG_MAP}"}, optional=True
        )
        self._config_maps.subscribe(lambda key, old, new: self._take_proxy(new))

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

    def _take_proxy(self, found: ConfigMap | None) -> None:
        if found is None or found.metadata.key != f"{NAMESPACE}/{CONFIG_MAP}":
            return
        try:
            proxy = front_proxy(found.data)
            self.certificate.trust(proxy.authorities)
        except (InvalidValue, msgspec.MsgspecError) as error:
            _log.warning("visibility.front_proxy_unusable", config_map=f"{NAMESPACE}/{CONFIG_MAP}", error=str(error))
            return
        self._proxy = proxy
        _log.info("visibility.front_proxy", names=sorted(proxy.names), users=proxy.users)
