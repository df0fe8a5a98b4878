"""Reads request bodies with a limit and a deadline, and answers with JSON or a Kubernetes Status.

Never trusts the declared length of a body: counts its bytes while they arrive. All bodies that are held at a time share
a budget (`Budget`); when it is spent, the bodies that have been arriving for longest are refused in favor of new ones.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

BODY_LIMIT: Final = 3 * 1024 * 1024
"""Maximum bytes of a review. The API server stores at most 1.5 MiB per object, and a review may carry two. It sends
each object to be converted in a review of its own, also those of a list."""
BODY_DEADLINE: Final = 10.0
"""Seconds from the headers of a request to the end of its body: the default webhook timeout of the API server."""
LINGER_SECONDS: Final = 2.0
"""Seconds for which a body that was refused is still read, so that its sender can read the answer."""
_LINGER_UNREAD: Final = 0.5
"""The same for a body that was refused because too much arrives: it is left where it is, and the sender has to wait."""
_LINGER_BYTES: Final = 4 * BODY_LIMIT
BUDGET: Final = 32 * 1024 * 1024
"""Bytes of all bodies held at a time. A body that arrives in one piece is answered at once and not counted."""
GRACE: Final = 0.5
"""Seconds within which no body gives way to another: the body of an API server has arrived by then."""
ANSWER_SECONDS: Final = 10.0
"""Seconds within which a client must have read an answer that is larger than a piece."""
_PIECE: Final = 64 * 1024

REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}

_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")
_HEADERS: Final[dict[int, tuple[tuple[bytes, bytes], ...]]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    405: ((b"allow", b"POST"),),
    429: ((b"retry-after", b"1"),),  # the API server sends the review again then, within its timeout
}
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


def refusal_headers(code: int) -> dict[str, str]:
    """The headers that an answer with this code has besides those of every answer."""
    return {name.decode(): value.decode() for name, value in _HEADERS.get(code, ())}


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


class Body:
    """A body that is held: its bytes so far, and how to refuse it while it still arrives."""

    __slots__ = ("bytes", "give_way", "since")

    def __init__(self, give_way: Callable[[], object], since: float) -> None:
        self.give_way = give_way
        self.since = since
        self.bytes = 0


class Budget:
    """The bytes of all bodies held at a time, at most `limit`."""

    def __init__(self, limit: int = BUDGET) -> None:
        self.limit = limit
        self.held = 0
        self.refused = 0
        self._arriving: dict[Body, None] = {}

    @contextmanager
    def body(self, give_way: Callable[[], object]) -> Iterator[Body]:
        """Hold a body within the block; `give_way` is called if it is to be refused while it arrives."""
        body = Body(give_way, asyncio.get_running_loop().time())
        self._arriving[body] = None
        try:
            yield body
        finally:
            self._arriving.pop(body, None)
            self.held -= body.bytes

    def arrived(self, body: Body) -> None:
        """The body is complete: it no longer gives way."""
        self._arriving.pop(body, None)

    def grow(self, body: Body, more: int) -> None:
        """Hold more bytes of a body; those that have been arriving for longest give way. Raises Refused without."""
        late = asyncio.get_running_loop().time() - GRACE
        while self.held + more > self.limit:
            longest = next(iter(self._arriving), None)
            if longest is body or longest is None or longest.since > late:
                self.refused += 1
                raise Refused(429, "too many reviews arrive at a time: try again", unread=body in self._arriving)
            del self._arriving[longest]
            self.held -= longest.bytes
            longest.bytes = 0
            self.refused += 1
            longest.give_way()
        self.held += more
        body.bytes += more


async def answer(send: Send, code: int, body: bytes, *, closing: bool, headers: Headers = ()) -> None:
    """Send a complete answer; `closing` asks the client to close the connection.

    A client that does not read a large answer is cut off, and until then keeps only a piece of it in memory beside the
    answer itself.
    """
    length = (b"content-length", b"%d" % len(body))
    all_headers = (_JSON, length, *headers, _CLOSE) if closing else (_JSON, length, *headers)
    await send({"type": "http.response.start", "status": code, "headers": all_headers})
    if len(body) <= _PIECE:
        await send({"type": "http.response.body", "body": body})
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            for begin in range(0, len(body), _PIECE):
                end = begin + _PIECE
                await send({"type": "http.response.body", "body": body[begin:end], "more_body": end < len(body)})


async def refuse(receive: Receive, send: Send, refused: Refused, *, closing: bool) -> None:
    """Answer with the Status of a refused request."""
    body = status_body(refused.code, refused.message)
    headers = _HEADERS.get(refused.code, ())
    if refused.unread:
        await _answer_and_linger(receive, send, refused.code, body, headers)
        return
    await answer(send, refused.code, body, closing=closing, headers=headers)


async def read_body(scope: Scope, receive: Receive, budget: Budget, *, limit: int = BODY_LIMIT) -> bytes | None:
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
    return await _receive_body(receive, budget, limit)


async def _receive_body(receive: Receive, budget: Budget, limit: int) -> bytes | None:
    gave_way = False
    try:
        async with asyncio.timeout(BODY_DEADLINE) as deadline:

            def give_way() -> None:
                nonlocal gave_way
                gave_way = True
                if not deadline.expired():
                    deadline.reschedule(0.0)

            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            if not message["more_body"]:
                whole: bytes = message["body"]
                if len(whole) > limit:
                    raise Refused(413, f"the body has {len(whole)} bytes, the limit is {limit}")
                return whole
            with budget.body(give_way) as body:
                parts = bytearray()
                while True:
                    budget.grow(body, len(message["body"]))
                    parts += message["body"]
                    if len(parts) > limit:
                        raise Refused(413, f"the body has more than {limit} bytes", unread=message["more_body"])
                    if not message["more_body"]:
                        return bytes(parts)
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
    except TimeoutError:
        if gave_way:
            raise Refused(429, "the body arrives too slowly for a server that is this busy", unread=True) from None
        raise Refused(408, f"the body did not arrive within {BODY_DEADLINE:g} s", unread=True) from None


async def _answer_and_linger(receive: Receive, send: Send, code: int, reply: bytes, more: Headers) -> None:
    """Answer first, then read on for a while: closing at once would reset the connection before the client reads it."""
    headers = [_JSON, _CLOSE, (b"content-length", b"%d" % len(reply)), *more]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": reply, "more_body": True})
    if code == 429:
        await asyncio.sleep(_LINGER_UNREAD)
        await send({"type": "http.response.body", "body": b""})
        return
    left = _LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message["more_body"]:
                    break
                left -= len(message["body"])
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
