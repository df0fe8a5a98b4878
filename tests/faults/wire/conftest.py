"""A real API server with nothing behind it, and a misbehaving proxy before it for each test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.faults.proxy import Proxy
from tests.faults.wire.world import new_namespace
from turnstile.kube import auth
from turnstile.kube.transport import Transport


@pytest.fixture
def api_server(schema_server: ControlPlane) -> ControlPlane:
    """A real API server with nothing behind it."""
    return schema_server


@pytest_asyncio.fixture
async def direct(api_server: ControlPlane) -> AsyncIterator[Transport]:
    """A transport straight to the server."""
    async with await Transport.connect(str(api_server.kubeconfig())) as transport:
        yield transport


@pytest_asyncio.fixture
async def proxy(api_server: ControlPlane) -> AsyncIterator[Proxy]:
    """The proxy, well-behaved until told otherwise."""
    async with Proxy(await auth.connect(str(api_server.kubeconfig()))) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def through(proxy: Proxy) -> AsyncIterator[Transport]:
    """A transport through the proxy."""
    async with Transport(proxy.access, timeout=5.0) as transport:
        yield transport


@pytest_asyncio.fixture
async def namespace(direct: Transport) -> str:
    """A namespace of the test's own."""
    return await new_namespace(direct)
