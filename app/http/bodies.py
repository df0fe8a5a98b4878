"""Reads request bodies with a limit and a deadline, and answers with JSON or a Kubernetes Status.

Never trusts the declared length of a body: counts its bytes while they arrive.
"""

import asyncio
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

BODY_LIMIT: Final = 3 * 1024 * 1024
"""Maximum bytes of a review. The API server stores at most 1.5 MiB per object, and a review may carry two."""
BODY_DEADLINE: Final = 10.0
"""Seconds from the headers of a request to the end of its body: the default webhook timeout of the API server."""
_LINGER_BYTES: Final = 4 * BODY_LIMIT
_LINGER_SECONDS: Final = 2.0

REASONS: Final = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
}

_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
Headers = tuple[tuple[bytes, bytes], ...]


def status_body(code: int, message: str) -> bytes:
    """A Kubernetes Status for a request that failed."""
    reason = REASONS.get(code) or HTTPStatus(code).phrase.replace(" ", "")
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
    """Raised for a request that is answered with an error status.

    `operation` is the operation of the review, empty if unknown. `unread`: the body was not read to its end.
    """

    def __init__(self, code: int, message: str, *, operation: str = "", unread: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.operation = operation
        self.unread = unread


async def answer(send: Send, code: int, body: bytes, *, closing: bool, headers: Headers = ()) -> None:
    """Send a complete answer; `closing` asks the client to close the connection."""
    length = (b"content-length", b"%d" % len(body))
    all_headers = (_JSON, length, *headers, _CLOSE) if closing else (_JSON, length, *headers)
    await send({"type": "http.response.start", "status": code, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(receive: Receive, send: Send, refused: Refused, *, closing: bool) -> None:
    """Answer with the Status of a refused request."""
    body = status_body(refused.code, refused.message)
    if refused.unread:
        await _answer_and_linger(receive, send, refused.code, body)
        return
    headers = ((b"allow", b"POST"),) if refused.code == 405 else ()
    await answer(send, refused.code, body, closing=closing, headers=headers)


async def read_body(scope: Scope, receive: Receive, *, limit: int = BODY_LIMIT) -> bytes | None:
    """The body of a review, None if the client disconnected. Raises Refused if the request cannot be a review."""
    if scope["method"] != "POST":
        raise Refused(405, f"{scope['method']} is not possible here: POST a review")
    content_type, length = b"", 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length":
            length = int(value)  # the HTTP parser accepts only digits
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
    """Answer first, then read on for a while: closing at once would reset the connection before the client reads it."""
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
