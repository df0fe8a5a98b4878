"""A whole run as two halves side by side: `pytest -n 2 --dist each`, as `make test` does it.

The first process has the tests that use the session's control plane: most of what has to happen in time. The second has
the tests with a control plane of their own, and stands back wherever both want a processor. Pure tests are with the
second, but for those of some folders, so that both halves take equally long.
Each does its tests one at a time, in the order that they have without this. pytest-xdist sends every test to every
process that `--dist each` starts; what is not of a process's half is deselected there.
"""

import os
from collections.abc import Sequence
from typing import Any

import pytest

FIRST, SECOND = "halves-first", "halves-second"
PURE_OF_FIRST = ("tests/conformance/", "tests/unit/engine/", "tests/unit/webhooks/")
STANDS_BACK = 5
"""How much nicer the second half is, with all that it starts: it has a quarter of a processor that both want."""


def pytest_configure(config: pytest.Config) -> None:
    """Share the run, or take the part that was given to this process."""
    given = getattr(config, "workerinput", {}).get("half")
    if given is not None:
        if given == SECOND:
            os.nice(STANDS_BACK)
        config.pluginmanager.register(Half(given), given)
    elif getattr(config.option, "dist", "") == "each" and config.option.numprocesses == 2:
        config.option.maxworkerrestart = "0"  # who came in the place of a half that crashed would not know which it was
        config.pluginmanager.register(Whole(), "halves")


class Half:
    """In the process of one half."""

    def __init__(self, name: str) -> None:
        self._name = name

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is of this half; what is chosen by the command line is chosen already."""
        items[:] = [item for item in items if _half(item) == self._name]


def _half(item: pytest.Item) -> str:
    first = "control_plane" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(PURE_OF_FIRST)
    return FIRST if first else SECOND


class Whole:
    """In the process that starts both halves and tells of them."""

    def __init__(self) -> None:
        self._session: pytest.Session | None = None
        self._nodes = 0
        self._collected: dict[str, int] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Before either is started."""
        self._session = session

    def pytest_configure_node(self, node: Any) -> None:
        """Say which half it is, in the order in which they are started."""
        node.workerinput["half"] = (FIRST, SECOND)[self._nodes]
        self._nodes += 1

    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Count what each has."""
        self._collected[node.workerinput["half"]] = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        """Show progress in parts of the whole; pytest-xdist takes the number of one process for that of all."""
        if self._session is not None:
            self._session.testscollected = sum(self._collected.values())
