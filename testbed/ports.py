"""Loopback ports that stay ours, also while the process that listens on them is down."""

import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from testbed.errors import TestbedError

_LOWEST: Final = 15000
_LENDABLE: Final = 10000
"""So many ports from `_LOWEST` on are lent. No kernel gives one of them to who asks for any free port: those begin at
32768 on Linux."""


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


class _Lent:
    """The ports that this process lends: a lock on one byte for each, in a file that all processes of this user lock.
    The kernel gives the locks back when the process ends."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._process = 0
        self._numbers: set[int] = set()

    def claim(self, number: int) -> bool:
        """Whether the port is this process's from now on."""
        if self._process != os.getpid():  # first use, or a forked copy, which has none of its parent's locks
            path = Path(tempfile.gettempdir(), f"turnstile-testbed-ports-{os.getuid()}")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._process = os.getpid()
            self._numbers = set()
        if self._file is None or number in self._numbers:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        self._numbers.add(number)
        return True


_LENT = _Lent()


def lent_port() -> int:
    """A free TCP port of 127.0.0.1 for a program that does not share its port, such as Turnstile: nobody can hold it by
    a socket until that program listens. No other process that asks so is given it while this one runs."""
    for _ in range(1000):
        number = random.randrange(_LOWEST, _LOWEST + _LENDABLE)
        if _LENT.claim(number) and _is_free(number):
            return number
    raise TestbedError(f"of the ports from {_LOWEST} to {_LOWEST + _LENDABLE - 1} hardly any is free")


def _is_free(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what has closed a connection does not count
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True
