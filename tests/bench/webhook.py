"""Reviews a second, latency and CPU of the webhook server alone, beside a bare Starlette route on the same server.

Both answer the same 5 KB Job review over TLS with the same handler, server settings and certificate; each is pinned to
one core and driven from another by wrk (by a plain asyncio client where wrk is missing), in interleaved rounds. Run it:
`python -m tests.bench.webhook`. Figures are medians of rounds. What other processes used meanwhile stands beside them:
above a few hundredths of a core the tail latencies are theirs, while CPU a review stays ours.
"""

import argparse
import asyncio
import datetime as dt
import json
import os
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from turnstile.advice.offer import Offer
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine import Options
from turnstile.http.certificates import make_ca, make_leaf
from turnstile.http.connections import Connections
from turnstile.http.health import Health
from turnstile.http.server import serve
from turnstile.http.tls import ServingCertificate
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.process.memory import map_large_blocks
from turnstile.webhooks import review
from turnstile.webhooks.application import create_app
from turnstile.webhooks.routes import routes

PATH = "/mutate-batch-v1-job"
CONNECTIONS = (8, 200)
ROUNDS = 5
SECONDS = 2.0
SERVERS = ("turnstile", "bare starlette")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one server at one number of connections; `others` is cores used by other processes meanwhile."""

    server: str
    connections: int
    reviews_per_second: float
    p50_ms: float
    p99_ms: float
    best_p99_ms: float
    cpu_ms: float
    others: float
    failed: int

    def __str__(self) -> str:
        return (
            f"{self.server:<16}{self.connections:>5}{self.reviews_per_second:>9.0f}/s{self.p50_ms:>9.2f}{self.p99_ms:>9.2f}"
            f"{self.best_p99_ms:>9.2f}{self.cpu_ms:>9.3f}{self.others:>8.2f}{self.failed:>8}"
        )


_COLUMNS = (("conns", 5), ("reviews", 11), ("p50 ms", 9), ("p99 ms", 9), ("best p99", 9), ("CPU ms", 9), ("others", 8))
HEADER = f"{'server':<16}" + "".join(f"{name:>{width}}" for name, width in (*_COLUMNS, ("failed", 8)))


class World:
    """A cluster where the Job of the review is managed and no default is looked up."""

    options = JobOptions()
    registry = Registry()

    def __init__(self, offer: Offer | None = None) -> None:
        self.offer = offer

    def default_local_queue(self, namespace: str) -> bool:
        """One, in every namespace."""
        return bool(namespace)

    def sends_away(self, namespace: str, queue: str) -> bool:
        """None."""
        return False

    def default_priority_class(self) -> bool:
        """None."""
        return False

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        """Managed."""
        return {"kubernetes.io/metadata.name": namespace}

    def find(self, kind: type[Kind], key: str) -> None:
        """No owner."""


def body() -> bytes:
    """The review of a new Job of about 5 KB: two containers, managed fields, labels and annotations."""
    container = {
        "image": "registry.example/team/train:v1",
        "args": ["--epochs=10", "--batch=64", "--data=/data"],
        "env": [{"name": f"SETTING_{n}", "value": "v" * 24} for n in range(14)],
        "resources": {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
    }
    written: dict[str, object] = {f"f:field{n}": {"f:inner": {}, "f:other": {}} for n in range(50)}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "uid": "0e1d4f2a-6393-11e8-b7cc-42010a800002",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"kueue.x-k8s.io/queue-name": "main", "app": "train"},
            "annotations": {"description": "d" * 200},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": written}],
        },
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "backoffLimit": 6,
            "template": {
                "metadata": {"labels": {"app": "train"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": name, **container} for name in ("train", "log")],
                },
            },
        },
        "status": {},
    }
    kind = {"group": "batch", "version": "v1", "kind": "Job"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "requestKind": kind,
        "name": "train",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": job,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(whole, separators=(",", ":")).encode()


QUEUES = 1000
"""ClusterQueues of one cohort, in `judged`."""


def quota(name: str, cpu: int) -> ClusterQueue:
    """A ClusterQueue with two flavors."""
    flavors = [
        {"name": each, "resources": [{"name": item, "nominalQuota": str(cpu)} for item in ("cpu", "memory")]}
        for each in ("on-demand", "spot")
    ]
    group = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
    spec = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": [group]}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ClusterQueue)


def judged(turns: int = 2000) -> dict[str, float]:
    """CPU of a review alone in ms, medians: without quotas, with a warning, and with a warning right after a change of
    one quota among those of a cohort; and what that change itself costs."""
    offer = Offer(Options())
    for flavor in ("on-demand", "spot"):
        offer.put(msgspec.convert({"metadata": {"name": flavor}}, ResourceFlavor))
    for number in range(QUEUES):
        offer.put(quota(f"q{number}", 0))
    local = {"metadata": {"name": "main", "namespace": "team-a"}, "spec": {"clusterQueue": "q0"}}
    offer.put(msgspec.convert(local, LocalQueue))
    asked = review.read(body())
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object]) -> object:
        began = time.process_time_ns()
        result = work()
        times.setdefault(name, []).append((time.process_time_ns() - began) / 1e6)
        return result

    plain, warned = routes(World())[PATH], routes(World(offer))[PATH]
    for turn in range(turns):
        timed("without quotas", lambda: plain(asked))
        answer = timed("with a warning", lambda: warned(asked))
        assert isinstance(answer, review.Answer)
        assert answer.warnings
        changed = quota(f"q{turn % QUEUES}", turn % 2)
        timed("a change of a quota", lambda changed=changed: offer.put(changed))
        timed("after the change", lambda: warned(asked))
    return {name: statistics.median(each) for name, each in times.items()}


def bare_starlette() -> ASGIApp:
    """The same review behind one Starlette route, without limits, metrics or checks."""
    handler = routes(World())[PATH]

    async def answer(request: Request) -> Response:
        asked = review.read(await request.body())
        return Response(review.write(asked.uid, handler(asked)), media_type="application/json")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


async def run_server(which: str, port: int) -> None:
    """Serve until SIGTERM."""
    now = dt.datetime.now(dt.UTC)
    leaf = make_leaf(make_ca(now), now, ["localhost"])
    key = leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = ServingCertificate()
    certificate.load(leaf.certificate.public_bytes(Encoding.PEM), key)
    health = Health(certificate=certificate)
    connections = Connections()
    ours = create_app(routes(World()), health=health, registry=CollectorRegistry(), connections=connections)
    map_large_blocks()  # as `turnstile serve` does
    app = ours if which == SERVERS[0] else bare_starlette()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    options = {"health": health, "stop": stop, "connections": connections, "drain_seconds": 0, "grace_seconds": 1}
    await serve(app, host="127.0.0.1", port=port, **options)  # type: ignore[arg-type]


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.bench.webhook", *map(str, arguments)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a process accepts connections. Raises OSError if it ended, or after 20 s."""
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@contextmanager
def _servers(core: int) -> Iterator[dict[str, tuple[int, int]]]:
    """Every server, up and pinned to one core: its port and process id."""
    running: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
    try:
        for which in SERVERS:
            port = _free_port()
            running[which] = (subprocess.Popen(_command("serve", which, port)), port)
        for process, port in running.values():
            os.sched_setaffinity(process.pid, {core})
            wait_listening(process, port)
        yield {which: (port, process.pid) for which, (process, port) in running.items()}
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.wait(10)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _machine_seconds() -> float:
    """CPU seconds that the whole machine has been busy."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICK


_LUA = """
local f = io.open("%s", "rb"); wrk.body = f:read("*a"); f:close()
wrk.method = "POST"; wrk.headers["Content-Type"] = "application/json"
done = function(s, l, r) io.write(string.format("n=%%d us=%%d p50=%%f p99=%%f failed=%%d\\n",
  s.requests, s.duration, l:percentile(50) / 1000, l:percentile(99) / 1000,
  s.errors.status + s.errors.connect + s.errors.read + s.errors.timeout)) end
