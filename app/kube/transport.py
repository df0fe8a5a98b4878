"""The one way to the API server: objects in, objects out, over requests and watches of `Wire`.

Says nothing of how a call is sent, and never parses what it need not: the items of a list stay bytes.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Literal, TypeVar

import msgspec

from app.api import names
from app.api.errors import ConnectionLost, Expired
from app.api.meta import Kind
from app.kube import answers
from app.kube.retries import CONTENT_TYPES, PatchType
from app.kube.wire import Guard, Params, Retry, Wire

T = TypeVar("T", bound=Kind)
Propagation = Literal["Background", "Foreground", "Orphan"]

PAGE_SIZE = 250
"""Objects of one answer to a list. To take apart an answer of so many usual ones holds the event loop for 0.5 ms."""


class Transport(Wire):
    """A client of one API server that speaks in kinds. Every method raises as those of `Wire` do."""

    async def get(self, kind: type[T], name: str, namespace: str = "", *, timeout: float | None = None) -> T:
        """Read one object."""
        answer = await self.request("GET", kind.path(name, namespace), timeout=timeout)
        return answers.decoder(kind)(answer)

    async def list_all(
        self, kind: type[T], namespace: str = "", *, params: Params | None = None, timeout: float | None = None
    ) -> list[T]:
        """Read all objects of a kind, in all namespaces if none is given. `timeout` is for a page."""
        items, _ = await self.list_raw(kind.collection_path(namespace), params=params, timeout=timeout)
        decode = answers.decoder(kind)
        return [decode(item) for item in items]

    async def list_raw(
        self,
        path: str,
        *,
        params: Params | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> tuple[list[msgspec.Raw], str]:
        """The items of a collection as bytes, and the resource version they are of.

        Read in pages, as `pages` does.
        """
        items: list[msgspec.Raw] = []
        version = ""
        async with contextlib.aclosing(self.pages(path, params=params, page_size=page_size, timeout=timeout)) as pages:
            async for first, page in pages:
                if first:
                    items = []
                items += page.items or []
                version = page.metadata.resource_version
        return items, version

    async def pages(
        self,
        path: str,
        *,
        params: Params | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> AsyncGenerator[tuple[bool, answers.Page], None]:
        """The pages of one snapshot of a collection, and whether each is the first.

        If the snapshot expires on the way (410), all is read again in one piece, and that is a first page once more:
        what came before it is void, as half of an old list and half of a new one would hide changes.
        """
        query = dict(params or {})
        query["limit"] = page_size
        while True:
            first = "continue" not in query
            try:
                page = answers.decode_page(await self.request("GET", path, params=query, timeout=timeout))
            except Expired:
                if first:
                    raise
                del query["continue"], query["limit"]
                continue
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"GET {path}: the answer is no list: {error}") from error
            yield first, page
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def create(
        self,
        kind: type[T],
        namespace: str,
        body: object,
        *,
        dry_run: bool = False,
        timeout: float | None = None,
        retry: Retry = "auto",
        guard: Guard | None = None,
    ) -> T:
        """Create an object from bytes, a struct or plain values. ConnectionLost means: read whether it is there."""
        answer = await self.request(
            "POST",
            kind.collection_path(namespace),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            guard=guard,
        )
        return answers.decoder(kind)(answer)

    async def update(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        body: object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        timeout: float | None = None,
        retry: Retry = "auto",
        urgent: bool = False,
    ) -> T:
        """Replace an object; with a resourceVersion in the body a stale one is refused."""
        answer = await self.request(
            "PUT",
            _path(kind, name, namespace, subresource),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            urgent=urgent,
        )
        return answers.decoder(kind)(answer)

    async def patch(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        body: object,
        *,
        type: PatchType = "merge",  # noqa: A002  the word kubectl uses
        subresource: str = "",
        force: bool = True,
        manager: str = names.FIELD_MANAGER,
        dry_run: bool = False,
        timeout: float | None = None,
        retry: Retry = "auto",
        guard: Guard | None = None,
    ) -> T:
        """Change an object. `type="apply"` is server-side apply as that field manager; `force` takes fields over."""
        params = _write_params(dry_run=dry_run, manager=manager)
        if type == "apply":
            params["force"] = "true" if force else "false"
        answer = await self.request(
            "PATCH",
            _path(kind, name, namespace, subresource),
            params=params,
            body=answers.encode(body),
            content_type=CONTENT_TYPES[type],
            timeout=timeout,
            retry=retry,
            guard=guard,
        )
        return answers.decoder(kind)(answer)

    async def delete(
        self,
        kind: type[Kind],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        dry_run: bool = False,
        timeout: float | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Delete an object, if it still has that uid and version. Raises NotFound when it is gone, Conflict when it is
        another.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if given := {name: value for name, value in preconditions.items() if value}:
            body["preconditions"] = given
        if dry_run:
            body["dryRun"] = ["All"]
        await self.request(
            "DELETE", kind.path(name, namespace), body=answers.encode(body), timeout=timeout, guard=guard
        )


def _path(kind: type[Kind], name: str, namespace: str, subresource: str) -> str:
    path = kind.path(name, namespace)
    return f"{path}/{subresource}" if subresource else path


def _write_params(*, dry_run: bool, manager: str = names.FIELD_MANAGER) -> dict[str, str | int]:
    params: dict[str, str | int] = {"fieldManager": manager}
    if dry_run:
        params["dryRun"] = "All"
    return params
