"""The status of a copy that is too long to be held is read from its worker when it is copied to the manager."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.worlds import decode
from turnstile.api.core import Job
from turnstile.api.errors import Conflict
from turnstile.controllers.multikueue.clusters import Clusters, Connection
from turnstile.controllers.multikueue.remotes import Remotes
from turnstile.controllers.multikueue.situation import LONGEST_STATUS, reduce
from turnstile.controllers.multikueue.workloads import Dispatching
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.runtime.executor import Executor
from turnstile.jobs.options import MultiKueueOptions
from turnstile.kube.auth import Access, Fixed
from turnstile.kube.fence import Fence, monotonic
from turnstile.kube.gate import Rank
from turnstile.kube.transport import Transport

META = {"name": "train", "namespace": "team", "uid": "there", "resourceVersion": "5"}
BY_NAME = b"fieldSelector=metadata.name%3Dtrain"
STATUS = {"active": 1, "failedIndexes": "1," * LONGEST_STATUS}
HERE = {"metadata": {"name": "train", "namespace": "team", "uid": "here", "resourceVersion": "3"}, "spec": {}}


def nobody(*_: object) -> Any:
    """No recorder: nothing is reported."""
    raise AssertionError("nothing is reported")


class Server:
    """An API server that has one Job, lets it be listed and patched, and remembers the bodies of the patches."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.patches: list[Any] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection with the Job."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while head := await reader.readline():
                length = 0
                while (header := await reader.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                if head.startswith(b"PATCH /apis/batch/v1/namespaces/team/jobs/train/status"):
                    self.patches.append(json.loads(await reader.readexactly(length)))
                listed = head.startswith(b"GET /apis/batch/v1/namespaces/team/jobs?") and BY_NAME in head
                body = json.dumps({"metadata": {}, "items": [self.job]} if listed else self.job).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Transport]:
    """A connection to a server."""
    async with await asyncio.start_server(server.answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        access = Access(server=f"http://127.0.0.1:{port}", tls=None, credentials=Fixed())
        async with Transport(access) as transport:
            yield transport


async def copied(worker: Server, manager: Server, status: dict[str, Any] = STATUS) -> None:
    """Copy the status that a watch has shown from a worker to the manager."""
    async with serving(worker) as there, serving(manager) as here:
        executor = Executor(here, {}, nobody, fence=Fence(clock=monotonic, epoch=1, renewed_at=monotonic(), span=60.0))
        clusters = Clusters(Cluster().world, executor, MultiKueueOptions(), controller=nobody)
        clusters.connections["east"] = connection = Connection("east", clusters)
        connection.transport = there
        work = Dispatching(Remotes(clusters.cluster, clusters))
        copy = decode(clusters.kinds[Job], {"metadata": META, "status": status})
        reduce(copy)
        patch = work._copying(decode(Job, HERE), copy, "east")
        assert isinstance(patch, Patch)
        await executor._patched(patch, Rank.STOP)
        assert work._copied == {"here": ("there", "5")}


@pytest.mark.asyncio
async def test_it_is_copied_whole() -> None:
    """On condition of the version of the job, as a short one."""
    worker, manager = Server({"metadata": META, "status": STATUS}), Server(HERE)
    await copied(worker, manager)
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": "3"}
    assert manager.patches == [[version, {"op": "add", "path": "/status", "value": STATUS}]]


@pytest.mark.asyncio
async def test_a_short_one_is_not_read_again() -> None:
    """The watch has shown it."""
    worker, manager = Server({}), Server(HERE)
    await copied(worker, manager, {"active": 1})
    assert manager.patches[0][1]["value"] == {"active": 1}


@pytest.mark.asyncio
async def test_that_of_another_object_is_not_copied() -> None:
    """The copy was deleted meanwhile, and a job of the worker has its name."""
    worker, manager = Server({"metadata": META | {"uid": "other"}, "status": STATUS}), Server(HERE)
    with pytest.raises(Conflict):
        await copied(worker, manager)
    assert manager.patches == []
