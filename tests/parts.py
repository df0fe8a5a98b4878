"""A whole run as five parts side by side: `pytest -n 5 --dist each`, as `make test` does it.

- The first part has the tests that use the session's control plane: most of what has to happen in time.
- The second has those that share a control plane of another kind.
- The third has the modules that start a control plane for themselves, and the tests of the test bed.
- The fourth has some modules of the first two, on other control planes, and the recorded cases.
- The fifth has the pure tests, which never wait: they use what the others leave of the processors.

All but the first stand back wherever the first wants a processor too. Tests of the first four mostly wait, so five
processes use two processors better than two do.
Each does its tests one at a time, in the order that they have without this. pytest-xdist sends every test to every
process that `--dist each` starts; what is not of a process's part is not collected, or deselected there.
"""

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FIRST, SECOND, THIRD, FOURTH, FIFTH = PARTS = tuple(
    f"parts-{name}" for name in ("first", "second", "third", "fourth", "fifth")
)
FOLDERS = {
    "tests/cluster/": (FIRST, SECOND, THIRD, FOURTH),
    "tests/conformance/": (FOURTH,),
    "tests/testbed/": (THIRD,),
    "tests/unit/": (FIFTH,),
}
"""Which parts have tests of a folder."""
ALONE = ("chart", "native_workloads", "preflight", "queued_policy", "uninstall", "unused_quota", "webhook_clients")
"""Modules of tests/cluster that start a control plane for themselves."""
MOVED = ("conversion", "default_queues", "in_use", "left_gates", "task_pages")
"""Modules of the first and the second part that are with the fourth, so that all parts take equally long."""
ELSEWHERE = {
    f"tests/cluster/test_{name}.py": part for part, names in ((THIRD, ALONE), (FOURTH, MOVED)) for name in names
}
STANDS_BACK = 5
"""How much nicer the other parts are, with all that they start: each has a quarter of a processor that the first wants
too."""


def pytest_configure(config: pytest.Config) -> None:
    """Share the run, or take the part that was given to this process."""
    given = getattr(config, "workerinput", {}).get("part")
    if given is not None:
        if given != FIRST:
            os.nice(STANDS_BACK)
        config.pluginmanager.register(Part(given), given)
    elif getattr(config.option, "dist", "") == "each" and config.option.numprocesses == len(PARTS):
        config.option.maxworkerrestart = "0"  # who came in the place of a part that crashed would not know which it was
        config.pluginmanager.register(Whole(), "parts")


class Part:
    """In the process of one part."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say how long this part took, and how much processor time, with all that it started and ended."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        processor = sum(each.ru_utime + each.ru_stime for each in used)
        took = f"{self._name}: {time.monotonic() - self._began:.0f} s, {processor:.0f} s of processor time"
        getattr(session.config, "workeroutput", {})["took"] = took

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Do not import the modules of folders that have no test of this part."""
        folder = f"{collection_path.relative_to(config.rootpath)}/"
        return None if self._name in FOLDERS.get(folder, PARTS) else True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is of this part; what is chosen by the command line is chosen already."""
        items[:] = [item for item in items if _part(item) == self._name]


def _part(item: pytest.Item) -> str:
    folder = "/".join(item.nodeid.split("/")[:2]) + "/"
    parts = FOLDERS.get(folder, PARTS)
    if len(parts) == 1:
        return parts[0]
    if (elsewhere := ELSEWHERE.get(item.nodeid.partition("::")[0])) is not None:
        return elsewhere
    return FIRST if "control_plane" in getattr(item, "fixturenames", ()) else SECOND


class Whole:
    """In the process that starts the parts and tells of them."""

    def __init__(self) -> None:
        self._session: pytest.Session | None = None
        self._nodes = 0
        self._collected: dict[str, int] = {}
        self._took: list[str] = []

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Before any is started."""
        self._session = session

    def pytest_configure_node(self, node: Any) -> None:
        """Say which part it is, in the order in which they are started."""
        node.workerinput["part"] = PARTS[self._nodes]
        self._nodes += 1

    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Count what each has."""
        self._collected[node.workerinput["part"]] = len(ids)

    def pytest_testnodedown(self, node: Any) -> None:
        """Hear how long a part took."""
        self._took += [node.workeroutput["took"]] if "took" in getattr(node, "workeroutput", {}) else []

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how long each took: they should end at the same time."""
        for took in sorted(self._took):
            terminalreporter.write_line(took)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        """Show progress in parts of the whole; pytest-xdist takes the number of one process for that of all."""
        if self._session is not None:
            self._session.testscollected = sum(self._collected.values())
