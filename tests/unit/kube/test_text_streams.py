"""The log of a container, a streamed answer that is text, is passed on line by line."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import orjson
import pytest

from turnstile import AsyncClient, Submitted
from turnstile.cli.run import _followed
from turnstile.client import logs
from turnstile.kube.auth import Access, Fixed
from turnstile.kube.transport import Transport

JOB = Submitted(api_version="batch/v1", kind="Job", namespace="team-a", name="train", uid="1-2-3")
LOG = b"epoch 1\n\nepoch 2\nno end of line"
ENDED = {"conditions": [{"type": "Complete", "status": "True"}]}


@contextlib.asynccontextmanager
async def connected(log: bytes, *, status: object = ENDED, ends: bool = True) -> AsyncIterator[AsyncClient]:
    """A client of an API server with a Job of this status, whose pod runs, and the log of that pod; without `ends` its
    node is lost, so that the log has no end. As a real one, the server takes a request for text alone for one that it
    cannot answer."""
    answers: dict[bytes, object] = {
        b"/pods?": {"items": [{"metadata": {"name": "train-x"}, "status": {"phase": "Running"}}]},
        b"/workloads?": {"metadata": {"resourceVersion": "1"}, "items": []},
        b"/jobs/train ": {"kind": "Job", "metadata": {"name": "train", "uid": JOB.uid}, "spec": {}, "status": status},
        b"/apis/batch/v1 ": {"resources": [{"name": "jobs", "kind": "Job"}]},
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while (line := await reader.readline()) and (head := line) not in (b"\r\n", b""):
                code = b"200 OK"
                while (header := await reader.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"accept: text/"):
                        code = b"406 Not Acceptable"
                if b"/log" in head:
                    length = len(log) if ends else len(log) + 1
                    writer.write(b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\n" % code)
                    writer.write(b"Content-Length: %d\r\n\r\n" % length + log)
                else:
                    body = orjson.dumps(next(found for part, found in answers.items() if part in head))
                    writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n" % code)
                    writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    access = Access(server=f"http://127.0.0.1:{port}", tls=None, credentials=Fixed())
    async with server, Transport(access) as transport:
        yield AsyncClient.over(transport, namespace="team-a")


@pytest.mark.asyncio
async def test_each_line_of_a_log_counts() -> None:
    """Empty ones too, and a last one that is not ended."""
    async with connected(LOG) as client:
        lines = [line async for line in client.logs(JOB, follow=False)]
    assert lines == ["epoch 1", "", "epoch 2", "no end of line"]


@pytest.mark.asyncio
async def test_a_line_is_as_long_as_it_likes() -> None:
    """Also longer than any line of a watch may be."""
    long = "x" * (9 << 20)
    async with connected(f"{long}\nepoch 2\n".encode()) as client:
        lines = [line async for line in client.logs(JOB, follow=False)]
    assert [len(line) for line in lines] == [len(long), len("epoch 2")]


@pytest.mark.asyncio
async def test_a_log_without_an_end_ends_with_its_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node of the pod was lost: nothing closes the stream."""
    monkeypatch.setattr(logs, "_QUIET_SECONDS", 0.02)
    async with connected(LOG, ends=False) as client, asyncio.timeout(5):
        assert await _followed(client, JOB, nowhere_else) == 0
    assert capsys.readouterr().out.splitlines() == LOG.decode().splitlines()


@pytest.mark.asyncio
async def test_a_quiet_log_goes_on_while_its_job_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was asked whether the pod still runs."""
    monkeypatch.setattr(logs, "_QUIET_SECONDS", 0.01)
    asked = asyncio.Event()
    async with connected(LOG, status={"active": 1}, ends=False) as client, asyncio.timeout(5):
        times, standing = 0, client.standing

        async def counted(job: Submitted) -> object:
            nonlocal times
            times += 1
            if times > 3:
                asked.set()
            return await standing(job)

        monkeypatch.setattr(client, "standing", counted)
        following = asyncio.ensure_future(_all(client))
        await asked.wait()
        assert not following.done()
        following.cancel()
        await asyncio.wait({following})


async def nowhere_else(_: object) -> None:
    """The job runs here."""


async def _all(client: AsyncClient) -> list[str]:
    return [line async for line in client.logs(JOB)]
