"""Runs the page: the ledger it shows, the explanations, and the server."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from starlette.types import ASGIApp

from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.engine import Options
from turnstile.http.connections import DEADLINES, Connections, State
from turnstile.http.health import Health
from turnstile.http.server import serve
from turnstile.kube.frontproxy import Callers
from turnstile.kube.lease import Lease
from turnstile.kube.reviews import AccessReviews
from turnstile.kube.store import Store
from turnstile.recorder.location import Location
from turnstile.web import guard
from turnstile.web.application import create
from turnstile.web.cluster import ClusterApp
from turnstile.web.explanations import Beside, Explanations
from turnstile.web.forecasts import Forecasts
from turnstile.web.health import Observer, Watch
from turnstile.web.history import History
from turnstile.web.nodes import Pictures
from turnstile.web.pages import Site
from turnstile.web.pods import Reads, RunningPods
from turnstile.web.questions import Questions
from turnstile.web.rights import Rights
from turnstile.web.world import Source, World

_DEADLINES: Final = {**DEADLINES, State.ANSWERING: float("inf")}  # events of a page end when its reader leaves


class Watched(Source, Protocol):
    """Where the objects come from, and how their watches fare; `turnstile.process.sources` has two."""

    @property
    def leases(self) -> Store[Lease] | None:
        """The Lease of the leader; None if there can be none."""
        ...

    def watches(self) -> list[Watch]:
        """How each watch fares."""
        ...


class PageServer:
    """One server of the page. `alive` is whether the source can change; `lease` is the Lease of the leader; `recorder`
    is where records are, and `adding` what adds usage up (as `beside`, by default); `shared` is whether readers have
    rights of their own; `pods` reads pods, if there is a cluster."""

    def __init__(
        self,
        source: Watched,
        options: Options,
        clock: Callable[[], datetime],
        beside: Beside,
        *,
        where: str,
        alive: bool = True,
        lease: str = "",
        recorder: Location | None = None,
        adding: Beside | None = None,
        shared: bool = False,
        token: str = "",
        pods: Reads | None = None,
    ) -> None:
        self.world = World(source, options, clock)
        self._explanations = Explanations(self.world, beside)
        self._forecasts = Forecasts(self.world, beside)
        self._observer = Observer(self.world, source.watches, source.leases, lease)
        self._token = token
        self._site = Site(
            world=self.world,
            explanations=self._explanations,
            forecasts=self._forecasts,
            pictures=Pictures(self.world),
            observer=self._observer,
            beside=beside,
            history=History(recorder, self.world.notify) if recorder is not None else None,
            adding=adding or beside,
            where=where,
            alive=alive,
            shared=shared,
            pods=RunningPods(pods) if pods is not None else None,
        )

    async def run(
        self, host: str, port: int, *, stop: asyncio.Event, on_listening: Callable[[str, int], object] | None = None
    ) -> None:
        """Serve on the reader's own machine until `stop` is set. Raises OSError, in a group, if the address cannot be
        bound."""
        app = guard.Guard(create(self._site, stop), token=self._token)
        await self._serve(app, Health(), host, port, stop=stop, on_listening=on_listening)

    async def run_in_cluster(
        self,
        address: tuple[str, int],
        *,
        stop: asyncio.Event,
        health: Health,
        callers: Callers,
        reviews: AccessReviews,
        questions: Questions,
    ) -> None:
        """Serve in the cluster until `stop` is set, to each user what that user may see."""
        rights = Rights(reviews, self._namespaces, lambda name: name in self.world.of(Namespace))
        app = ClusterApp(create(self._site, stop), questions, callers, rights, health=health)
        await self._serve(app, health, *address, stop=stop)

    def _namespaces(self) -> set[str]:
        """Those that have queues."""
        return {each.metadata.namespace for each in self.world.of(LocalQueue).values()}

    async def _serve(
        self,
        app: ASGIApp,
        health: Health,
        host: str,
        port: int,
        *,
        stop: asyncio.Event,
        on_listening: Callable[[str, int], object] | None = None,
    ) -> None:
        async with asyncio.TaskGroup() as group:
            working = (self.world.follow(), self._explanations.run(), self._forecasts.run(), self._observer.run())
            tasks = [group.create_task(each) for each in working]
            await serve(
                app,
                host=host,
                port=port,
                health=health,
                stop=stop,
                connections=Connections(deadlines=_DEADLINES),
                drain_seconds=0.0,
                grace_seconds=1.0,
                on_listening=on_listening,
                chunks=True,
            )
            for task in tasks:
                task.cancel()
        if self._site.history is not None:
            self._site.history.close()
