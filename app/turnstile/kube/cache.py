"""Holds one kind in memory: its store, its reflector, and the handling of an optional kind that the cluster lacks.

A kind that every cluster has is watched for ever. An optional kind may be absent: its CustomResourceDefinition is not
installed, or is deleted later. The kind is *dormant* then: no watch, no request, an empty store. A kind becomes dormant
only if the server answers that there is no such kind (404) and no CustomResourceDefinition of it is known; while a
definition exists but is not served yet, or the server is starting, the watch is retried. The watch of definitions
(`crds`) wakes the kind. If RBAC forbids reading definitions, the kind itself is requested every half minute.

A kind that matters only beside others (`Scope.only_with`) *rests* until an object of those makes it matter: no watch,
no request. Its store is not complete meanwhile, because its objects exist.

`Store.complete` is true if every object missing in the store is missing in the cluster: once all objects were read, and
while a kind is dormant, but not from `doubt` until `catch_up` has shown that the store is fresh. Never decides how long
other components wait for a kind.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import structlog

from turnstile.api.errors import ApiError, NotServed, WireError
from turnstile.api.meta import Kind
from turnstile.kube.backoff import Backoff
from turnstile.kube.crds import DefinitionGone, Definitions, name_of
from turnstile.kube.raws import Keep
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.kube.wire import Params

T = TypeVar("T", bound=Kind)

AGAIN: Final = Backoff(first=0.1, limit=5.0)
"""Pauses before the next watch of a kind that is defined but not served, and before a failed read is repeated."""
PATIENCE_SECONDS: Final = 3.0
"""Seconds of failures after which no component waits for an optional kind any more."""
PROBE_SECONDS: Final = 30.0
"""Seconds between requests for an absent kind that no definition announces: its group is the API server's own, or RBAC
forbids reading definitions."""
SECOND_ANSWER_SECONDS: Final = 2.0
"""Seconds until the first of these requests. Until it is answered the start of a term waits for the kind."""

log = structlog.get_logger(__name__)


class State(StrEnum):
    """Whether the objects of a kind are read and watched."""

    READING = "reading"
    SYNCED = "synced"
    DORMANT = "dormant"
    RESTING = "resting"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a kind, and the server's error if it is failing."""

    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects of a kind are held, and how much of each.

    `namespace` and `params` (selectors) select objects. `metadata_only`: only their metadata is requested. `keep`
    decides for each object whether it is held whole, without its raw parts, such as pod templates, or not at all;
    the kinds `after` are read first, because `keep` depends on them. `reduce` takes out of each object what no
    decision reads. `optional`: the server may not have the kind, or may forbid Turnstile to read it. An optional
    kind is read once an object of a kind in `only_with` makes it matter, which the function there decides.
    """

    namespace: str = ""
    params: Params | None = None
    optional: bool = False
    metadata_only: bool = False
    keep: Callable[[Any], Keep] | None = None
    reduce: Callable[[Any], None] | None = None
    after: tuple[type[Kind], ...] = ()
    only_with: Mapping[type[Kind], Callable[[Any], bool]] | None = None

    @property
    def keeping(self) -> Callable[[Any], Keep] | None:
        """`keep` for the decoder: a list is reduced object by object, before it is held as a whole."""
        if (reduce := self.reduce) is None:
            return self.keep

        def keep(value: Any) -> Keep:
            reduce(value)
            return self.keep(value) if self.keep is not None else Keep.WHOLE

        return keep


class Cache(Generic[T]):
    """A store and its reflector. `await run(...)` in a task of its own."""

    def __init__(
        self, transport: Transport, kind: type[T], scope: Scope, *, probe_seconds: float = PROBE_SECONDS
    ) -> None:
        self.kind = kind
        self.scope = scope
        self.store = Store[T](reduce=scope.reduce)
        self.reflector = Reflector(
            transport,
            self.store,
            kind,
            namespace=scope.namespace,
            params=scope.params,
            optional=scope.optional,
            patience=PATIENCE_SECONDS if scope.optional else 0.0,
            metadata_only=scope.metadata_only,
            keep=scope.keeping,
        )
        self._transport = transport
        self._probe_seconds = probe_seconds
        self._definitions: Definitions | None = None
        self._dormant = False
        self._defined = asyncio.Event()
        self._wanted = asyncio.Event()
        if scope.only_with is None:
            self._wanted.set()
        else:
            self.reflector.tried.set()
        self._to_read: dict[str, bool] = {}
        self._more_to_read = asyncio.Event()
        self._reading_again = False
        self._all_read = asyncio.Event()

    @property
    def name(self) -> str:
        """The resource and its group: `jobs.batch`."""
        return f"{self.kind.PLURAL}.{self.kind.GROUP}" if self.kind.GROUP else self.kind.PLURAL

    @property
    def dormant(self) -> bool:
        """Whether the cluster has no such kind, as far as is known."""
        return self._dormant

    @property
    def standing(self) -> Standing:
        """The present state of the kind."""
        if not self._wanted.is_set():
            return Standing(State.RESTING)
        if self._dormant:
            return Standing(State.DORMANT)
        if (error := self.reflector.error) is not None:
            return Standing(State.FAILING, str(error))
        return Standing(State.SYNCED if self.reflector.listed else State.READING)

    @property
    def settled(self) -> asyncio.Event:
        """Set once no component needs to wait for the kind: it was read or, if optional, is absent or keeps failing."""
        return self.reflector.tried if self.scope.optional else self.reflector.synced

    async def run(self, definitions: Definitions | None) -> None:
        """Keep the store equal to the server's objects until cancelled; `definitions` if a CRD may define the kind."""
        self._definitions = definitions
        if definitions is not None:
            definitions.on_appearance(self.kind, self._appeared)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_again(), name=f"read {self.kind.PLURAL} again")
            group.create_task(self._watch(), name=f"watch {self.kind.PLURAL}")

    def read_again(self, namespace: str) -> None:
        """Read the objects of a namespace once more, soon, and hold of each what `keep` decides then."""
        self._to_read[namespace] = True
        self._more_to_read.set()

    @property
    def awake(self) -> bool:
        """Whether the kind matters, and is read."""
        return self._wanted.is_set()

    def wake(self) -> None:
        """There is an object that makes this kind matter."""
        if not self._wanted.is_set():
            self.reflector.tried.clear()
            self._wanted.set()

    async def wanted(self) -> None:
        """Return once the kind is to be read at all."""
        await self._wanted.wait()

    async def read(self) -> None:
        """Return once all objects were read, and those that were to be read again."""
        await self.reflector.synced.wait()
        while self._to_read or self._reading_again:
            self._all_read.clear()
            await self._all_read.wait()

    def doubt(self) -> None:
        """Take the store for stale until `catch_up` has ended."""
        self.reflector.doubt_freshness()

    async def catch_up(self) -> None:
        """Return once the store has every change that was made before this call; its store is complete from then on.

        Errors are retried until then. If the kind is dormant, the definitions must have been caught up with before.
        """
        dormant = self._dormant and not self._defined.is_set()
        if (dormant and self._sees_definitions) or not self._wanted.is_set():
            self.reflector.freshness.release()
        else:
            await self.reflector.freshness.show()

    # --- reads beside the watch ---------------------------------------------------------------------------------------

    async def _read_again(self) -> None:
        attempt = 0
        while True:
            await self._more_to_read.wait()
            await self.reflector.synced.wait()
            namespace = next(iter(self._to_read), None)
            if namespace is None:
                self._reading_again = False
                self._all_read.set()
                self._more_to_read.clear()
                continue
            self._reading_again = True
            anew = self._to_read.pop(namespace)
            try:
                await self.reflector.read_again(namespace, anew=anew)
                attempt = 0
            except NotServed:
                pass  # the watch gets the same answer, and its next start reads all objects
            except (WireError, ApiError) as error:
                log.warning("cache.not_read_again", kind=self.kind.KIND, namespace=namespace, error=str(error))
                self._to_read.setdefault(namespace, False)
                await asyncio.sleep(AGAIN.delay(attempt, random.random))
                attempt += 1

    # --- a kind that may be absent ------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        if not self.scope.optional:
            await self.reflector.run()
            return
        attempt = 0
        while True:
            relisted = self.reflector.relisted
            error = await self._until_refused()
            if self.reflector.relisted > relisted:
                attempt = 0
            if isinstance(error, DefinitionGone):
                await self.reflector.forget()  # its objects were deleted before the definition
                self.reflector.doubt()
            if await self._absent():
                await self._sleep()
                attempt = 0
            elif not isinstance(error, DefinitionGone):
                # Not established yet, or the server is starting: the objects in the store may still exist. Or the
                # definition serves other versions than those that are read.
                self.reflector.failed(self._unserved(error))
            await asyncio.sleep(AGAIN.delay(attempt, random.random))
            attempt += 1

    def _unserved(self, error: NotServed) -> NotServed:
        """The error of a kind that is defined and not found, with the versions that are read."""
        versions = " or ".join(self.kind.VERSIONS or (self.kind.VERSION,))
        message = f"{name_of(self.kind)} is defined, but not served in version {versions}: {error.message}"
        return NotServed(error.code, error.reason, message)

    async def _until_refused(self) -> NotServed:
        """Watch the kind until the server answers 404 or the definition is deleted; return that error."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.reflector.run(), name=f"follow {self.kind.PLURAL}")
                if self._definitions is not None:
                    group.create_task(self._definitions.gone(self.kind), name=f"definition of {self.kind.PLURAL}")
        except* NotServed as refusals:
            error = next(each for each in refusals.exceptions if isinstance(each, NotServed))
        return error

    async def _absent(self) -> bool:
        """Whether a kind for which the server answered 404 is absent, not just unserved for the moment."""
        definitions = self._definitions
        if definitions is not None:
            await definitions.reflector.tried.wait()
            if definitions.readable:
                return not definitions.has(self.kind)
            if not definitions.forbidden:
                return False
        return await self._unknown()

    async def _unknown(self) -> bool:
        """Whether the server says that it has no version of the kind."""
        try:
            for version in self.kind.VERSIONS or (self.kind.VERSION,):
                path = self._transport.collection_path(self.kind, self.scope.namespace, version=version)
                if not await self._transport.absent(path):
                    return False
        except (WireError, ApiError):
            return False
        return True

    async def _sleep(self) -> None:
        """Stay dormant until the kind is defined.

        Where no definition can be read, the first 404 may come from a server that is starting: only a second one
        empties the store.
        """
        pause = min(SECOND_ANSWER_SECONDS, self._probe_seconds)
        self._defined.clear()
        self._dormant = True
        self.reflector.doubt()
        self.reflector.tried.set()
        log.info("kind.dormant", kind=self.kind.KIND, group=self.kind.GROUP)
        while not self._defined.is_set():
            if self._sees_definitions:
                await self.reflector.forget()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._defined.wait()
            pause = self._probe_seconds
            if not (self._sees_definitions or self._defined.is_set()) and await self._served():
                break
        self._dormant = False
        self.reflector.doubt()
        log.info("kind.awake", kind=self.kind.KIND, group=self.kind.GROUP)

    @property
    def _sees_definitions(self) -> bool:
        return self._definitions is not None and self._definitions.readable

    async def _served(self) -> bool:
        """Whether the server serves the kind, by a request for it; empties the store if the server says that it has no
        such kind."""
        try:
            await self._transport.find_version(self.kind, self.scope.namespace)
        except NotServed:
            if await self._unknown():
                await self.reflector.forget()
            return False
        except WireError:
            return False
        except ApiError:
            return True  # the kind exists; the watch will report the error
        return True

    def _appeared(self) -> None:
        self._defined.set()
        if self._dormant:
            self.reflector.doubt()
