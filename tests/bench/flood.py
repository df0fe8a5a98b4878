"""Honest reviews beside a flood: latency, failures and memory of the webhook server with 1,000 slow connections open.

200 reviews a second are sent as an API server sends them, most over connections that are kept and every tenth over a
new one. Beside them, 250 connections of each kind: half a TLS handshake; headers that come a byte a second; bodies of
which a byte comes each second; and bodies sent as fast as the server takes them, but for their last bytes. An attacker
whose connection is closed opens another one a second later, and asks `/convert` as often as for a review.
The floor, the same reviews without the flood, is measured in the same run, in interleaved rounds. The server has one
core, all clients share another. Run it: `python -m tests.bench.flood`; on a busy machine `chrt -r 5` before it gives
server and honest client, not the attackers, the CPU when they need it.
"""

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests.bench.webhook import PATH, SERVERS, body, wait_listening

RATE = 200
ATTACKERS = 1000
SECONDS = 20.0
SETTLE = 8.0
"""Seconds in which the attackers begin, before figures are taken."""
ROUNDS = 3
POOL = 16
LIMIT_MB = 512
"""The memory limit of the webhook in the chart's values."""
PROMISED = 3 * 1024 * 1024
"""Content length that attackers declare: the largest that is read."""


@dataclass(frozen=True, slots=True)
class Row:
    """One round: what the honest client saw, and the server's memory, CPU, connections and refused bodies."""

    what: str
    reviews: int
    failed: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    peak_mb: float
    cpu: float
    opened: int
    dropped: int
    refused: int

    def __str__(self) -> str:
        return (
            f"{self.what:<10}{self.reviews:>8}{self.failed:>8}{self.p50_ms:>9.2f}{self.p99_ms:>9.2f}{self.worst_ms:>9.2f}"
            f"{self.peak_mb:>9.0f}{self.cpu:>8.2f}{self.opened:>8}"
            f"{self.dropped:>9}{self.refused:>9}"
        )


