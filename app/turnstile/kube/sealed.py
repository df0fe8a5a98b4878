"""A request body that is sent only if a guard, such as `Fence.check`, allows it at the last moment.

Between the decision to send and the first byte lie a queue, perhaps a new connection with its handshake, and turns of
the event loop. A process that is paused there and resumed later would still send its request. So the guard is called
where the bytes are written to the connection, with nothing awaited in between; the headers are sent with the body. The
gap that remains is the rest of one turn of the event loop, at whose end uvloop hands the bytes to the kernel.
"""

from collections.abc import Callable

from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

from turnstile.api.errors import TurnstileError


class Sealed(payload.BytesPayload):
    """A body that is written only while `guard` does not raise."""

    def __init__(self, body: bytes, guard: Callable[[], None]) -> None:
        super().__init__(body)
        self._guard = guard
        self.refusal: TurnstileError | None = None
        """The error that the guard raised."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Call the guard, then write. If the guard raises, the error is raised and not even headers are written."""
        try:
            self._guard()
        except TurnstileError as refusal:
            self.refusal = refusal
            raise
        await super().write_with_length(writer, content_length)

    def withheld(self, error: BaseException) -> TurnstileError:
        """The error that the guard raised, to be raised in the place of `error`, which it has caused. Neither of them,
        nor this body, refers to another one any more: they would stay until the garbage collector finds them."""
        assert self.refusal is not None
        refusal, self.refusal = self.refusal, None
        error.__cause__ = error.__context__ = None
        return refusal.with_traceback(None)
