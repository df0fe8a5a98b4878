"""The bed is up quickly and leaves nothing behind, whatever ends it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from testbed import ComponentFailed, ControlPlane
from testbed.client import wait_until
from testbed.processes import wait_until_gone

_ROOT = Path(__file__).parents[2]
_CHILD = """
import json, os, sys, threading, time
from testbed import ControlPlane

def start(into):
    cp = ControlPlane(components=sys.argv[1].split(","))
    cp.__enter__()
    into.append(cp)

kept = []
if sys.argv[2] == "thread":
    thread = threading.Thread(target=start, args=(kept,))
    thread.start()
    thread.join()
    cp = kept[0]
    print(json.dumps({"pids": cp.pids, "directory": str(cp.directory)}), flush=True)
    time.sleep(600)
with ControlPlane(components=sys.argv[1].split(",")) as cp:
    if sys.argv[2] == "fork" and os.fork() == 0:
        os.close(1)
        for _ in range(600):  # longer than the test waits, if what it waits for does not come
            time.sleep(0.1 if cp.directory.exists() else 0)
        os._exit(0)
    print(json.dumps({"pids": cp.pids, "directory": str(cp.directory)}), flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """TESTBED_KEEP=1 leaves directories behind, which is just what must not happen here."""
    monkeypatch.delenv("TESTBED_KEEP", raising=False)


def start_child(components: str, how: str = "plain") -> tuple["subprocess.Popen[str]", dict[str, Any]]:
    """Another Python that starts a bed and tells its process ids and directory."""
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, components, how], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        return child, json.loads(child.stdout.readline())


@pytest.mark.cluster
class TestStart:
    """From nothing to ready, or to a clear error."""

    def test_ready_in_time(self) -> None:
        """A whole control plane is ready within the promised 15 s and gone within 2 s, its directory too."""
        started = time.monotonic()
        with ControlPlane() as cp:
            ready = time.monotonic() - started
            pids, directory = cp.pids, cp.directory
            stopping = time.monotonic()
        stopped = time.monotonic() - stopping
        print(f"ready after {ready:.1f} s, stopped after {stopped:.2f} s")
        assert ready < 15 * _machine_factor()
        assert stopped < 2 * _machine_factor()
        assert wait_until_gone(pids, timeout=0) == []
        assert not directory.exists()

    def test_failing_component_shows_its_log(self) -> None:
        """A component that does not start is named with the end of its log, and the rest is stopped."""
        cp = ControlPlane(components=["etcd", "kube-apiserver"], extra_arguments={"etcd": ["--no-such-flag"]})
        with pytest.raises(ComponentFailed, match=r"etcd ended with exit code(.|\n)*no-such-flag"):
            cp.__enter__()
        assert not cp.directory.exists()

    def test_unknown_component_is_named(self) -> None:
        """A misspelt component is refused before anything starts."""
        with pytest.raises(ValueError, match="components: 'apiserver' is none of etcd"):
            ControlPlane(components=["etcd", "apiserver"])


@pytest.mark.cluster
class TestEnd:
    """The end of the parent is the end of all."""

    @pytest.mark.parametrize(
        ("components", "how", "number"),
        [
            ("etcd,kube-apiserver,kube-controller-manager,kube-scheduler,kwok", "plain", signal.SIGKILL),
            ("etcd", "plain", signal.SIGTERM),
            ("etcd", "plain", signal.SIGINT),
            ("etcd", "thread", signal.SIGKILL),
            ("etcd", "fork", signal.SIGKILL),
        ],
    )
    def test_all_die_with_their_parent(self, components: str, how: str, number: signal.Signals) -> None:
        """However the parent ends, nothing outlives it, also with a thread that has ended or a forked copy."""
        child, told = start_child(components, how)
        try:
            assert len(told["pids"]) == 1 + len(components.split(","))
            assert wait_until_gone(told["pids"], timeout=0) == told["pids"]
            os.kill(child.pid, number)
        finally:
            if child.poll() is None and number is not signal.SIGINT:
                child.kill()
            child.wait(20)
        assert wait_until_gone(told["pids"], timeout=5) == []
        wait_until(
            lambda: not Path(told["directory"]).exists(), timeout=5, describe=lambda: "the directory is still there"
        )

    def test_paused_components_die_too(self) -> None:
        """A frozen process is no exception."""
        child, told = start_child("etcd")
        os.kill(told["pids"][1], signal.SIGSTOP)
        child.kill()
        child.wait(20)
        assert wait_until_gone(told["pids"], timeout=10) == []


def _machine_factor() -> float:
    """The promise is for a machine that is free; on a crowded one the deadline stretches with the load of its cores."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
