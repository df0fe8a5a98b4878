"""The ASGI application of the visibility API: documents of the group, pages of pending Workloads, and probes.

Every request but a probe is authenticated and authorized first, so that nobody learns from a 404 which queues exist.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from turnstile.http.bodies import Headers, Refused, answer, refuse
from turnstile.http.health import Health
from turnstile.visibility import discovery, openapi
from turnstile.visibility.queues import PendingWorkloads
from turnstile.visibility.resources import GROUP, SINGULAR, SUBRESOURCE, SUMMARY, VERSIONS, Asked, page, read
from turnstile.visibility.users import ALWAYS_ALLOWED, Doorkeeper

_ABSENT: Final = "the server could not find the requested resource"

_log = structlog.get_logger(__name__)


class _Document:
    """A document that does not change, and the tag by which a client asks whether it has."""

    def __init__(self, content: dict[str, Any], media_type: str = "application/json") -> None:
        self.body = msgspec.json.encode(content)
        self.tag = f'"{hashlib.sha256(self.body).hexdigest().upper()}"'.encode()
        self.media_type = media_type


def _documents() -> dict[str, _Document]:
    found = {
        "/apis": _Document(discovery.group_list()),
        f"/apis/{GROUP}": _Document(discovery.group()),
        "/openapi/v2": _Document(openapi.v2()),
        "/openapi/v3": _Document(openapi.v3_index()),
    }
    for version in VERSIONS:
        found[f"/apis/{GROUP}/{version}"] = _Document(discovery.resource_list(version))
        found[f"/openapi/v3/apis/{GROUP}/{version}"] = _Document(openapi.v3(version))
    return found


class VisibilityApp:
    """Answers the requests that `doorkeeper` admits, from the order of `pending`."""

    def __init__(self, pending: PendingWorkloads, doorkeeper: Doorkeeper, *, health: Health) -> None:
        self._pending = pending
        self._doorkeeper = doorkeeper
        self._health = health
        self._documents = _documents()
        self._aggregated = _Document(discovery.aggregated(), discovery.AGGREGATED_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http"
        asked = read(scope["method"], scope["path"])
        closing = self._health.draining
        try:
            await self._doorkeeper.admit(scope, asked)
            if asked.path in ALWAYS_ALLOWED:
                await answer(send, 200, b'{"status":"ok"}', closing=closing)
            elif asked.version:
                await answer(send, 200, await self._summary(asked, scope), closing=closing)
            else:
                await self._document(asked, scope, send)
        except Refused as refused:
            await refuse(send, refused, closing=closing)
        except Exception:
            _log.exception("visibility.failed", path=asked.path)
            sentence = "the request failed; the log of the visibility server has the reason"
            await refuse(send, Refused(500, sentence), closing=closing)

    async def _document(self, asked: Asked, scope: Scope, send: Send) -> None:
        headers = dict(scope["headers"])
        document = self._documents.get(asked.path.rstrip("/"))
        if document is None:
            raise Refused(404, _ABSENT)
        if asked.method != "GET":
            raise _not_allowed(asked)
        if asked.path.rstrip("/") == "/apis" and discovery.wants_aggregated(
            headers.get(b"accept", b"").decode("latin-1")
        ):
            document = self._aggregated
        more: Headers = ((b"etag", document.tag), (b"vary", b"Accept"))
        unchanged = headers.get(b"if-none-match") == document.tag
        await answer(
            send,
            304 if unchanged else 200,
            b"" if unchanged else document.body,
            closing=self._health.draining,
            headers=more,
            media_type=document.media_type,
        )

    async def _summary(self, asked: Asked, scope: Scope) -> list[bytes]:
        if asked.version not in VERSIONS or asked.subresource != SUBRESOURCE or asked.resource not in SINGULAR:
            raise Refused(404, _ABSENT)
        if bool(asked.namespace) != (asked.resource == "localqueues") or not asked.name:
            raise Refused(404, _ABSENT)
        if asked.method != "GET":
            raise _not_allowed(asked)
        if fault := next((fault for check in self._health.checks.values() if (fault := check())), ""):
            raise Refused(503, f"the queues are not known yet: {fault}")
        limit, offset = _page(scope["query_string"].decode("latin-1"))
        if asked.resource == "clusterqueues":
            items = await self._pending.of_cluster_queue(asked.name, limit=limit, offset=offset)
        else:
            items = await self._pending.of_local_queue(asked.namespace, asked.name, limit=limit, offset=offset)
        if items is None:
            singular = SINGULAR[asked.resource]
            message = f'{singular}.{GROUP} "{asked.name}" not found'
            raise Refused(404, message, details={"name": asked.name, "group": GROUP, "kind": singular})
        head = f'{{"kind":"{SUMMARY}","apiVersion":"{GROUP}/{asked.version}","metadata":{{}},"items":['
        return [head.encode(), *items, b"]}"]


def _not_allowed(asked: Asked) -> Refused:
    return Refused(405, f"the server does not allow {asked.verb} on {asked.path}: it can only be read", allow="GET")


def _page(query: str) -> tuple[int, int]:
    """Limit and offset of the query. Raises Refused."""
    parameters: Mapping[str, list[str]] = parse_qs(query)
    found = []
    for name in ("limit", "offset"):
        text = parameters.get(name, ["0"])[0]
        try:
            found.append(_int64(text))
        except ValueError:
            raise Refused(400, f"the query parameter {name} must be a whole number of 64 bits, not {text!r}") from None
    return page(*found)


def _int64(text: str) -> int:
    """Raises ValueError."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number
