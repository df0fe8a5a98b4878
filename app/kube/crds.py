"""Which CustomResourceDefinitions there are: one watch for all kinds that may be absent, of metadata alone.

A definition may have hundreds of kilobytes, and there may be hundreds; of each nothing is kept but what names it. Never
says whether a kind is served: it may be defined and not established yet.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from app.api.apiextensions import CustomResourceDefinition
from app.api.errors import Forbidden, NotFound
from app.api.meta import Kind
from app.kube.reflector import Reflector
from app.kube.store import Store
from app.kube.transport import Transport

RIGHT: Final = "list and watch customresourcedefinitions in apiextensions.k8s.io"

log = structlog.get_logger(__name__)


class DefinitionGone(NotFound):
    """A definition was deleted, and all objects of its kind before it."""


def may_be_defined(kind: type[Kind]) -> bool:
    """Whether a definition can bring the kind. The group of one has a dot; `batch` and `apps` are Kubernetes' own."""
    return "." in kind.GROUP


def name_of(kind: type[Kind]) -> str:
    """What a definition of the kind is named."""
    return f"{kind.PLURAL}.{kind.GROUP}"


class Definitions:
    """The definitions of a cluster, as last seen. `await run()` in a task of its own."""

    def __init__(self, transport: Transport) -> None:
        self._store = Store[CustomResourceDefinition]()
        self.reflector = Reflector(transport, self._store, CustomResourceDefinition, optional=True, metadata_only=True)
        self._told = False

    async def run(self) -> None:
        """Keep them equal to the server's until cancelled."""
        while True:
            try:
                await self.reflector.run()
            except NotFound as error:  # a server without custom resources, or one that is starting
                self.reflector.failed(error)
                await asyncio.sleep(5.0)

    async def renew(self) -> None:
        """As `Reflector.renew`; if it is forbidden, they are not readable any more."""
        try:
            await self.reflector.renew()
        except Forbidden as error:
            self.reflector.failed(error)

    @property
    def readable(self) -> bool:
        """Whether a definition that is not seen is not there."""
        return self.reflector.synced.is_set() and not self.forbidden

    @property
    def forbidden(self) -> bool:
        """Whether we may not read them. Said once in the log."""
        error = self.reflector.error
        if not isinstance(error, Forbidden):
            return False
        if not self._told:
            self._told = True
            log.warning("definitions.forbidden", missing_right=RIGHT, error=error.message)
        return True

    def has(self, kind: type[Kind]) -> bool:
        """Whether a definition of the kind was seen."""
        return name_of(kind) in self._store

    def on_appearance(self, kind: type[Kind], listener: Callable[[], None]) -> None:
        """Call `listener` whenever a definition of the kind is seen that was not there."""
        name = name_of(kind)

        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            if key == name and old is None:
                listener()

        self._store.subscribe(changed)

    async def gone(self, kind: type[Kind]) -> NoReturn:
        """Wait until a definition of the kind is deleted, or replaced by another one; then raise DefinitionGone."""
        name, gone = name_of(kind), asyncio.Event()

        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            if key == name and old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                gone.set()

        unsubscribe = self._store.subscribe(changed)
        try:
            await gone.wait()
        finally:
            unsubscribe()
        raise DefinitionGone(404, "NotFound", f"the CustomResourceDefinition {name} was deleted")