"""


def client_files(directory: Path) -> Path:
    """Write what the client sends into a directory, and return it."""
    (directory / "body.json").write_bytes(body())
    (directory / "post.lua").write_text(_LUA % (directory / "body.json"))
    return directory


def drive(port: int, connections: int, core: int, files: Path) -> tuple[dict[str, float], float]:
    """One round of one server: what the client saw, and the CPU seconds that the client took."""
    url = f"https://127.0.0.1:{port}{PATH}"
    if wrk := shutil.which("wrk"):
        command = [wrk, "-t1", f"-c{connections}", f"-d{SECONDS:g}s", "-s", str(files / "post.lua"), url]
    else:
        command = _command("drive", port, connections)
    before = os.times()
    pinned = {"preexec_fn": lambda: os.sched_setaffinity(0, {core})}
    done = subprocess.run(command, capture_output=True, text=True, check=True, **pinned)  # type: ignore[call-overload]
    after = os.times()
    seen = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout.splitlines()[-1])}
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return seen, used


async def run_client(port: int, connections: int) -> None:
    """The client for machines without wrk; prints what the Lua script prints."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    payload = body()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    asked = head.encode() + payload
    waits: list[float] = []
    failed = 0
    end = time.perf_counter() + SECONDS

    async def converse() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        while (began := time.perf_counter()) < end:
            writer.write(asked)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", answer)
            await reader.readexactly(int(length[1]) if length else 0)
            waits.append((time.perf_counter() - began) * 1000)
            failed += b" 200 " not in answer[:16]
        writer.transport.abort()

    await asyncio.gather(*(converse() for _ in range(connections)))
    cuts = statistics.quantiles(waits, n=100)
    print(f"n={len(waits)} us={SECONDS * 1e6:.0f} p50={cuts[49]:.3f} p99={cuts[98]:.3f} failed={failed}")


