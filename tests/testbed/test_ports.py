"""Ports of two runs side by side."""

import socket
import subprocess
import sys
from pathlib import Path

from testbed.ports import ReservedPort, lent_port

_ROOT = Path(__file__).parents[2]
_OTHER = """
from testbed.ports import {name}
made = [{name}() for _ in range(600)]
print(*made, flush=True)
input()
"""


def _of_another_process(name: str) -> tuple["subprocess.Popen[str]", set[str]]:
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER.format(name=name)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    return other, set(other.stdout.readline().split())


def test_a_port_is_lent_to_one_process_at_a_time() -> None:
    """Also while nobody listens on it."""
    other, theirs = _of_another_process("lent_port")
    with other:
        ours = {str(lent_port()) for _ in range(600)}
        other.kill()
    assert len(theirs) == len(ours) == 600
    assert not ours & theirs


def test_a_port_is_reserved_by_one_process_at_a_time() -> None:
    """Although both would share it with who listens."""
    other, theirs = _of_another_process("ReservedPort")
    with other:
        reserved = [ReservedPort() for _ in range(600)]
        ours = {str(port) for port in reserved}
        for port in reserved:
            port.release()
        other.kill()
    assert len(theirs) == len(ours) == 600
    assert not ours & theirs


def test_a_lent_port_can_be_listened_on() -> None:
    """By a program that shares it with nobody."""
    with socket.create_server(("127.0.0.1", lent_port()), reuse_port=False) as server:
        assert server.fileno() > 0
