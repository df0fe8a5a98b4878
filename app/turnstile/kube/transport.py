"""Reads and writes objects on the API server, over the requests and watches of `Wire`. All access goes through it.

Leaves how a request is sent to `Wire`, and parses no more than needed: the items of a list stay bytes.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

from turnstile.api import names
from turnstile.api.errors import ApiError, NotServed, RequestTimeout, Unauthorized, WireError
from turnstile.api.meta import Kind
from turnstile.kube import answers, auth
from turnstile.kube.pages import FIRST_PAGE, PAGE_SIZE, Pages
from turnstile.kube.retries import CONTENT_TYPES, PatchType
from turnstile.kube.wire import JSON, Guard, Params, Retry, Wire, Within

T = TypeVar("T", bound=Kind)
Propagation = Literal["Background", "Foreground", "Orphan"]

PATIENCE: Final = 15.0
"""Seconds for the next byte of a page before the request is cut and sent again."""
LAST_PATIENCE: Final = 70.0
"""The same after several cuts: more than the 60 s after which an API server gives up a request itself."""
DISOWNED_SECONDS: Final = 3.0
"""Between two questions whether the account of this process is still known."""

_AS_METADATA: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AS_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Transport(Wire):
    """A client of one API server for objects of a `Kind`. Every method raises the errors that `Wire` raises.

    A kind with several versions is read and written in the version in `served`, once `find_version` was called; a kind
    whose plural is a guess by that in `plurals`, once `find_plural` was called.
    """

    def __init__(self, access: auth.Access, **options: Any) -> None:
        super().__init__(access, **options)
        self.served: dict[type[Kind], str] = {}
        """The version of each kind that `find_version` last found on the server."""
        self.plurals: dict[type[Kind], str] = {}
        """The name in URLs of each kind that `find_plural` last found on the server."""

    def plural(self, kind: type[Kind]) -> str:
        """The name of a kind in URLs, as far as is known."""
        return self.plurals.get(kind, kind.PLURAL)

    def collection_path(self, kind: type[Kind], namespace: str = "", *, version: str = "") -> str:
        """As `Kind.collection_path`, in the version in `served` unless another is given."""
        version = version or self.served.get(kind, "")
        return kind.collection_path(namespace, version=version, plural=self.plural(kind))

    def path(self, kind: type[Kind], name: str, namespace: str = "", subresource: str = "") -> str:
        """As `Kind.path`, in the version in `served`."""
        path = f"{self.collection_path(kind, namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path

    def decoder(self, kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
        """The function that decodes an object from an answer of this server."""
        return answers.decoder(kind, version=self.served.get(kind, ""))

    def _object(self, kind: type[T], answer: bytes, name: str = "", *, whole: bool = False) -> T:
        """The object in an answer. Raises Unreadable if the answer is no such object, or another one."""
        decode = answers.decoder(kind, version=self.served.get(kind, ""), whole=True) if whole else self.decoder(kind)
        return answers.read_object(decode, answer, f"{kind.KIND} {name}".rstrip(), name=name)

    async def find_version(self, kind: type[Kind], namespace: str = "") -> str:
        """The first version of a kind that the server has; used from now on.

        Raises NotServed if the server has none of its versions.
        """
        *others, last = kind.VERSIONS or (kind.VERSION,)
        for version in others:
            with contextlib.suppress(NotServed):
                return await self._try_version(kind, namespace, version)
        return await self._try_version(kind, namespace, last)

    async def find_plural(self, kind: type[Kind]) -> None:
        """Have a kind whose plural is a guess read and written by that of the server's discovery document. Raises
        NotServed if the server does not have the kind."""
        if not kind.GUESSED:
            return
        path = f"/apis/{kind.GROUP}/{kind.VERSION}"
        found = answers.read_resources(await self.request("GET", path))
        plural = next((name for name, each in found.items() if each == kind.KIND and "/" not in name), None)
        if plural is None:
            raise NotServed(404, "NotFound", f"{path} has no kind {kind.KIND}")
        self.plurals[kind] = plural

    async def _try_version(self, kind: type[Kind], namespace: str, version: str) -> str:
        await self.find_plural(kind)
        path = self.collection_path(kind, namespace, version=version)
        await self.request("GET", path, params={"limit": 1}, accept=_AS_METADATA_LIST)
        self.served[kind] = version
        return version

    async def absent(self, path: str) -> bool:
        """Whether the API server says that it does not serve the version or the collection of a path. A 404 that names
        no object is no proof: it may come from a proxy, or from an API server that is starting. The documents of
        discovery are proof: they name all that there is."""
        if not path.startswith("/apis/"):
            return False  # every API server has the core group
        group, version, *rest = path.removeprefix("/apis/").split("/")
        groups = answers.read_groups(await self.request("GET", "/apis"))
        if version not in groups.get(group, ()):
            return True
        if not rest:
            return False
        plural = rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]
        return plural not in answers.read_resources(await self.request("GET", f"/apis/{group}/{version}"))

    async def disowned(self) -> None:
        """Return when the API server does not know the account of this process any more: its release, or the namespace
        of it, was deleted. The API server remembers a token for about ten seconds."""
        while True:
            try:
                await self.request("GET", "/version")
            except Unauthorized:
                return
            except (ApiError, WireError):
                pass
            await asyncio.sleep(DISOWNED_SECONDS)

    async def get(
        self, kind: type[T], name: str, namespace: str = "", *, timeout: float | None = None, whole: bool = False
    ) -> T:
        """Read one object; `whole` with all of its pod templates, however large they are."""
        answer = await self.request("GET", self.path(kind, name, namespace), timeout=timeout)
        return self._object(kind, answer, name, whole=whole)

    async def list_all(
        self, kind: type[T], namespace: str = "", *, params: Params | None = None, timeout: float | None = None
    ) -> list[T]:
        """Read all objects of a kind, in all namespaces if none is given. `timeout` is in seconds per page."""
        items, _ = await self.list_raw(self.collection_path(kind, namespace), params=params, timeout=timeout)
        return [self._object(kind, bytes(item)) for item in items]

    async def list_raw(
        self,
        path: str,
        *,
        params: Params | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> tuple[list[msgspec.Raw], str]:
        """The items of a collection as bytes, and the resourceVersion of the list. `timeout` is in seconds per page."""

        def fetch(query: Params) -> Awaitable[bytes]:
            return self.request("GET", path, params=query, timeout=timeout)

        pages = Pages(fetch, query=params or {}, page_size=page_size)
        items: list[msgspec.Raw] = []
        while (found := await pages.next()) is not None:
            first, page = found
            items = [*([] if first else items), *(page.items or ())]
        return items, pages.version

    def pages(
        self,
        path: str,
        *,
        params: Params | None = None,
        page_size: int = PAGE_SIZE,
        first: int = FIRST_PAGE,
        metadata_only: bool = False,
        patience: float = PATIENCE,
    ) -> Pages:
        """The pages of a collection, to be read for as long as it takes: only silence cuts a request, and each cut
        gives the next request more time. Pages of large objects have fewer than `page_size`, and the first page has at
        most `first`. `patience` is in seconds, for the next byte. With `metadata_only` the items are
        PartialObjectMetadata.
        """
        accept = _AS_METADATA_LIST if metadata_only else JSON

        async def fetch(query: Params) -> bytes:
            nonlocal patience
            try:
                return await self.read(path, params=query, accept=accept, patience=patience)
            except RequestTimeout:
                patience = min(2 * patience, LAST_PATIENCE)
                raise

        return Pages(fetch, query=params or {}, page_size=page_size, first=first)

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
        within: Within | None = None,
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
            within=within,
            write=f"create {kind.PLURAL}",
        )
        return self._object(kind, answer)

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
        return self._object(kind, answer, name)

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
        within: Within | None = None,
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
            within=within,
            write=f"{type} {kind.PLURAL} {subresource}",
        )
        return self._object(kind, answer, name)

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
        guard: Guard | None = None,
        within: Within | None = None,
    ) -> T | None:
        """Delete an object, on condition of a uid and version if given; `grace_seconds` in the place of its own. The
        object if it stays until its finalizers or its grace period are over, else None.

        Raises NotFound if the object does not exist, Conflict if its uid or version differs.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if given := {name: value for name, value in preconditions.items() if value}:
            body["preconditions"] = given
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if dry_run:
            body["dryRun"] = ["All"]
        answer = await self.request(
            "DELETE",
            self.path(kind, name, namespace),
            body=answers.encode(body),
            timeout=timeout,
            guard=guard,
            within=within,
            write=f"delete {kind.PLURAL}",
        )
        return None if answers.says_gone(answer) else self._object(kind, answer, name)


def _write_params(*, dry_run: bool, manager: str = names.FIELD_MANAGER) -> dict[str, str | int]:
    params: dict[str, str | int] = {"fieldManager": manager}
    if dry_run:
        params["dryRun"] = "All"
    return params
