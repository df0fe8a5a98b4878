"""Reads request bodies with a limit and a deadline, and answers with JSON or a Kubernetes Status.

Never trusts the declared length of a body: counts its bytes while they arrive. A body of up to `SMALL` bytes, as
nearly all reviews are, is read at once. A few larger ones are read at a time (`Turns`); the others wait unread, in
buffers of the kernel, so that they cost neither memory nor the CPU to decrypt them.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

BODY_LIMIT: Final = 3 * 1024 * 1024
"""Maximum bytes of a review. The API server stores at most 1.5 MiB per object, and a review may carry two. It sends
each object to be converted in a review of its own, also those of a list."""
LINGER_SECONDS: Final = 0.5
"""Seconds between the answer to a request whose body was not read and the end of its connection: closing at once would
reset the connection before the client has read the answer."""
SMALL: Final = 64 * 1024
"""Bytes of a body that is read without a turn: as many as a connection may hold undelivered anyway."""
TURNS: Final = 8
"""Large bodies that are read at a time."""
WAIT_SECONDS: Final = 30.0
"""Seconds for which a large body waits for a turn: no API server waits for a webhook for longer. A client that is
refused sooner only costs another handshake sooner."""
TURN_SECONDS: Final = 1.0
"""Seconds that a large body has to arrive while others wait: the body of an API server arrives in milliseconds."""
ANSWER_SECONDS: Final = 10.0
"""Seconds within which a client must have read an answer that is larger than a piece."""
_PIECE: Final = 64 * 1024

REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
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
    429: ((b"retry-after", b"1"),),  # the API server sends the review again then, within its timeout
}
Headers = tuple[tuple[bytes, bytes], ...]


def status_body(code: int, message: str, details: Mapping[str, str] | None = None) -> bytes:
    """A Kubernetes Status for a request that failed."""
    reason = REASONS.get(code) or HTTPStatus(code).phrase.replace(" ", "")
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    } | ({"details": details} if details else {})
    return msgspec.json.encode(status)


def refusal_headers(code: int) -> dict[str, str]:
    """The headers that an answer with this code has besides those of every answer."""
    return {name.decode(): value.decode() for name, value in _HEADERS.get(code, ())}


class Refused(Exception):
    """Raised for a request that is answered with an error status.

    `operation` is the operation of the review, empty if unknown. `unread`: the body was not read to its end. `details`
    name the object of the request, `allow` the method that is allowed where that of the request is not.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        operation: str = "",
        unread: bool = False,
        details: Mapping[str, str] | None = None,
        allow: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.operation = operation
        self.unread = unread
        self.details = details
        self.allow = allow