_COLUMNS = (("reviews", 8), ("failed", 8), ("p50 ms", 9), ("p99 ms", 9), ("worst", 9), ("peak MB", 9), ("cores", 8))
_COLUMNS += (("open", 8), ("dropped", 9), ("refused", 9))
HEADER = f"{'round':<10}" + "".join(f"{name:>{width}}" for name, width in _COLUMNS)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _head(path: str, length: int) -> bytes:
    """Headers without the line that ends them."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n".encode()


# Honest reviews.


class Honest:
    """Sends reviews at a fixed rate, whether or not earlier ones were answered, and notes how long each took."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.context = _context()
        payload = body()
        self.asked = _head(PATH, len(payload)) + b"\r\n" + payload
        self.kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.waits: list[float] = []
        self.failures: list[str] = []

    async def run(self, seconds: float) -> None:
        """Send for so long, and wait for the last answers."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * RATE)):
                due = began + number / RATE
                if (wait := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                group.create_task(self._review(due, fresh=number % 10 == 0))

    async def _review(self, due: float, *, fresh: bool) -> None:
        try:
            async with asyncio.timeout(5):
                if fresh or not self.kept:
                    connection = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
                else:
                    connection = self.kept.pop()
                reader, writer = connection
                writer.write(self.asked)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", answer)
                await reader.readexactly(int(length[1]) if length else 0)
            if b" 200 " not in answer[:16]:
                self.failures.append(answer[:20].decode())
        except (OSError, asyncio.IncompleteReadError) as error:
            self.failures.append(repr(error))
            return
        self.waits.append((time.perf_counter() - due) * 1000)
        if len(self.kept) < POOL:
            self.kept.append(connection)
        else:
            writer.transport.abort()


async def run_honest(port: int, seconds: float) -> None:
    """Print what was seen."""
    honest = Honest(port)
    await honest.run(1.0)  # warm up
    honest.waits.clear()
    await honest.run(seconds)
    cuts = statistics.quantiles(honest.waits, n=100)
    for failure in honest.failures[:3]:
        print(failure, file=sys.stderr)
    print(
        f"n={len(honest.waits)} p50={cuts[49]:.3f} p99={cuts[98]:.3f} worst={max(honest.waits):.3f} "
        f"failed={len(honest.failures)}"
    )


# Attackers.

Attack = Callable[[int], Coroutine[None, None, None]]
_CONTEXT = _context()


async def _half_handshake(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes.fromhex("160301020001000200fc0303") + random.randbytes(64))
    with contextlib.closing(writer):
        await reader.read()


async def _drip(port: int, head: bytes, piece: bytes, pause: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_CONTEXT)
    ended = asyncio.ensure_future(reader.read())
    try:
        writer.write(head)
        while not ended.done():
            writer.write(piece)
            await asyncio.wait({ended}, timeout=pause)
    finally:
        ended.cancel()
        writer.transport.abort()


def _promise() -> bytes:
    return _head(random.choice((PATH, "/convert")), PROMISED)


async def _slow_head(port: int) -> None:
    await _drip(port, _promise(), b"x", 1.0)


async def _slow_body(port: int) -> None:
    await _drip(port, _promise() + b"\r\n", b" ", 1.0)


async def _endless_body(port: int) -> None:
    await _drip(port, _promise() + b"\r\n" + b" " * (PROMISED - 100), b" ", 1.0)


ATTACKS: tuple[Attack, ...] = (_half_handshake, _slow_head, _slow_body, _endless_body)


async def run_attackers(port: int, count: int) -> None:
    """Attack until SIGTERM."""

    begun = 0

    async def keep_on(attack: Attack) -> None:
        nonlocal begun
        await asyncio.sleep(random.random() * SETTLE)
        begun += 1
        if begun == count:
            print("begun", flush=True)
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await attack(port)
            await asyncio.sleep(1)

    tasks = [asyncio.ensure_future(keep_on(ATTACKS[number % len(ATTACKS)])) for number in range(count)]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# The bench.


def _command(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)]


def _pinned(core: int, *, behind: bool = False) -> Callable[[], None]:
    """To be run in a child: keep to a core; `behind` all others there, with no real-time priority of ours."""

    def pin() -> None:
        os.sched_setaffinity(0, {core})
        if behind:
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.nice(10)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    return pin


@contextmanager
def _server(core: int) -> Iterator[tuple[int, int]]:
    """A fresh server: its port and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = _command("webhook", "serve", SERVERS[0], port)
    process = subprocess.Popen(command, preexec_fn=_pinned(core))
    try:
        wait_listening(process, port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def _attackers(port: int, count: int, core: int) -> Iterator[None]:
    if not count:
        yield
        return
    # Elsewhere attackers have a machine of their own: here they must not take CPU from the honest client.
    pinned = _pinned(core, behind=True)
    process = subprocess.Popen(
        _command("flood", "attack", port, count), preexec_fn=pinned, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        process.stdout.readline()  # type: ignore[union-attr]
        time.sleep(2)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _status(pid: int, field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _metric(port: int, name: str) -> int:
    """The sum of a metric over its labels."""
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=_CONTEXT, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.split("{")[0] == name))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_round(count: int, seconds: float) -> Row:
    """One server with so many attackers."""
    cores = sorted(os.sched_getaffinity(0))
    with _server(cores[0]) as (port, pid), _attackers(port, count, cores[-1]):
        used, began = _cpu_seconds(pid), time.monotonic()
        command = _command("flood", "honest", port, seconds)
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=_pinned(cores[-1]))
        cpu = (_cpu_seconds(pid) - used) / (time.monotonic() - began)
        print(done.stderr, end="", file=sys.stderr)
        seen = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout.splitlines()[-1])}
        return Row(
            what="flood" if count else "floor",
            reviews=int(seen["n"]),
            failed=int(seen["failed"]),
            p50_ms=seen["p50"],
            p99_ms=seen["p99"],
            worst_ms=seen["worst"],
            peak_mb=_status(pid, "VmHWM"),
            cpu=cpu,
            opened=_metric(port, "turnstile_webhook_connections"),
            dropped=_metric(port, "turnstile_webhook_connections_dropped_total"),
            refused=_metric(port, "turnstile_webhook_bodies_refused_total"),
        )


def main(*, rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Row]:
    """Measure and print; returns the rows."""
    print(f"{RATE} reviews of {len(body())} bytes a second, one core for the server, one for all clients")
    print(HEADER)
    rows = []
    for _ in range(rounds):
        for count in (0, ATTACKERS):
            rows.append(one_round(count, seconds))
            print(rows[-1], flush=True)
    middle = statistics.median
    floor, flood = ([row for row in rows if row.what == what] for what in ("floor", "flood"))
    ratio = middle(row.p99_ms for row in flood) / middle(row.p99_ms for row in floor)
    print(
        f"failed: {sum(row.failed for row in flood)} (target 0); p99 {ratio:.2f} times the floor's (target 2); "
        f"memory {max(row.peak_mb for row in flood):.0f} MB (limit {LIMIT_MB})"
    )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("arguments", nargs="*")
    chosen = parser.parse_args()
    match chosen.arguments:
        case ["honest", port, seconds]:
            uvloop.run(run_honest(int(port), float(seconds)))
        case ["attack", port, count]:
            uvloop.run(run_attackers(int(port), int(count)))
        case _:
            main(rounds=chosen.rounds, seconds=chosen.seconds)
