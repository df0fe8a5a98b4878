"""What kube-proxy does for the webhooks' Service: each connection of the API server goes to a ready pod.

The API server is told to reach every Service through an HTTP proxy (`HTTPS_PROXY`), which is this one. So it calls a
Service by its DNS name (that of an aggregated API by its ClusterIP) and checks the certificate for that name, and
no address of a Service has to be routed. Knows nothing of what is sent.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.client import Api, resource_path
from testbed.kubelet import REFUSED, loopback
from testbed.ports import ReservedPort

LOOK_SECONDS = 0.2
"""How long a change of endpoints may be unknown, as to kube-proxy."""


class ServiceProxy:
    """Made before the control plane, whose `environment` it gives; `with proxy.running(api):` when the API answers."""

    def __init__(self) -> None:
        self._port = ReservedPort()
        self._over = threading.Event()
        self._endpoints: dict[str, list[tuple[str, int]]] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the API server. Go calls loopback addresses without a proxy."""
        return {"HTTPS_PROXY": f"http://127.0.0.1:{self._port}"}

    @contextmanager
    def running(self, api: Api, *, namespace: str) -> Iterator[None]:
        """Connect to the Services of a namespace for as long as the block lasts."""
        threads = [
            threading.Thread(target=self._follow, args=(api, namespace), daemon=True),
            threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(10)
            self._port.release()

    def _follow(self, api: Api, namespace: str) -> None:
        path = resource_path("discovery.k8s.io/v1", "endpointslices", namespace=namespace)
        while not self._over.wait(LOOK_SECONDS):
            try:
                slices = api.items(path)
                services = api.items(resource_path("v1", "services", namespace=namespace))
            except REFUSED:
                continue
            found: dict[str, list[tuple[str, int]]] = {}
            for each in slices:
                service = each["metadata"]["labels"]["kubernetes.io/service-name"]
                ports = [port["port"] for port in each.get("ports") or ()]
                ready = (one for one in each.get("endpoints") or () if one["conditions"].get("ready"))
                found.setdefault(service, []).extend(
                    (loopback(one["addresses"][0]), port) for one in ready for port in ports[:1]
                )
            by_address = {each["spec"].get("clusterIP"): found.get(each["metadata"]["name"], []) for each in services}
            self._endpoints = {f"{name}.{namespace}.svc": ways for name, ways in found.items()} | by_address

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self._port.number, reuse_port=True)
        async with server:
            await asyncio.to_thread(self._over.wait)
        for writer in self._open:
            writer.transport.abort()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            host = head.split()[1].decode().partition(":")[0]
            endpoints = self._endpoints.get(host, [])
            try:
                address, port = random.choice(endpoints)
                upstream = await asyncio.open_connection(address, port)
            except (IndexError, OSError):
                writer.write(b"HTTP/1.1 503 No Endpoints\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
            else:
                self._open.add(upstream[1])
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                await asyncio.gather(_pipe(reader, upstream[1]), _pipe(upstream[0], writer))
                self._open.discard(upstream[1])
        writer.close()
        self._open.discard(writer)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
