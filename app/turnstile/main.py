"""Wires Turnstile: builds transport, stores and reflectors from the settings, and starts the roles. Nothing else wires.

One task group owns all tasks; SIGTERM, SIGINT or a failure that no retry can fix ends it. A stopping process first
fails its readiness probe and stops leading, so that another replica can lead at once, and stops answering last.
"""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import structlog
import uvloop
from prometheus_client import CollectorRegistry, ProcessCollector

from turnstile import __version__
from turnstile.api.config import Loaded
from turnstile.api.core import Secret
from turnstile.api.errors import TurnstileError
from turnstile.api.kinds import Definition
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.leader import Leader
from turnstile.controllers.metrics.counters import WorkloadMetrics
from turnstile.controllers.metrics.tallies import Tallies
from turnstile.controllers.runtime.controller import Controller
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.runner import Runner
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.managed import ManagedNamespaces
from turnstile.http.certificates import own_certificate
from turnstile.http.connections import Connections
from turnstile.http.health import Health
from turnstile.http.probes import any_reader, create_probes, no_reader
from turnstile.http.server import serve as serve_app
from turnstile.http.tls import ServingCertificate
from turnstile.kube.caches import Caches
from turnstile.kube.candidacy import Candidacy
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence
from turnstile.kube.readers import PathReaders
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.process import logs
from turnstile.process.certificate import keep
from turnstile.process.configuration import read_configuration
from turnstile.process.follow import Follower
from turnstile.process.installation import KINDS as INSTALLED
from turnstile.process.installation import Installation
from turnstile.process.memory import Collector, map_large_blocks
from turnstile.process.metrics import ProcessMetrics, Term
from turnstile.process.observers import Observers
from turnstile.process.settings import Settings
from turnstile.process.usual import UsualMetrics
from turnstile.process.views import WebhookCaches, cluster_view
from turnstile.process.watchdog import Watchdog
from turnstile.visibility.server import VisibilityServer
from turnstile.webhooks.application import create_app
from turnstile.webhooks.routes import routes

if TYPE_CHECKING:
    from turnstile.process.page import ClusterPage

T = TypeVar("T")

log = structlog.get_logger(__name__)


def now() -> datetime:
    """The only wall clock of the process."""
    return datetime.now(UTC)


