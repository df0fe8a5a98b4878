"""Tracks which CustomResourceDefinitions exist, with one metadata-only watch for all kinds that may be absent.

A definition may have hundreds of kilobytes, and there may be hundreds; only their metadata is held. Never decides
whether a kind is served: its definition may exist and not be established yet.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.errors import Forbidden, NotServed
from turnstile.api.meta import Kind
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

RIGHT: Final = "list and watch customresourcedefinitions in apiextensions.k8s.io"

_BUILT_IN: Final = frozenset(("resource.k8s.io",))
"""Groups of kinds that an API server has or has not by its own version."""

log = structlog.get_logger(__name__)


class DefinitionGone(NotServed):
    """A definition was deleted, after all objects of its kind."""


def may_be_defined(kind: type[Kind]) -> bool:
    """Whether a CustomResourceDefinition can define the kind, and its name is known: the group has a dot, unlike
    `batch` or `apps`, and the API server does not serve it itself."""
    return "." in kind.GROUP and kind.GROUP not in _BUILT_IN and not kind.GUESSED


def name_of(kind: type[Kind]) -> str:
    """The name of a definition of the kind."""
    return f"{kind.PLURAL}.{kind.GROUP}"


class Definitions:
    """The definitions of a cluster, as last seen. `await run()` in a task of its own."""

    def __init__(self, transport: Transport) -> None:
        self._store = Store[CustomResourceDefinition]()
        self.reflector = Reflector(transport, self._store, CustomResourceDefinition, optional=True, metadata_only=True)
        self._warned = False

    async def run(self) -> None:
        """Keep the definitions equal to the server's until cancelled."""
        while True:
            try:
                await self.reflector.run()
            except NotServed as error:  # the server has no custom resources, or is starting
                self.reflector.failed(error)
                await asyncio.sleep(5.0)

    async def catch_up(self) -> None:
        """Return once all definitions that there were at this call are known, or are found to be unreadable."""
        if not self.readable:
            return
        try:
            await self.reflector.freshness.show(raises=(Forbidden, NotServed))
        except (Forbidden, NotServed) as error:
            self.reflector.failed(error)

    @property
    def readable(self) -> bool:
        """Whether a definition missing here is missing in the cluster."""
        return self.reflector.synced.is_set() and not self.forbidden

    @property
    def forbidden(self) -> bool:
        """Whether RBAC forbids Turnstile to read definitions. Logs that once."""
        error = self.reflector.error
        if not isinstance(error, Forbidden):
            return False
        if not self._warned:
            self._warned = True
            log.warning("definitions.forbidden", missing_right=RIGHT, error=error.message)
        return True

    def has(self, kind: type[Kind]) -> bool:
        """Whether a definition of the kind is in the store."""
        return name_of(kind) in self._store

    def on_appearance(self, kind: type[Kind], listener: Callable[[], None]) -> None:
        """Call `listener` whenever a definition of the kind appears."""
        name = name_of(kind)

        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            if key == name and old is None:
                listener()

        self._store.subscribe(changed)

    async def gone(self, kind: type[Kind]) -> NoReturn:
        """Wait until the definition of the kind is deleted or recreated (another uid), then raise DefinitionGone."""
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
