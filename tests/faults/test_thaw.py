"""A leader that was stopped and goes on: what it was about to write must not go out, however far it had come."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import Json
from tests.cluster.desk import Desk
from tests.cluster.test_executor import job
from tests.faults.halted_writer import SPAN
from tests.faults.proxy import Proxy
from turnstile.api.core import Job
from turnstile.api.errors import NotLeading, Suspended
from turnstile.controllers.runtime.actions import Create, Delete, Patch
from turnstile.controllers.runtime.executor import Executor
from turnstile.kube import auth
from turnstile.kube.fence import Fence
from turnstile.kube.transport import Transport

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]


@pytest.mark.asyncio
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_write_that_was_decided_before_the_stop_is_not_sent_after_it(
    schema_server: ControlPlane, loop: str
) -> None:
    """The process stops between the question to the fence and the write, and goes on when its term is over."""
    namespace = schema_server.namespace("thaw")
    schema_server.api.create(_manifest("train", namespace))
    async with Proxy(await auth.connect(str(schema_server.kubeconfig()))) as proxy:
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.halted_writer", proxy.access.server, namespace, "train", loop),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(30):
                while not _stopped(writer.pid):  # noqa: ASYNC110  nobody tells
                    await asyncio.sleep(0.01)
            await asyncio.sleep(SPAN)  # until its term is over
            writer.send_signal(signal.SIGCONT)
            async with asyncio.timeout(30):
                said, _ = await writer.communicate()
        finally:
            if writer.returncode is None:
                writer.kill()
                await writer.wait()
    assert [request.method for request in proxy.requests] == ["GET"]
    assert said.startswith(b"not written: ")


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Clock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The reading."""
        return self.now


class Gate:
    """A TCP peer in front of a server that takes connections and passes nothing on until it is opened."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self.opened = asyncio.Event()
        self.came = asyncio.Event()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on in both directions."""
        self.came.set()
        await self.opened.wait()
        there_reader, there_writer = await asyncio.open_connection(*self._upstream)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def gated(schema_server: ControlPlane) -> AsyncIterator[tuple[Gate, Transport]]:
    """A transport whose connections come about when the gate is opened."""
    access = await auth.connect(str(schema_server.kubeconfig()))
    host, _, port = access.server.removeprefix("https://").rpartition(":")
    gate = Gate((host, int(port)))
    server = await asyncio.start_server(gate.connected, "127.0.0.1", 0)
    try:
        through = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Transport(replace(access, server=through)) as transport:
            yield gate, transport
    finally:
        server.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("refusal", [Suspended, NotLeading])
async def test_a_write_that_gets_its_connection_too_late_is_not_sent(
    schema_server: ControlPlane, verb: str, refusal: type[Exception]
) -> None:
    """The fence is asked when there is a connection, not only when the write is decided; the error says so. While the
    term is suspended the write may be tried again, once it is over it may not."""
    namespace = schema_server.namespace("late")
    async with await Transport.connect(str(schema_server.kubeconfig())) as direct:
        desk = Desk(direct, namespace)
        train = await desk.create(Job, job("train"))
        action = {
            "POST": Create(Job, namespace, "second", json.dumps(_manifest("second", namespace)).encode()),
            "PATCH": Patch(Job, namespace, "train", b'{"metadata":{"labels":{"l":"late"}}}'),
            "DELETE": Delete(Job, namespace, "train", uid=train.metadata.uid),
        }[verb]
        async with gated(schema_server) as (gate, transport):
            clock = Clock()
            fence = Fence(clock=clock, epoch=1, renewed_at=0.0, span=60.0)
            desk.executor = Executor(transport, desk.stores, desk.notes, fence=fence)
            writing = asyncio.ensure_future(desk.carry_out(action))
            async with asyncio.timeout(10):
                await gate.came.wait()
            clock.now = 60.0
            if refusal is NotLeading:
                fence.close()
            gate.opened.set()
            with pytest.raises(refusal, match="nothing was sent"):
                async with asyncio.timeout(10):
                    await writing
            assert sum(transport.stats.requests.values()) == transport.stats.requests[verb, "withheld"] == 1
        there = await direct.list_all(Job, namespace)
    assert [(each.metadata.name, each.metadata.labels) for each in there] == [("train", train.metadata.labels)]


def _manifest(name: str, namespace: str) -> Json:
    made = job(name)
    made["metadata"]["namespace"] = namespace
    return {"apiVersion": "batch/v1", "kind": "Job", **made}
