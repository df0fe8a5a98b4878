"""Reads the log of a container, and knows when a log that is followed has ended although nothing closes it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final

from turnstile.kube.transport import Transport
from turnstile.kube.wire import ANY

_SILENCE: Final = 10 * 86400.0
"""Seconds that a container may write nothing for. A dead connection is found by its socket."""
_QUIET_SECONDS: Final = 5.0
"""Seconds without a byte of a log after which it is asked whether its container still runs; if not, the log has as many
more seconds to end by itself. The log of a pod whose node is lost never does, and the phase of that pod stays
Running."""


async def read_log(
    wire: Transport,
    path: str,
    *,
    params: Mapping[str, str | int] | None = None,
    over: Callable[[], Awaitable[bool]] | None = None,
) -> AsyncGenerator[bytes, None]:
    """The bytes of a log that there are. With `over` those that are written later too, until the log ends, or is silent
    after `over` has said that the pod or its job has ended."""
    query = {**(params or {}), **({"follow": "true"} if over is not None else {})}
    done = False
    async with aclosing(wire.pieces(path, params=query, idle_timeout=_SILENCE, accept=ANY)) as pieces:
        while True:
            coming = asyncio.ensure_future(anext(pieces, b""))
            try:
                while not (await asyncio.wait({coming}, timeout=None if over is None else _QUIET_SECONDS))[0]:
                    if done or over is None:
                        return
                    done = await over()
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
            if not (piece := coming.result()):
                return
            yield piece
