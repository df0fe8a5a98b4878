"""A page that is served in this process, and Chromium to look at it.

The tests need Debian's `chromium` and the dependency group `browser`; without them they are skipped, and say so.
"""

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from tests.browser import demo, recorded
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.engine import Options
from turnstile.insight import documents
from turnstile.kube.lease import Lease, LeaseSpec
from turnstile.kube.store import Store
from turnstile.process.aside import Aside
from turnstile.process.sources import Dumped
from turnstile.recorder.location import Location
from turnstile.web.server import PageServer

T = TypeVar("T")

CHROMIUM = shutil.which("chromium") or ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip everything here without a browser."""
    reason = "" if CHROMIUM else "chromium is not installed: apt-get install chromium"
    try:
        import axe_playwright_python  # noqa: F401
    except ImportError:
        reason = "playwright is not installed: make test-browser installs it"
    if reason:
        for item in items:
            if "tests/browser" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass
class Served:
    """A page over a world that a test changes."""

    source: Dumped
    address: str = ""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def do(self, change: Callable[[], T]) -> T:
        """Run something in the event loop of the server."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(change())
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(timeout=30)

    def put(self, plain: demo.Json) -> None:
        """An object exists, or changed."""
        plain["metadata"]["resourceVersion"] = str(int(plain["metadata"].get("resourceVersion", "1")) + 1)
        for kind, objects in documents.parse(demo.as_list([plain]), "test").snapshot.objects.items():
            for each in objects.values():
                self.do(lambda kind=kind, each=each: self.source.stores[kind].observe(each))

    def drop(self, kind: type[Kind], key: str) -> None:
        """An object is gone."""
        self.do(lambda: self.source.stores[kind].delete(key))


def serve(
    objects: list[demo.Json], *, alive: bool = True, token: str = "", recorder: Location | None = None
) -> Iterator[Served]:
    """A page over these objects, until the generator is closed."""
    served = Served(Dumped(documents.parse(demo.as_list(objects), "test").snapshot))
    served.source.leases = Store()
    served.source.leases.observe(
        Lease(
            metadata=ObjectMeta(name="turnstile-controller", namespace="turnstile-system", resource_version="1"),
            spec=LeaseSpec(
                holder_identity="turnstile-controller-6c9f7b7d4-x2lqv",
                lease_duration_seconds=15,
                acquire_time=demo.at(60 * 26),
                lease_transitions=4,
            ),
        )
    )
    ready = threading.Event()

    def listening(host: str, port: int) -> None:
        served.address = f"http://{host}:{port}"
        ready.set()

    async def run() -> None:
        page = PageServer(
            served.source,
            Options(),
            lambda: datetime.now(UTC),
            Aside(),
            where="a cluster of this test",
            alive=alive,
            token=token,
            lease="turnstile-system/turnstile-controller",
            recorder=recorder,
        )
        await page.run("127.0.0.1", 0, stop=served.stop, on_listening=listening)

    thread = threading.Thread(target=served.loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield served
    finally:
        served.do(served.stop.set)
        thread.join(30)
        served.loop.close()


@pytest.fixture
def changing() -> Iterator[Served]:
    """The small world, which a test may change."""
    yield from serve(demo.world())


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The small world, which no test changes, and what the flight recorder has kept of it."""
    yield from serve(demo.world(), recorder=recorded.write(tmp_path_factory.mktemp("recorder")))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A tab. A test fails if anything that its pages ask for is refused or fails, or if their script does."""
    context = chromium.new_context(viewport={"width": 1280, "height": 850})
    context.set_default_timeout(30_000)
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda message: complaints.append(message.text) if _is_fault(message) else None)
    yield tab
    context.close()
    assert complaints == []


def _is_fault(message: Any) -> bool:
    """A form that was filled in wrongly is answered with 400, which Chromium reports."""
    return message.type == "error" and "status of 400" not in message.text
