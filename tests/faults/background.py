"""A misbehaving proxy for a process under test: it runs in a thread of its own, and a kubeconfig leads to it."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.proxy import Proxy
from turnstile.kube import auth


@contextmanager
def background_proxy(kubeconfig: Path) -> Iterator[Proxy]:
    """A proxy that speaks to the server as the user of that kubeconfig. Plan faults before requests come."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> Proxy:
        return await Proxy(await auth.connect(str(kubeconfig))).__aenter__()

    proxy = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def kubeconfig_of(proxy: Proxy, directory: Path, *, token: str = "") -> Path:
    """A kubeconfig that leads to the proxy; with a token, as its owner where the proxy itself is nobody."""
    path = directory / "proxy.kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "proxy",
                "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
                "clusters": [{"name": "proxy", "cluster": {"server": proxy.access.server}}],
                "users": [{"name": "proxy", "user": {"token": token} if token else {}}],
            }
        )
    )
    return path
