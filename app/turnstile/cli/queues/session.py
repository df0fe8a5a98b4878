"""Reads and writes of a command on queues: plain objects, in the namespace that the command is about."""

import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from turnstile.api.errors import InvalidValue, NotServed
from turnstile.api.numbers import clamped
from turnstile.cli.connection import Where, connected, namespace_of
from turnstile.cli.progress import progress
from turnstile.cli.queues.paths import path_of
from turnstile.kube.pages import Pages, Query
from turnstile.kube.transport import Transport

Plain = dict[str, Any]


@dataclass(slots=True)
class Session:
    """An API server as a command sees it. `namespace` is that of the options, or of the context."""

    transport: Transport
    namespace: str
    _resources: dict[str, list[Plain]]

    async def get(self, path: str, *, accept: str = "application/json", **params: str | int) -> Plain:
        """A JSON document."""
        answer = await self.transport.request("GET", path, params=params, accept=accept)
        found: Plain = orjson.loads(answer)
        return found

    async def list_all(self, path: str, params: Mapping[str, str | int]) -> tuple[list[Plain], str]:
        """All objects of a collection, and the resourceVersion of the list."""

        def fetch(query: Query) -> Awaitable[bytes]:
            return self.transport.request("GET", path, params=query)

        pages = Pages(fetch, query=params, page_size=_page_size())
        items: list[Plain] = []
        collection = path.rpartition("/")[2]
        with progress(f"reading {collection}") as report:
            while (found := await pages.next()) is not None:
                first, page = found
                read = [msgspec.json.decode(each) for each in page.items or ()]
                items = read if first else [*items, *read]
                report(f"reading {collection}: {len(items)}")
        return items, pages.version

    async def write(self, method: str, path: str, body: Plain, *, server_dry_run: bool = False) -> Plain:
        """Create (POST), merge-patch (PATCH) or delete an object; what the API server answers."""
        params: dict[str, str | int] = {} if method == "DELETE" else {"fieldManager": "kubectl-turnstile"}
        if server_dry_run and method == "DELETE":
            body = body | {"dryRun": ["All"]}  # with options in the body, those of the URL do not count
        elif server_dry_run:
            params["dryRun"] = "All"
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await self.transport.request(
            method, path, params=params, body=orjson.dumps(body), content_type=content
        )
        found: Plain = orjson.loads(answer)
        return found

    async def resources(self, api_version: str) -> list[Plain]:
        """The kinds of an API version: `name` (plural), `singularName` and `kind` of each; nothing if it is not
        served."""
        if api_version not in self._resources:
            try:
                found = (await self.get(path_of(api_version, "").rstrip("/")))["resources"]
            except NotServed:
                found = []
            self._resources[api_version] = [each for each in found if "/" not in each["name"]]
        return self._resources[api_version]

    async def resource(self, api_version: str, kind: str) -> Plain | None:
        """The API server's names for a kind."""
        return next((each for each in await self.resources(api_version) if each["kind"] == kind), None)


@asynccontextmanager
async def session(where: Where, command: str) -> AsyncIterator[Session]:
    """A connection for a command. A WireError of the block names the server."""
    async with connected(where, command, program="kubectl-turnstile") as transport:
        yield Session(transport, namespace_of(where), {})


def _page_size() -> int:
    """Objects of one page of a list: kueuectl's variable, or its default."""
    text = os.environ.get("KUEUECTL_LIST_REQUEST_LIMIT") or "100"
    if not (found := clamped(text)):
        raise InvalidValue("KUEUECTL_LIST_REQUEST_LIMIT", text, "give a number of objects above 0")
    return found
