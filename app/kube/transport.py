"""Reads and writes objects on the API server, over the requests and watches of `Wire`. All access goes through it.

Leaves how a request is sent to `Wire`, and parses no more than needed: the items of a list stay bytes.
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
"""Maximum objects per page of a list. Parsing a page of so many average objects blocks the event loop for 0.5 ms."""
FIRST_PAGE = 10
"""Objects of the first page: their size is still unknown, and each may have 1.5 MiB."""
PAGE_GROWTH = 5
"""Maximum factor by which a page may have more objects than the previous page, as the next objects may be larger."""
PAGE_BYTES = 4 * 2**20
"""Target size of a page in bytes."""

_AS_METADATA: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AS_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def next_page(last: int, got: int, size: int, *, limit: int = PAGE_SIZE) -> int:
    """How many objects to request after a page for which `last` were requested and `got` arrived in `size` bytes."""
    fitting = PAGE_BYTES * got // size if size else limit
    return max(1, min(limit, last * PAGE_GROWTH, fitting))


class Transport(Wire):
    """A client of one API server for objects of a `Kind`. Every method raises the errors that `Wire` raises.

    A kind with several versions is read and written in the version in `served`, once `find_version` was called.
    """

    def __init__(self, access: auth.Access, **options: Any) -> None:
        super().__init__(access, **options)
        self.served: dict[type[Kind], str] = {}
        """The version of each kind that `find_version` last found on the server."""

    def collection_path(self, kind: type[Kind], namespace: str = "") -> str:
        """As `Kind.collection_path`, in the version in `served`."""
        return kind.collection_path(namespace, version=self.served.get(kind, ""))

    def path(self, kind: type[Kind], name: str, namespace: str = "", subresource: str = "") -> str:
        """As `Kind.path`, in the version in `served`."""
        path = kind.path(name, namespace, version=self.served.get(kind, ""))
        return f"{path}/{subresource}" if subresource else path

    def decoder(self, kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
        """The function that decodes an object from an answer of this server."""
        return answers.decoder(kind, version=self.served.get(kind, ""))

    async def find_version(self, kind: type[Kind], namespace: str = "") -> str:
        """The first version of a kind that the server has; used from now on.

        Raises NotFound if the server has none of its versions.
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
        """Read all objects of a kind, in all namespaces if none is given. `timeout` is in seconds per page."""
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
        """The items of a collection as bytes, and the resourceVersion of the list.

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
        """The pages of one snapshot of a collection, each with whether it is a first page.

        `page_size` is the maximum; pages of large objects have fewer. With `metadata_only` the items are
        PartialObjectMetadata.

        If the snapshot expires meanwhile (410), the whole collection is read again as one page, marked as a first page:
        the caller must discard the earlier pages, because half of an old and half of a new list would hide changes.
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
            del body, page  # free the page before the next request

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
        """Create an object from bytes, a struct or plain values, in the version in `served`. After ConnectionLost, read
        whether it was created."""
        answer = await self.request(
            "POST",
            self.collection_path(kind, namespace),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body, version=self.served.get(kind, "")),
            timeout=timeout,
            retry=retry,
            guard=guard,
            write=f"create {kind.PLURAL}",
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
    ) -> T:
        """Replace an object; with a resourceVersion in the body a stale write raises Conflict."""
        answer = await self.request(
            "PUT",
            self.path(kind, name, namespace, subresource),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            write=f"update {kind.PLURAL}",
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
        """Patch an object. `type="apply"` is server-side apply as that field manager; `force` takes over fields."""
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
            write=f"{type} {kind.PLURAL} {subresource}",
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
        """Delete an object, on condition of a uid and version if given.

        Raises NotFound if the object does not exist, Conflict if its uid or version differs.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if given := {name: value for name, value in preconditions.items() if value}:
            body["preconditions"] = given
        if dry_run:
            body["dryRun"] = ["All"]
        await self.request(
            "DELETE",
            self.path(kind, name, namespace),
            body=answers.encode(body),
            timeout=timeout,
            guard=guard,
            write=f"delete {kind.PLURAL}",
        )


def _write_params(*, dry_run: bool, manager: str = names.FIELD_MANAGER) -> dict[str, str | int]:
    params: dict[str, str | int] = {"fieldManager": manager}
    if dry_run:
        params["dryRun"] = "All"
    return params
