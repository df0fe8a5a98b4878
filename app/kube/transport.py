"""The one way to the API server: objects in, objects out, over requests and watches of `Wire`.

Says nothing of how a call is sent, and never parses what it need not: the items of a list stay bytes.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

from app.api import names
from app.api.errors import ConnectionLost, Expired, NotFound
from app.api.meta import Kind
from app.kube import answers, auth
from app.kube.retries import CONTENT_TYPES, PatchType
from app.kube.wire import JSON, Guard, Params, Retry, Wire

T = TypeVar("T", bound=Kind)
Propagation = Literal["Background", "Foreground", "Orphan"]

PAGE_SIZE = 250
"""Objects of one answer to a list. To take apart an answer of so many usual ones holds the event loop for 0.5 ms."""
FIRST_PAGE = 10
"""Objects of the first answer: nothing is known of their size yet, and each may have 1.5 MiB."""
PAGE_GROWTH = 5
"""How many times as many objects a page may have as the one before it, for the next ones may be larger."""
PAGE_BYTES = 4 * 2**20
"""What a page should have in all."""

_AS_METADATA: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AS_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def next_page(last: int, got: int, size: int, *, limit: int = PAGE_SIZE) -> int:
    """How many objects to ask for after a page for which `last` were asked, and which had `got` in `size` bytes."""
    fitting = PAGE_BYTES * got // size if size else limit
    return max(1, min(limit, last * PAGE_GROWTH, fitting))


class Transport(Wire):
    """A client of one API server that speaks in kinds. Every method raises as those of `Wire` do.

    A kind that has several versions is read and written in the one that `served` names, once `find_version` was asked.
    """

    def __init__(self, access: auth.Access, **options: Any) -> None:
        super().__init__(access, **options)
        self.served: dict[type[Kind], str] = {}
        """The version in which the server was last seen to have a kind."""

    def collection_path(self, kind: type[Kind], namespace: str = "") -> str:
        """As `Kind.collection_path`, in the version that the server has."""
        return kind.collection_path(namespace, version=self.served.get(kind, ""))

    def path(self, kind: type[Kind], name: str, namespace: str = "", subresource: str = "") -> str:
        """As `Kind.path`, in the version that the server has."""
        path = kind.path(name, namespace, version=self.served.get(kind, ""))
        return f"{path}/{subresource}" if subresource else path

    def decoder(self, kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
        """The function that reads an object that this server answered with."""
        return answers.decoder(kind, version=self.served.get(kind, ""))

    async def find_version(self, kind: type[Kind], namespace: str = "") -> str:
        """The version in which the server has a kind, the first one that it has; used from now on.

        Raises NotFound if it has none of them.
        """
        *others, last = kind.VERSIONS or (kind.VERSION,)
        for version in others:
            with contextlib.suppress(NotFound):
                return await self._try_version(kind, namespace, version)
        return await self._try_version(kind, namespace, last)

    async def _try_version(self, kind: type[Kind], namespace: str, version: str) -> str:
        path = kind.collection_path(namespace, version=version)
        await self.request("GET", path, params={"limit": 1}, accept=_AS_METADATA_LIST)
        self.served[kind] = version
        return version

    async def get(self, kind: type[T], name: str, namespace: str = "", *, timeout: float | None = None) -> T:
        """Read one object."""
        answer = await self.request("GET", self.path(kind, name, namespace), timeout=timeout)
        return self.decoder(kind)(answer)

    async def list_all(
        self, kind: type[T], namespace: str = "", *, params: Params | None = None, timeout: float | None = None
    ) -> list[T]:
        """Read all objects of a kind, in all namespaces if none is given. `timeout` is for a page."""
        items, _ = await self.list_raw(self.collection_path(kind, namespace), params=params, timeout=timeout)
        decode = self.decoder(kind)
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
        metadata_only: bool = False,
        timeout: float | None = None,
    ) -> AsyncGenerator[tuple[bool, answers.Page], None]:
        """The pages of one snapshot of a collection, and whether each is the first.

        `page_size` is the most that a page may have; it has fewer if the objects are large. With `metadata_only` the
        items are what the server calls PartialObjectMetadata.

        If the snapshot expires on the way (410), all is read again in one piece, and that is a first page once more:
        what came before it is void, as half of an old list and half of a new one would hide changes.
        """
        query = dict(params or {})
        query["limit"] = asked = min(page_size, FIRST_PAGE)
        accept = _AS_METADATA_LIST if metadata_only else JSON
        while True:
            first = "continue" not in query
            try:
                body = await self.request("GET", path, params=query, accept=accept, timeout=timeout)
                page = answers.decode_page(body)
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
            query["limit"] = asked = next_page(asked, len(page.items or ()), len(body), limit=page_size)
            del body, page  # what was read is not held while more is read

    def watch(
        self,
        path: str,
        *,
        params: Params,
        idle_timeout: float,
        metadata_only: bool = False,
        on_answer: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """As `stream`; with `metadata_only` the objects in the events are PartialObjectMetadata."""
        accept = _AS_METADATA if metadata_only else JSON
        return self.stream(path, params=params, idle_timeout=idle_timeout, accept=accept, on_answer=on_answer)

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
            self.collection_path(kind, namespace),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            guard=guard,
        )
        return self.decoder(kind)(answer)

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
            self.path(kind, name, namespace, subresource),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            urgent=urgent,
        )
        return self.decoder(kind)(answer)

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
            self.path(kind, name, namespace, subresource),
            params=params,
            body=answers.encode(body),
            content_type=CONTENT_TYPES[type],
            timeout=timeout,
            retry=retry,
            guard=guard,
        )
        return self.decoder(kind)(answer)

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
            "DELETE", self.path(kind, name, namespace), body=answers.encode(body), timeout=timeout, guard=guard
        )


def _write_params(*, dry_run: bool, manager: str = names.FIELD_MANAGER) -> dict[str, str | int]:
    params: dict[str, str | int] = {"fieldManager": manager}
    if dry_run:
        params["dryRun"] = "All"
    return params
