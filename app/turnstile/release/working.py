"""Asks a cluster whether the installed release works: a process leads, webhooks answer, APIs are available.

Writes nothing: the ResourceFlavors that are created for the webhooks are dry runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from turnstile.api import names
from turnstile.api.errors import ApiError, NotFound
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.kube.lease import Lease
from turnstile.kube.transport import Transport

_REGISTERED: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
_API_SERVICES: Final = (
    "v1beta1.visibility.kueue.x-k8s.io",
    "v1beta2.visibility.kueue.x-k8s.io",
    "v1alpha1.insight.turnstile.dev",
)
_FLAVOR: Final = "turnstile-check"
"""Name of the ResourceFlavors that are created as dry runs."""
_PAUSE: Final = 1.0
"""Seconds between two attempts."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether one part of the release works; `says` is the fault, in a sentence."""

    part: str
    works: bool
    says: str


async def working(transport: Transport, *, name: str, namespace: str, timeout: float) -> list[Answer]:
    """An answer for each part. One that does not work yet is asked again until `timeout` seconds are over."""
    asked: dict[str, Callable[[], Awaitable[str]]] = {
        "leader": _Leader(transport, f"{name}-controller", namespace).fault,
        "mutating webhook": partial(_unanswered_default, transport),
        "validating webhook": partial(_unanswered_validation, transport),
    }
    asked |= {service: partial(_unavailable, transport, service) for service in _API_SERVICES}
    ends = asyncio.get_running_loop().time() + timeout
    return [await _ask(part, fault, ends) for part, fault in asked.items()]


async def _ask(part: str, fault: Callable[[], Awaitable[str]], ends: float) -> Answer:
    loop = asyncio.get_running_loop()
    while True:
        try:
            says = await fault()
        except ApiError as error:
            says = str(error)
        if not says or loop.time() >= ends:
            return Answer(part, not says, says or "works")
        await asyncio.sleep(_PAUSE)


class _Leader:
    """A process leads if it renews its Lease while it is watched: clocks of two machines are not compared."""

    def __init__(self, transport: Transport, name: str, namespace: str) -> None:
        self._transport = transport
        self._name = name
        self._namespace = namespace
        self._seen: str | None = None

    async def fault(self) -> str:
        """Why nobody leads; empty once a renewal was seen."""
        try:
            spec = (await self._transport.get(Lease, self._name, self._namespace)).spec
        except NotFound:
            return f"there is no Lease {self._namespace}/{self._name}: no controller has started"
        if not spec.holder_identity:
            return f"nobody holds the Lease {self._namespace}/{self._name}"
        before, self._seen = self._seen, spec.renew_time
        renewed = before is not None and before != spec.renew_time
        return "" if renewed else f"{spec.holder_identity} holds the Lease and has not renewed it"


async def _unanswered_default(transport: Transport) -> str:
    """Why the webhook that sets defaults is not asked; empty if it is."""
    made = await _create(transport, {})
    return "" if names.RESOURCE_IN_USE in made.metadata.finalizers else "the API server does not ask it"


async def _unanswered_validation(transport: Transport) -> str:
    """Why the webhook that validates is not asked; empty if it refuses a label that no node can have."""
    try:
        await _create(transport, {"nodeLabels": {"turnstile-check": "not a label"}})
    except ApiError as error:
        if "denied the request" in error.message:
            return ""
        raise
    return "the API server does not ask it"


async def _create(transport: Transport, spec: dict[str, object]) -> ResourceFlavor:
    """A ResourceFlavor as the API server would store it."""
    body = {
        "apiVersion": f"{ResourceFlavor.GROUP}/{ResourceFlavor.VERSION}",
        "kind": ResourceFlavor.KIND,
        "metadata": {"name": _FLAVOR},
        "spec": spec,
    }
    return await transport.create(ResourceFlavor, "", body, dry_run=True, retry="never")


async def _unavailable(transport: Transport, service: str) -> str:
    """Why a registered API is not available; empty if it is, or is not registered."""
    try:
        found = orjson.loads(await transport.request("GET", f"{_REGISTERED}/{service}"))
    except NotFound:
        return ""
    for condition in found.get("status", {}).get("conditions", ()):
        if condition["type"] == "Available":
            return "" if condition["status"] == "True" else str(condition.get("message", "it is not available"))
    return "the API server has not asked it yet"
