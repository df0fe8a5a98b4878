"""Answers requests: pages, their events, and the files they need."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from turnstile.api.errors import InvalidValue, Unanswered
from turnstile.web.explanations import Beside
from turnstile.web.filters import FILTERS
from turnstile.web.fragments import Rendered, Renderer, event, relative
from turnstile.web.pages import Site, show, usage_table
from turnstile.web.refusals import refusal
from turnstile.web.static import Static
from turnstile.web.visit import HERE, KEY, Visit

T = TypeVar("T")

APART_SECONDS: Final = 0.5
"""Seconds between two renderings of a page while changes go on: what changes meanwhile is sent together. After a pause
two may follow at once, so that news which change nothing of the page do not hold up a change that comes right after."""
QUIET_SECONDS: Final = 15.0
"""Seconds after which something is sent that means nothing, so that a connection that has died is noticed."""
READERS: Final = 64
"""Pages that are followed at a time."""
OF_ONE: Final = 16
"""Pages that are followed at a time by one user in the cluster."""
ASKED_OF_ONE: Final = 2
"""Answers of What if and of usage that are worked out for one user in the cluster at a time."""


def create(site: Site, stop: asyncio.Event) -> FastAPI:
    """The application. Events end when `stop` is set."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    static = Static()
    renderer = Renderer(static, FILTERS)
    followed: Counter[str] = Counter()
    asked: Counter[str] = Counter()

    @app.exception_handler(Exception)
    async def broken(request: Request, _: Exception) -> Response:
        said = "The page could not be made. The log of its process has the reason."
        return refusal(request.scope, 500, "Something went wrong", said, "Reload the page to try again.")

    @app.get("/static/{name:path}")
    async def file(name: str, request: Request) -> Response:
        return static.answer(name, request.url.query)

    @app.get("/events")
    async def events(of: str, request: Request, seen: str = "") -> Response:
        """The changes of a page, given its address and the digest of what its reader has."""
        visit: Visit = request.scope.get(KEY, HERE)
        if followed.total() >= READERS or (visit.user and followed[visit.user] >= OF_ONE):
            return Response("too many pages are open\n", 503, media_type="text/plain")
        stream = _followed(of, request.headers.get("last-event-id", seen), visit)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    @app.get("/usage.csv")
    async def csv(request: Request) -> Response:
        try:
            params = dict(request.query_params)
            table = await usage_table(await _seen(request.scope.get(KEY, HERE), "", params), params)
        except InvalidValue as error:
            return Response(f"{error.field} {error.value}: {error.cure}\n", 400, media_type="text/plain")
        except Unanswered as error:
            return Response(f"{error}\n", 503, media_type="text/plain")
        if table is None:
            return Response("no recorder is read\n", 404, media_type="text/plain")
        headers = {"content-disposition": 'attachment; filename="usage.csv"', "cache-control": "no-store"}
        return Response(table, media_type="text/csv", headers=headers)

    @app.get("/{path:path}")
    async def page(request: Request) -> Response:
        params = dict(request.query_params)
        path = request.url.path
        visit: Visit = request.scope.get(KEY, HERE)
        seen = await _seen(visit, path, params)
        shown = await show(seen, path, params)
        inside = renderer.inside(shown.template, shown.content)
        here = f"{path}?{urlencode(params)}" if params else path
        follows = site.alive if shown.follows is None else shown.follows
        follow = f"/events?{urlencode({'of': here, 'seen': inside.digest})}" if follows else ""
        around = {
            "title": shown.title,
            "path": path,
            "wanted": params.get("q", ""),
            "follow": follow,
            "where": site.where,
            "alive": site.alive,
            "rights": visit.rights,
            "nodes": seen.has_nodes,
        }
        html = relative(renderer.page(inside, around), path)
        return HTMLResponse(html, shown.status, headers={"cache-control": "no-store"})

    async def _seen(visit: Visit, path: str, params: Mapping[str, str]) -> Site:
        """The site as the sender of a request sees it, who may name namespaces in the address."""
        words = {*path.split("/"), *params.get("q", "").lower().split(), params.get("namespace", "").strip()}
        beside, adding = (_Fair(each, asked, visit.user) for each in (site.beside, site.adding))
        sight = await visit.sight(words)
        return dataclasses.replace(site, sight=sight, lists_pods=visit.lists_pods, beside=beside, adding=adding)

    async def render(visit: Visit, path: str, params: Mapping[str, str]) -> Rendered:
        shown = await show(await _seen(visit, path, params), path, params)
        return renderer.inside(shown.template, shown.content)

    async def _followed(of: str, seen: str, visit: Visit) -> AsyncIterator[bytes]:
        address = urlsplit(of)
        params = {**dict(parse_qsl(address.query, keep_blank_values=True)), "events": ""}
        loop = asyncio.get_running_loop()
        followed[visit.user] += 1
        until = loop.time() + visit.seconds
        before: Rendered | str = seen
        due = loop.time()
        try:
            yield b"retry: 1000\n\n"
            while not stop.is_set() and loop.time() < until:
                news, due = site.world.news, max(due, loop.time()) + APART_SECONDS
                now = await render(visit, address.path, params)
                changes, before = now.since(before), now
                if changes:
                    yield event(changes, now.digest, address.path)
                while not await _changed(news) and not stop.is_set() and loop.time() < until:
                    yield b": still here\n\n"
                await asyncio.sleep(max(0.0, due - APART_SECONDS - loop.time()))
        finally:
            followed[visit.user] -= 1
            if not followed[visit.user]:
                del followed[visit.user]

    async def _changed(news: int) -> bool:
        """Whether there are later news within `QUIET_SECONDS`; returns early when the server stops."""
        waits = [asyncio.ensure_future(site.world.changed(news)), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waits, timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].done()
        finally:
            for each in waits:
                each.cancel()

    return app


class _Fair:
    """Works out few answers at a time for one user, so that other users get theirs."""

    def __init__(self, beside: Beside, asked: Counter[str], user: str) -> None:
        self._beside = beside
        self._asked = asked
        self._user = user

    async def answers(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """Values that `work` yields. Raises Unanswered if too much is under way for the user."""
        if self._user and self._asked[self._user] >= ASKED_OF_ONE:
            raise Unanswered(f"{ASKED_OF_ONE} of your questions are still being answered: ask again later")
        self._asked[self._user] += 1
        try:
            async with aclosing(self._beside.answers(work)) as answers:
                async for each in answers:
                    yield each
        finally:
            self._asked[self._user] -= 1
            if not self._asked[self._user]:
                del self._asked[self._user]
