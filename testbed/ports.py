"""Loopback ports that stay ours, also while the process that listens on them is down."""

import socket
from types import TracebackType
from typing import Self


class ReservedPort:
    """A free TCP port of 127.0.0.1, held by a bound socket that does not listen.

    The holder and the real listener both set SO_REUSEPORT, so the listener can bind while no stranger (who does not
    set it, or runs as another user) can take the port between two starts. A socket that only binds gets no traffic.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def __str__(self) -> str:
        return str(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the port back."""
        self._socket.close()
