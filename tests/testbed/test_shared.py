"""What fixtures of the session share."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.shared import Shared


class Item:
    """A test with the fixtures that it uses."""

    def __init__(self, nodeid: str, *fixtures: str) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixtures


class Session:
    """A session of tests."""

    def __init__(self, *items: Item) -> None:
        self.items = items


@contextmanager
def noted(events: list[str], name: str) -> Iterator[str]:
    """Notes its begin and its end."""
    events.append(f"{name} begins")
    yield name
    events.append(f"{name} ends")


def begun(*items: Item) -> tuple[Shared, list[str]]:
    """A session of these tests in which `server` and `store` were entered; what happened."""
    shared, events = Shared(), []
    shared.pytest_collection_finish(Session(*items))
    assert shared.enter("server", noted(events, "server")) == "server"
    shared.enter("store", noted(events, "store"))
    events.clear()
    return shared, events


def test_ends_with_the_last_test_that_uses_it() -> None:
    """And not before, whatever runs in between."""
    shared, events = begun(Item("a", "server"), Item("b"), Item("c", "server", "store"), Item("d", "store"))
    for nodeid in ("a", "b"):
        shared.pytest_runtest_logfinish(nodeid)
    assert events == []
    shared.pytest_runtest_logfinish("c")
    assert events == ["server ends"]
    shared.pytest_runtest_logfinish("d")
    assert events == ["server ends", "store ends"]


def test_ends_with_a_session_that_is_cut_short() -> None:
    """The last test has not run; each ends once."""
    shared, events = begun(Item("a", "server", "store"), Item("b", "server"))
    shared.pytest_runtest_logfinish("a")
    shared.pytest_sessionfinish()
    shared.pytest_sessionfinish()
    assert events == ["store ends", "server ends"]
