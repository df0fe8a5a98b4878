"""Turnstile under a configuration file, on a control plane apart: nothing runs there but what a module starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.installation import MANAGED, Installation
from testbed.processes import Process
from tests.cluster.scenario import Scenario
from tests.cluster.versions import wait_served
from tests.shared import Shared


@dataclass(frozen=True, slots=True)
class Configured:
    """Turnstile's objects in a control plane with one node, and the file to start it with."""

    installation: Installation
    file: Path
    arguments: tuple[str, ...] = ()
    """Further flags."""
    started: list[Process] = field(default_factory=list)

    @property
    def cp(self) -> ControlPlane:
        """The control plane."""
        return self.installation.control_plane

    def start(self) -> Process:
        """All roles in one process; returns when it is ready and serves every version."""
        # Flags of the election would override what the file says of it.
        election = () if "leaderElection" in self.file.read_text() else None
        arguments = ("--config", str(self.file), *self.arguments)
        process = self.installation.start(arguments=arguments, election=election)
        self.started.append(process)
        self.installation.wait_ready(process)
        wait_served(self.cp.api)
        return process

    @contextmanager
    def team(self) -> Iterator[Scenario]:
        """An empty managed namespace."""
        scenario = Scenario(self.cp.api, self.cp.namespace("team", labels=MANAGED))
        try:
            yield scenario
        finally:
            scenario.remove()


@pytest.fixture(scope="session")
def idle_installation(shared: Shared) -> Installation:
    """The chart installed in a control plane of its own, with one node; no process of Turnstile runs."""
    return shared.enter("idle_installation", _installed())


@contextmanager
def _installed() -> Iterator[Installation]:
    with ControlPlane() as cp:
        installation = Installation(cp)
        installation.install()
        cp.add_node("plain", cpu=64, memory="256Gi")
        yield installation


@contextmanager
def configured(installation: Installation, directory: Path, text: str, *arguments: str) -> Iterator[Configured]:
    """Turnstile, not started yet, with this text in the file, and these flags; what was started has ended when this
    ends."""
    file = directory / "config.yaml"
    file.write_text(text)
    made = Configured(installation, file, arguments)
    try:
        yield made
    finally:
        for process in made.started:
            process.terminate()


@contextmanager
def as_the_chart_wrote(installation: Installation, directory: Path) -> Iterator[Configured]:
    """Turnstile, not started yet, with the file of the chart's ConfigMap."""
    with configured(installation, directory, installation.configuration()) as found:
        yield found
