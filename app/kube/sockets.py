"""Connections that notice when nobody is at the other end any more."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from typing import Any

import aiohttp

_USER_TIMEOUT = 20_000  # milliseconds until the kernel gives up on bytes that nobody acknowledges


@contextlib.contextmanager
def abandoned(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Drop the connection if the answer is left before its end: a dead peer never answers a polite end of TLS."""
    try:
        yield
    finally:
        connection = response.connection  # none any more once all was read
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def watchful_socket(address: tuple[Any, ...] | Iterable[Any]) -> socket.socket:
    """A socket that notices a vanished peer: by default silence takes hours, lost bytes minutes."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT),
    ):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