class Turnstile:
    """One process: its settings, its connection to the API server, and its roles."""

    def __init__(self, settings: Settings, transport: Transport) -> None:
        self.settings = settings
        self.transport = transport
        self.stop = asyncio.Event()
        self.caches = Caches(transport)
        self.options = settings.jobs
        self._cluster: ClusterView | None = None
        self._managed: ManagedNamespaces | None = None
        self._reviewer: WebhookCaches | None = None
        self._led: tuple[type[Kind], ...] = ()
        self._leader: Leader | None = None
        self._term: Term | None = None
        self.registry = CollectorRegistry()
        self._metrics = WorkloadMetrics(self.registry, settings.measured)
        self._observers = Observers(settings, clock=now)
        self._recorder = Recorder(transport, instance=settings.identity)
        self._candidacy = self._candidate() if settings.role.controller else None
        self._watchdog = Watchdog(self.caches, candidacy=self._candidacy, term=lambda: self._term)
        self.registry.register(
            ProcessMetrics(
                transport,
                self.caches,
                self._recorder,
                term=lambda: self._term,
                lease=self._candidacy.stats if self._candidacy is not None else None,
                unable_for=lambda: self._watchdog.unable_for,
                flight=self._observers.flight,
                notices=self._observers.notices,
                tracing=self._observers.tracing,
            )
        )
        self._certificates: dict[str, ServingCertificate] = {}
        lease = f"{settings.name}-controller" if settings.role.controller else ""
        self.registry.register(
            UsualMetrics(transport, lease=lease, term=lambda: self._term, certificates=self._certificates)
        )
        ProcessCollector(registry=self.registry)
        self._readers = any_reader if settings.metrics_for_everybody else PathReaders(transport, "/metrics")
        self._secret_name = f"{settings.name}-webhook-server-cert"
        self._secret_key = f"{settings.namespace}/{self._secret_name}"
        serves = settings.role.webhook or settings.visibility_bind is not None
        self._secrets: Store[Secret] | None = None
        if settings.tls_cert is None and (serves or settings.manage_certificates):
            self._secrets = self.caches.of(
                Secret, namespace=settings.namespace, params={"fieldSelector": f"metadata.name={self._secret_name}"}
            )
        if settings.role.controller:
            registered = settings.visibility_bind is not None or settings.page_registered
            self._installed = Installation(
                self.caches,
                name=settings.name,
                namespace=settings.namespace,
                registered=registered and settings.manage_certificates,
            )

    async def run(self) -> None:
        """Run the roles until `stop` is set."""
        settings = self.settings
        registry = settings.registry
        cluster = self._cluster = self._cluster_view() if settings.role.controller else None
        self._led = tuple(self.caches.stores)  # before the webhooks ask for more
        visibility = self._visibility(cluster) if cluster is not None else None
        page = self._page() if settings.role.page else None
        reviewer = self._reviewer = (
            WebhookCaches(self.caches, self.options, registry, engine=settings.engine)
            if settings.role.webhook
            else None
        )
        self._observers.start()
        async with asyncio.TaskGroup() as watches:
            collector = Collector()
            collector.begin()
            self.caches.start(watches)
            watches.create_task(self._watch_memory(collector), name="memory")
            watches.create_task(self._report_caches(), name="first lists")
            async with asyncio.TaskGroup() as roles:
                if reviewer is not None:
                    roles.create_task(self._serve(reviewer), name="webhook")
                watches.create_task(self._watchdog.run(), name="watchdog")
                if cluster is not None and self._candidacy is not None:
                    watches.create_task(self._recorder.run(), name="events")
                    roles.create_task(self._campaign(cluster, self._candidacy), name="controller")
                if visibility is not None and settings.visibility_bind is not None:
                    roles.create_task(self._show_pending(visibility, settings.visibility_bind), name="visibility")
                if page is not None:
                    roles.create_task(self._show_page(page, settings.bind), name="page")
                if settings.health_bind is not None:
                    roles.create_task(self._probes(settings.health_bind), name="probes")
                if settings.metrics_bind not in (None, settings.health_bind):
                    roles.create_task(self._show_metrics(settings.metrics_bind), name="metrics")
                if settings.config is not None and settings.loaded is not None:
                    watches.create_task(self._follower(settings.config, settings.loaded).run(), name="configuration")
            raise _Ended

    def _cluster_view(self) -> ClusterView:
        managed = self._managed = ManagedNamespaces(self.caches, self.options, self.settings.registry)
        settings = self.settings
        return cluster_view(
            self.caches, self.options, settings.registry, managed, clock=now, namespace=settings.namespace
        )

    def close(self) -> None:
        """Close the observers."""
        self._observers.close()

    def _follower(self, path: Path, started: Loaded) -> Follower:
        settings = self.settings

        def read() -> Loaded:
            return read_configuration(
                path, name=settings.name, namespace=settings.namespace, feature_gates=settings.feature_gates
            )

        return Follower(path, read, started, self._take_options)

    def _take_options(self, loaded: Loaded) -> None:
        """Reconcile every job under the changed file; only the fields in RELOADED change while a process runs."""
        read = self.settings.flags.options(loaded)
        self.options = replace(
            self.settings.jobs,
            manage_jobs_without_queue_name=read.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector=read.managed_jobs_namespace_selector,
            default_local_queues=read.default_local_queues,
            submission=read.submission,
        )
        if self._reviewer is not None:
            self._reviewer.options = self.options
        if self._cluster is not None:
            self._cluster.options = self.options
        if self._managed is not None:
            self._managed.take_options(self.options)
        if self._leader is not None:
            self._leader.reconcile_all()

    async def _watch_memory(self, collector: Collector) -> None:
        with contextlib.suppress(TimeoutError):  # while the server is unreachable retries make garbage too
            await asyncio.wait_for(self.caches.synced(), FIRST_LISTS_SECONDS)
        collector.settle()
        await collector.run()

    async def _report_caches(self) -> None:
        await self.caches.synced()
        failing = self.caches.failing()
        report = log.warning if failing else log.info
        report("caches.synced", failing=failing)

    # --- roles --------------------------------------------------------------------------------------------------------

    async def _serve(self, reviewer: WebhookCaches) -> None:
        settings = self.settings
        certificate = ServingCertificate(
            settings.client_ca.read_bytes() if settings.client_ca is not None else b"", options=settings.tls
        )
        self._certificates["webhook"] = certificate
        health = Health({"caches": self._caches_fault}, certificate=certificate, notes=self._watchdog.notes)
        connections = Connections()
        app = create_app(
            routes(reviewer, gates=settings.gates),
            health=health,
            registry=self.registry,
            connections=connections,
            clients=settings.client_names if settings.client_ca is not None else None,
            readers=self._readers,
        )
        async with asyncio.TaskGroup() as group:
            source = group.create_task(self._certificate(certificate), name="certificate")
            host, port = settings.bind
            await serve_app(
                app,
                host=host,
                port=port,
                health=health,
                stop=self.stop,
                connections=connections,
                drain_seconds=settings.drain_seconds,
                idle_seconds=settings.idle_seconds,
                no_more_requests=self.transport.disowned,
            )
            source.cancel()

    async def _certificate(self, certificate: ServingCertificate) -> None:
        """Load the serving certificate from the files or the Secret, and reload it on change."""
        settings = self.settings
        files = (settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
        await keep(certificate, files=files, secrets=self._secrets, key=self._secret_key, stop=self.stop)

    async def _probes(self, address: tuple[str, int]) -> None:
        """The probes without TLS; the metrics only if no token is asked for, which others could read on the way."""
        health = self._health()
        readers = any_reader if self.settings.metrics_for_everybody else no_reader
        app = create_probes(health=health, registry=self.registry, readers=readers)
        await serve_app(app, host=address[0], port=address[1], health=health, stop=self.stop, drain_seconds=0.0)

    async def _show_metrics(self, address: tuple[str, int]) -> None:
        """The metrics over TLS, with a certificate that this process made."""
        certificate = ServingCertificate(options=self.settings.tls)
        certificate.load(*own_certificate(now(), (self.settings.name, "localhost")))
        self._certificates["metrics"] = certificate
        health = self._health(certificate)
        app = create_probes(health=health, registry=self.registry, readers=self._readers)
        await serve_app(app, host=address[0], port=address[1], health=health, stop=self.stop, drain_seconds=0.0)

    def _visibility(self, cluster: ClusterView) -> VisibilityServer | None:
        """The visibility API, if it is served. Its stores are declared before the caches start."""
        if self.settings.visibility_bind is None:
            return None
        return VisibilityServer(
            self.transport,
            self.caches,
            workloads=cluster.workloads,
            local_queues=cluster.local_queues,
            cluster_queues=cluster.cluster_queues,
            options=self.settings.engine,
            tls=self.settings.tls,
            leading=lambda: self._leader.state if self._leader is not None else None,
        )

    async def _show_pending(self, visibility: VisibilityServer, address: tuple[str, int]) -> None:
        async with asyncio.TaskGroup() as group:
            source = group.create_task(self._certificate(visibility.certificate), name="certificate")
            await visibility.run(address, stop=self.stop, drain_seconds=self.settings.drain_seconds)
            source.cancel()

    def _page(self) -> "ClusterPage":
        # FastAPI and the templates of the page take a third of the imports: only this role needs them.
        from turnstile.process.page import ClusterPage

        settings = self.settings
        return ClusterPage(
            self.transport,
            self.caches,
            engine=settings.engine,
            registry=settings.registry,
            jobs=lambda: self.options,
            clock=now,
            lease=(settings.namespace, f"{settings.name}-controller"),
            recorder=settings.recorder,
            tls=settings.tls,
        )

    async def _show_page(self, page: "ClusterPage", address: tuple[str, int]) -> None:
        self._certificates["page"] = page.certificate
        async with asyncio.TaskGroup() as group:
            source = group.create_task(self._certificate(page.certificate), name="certificate")
            await page.run(address, health=self._health(page.certificate), stop=self.stop)
            source.cancel()

    def _health(self, certificate: ServingCertificate | None = None) -> Health:
        """Limits of servers that answer no admission review. Where this process answers some too, faults of the
        controller are notes: a process that is not ready gets no reviews."""
        watchdog = self._watchdog
        checks = {"caches": self._caches_fault}
        if not self.settings.role.webhook:
            checks |= {"watches": watchdog.unwatched, "leader": watchdog.unable}
        return Health(checks, certificate=certificate, notes=watchdog.notes, dead=watchdog.dead)

    def _caches_fault(self) -> str:
        missing = self.caches.missing()
        return f"not synced: {', '.join(missing)}" if missing else ""

    def _candidate(self) -> Candidacy:
        settings = self.settings
        return Candidacy(
            lambda: _connect(settings),
            namespace=settings.namespace,
            name=f"{settings.name}-controller",
            identity=settings.identity,
            lease_duration=settings.election.lease_duration,
            renew_deadline=settings.election.renew_deadline,
            renew_period=settings.election.renew_period,
            retry_period=settings.election.retry_period,
            on_change=lambda holder: log.info("lease.holder", holder=holder),
        )

    async def _campaign(self, cluster: ClusterView, candidacy: Candidacy) -> None:
        tallies = Tallies(cluster.workloads)
        leading = candidacy.run(lambda fence: self._lead(cluster, tallies, fence))
        campaign = asyncio.create_task(leading, name="campaign")
        stopping = asyncio.create_task(self.stop.wait(), name="stop")
        try:
            await asyncio.wait({campaign, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also when another role fails: the Lease is released while the connection is open
            stopping.cancel()
            if self._leader is not None:  # writes in flight complete before another process leads
                await self._leader.executor.drain(at_most=LAST_WRITES_SECONDS)
            campaign.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await campaign

    async def _lead(self, cluster: ClusterView, tallies: Tallies, fence: Fence) -> None:
        """One term of leadership.

        It begins with the stores as they are, once they are shown to have all that was written before the Lease was
        won: without the last writes of the previous leader, quota would be reserved twice. Each part waits only for the
        kinds that it reads: the scheduler for all that every cluster has, but not for jobs and pods. The store of a
        kind that is still behind is not complete, and nothing is decided from what it lacks.
        """
        stores = self.caches.stores
        installation = {kind for kind in self._led if kind in INSTALLED}
        needed = {kind for kind in self._led if not self.caches.scope(kind).optional} - installation
        catching_up = self.caches.catch_up(self._led)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(catching_up.run(), name="catching up")
                executor = Executor(self.transport, stores, self._recorder, fence=fence)
                installer = Runner(executor, self._installation())

                async def install() -> None:
                    await catching_up.of(installation)
                    await installer.run()

                # Before the rest: what Kueue stored in an older version cannot be listed until we convert it.
                group.create_task(executor.run(), name="housekeeping")
                group.create_task(install(), name="installation")
                await catching_up.of(needed)
                behind = [cache.name for cache in catching_up.behind()]
                log.info("leading", identity=self.settings.identity, epoch=fence.epoch, behind=behind)
                leader = self._leader = Leader(
                    cluster,
                    executor,
                    self._observers.state(fence.epoch),
                    self._metrics,
                    tallies=tallies,
                    audit_interval=self.settings.audit_interval,
                    tried=self._observers.follow(cluster, group),
                )
                runners = leader.runner, installer
                self._term = Term(executor, leader.scheduler, runners, leader.auditor, leader.queue_metrics)
                group.create_task(leader.run(), name="leader")
        finally:
            self._leader = self._term = None

    def _installation(self) -> list[Controller]:
        settings = self.settings
        return self._installed.controllers(
            secrets=self._secrets if settings.manage_certificates else None,
            secret_name=self._secret_name,
            hosts=settings.webhook_hosts,
            serve_older=self._serve_older,
            clock=now,
        )

    def _serve_older(self, kinds: Definition) -> bool:
        """Whether the older versions of a kind are to be served."""
        settings = self.settings
        return settings.serve_v1beta1 and (kinds.stored is not Workload or settings.serve_v1beta1_workloads)


FIRST_LISTS_SECONDS = 60.0
"""Seconds for which the garbage collector is disabled at most during the first lists."""


LAST_WRITES_SECONDS = 1.0
"""Seconds for which a stopping leader waits for answers to its writes before it releases the Lease."""


class _Ended(Exception):
    """All roles have ended normally; raised to cancel the watches."""


async def _connect(settings: Settings) -> Transport:
    """A connection to the API server, of the running event loop."""
    agent = f"turnstile/{__version__} ({settings.role})"
    return await Transport.connect(settings.kubeconfig, settings.context, user_agent=agent)


async def _run(settings: Settings) -> int:
    async with await _connect(settings) as transport:
        turnstile = Turnstile(settings, transport)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, turnstile.stop.set)
        for warning in settings.loaded.warnings if settings.loaded is not None else ():
            log.warning("config.warning", path=warning.path, line=warning.line, warning=warning.message)
        enabled = [each.framework for each in settings.registry.enabled]
        log.info("starting", role=str(settings.role), version=__version__, server=transport.server, frameworks=enabled)
        try:
            await turnstile.run()
        except* _Ended:
            log.info("stopped")
        finally:
            turnstile.close()
    return 0


def run(settings: Settings) -> int:
    """Run until stopped; return the exit code. An error that no retry can fix is logged in one line, no traceback."""
    logs.set_up(level=settings.log_level, form=settings.log_format)
    map_large_blocks()
    failures: list[BaseException] = []
    try:
        return uvloop.run(_run(settings))
    except* (TurnstileError, OSError) as group:
        failures.extend(_leaves(group))
    for error in failures:
        log.error("failed", error=str(error))
    return 1


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