class Turns:
    """Decides which large bodies are read: at most `limit` at a time.

    The smallest waiting body is next, of equal ones the newest: clients that flood the server declare as much as they
    may, and go on waiting.
    """

    def __init__(self, limit: int = TURNS) -> None:
        self.limit = limit
        self.refused = 0
        """Bodies that were refused because others waited, or that never had a turn."""
        self._arriving: dict[asyncio.Timeout, float] = {}
        self._taken = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    @property
    def reading(self) -> int:
        """The bodies that have a turn, including those that have arrived and are still in use."""
        return self._taken

    @property
    def waiting(self) -> int:
        """The bodies that wait for a turn."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, length: int) -> AsyncIterator[None]:
        """The turn of a body of that length, until nothing of the body is held any more. Raises Refused if none comes
        within WAIT_SECONDS."""
        if self._taken < self.limit:
            self._taken += 1
        else:
            await self._wait(length)
        try:
            yield
        finally:
            self._end()

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[None]:
        """The part of a turn in which the body arrives. Raises Refused if others wait and it takes TURN_SECONDS."""
        deadline = asyncio.timeout(None)
        try:
            async with deadline:
                self._arriving[deadline] = asyncio.get_running_loop().time() + TURN_SECONDS
                if self._waiting:
                    self._hurry()
                yield
        except TimeoutError:
            self.refused += 1
            raise Refused(429, "the body arrives too slowly for a server that is this busy", unread=True) from None
        finally:
            self._arriving.pop(deadline, None)

    async def _wait(self, length: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = length
        self._hurry()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except BaseException as error:
            if self._waiting.pop(turn, None) is None:  # the turn came together with the timeout or the cancellation
                self._end()
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise Refused(429, "too many large reviews arrive at a time: try again", unread=True) from None
            raise

    def _end(self) -> None:
        """Give the turn to the next body."""
        waiting = {turn: length for turn, length in self._waiting.items() if not turn.done()}  # others were cancelled
        if waiting:
            smallest = min(waiting.values())
            following = next(turn for turn in reversed(waiting) if waiting[turn] == smallest)
            del self._waiting[following]
            following.set_result(None)
        else:
            self._taken -= 1

    def _hurry(self) -> None:
        """Limit the time of the bodies that arrive: others wait."""
        for deadline, end in self._arriving.items():
            deadline.reschedule(end)
        self._arriving.clear()


async def answer(
    send: Send,
    code: int,
    body: bytes | Sequence[bytes],
    *,
    closing: bool,
    headers: Headers = (),
    media_type: str = "application/json",
) -> None:
    """Send a complete answer, whose body may be given in pieces; `closing` asks the client to close the connection.

    A client that does not read a large answer is cut off, and until then keeps only a piece of it in memory beside the
    answer itself.
    """
    pieces = (
        [body[begin : begin + _PIECE] for begin in range(0, len(body), _PIECE)] if isinstance(body, bytes) else body
    )
    length = (b"content-length", b"%d" % sum(map(len, pieces)))
    kind = _JSON if media_type == "application/json" else (b"content-type", media_type.encode())
    all_headers = (kind, length, *headers, _CLOSE) if closing else (kind, length, *headers)
    await send({"type": "http.response.start", "status": code, "headers": all_headers})
    if len(pieces) < 2:
        await send({"type": "http.response.body", "body": b"".join(pieces)})
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            for piece in pieces[:-1]:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": pieces[-1]})


async def refuse(send: Send, refused: Refused, *, closing: bool) -> None:
    """Answer with the Status of a refused request."""
    body = status_body(refused.code, refused.message, refused.details)
    headers = ((b"allow", refused.allow.encode()),) if refused.allow else _HEADERS.get(refused.code, ())
    if refused.unread:
        await _answer_and_linger(send, refused.code, body, headers)
        return
    await answer(send, refused.code, body, closing=closing, headers=headers)


@asynccontextmanager
async def body_of(
    scope: Scope, receive: Receive, turns: Turns, *, limit: int = BODY_LIMIT
) -> AsyncIterator[bytes | None]:
    """The body of a review, None if the client disconnected; a large body has its turn until the block ends.

    Raises Refused if the request cannot be a review.
    """
    length = _declared(scope, limit)
    if length <= SMALL:
        yield await _receive_body(receive, limit)
        return
    async with turns.turn(length):
        async with turns.arriving():
            body = await _receive_body(receive, limit)
        yield body


def _declared(scope: Scope, limit: int) -> int:
    if scope["method"] != "POST":
        raise Refused(405, f"{scope['method']} is not possible here: POST a review", allow="POST")
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
    return length


async def _receive_body(receive: Receive, limit: int) -> bytes | None:
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        if not message["more_body"] and not parts:
            whole: bytes = message["body"]
            return whole
        parts += message["body"]
        if len(parts) > limit:
            raise Refused(413, f"the body has more than {limit} bytes", unread=message["more_body"])
        if not message["more_body"]:
            return bytes(parts)


async def _answer_and_linger(send: Send, code: int, reply: bytes, more: Headers) -> None:
    """Answer, and close the connection a little later, without reading what the client still sends."""
    headers = [_JSON, _CLOSE, (b"content-length", b"%d" % len(reply)), *more]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": reply, "more_body": True})
    await asyncio.sleep(LINGER_SECONDS)
    await send({"type": "http.response.body", "body": b""})
