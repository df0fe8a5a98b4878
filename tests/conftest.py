"""Fixtures for every test: the one control plane of the session, and what a test needs of it.

Nothing starts unless a test asks for it: `pytest tests/unit` needs neither Go nor a control plane.

A whole run is done in five parts side by side: parts.py.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import settings

from testbed import Api, ControlPlane, build
from tests.cluster.scenario import adding_nodes, empty
from tests.examples import examples

if TYPE_CHECKING:
    from tests.shared import Shared

pytest_plugins = [
    "tests.shared",
    "tests.cluster.schema_server",
    "tests.cluster.deployed",
    "tests.cluster.configured",
    "tests.cluster.page_served",
    "tests.postgres",
    "tests.turnstile",
    "tests.parts",
]

# Time is measured by the benches, never asserted. CI tries the same examples every time, people try others.
settings.register_profile("default", deadline=None, print_blob=True, max_examples=examples(40))
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
IN_CI = os.environ.get("CI") == "true"
settings.load_profile("ci" if IN_CI else "default")

_APART = ("attacks", "browser", "clusters", "faults", "image", "node", "operators", "peers", "submitters")
_KEPT = pytest.StashKey[Path]()


def pytest_configure() -> None:
    """Make the process like one started from a terminal, and say that there is no event loop.

    A runner without job control starts its commands with SIGINT ignored, and every program below would inherit that:
    none could be interrupted. looptime asks for a loop outside of any, and what it gets would never be closed.
    Programs written in Go collect garbage a quarter as often as by default: a control plane takes up to two gigabytes,
    and a quarter less processor time. An API server with the definitions of all operators has 900 MB in use: under a
    limit of one gigabyte it did little but collect garbage.
    Unless told otherwise structlog draws the locals of every frame of an exception that is logged, which holds up an
    event loop for a second.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio.set_event_loop(None)
    os.environ.setdefault("GOGC", "400")
    os.environ.setdefault("GOMEMLIMIT", "2GiB")
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has a target of its own unless it is asked for by path: the tests with real job operators and with
    Kueue, which take minutes to build, the attacks, the faults and the tests with several clusters, which take minutes,
    those of the image and of a real node, which need root, and those of the page, which need a browser."""
    if collection_path in {Path(__file__).with_name(name) for name in _APART}:
        asked = (Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args)
        return None if any(path.resolve().is_relative_to(collection_path) for path in asked) else True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that reaches the control plane, so that `-m "not cluster"` leaves them out.

    In CI such a test is tried a second time when it fails: half a dozen programs share two cores of a machine that
    others use too. The closing lines name each test that was tried again; it is a fault to be mended all the same.
    """
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
        if IN_CI and item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the bed before the first test, where a build of minutes is seen and no test's time limit runs.

    Garbage is collected seldom, and never among what was imported and collected: a tenth of the pure tests' time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    needed = any(item.get_closest_marker("cluster") for item in session.items)
    if needed and not session.config.option.collectonly:
        build.ensure()


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config, shared: "Shared") -> ControlPlane:
    """The control plane of the session. A test that kills or pauses a component brings it back before it ends."""
    return shared.enter("control_plane", _running(pytestconfig))


@contextmanager
def _running(config: pytest.Config) -> Iterator[ControlPlane]:
    with ControlPlane() as cp:
        yield cp
        directory = cp.directory
    if directory.exists():
        config.stash[_KEPT] = directory
        getattr(config, "workeroutput", {})["kept"] = str(directory)  # pytest-xdist's way to the other process


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from the process of a part where it left the control plane's logs."""
    if kept := getattr(node, "workeroutput", {}).get("kept"):
        node.config.stash[_KEPT] = Path(kept)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows which components do not run: the usual reason why nothing happened."""
    report = yield
    cp = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and cp is not None:
        report.sections += [(f"{name} does not run; the end of its log", tail) for name, tail in cp.ended().items()]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With TESTBED_KEEP=1 say where the logs of the components are."""
    if kept := config.stash.get(_KEPT, None):
        terminalreporter.write_line(f"control plane's logs and files kept in {kept}")


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    """A client with all rights."""
    return control_plane.api


@pytest.fixture
def add_node(control_plane: ControlPlane) -> Iterator[Callable[..., str]]:
    """`add_node("gpu-1", labels=...)` as ControlPlane.add_node, returning the name; the nodes go with the test."""
    with adding_nodes(control_plane) as add:
        yield add


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace; what runs there is deleted in the background after the test."""
    name = control_plane.namespace()
    yield name
    empty(control_plane.api, name)
