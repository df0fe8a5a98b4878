"""Fixtures that run Turnstile itself on the test bed: one installation a session, one scenario a test."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.controlplane import ControlPlane
from testbed.installation import MANAGED, Installation
from testbed.processes import Process
from tests.cluster.scenario import Scenario
from tests.cluster.versions import wait_served


class Turnstile:
    """The running process of the session's installation; tests that end it start it again."""

    def __init__(self, installation: Installation, *arguments: str) -> None:
        self.installation = installation
        self.arguments = arguments
        """Flags of every start."""
        self.process: Process | None = None
        self.startup_seconds = 0.0

    def start(self) -> None:
        """Start and wait until it is ready; does nothing while it runs. That it ended by itself since is an error
        of the test that asks next."""
        if self.process is not None and self.process.poll() is None:
            return
        ended, self.process = self.process, None
        if ended is not None and not ended.asked_to_end:
            ended.require_running()
        began = time.monotonic()
        self.start_with()
        self.startup_seconds = time.monotonic() - began

    def restart(self, *arguments: str) -> None:
        """End it, and start it with further flags."""
        self.stop()
        self.start_with(*arguments)

    def start_with(self, *arguments: str) -> None:
        """Start it with further flags after it was ended or killed."""
        self.process = self.installation.start(arguments=(*self.arguments, *arguments))
        self.installation.wait_ready(self.process)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def crash(self) -> None:
        """SIGKILL, for tests in which the next process need not wait until the Lease has run out."""
        if self.process is not None:
            self.installation.crash(self.process)

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self.process is not None:
            self.process.terminate()


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Turnstile:
    """Turnstile installed from its chart and running with all roles."""
    return installed_with(control_plane)


def installed_with(control_plane: ControlPlane, *gates: str, visibility: bool = False) -> Turnstile:
    """The same, with feature gates that are off by default, or with the visibility API."""
    installed = Installation(control_plane, gates=gates, visibility=visibility)
    installed.install()
    turnstile = Turnstile(installed)
    turnstile.start()
    wait_served(control_plane.api)  # the first start changes the CRDs, which restarts their storage
    return turnstile


@pytest.fixture
def turnstile(installation: Turnstile) -> Turnstile:
    """Turnstile, running."""
    installation.start()
    return installation


@pytest.fixture
def recorder(tmp_path: Path, turnstile: Turnstile) -> Iterator[Path]:
    """The file to which Turnstile records while the test runs."""
    path = tmp_path / "recorder.db"
    turnstile.restart("--recorder", str(path))
    yield path
    turnstile.stop()


@pytest.fixture(scope="session")
def nodes(control_plane: ControlPlane) -> dict[str, str]:
    """Two pools of simulated nodes, the second one tainted: label values of `pool` by short name."""
    for number in range(2):
        control_plane.add_node(f"plain-{number}", labels={"pool": "plain"}, cpu=64, memory="256Gi")
        control_plane.add_node(
            f"spot-{number}", labels={"pool": "spot"}, taints=["spot=true:NoSchedule"], cpu=64, memory="256Gi"
        )
    return {"plain": "plain", "spot": "spot"}


@pytest.fixture
def scenario(control_plane: ControlPlane, turnstile: Turnstile, nodes: dict[str, str]) -> Iterator[Scenario]:
    """An empty managed namespace to build a world in; all of it is removed at the end, but the namespace."""
    namespace = control_plane.namespace("team", labels=MANAGED)
    world = Scenario(control_plane.api, namespace)
    yield world
    world.remove()
