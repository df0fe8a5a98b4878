"""`kubectl turnstile top` against a real API server: live at a terminal, a table elsewhere."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import ControlPlane
from tests.cluster.queue_commands import conditions, plugin, with_status
from tests.cluster.schema_server import thing

pytestmark = pytest.mark.cluster

PLUGIN = Path(sys.executable).with_name("kubectl-turnstile")


@pytest.fixture(scope="module")
def queue(schema_server: ControlPlane) -> str:
    """A ClusterQueue of a cohort, all of whose quota is used."""
    name = "top-full"
    resources = [{"name": "cpu", "nominalQuota": "4"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "plain", "resources": resources}]}]
    usage = [{"name": "plain", "resources": [{"name": "cpu", "total": "4", "borrowed": "0"}]}]
    status = {
        "pendingWorkloads": 2,
        "admittedWorkloads": 3,
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "conditions": conditions("Active"),
    }
    obj = thing("ClusterQueue", name, {"cohortName": "top-cohort", "resourceGroups": groups})
    with_status(schema_server.api, obj, status)
    return name


class Terminal:
    """A program at a terminal of its own, and what it has shown there."""

    def __init__(self, control_plane: ControlPlane, *arguments: str) -> None:
        self._end, ours = pty.openpty()
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI", "COLUMNS")},
            "KUBECONFIG": str(control_plane.kubeconfig()),
            "TERM": "xterm-256color",
            "COLUMNS": "120",
            "LINES": "40",
        }
        self.process = subprocess.Popen([PLUGIN, *arguments], stdin=ours, stdout=ours, stderr=ours, env=environment)
        os.close(ours)
        self.seen = ""

    def until(self, pattern: str, *, timeout: float = 60) -> str:
        """What is shown from now on, until there is something that the pattern matches."""
        deadline = time.monotonic() + timeout
        begin = len(self.seen)
        while re.search(pattern, self.seen[begin:]) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern} is not in {self.seen[begin:]!r}"
            if select.select([self._end], [], [], left)[0]:
                self.seen += os.read(self._end, 1 << 16).decode(errors="replace")
        return self.seen[begin:]

    def close(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def terminal(schema_server: ControlPlane, queue: str) -> Iterator[Terminal]:
    """`top` of the cohort at a terminal."""
    made = Terminal(schema_server, "top", "--cohort", "top-cohort", "--interval", "0.2")
    yield made
    made.close()


class TestAtATerminal:
    def test_it_follows_the_cluster_until_it_is_interrupted(
        self, schema_server: ControlPlane, queue: str, terminal: Terminal
    ) -> None:
        """A full quota is red; a change is shown; Ctrl-C gives the screen back and ends with 130."""
        shown = terminal.until(r"top-full.*plain.*100%")
        assert "\x1b[?1049h" in terminal.seen
        assert "31m█" in terminal.until("█" * 20) + shown
        path = schema_server.api.path_of(thing("ClusterQueue", queue, {}))
        schema_server.api.patch(f"{path}/status", {"status": {"pendingWorkloads": 77}})
        terminal.until(r"top-full.*77")
        terminal.process.send_signal(signal.SIGINT)
        terminal.until(re.escape("\x1b[?1049l"))
        assert terminal.process.wait(timeout=30) == 130
        assert "Traceback" not in terminal.seen


class TestElsewhere:
    def test_one_table_without_colours(self, schema_server: ControlPlane, queue: str) -> None:
        """Where the output is no terminal, one table is printed, of plain text."""
        done = plugin(schema_server)("top", "--cohort", "top-cohort")
        assert done.code == 0, done.err
        assert "\x1b" not in done.out
        cohort, row = done.table
        assert cohort[:7] == ["cohort top-cohort", "plain", "cpu", "4", "4", "", "100%"]
        assert row[0] == queue
        assert row[8] == "3"

    def test_a_cohort_that_is_not_there(self, schema_server: ControlPlane, queue: str) -> None:
        """The error names the option and the value."""
        done = plugin(schema_server)("top", "--once", "--cohort", "nobody")
        assert done.code == 2
        assert done.err == "error: --cohort nobody: neither a Cohort nor a ClusterQueue names it\n"
