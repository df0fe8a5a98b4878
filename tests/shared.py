"""What fixtures of the session share ends with the last test that uses it, not with the session.

A control plane takes up to a gigabyte of memory, and a few percent of a processor for nothing, so modules that share
the same fixtures are done one after the other. Where pytest-xdist hands out the tests in an order of its own, what they
share ends with the session.

A fixture of the session returns `shared.enter(its name, a context manager)` instead of a `yield` inside of that.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest

T = TypeVar("T")


class Shared:
    """Context managers by the names of the fixtures that entered them."""

    def __init__(self) -> None:
        self._open: dict[str, ExitStack] = {}
        self._last: dict[str, str] = {}

    def enter(self, fixture: str, made: AbstractContextManager[T]) -> T:
        """Enter it until the last test that uses this fixture has ended."""
        stack = self._open[fixture] = ExitStack()
        return stack.enter_context(made)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Bring together the modules that share the same fixtures; else all stay in their order."""
        of_module: dict[str, set[str]] = {}
        for item in items:
            of_module.setdefault(_module(item), set()).update(_shared_by(item))
        order = {frozenset(used): place for place, used in reversed(list(enumerate(of_module.values())))}
        items.sort(key=lambda item: order[frozenset(of_module[_module(item)])])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Look which test is the last to use each fixture, if tests are done in the order in which they stand here."""
        worker = getattr(session.config, "workerinput", None)
        if worker is None or "each" in worker["mainargv"]:  # `--dist each`: all tests in each process
            self._last = {name: item.nodeid for item in session.items for name in getattr(item, "fixturenames", ())}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Leave what no test uses any more, once this test has had all its attempts."""
        done = yield
        for name in [name for name in self._open if self._last.get(name) == item.nodeid]:
            self._open.pop(name).close()
        return done

    def pytest_sessionfinish(self) -> None:
        """Leave what a run that was cut short has not."""
        while self._open:
            self._open.popitem()[1].close()


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _shared_by(item: pytest.Item) -> set[str]:
    """The fixtures of a test that enter something here."""
    info = getattr(item, "_fixtureinfo", None)
    found = info.name2fixturedefs if info is not None else {}
    return {name for name, made in found.items() if "shared" in made[-1].argnames}


_PLUGIN = pytest.StashKey[Shared]()


def pytest_configure(config: pytest.Config) -> None:
    """Follow the tests."""
    config.stash[_PLUGIN] = Shared()
    config.pluginmanager.register(config.stash[_PLUGIN], "shared")


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> Shared:
    """Where fixtures of the session enter what ends with the last test that uses them."""
    return pytestconfig.stash[_PLUGIN]
