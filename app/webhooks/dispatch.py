"""The fast way of a review: from the ASGI scope to the handler of its path and back, past all of FastAPI.

Reviews are nearly all the traffic, and a FastAPI route costs twice what the whole review does. This dispatcher looks
the path up, refuses what is no review with a Kubernetes Status, and leaves every other path to the application behind
it. It trusts nothing about the body: it is counted while it comes, and it has a deadline.
"""

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from app.webhooks.health import Health
from app.webhooks.metrics import ReviewMetrics
from app.webhooks.review import Handler, Malformed, read, write

BODY_LIMIT: Final = 3 * 1024 * 1024
"""Bytes of a review. The API server stores at most 1.5 MiB an object, and a review may carry two."""
BODY_DEADLINE: Final = 10.0
"""Seconds from the head of a request to the end of its body; as long as the API server waits at most by default."""
_LINGER_BYTES: Final = 4 * BODY_LIMIT
_LINGER_SECONDS: Final = 2.0

_REASONS: Final = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
}

_log = structlog.get_logger(__name__)
_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
Headers = tuple[tuple[bytes, bytes], ...]


def status_body(code: int, message: str) -> bytes:
    """A Kubernetes Status for a request that failed."""
    reason = _REASONS.get(code) or HTTPStatus(code).phrase.replace(" ", "")
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return msgspec.json.encode(status)


class Refused(Exception):
    """The request is answered with an error status.

    `operation` is that of the review, as far as it is known. `unread`: the body is still on the way.
    """

    def __init__(self, code: int, message: str, *, operation: str = "", unread: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.operation = operation
        self.unread = unread


class Dispatcher:
    """The ASGI application: reviews by path, everything else to `app`."""

    def __init__(
        self, app: ASGIApp, handlers: Mapping[str, Handler], *, health: Health, metrics: ReviewMetrics
    ) -> None:
        self._app = app
        self._handlers = dict(handlers)
        self._health = health
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or (handler := self._handlers.get(scope["path"])) is None:
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        path = scope["path"]
        try:
            body = await read_body(scope, receive)
            if body is None:
                return
            operation, outcome, reply = _review(path, handler, body)
        except Refused as refused:
            operation, outcome = refused.operation, _REASONS[refused.code]
            await refuse(receive, send, refused, closing=self._health.draining)
        else:
            await answer(send, 200, reply, closing=self._health.draining)
        self._metrics.observe(path, operation, outcome, time.perf_counter() - started)


async def answer(send: Send, code: int, body: bytes, *, closing: bool, headers: Headers = ()) -> None:
    """Send a whole answer; `closing` asks the client to leave with it."""
    length = (b"content-length", b"%d" % len(body))
    all_headers = (_JSON, length, *headers, _CLOSE) if closing else (_JSON, length, *headers)
    await send({"type": "http.response.start", "status": code, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(receive: Receive, send: Send, refused: Refused, *, closing: bool) -> None:
    """Answer with the Status of a refusal."""
    body = status_body(refused.code, refused.message)
    if refused.unread:
        await _answer_and_linger(receive, send, refused.code, body)
        return
    headers = ((b"allow", b"POST"),) if refused.code == 405 else ()
    await answer(send, refused.code, body, closing=closing, headers=headers)


def _review(path: str, handler: Handler, body: bytes) -> tuple[str, str, bytes]:
    """Operation, outcome and reply of a review. Raises Refused for a body that is none, and for a bug in a handler."""
    try:
        request = read(body)
    except Malformed as error:
        raise Refused(400, str(error)) from None
    try:
        answer = handler(request)
        return request.operation, answer.outcome, write(request.uid, answer)
    except Exception:
        _log.exception("review.failed", path=path, operation=request.operation, kind=request.kind.kind, uid=request.uid)
        sentence = "the review failed; the log of the webhook tells why"
        raise Refused(500, sentence, operation=request.operation) from None


async def read_body(scope: Scope, receive: Receive, *, limit: int = BODY_LIMIT) -> bytes | None:
    """The body of what may be a review, None if the client went away. Raises Refused for what cannot be one."""
    if scope["method"] != "POST":
        raise Refused(405, f"{scope['method']} is not possible here: POST a review")
    content_type, length = b"", 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length":
            length = int(value)  # the HTTP parser let only digits pass
    if content_type != b"application/json" and content_type.split(b";")[0].strip().lower() != b"application/json":
        shown = content_type.decode("latin-1")
        raise Refused(415, f"content type {shown!r} is not understood: send application/json")
    if length > limit:
        raise Refused(413, f"the body has {length} bytes, the limit is {limit}", unread=True)
    try:
        async with asyncio.timeout(BODY_DEADLINE):
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body: bytes = message["body"]
            if message["more_body"]:
                whole = bytearray(body)
                while message["more_body"]:
                    if len(whole) > limit:
                        raise Refused(413, f"the body has more than {limit} bytes", unread=True)
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    whole += message["body"]
                body = bytes(whole)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_DEADLINE:g} s", unread=True) from None
    if len(body) > limit:
        raise Refused(413, f"the body has {len(body)} bytes, the limit is {limit}")
    return body


async def _answer_and_linger(receive: Receive, send: Send, code: int, reply: bytes) -> None:
    """Answer before the body is read, then read on: closing at once would reset the connection under the answer."""
    headers = [_JSON, _CLOSE, (b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": reply, "more_body": True})
    left = _LINGER_BYTES
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message["more_body"]:
                    break
                left -= len(message["body"])
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
