"""Sockets that detect a vanished peer, and connections that are dropped without a TLS shutdown."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from typing import Any

import aiohttp

_USER_TIMEOUT = 20_000  # milliseconds until the kernel gives up on unacknowledged bytes


@contextlib.contextmanager
def abandoned(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Abort the connection if the answer was not read to its end: a dead peer never answers a TLS shutdown."""
    try:
        yield
    finally:
        connection = response.connection  # None once all was read
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def watchful_socket(address: tuple[Any, ...] | Iterable[Any]) -> socket.socket:
    """A socket that detects a vanished peer soon: by default that takes hours without traffic, else minutes."""
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
