"""The body of a request that must not go out any more once something has ended: asked for at the last moment.

Between the decision to send and the first byte lie a queue, perhaps a new connection with its handshake, and turns of
the event loop. A process that is stopped there and goes on later would send what it was about to. So the question is
asked where the bytes are handed to the connection, with nothing awaited in between; the headers wait for the body and
go with it. What is left is the rest of one turn of the event loop, at whose end uvloop hands bytes to the kernel.
"""

from collections.abc import Callable

from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

from app.api.errors import TurnstileError


class Sealed(payload.BytesPayload):
    """A body that is written only while `guard` does not raise."""

    def __init__(self, body: bytes, guard: Callable[[], None]) -> None:
        super().__init__(body)
        self._guard = guard
        self.refusal: TurnstileError | None = None
        """What the guard raised."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Ask, and write. Raises what the guard raises, and then nothing was written, no header either."""
        try:
            self._guard()
        except TurnstileError as refusal:
            self.refusal = refusal
            raise
        await super().write_with_length(writer, content_length)