def measure(rounds: int = ROUNDS) -> list[Row]:
    """Rows of every server and number of connections, from interleaved rounds."""
    cores = sorted(os.sched_getaffinity(0))
    found: dict[tuple[str, int], list[tuple[float, float, float, float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as directory, _servers(cores[0]) as servers:
        files = client_files(Path(directory))
        for turn in range(rounds + 1):  # the first warms up
            for connections in CONNECTIONS:
                for which, (port, pid) in servers.items():
                    used, machine, began = _cpu_seconds(pid), _machine_seconds(), time.monotonic()
                    seen, driver = drive(port, connections, cores[-1], files)
                    used = _cpu_seconds(pid) - used
                    others = (_machine_seconds() - machine - used - driver) / (time.monotonic() - began)
                    figures = (
                        seen["n"] / seen["us"] * 1e6,
                        seen["p50"],
                        seen["p99"],
                        used / max(seen["n"], 1) * 1000,
                        max(others, 0.0),
                        seen["failed"],
                    )
                    if turn:
                        found.setdefault((which, connections), []).append(figures)
    rows = []
    for (which, connections), samples in found.items():
        rate, p50, p99, cpu, elsewhere, failed = zip(*samples, strict=True)
        middle = statistics.median
        rows.append(
            Row(
                server=which,
                connections=connections,
                reviews_per_second=middle(rate),
                p50_ms=middle(p50),
                p99_ms=middle(p99),
                best_p99_ms=min(p99),
                cpu_ms=middle(cpu),
                others=middle(elsewhere),
                failed=int(sum(failed)),
            )
        )
    return rows


def main() -> list[Row]:
    """Measure and print; returns the rows."""
    rows = measure()
    print(f"review of {len(body())} bytes over TLS, one core for the server, one for the client")
    print(HEADER)
    for row in rows:
        print(row)
    figures = ", ".join(f"{name} {ms:.3f}" for name, ms in judged().items())
    print(f"CPU ms of the handler alone, {QUEUES} ClusterQueues of one cohort: {figures}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("arguments", nargs="*")
    match parser.parse_args().arguments:
        case ["serve", which, port]:
            uvloop.run(run_server(which, int(port)))
        case ["drive", port, connections]:
            uvloop.run(run_client(int(port), int(connections)))
        case ["judged"]:
            print(judged())
        case _:
            main()
