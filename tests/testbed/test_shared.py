"""What fixtures of the session share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.shared import Shared


class Item:
    """A test with the fixtures that it uses."""

    def __init__(self, nodeid: str, *fixtures: str) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixtures
        made = SimpleNamespace(argnames=("pytestconfig", "shared"))
        self._fixtureinfo = SimpleNamespace(name2fixturedefs={name: [made] for name in fixtures})


class Session:
    """A session of tests."""

    def __init__(self, *items: Item, arguments: Sequence[str] | None = None) -> None:
        """`arguments` are those of pytest, for a process of pytest-xdist."""
        self.items = items
        self.config = SimpleNamespace() if arguments is None else SimpleNamespace(workerinput={"mainargv": arguments})


@contextmanager
def noted(events: list[str], name: str) -> Iterator[str]:
    """Notes its begin and its end."""
    events.append(f"{name} begins")
    yield name
    events.append(f"{name} ends")


def begun(*items: Item, arguments: Sequence[str] | None = None) -> tuple[Shared, list[str]]:
    """A session of these tests in which `server` and `store` were entered; what happened."""
    shared, events = Shared(), []
    shared.pytest_collection_finish(Session(*items, arguments=arguments))
    assert shared.enter("server", noted(events, "server")) == "server"
    shared.enter("store", noted(events, "store"))
    events.clear()
    return shared, events


def run(shared: Shared, item: Item) -> None:
    """Run a test."""
    around = shared.pytest_runtest_protocol(item)
    next(around)
    with pytest.raises(StopIteration):
        around.send(True)


def test_ends_with_the_last_test_that_uses_it() -> None:
    """And not before, whatever runs in between."""
    items = Item("a", "server"), Item("b"), Item("c", "server", "store"), Item("d", "store")
    shared, events = begun(*items)
    for item in items[:2]:
        run(shared, item)
    assert events == []
    run(shared, items[2])
    assert events == ["server ends"]
    run(shared, items[3])
    assert events == ["server ends", "store ends"]


def test_ends_with_the_session_where_tests_are_handed_out() -> None:
    """Another process may have the first test, and this process may get it after the last."""
    items = Item("a", "server"), Item("b", "server")
    shared, events = begun(*items, arguments=("pytest", "-n", "3", "--dist", "loadgroup"))
    run(shared, items[1])
    assert events == []
    shared.pytest_sessionfinish()
    assert "server ends" in events


def test_ends_with_the_last_test_where_each_process_does_all() -> None:
    """They keep their order."""
    items = Item("a", "server"), Item("b", "server")
    shared, events = begun(*items, arguments=("pytest", "-n", "5", "--dist", "each"))
    run(shared, items[1])
    assert events == ["server ends"]


def test_ends_with_a_session_that_is_cut_short() -> None:
    """The last test has not run; each ends once."""
    first, second = Item("a", "server", "store"), Item("b", "server")
    shared, events = begun(first, second)
    run(shared, first)
    shared.pytest_sessionfinish()
    shared.pytest_sessionfinish()
    assert events == ["store ends", "server ends"]


def test_modules_that_share_the_same_are_done_one_after_the_other() -> None:
    """In the order of the first of them, and each module as a whole."""
    tests = (
        ("a::1", "server"),
        ("a::2",),
        ("b::1", "store"),
        ("c::1",),
        ("d::1",),
        ("d::2", "server"),
        ("e::1", "store"),
    )
    items = [Item(*each) for each in tests]
    Shared().pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["a::1", "a::2", "d::1", "d::2", "b::1", "e::1", "c::1"]
