"""A streamed answer that is text, such as the log of a container, is passed on line by line."""

import asyncio
import contextlib

import pytest

from turnstile import AsyncClient, Submitted
from turnstile.kube.auth import Access, Fixed
from turnstile.kube.transport import Transport

PODS = b'{"items": [{"metadata": {"name": "train-x"}, "status": {"phase": "Running"}}]}'
LOG = b"epoch 1\n\nepoch 2\nno end of line"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An API server with one pod, and its log. As a real one, it takes a request for text alone for one that it cannot
    answer."""
    with contextlib.closing(writer):
        while (line := await reader.readline()) and (head := line) not in (b"\r\n", b""):
            status = b"200 OK"
            while (header := await reader.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"accept: text/"):
                    status = b"406 Not Acceptable"
            kind, body = (b"text/plain", LOG) if b"/log" in head else (b"application/json", PODS)
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body)) + body
            )
            await writer.drain()


@pytest.mark.asyncio
async def test_each_line_of_a_log_counts() -> None:
    """Empty ones too, and a last one that is not ended."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    job = Submitted(api_version="batch/v1", kind="Job", namespace="team-a", name="train", uid="1-2-3")
    async with server, Transport(Access(server=f"http://127.0.0.1:{port}", tls=None, credentials=Fixed())) as transport:
        client = AsyncClient.over(transport, namespace="team-a")
        lines = [line async for line in client.logs(job, follow=False)]
    assert lines == ["epoch 1", "", "epoch 2", "no end of line"]
