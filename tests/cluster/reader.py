"""A reader of docs/tasks, who does what a page says; and the two teams of its first page, on which most others rest.

A module that takes the teams imports the fixtures `queues` and `team_a`, and `team_b` if it needs both.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario
from tests.documents import ROOT, steps
from tests.turnstile import Turnstile

TASKS = ROOT / "docs" / "tasks"
TEAMS = ("team-a", "team-b")
OF_THE_CLUSTER = {
    "namespaces": TEAMS,
    "clusterqueues": TEAMS,
    "cohorts": ("research",),
    "resourceflavors": ("any-node", "gpu"),
    "workloadpriorityclasses": ("urgent",),
}


class Reader:
    """Does what a page says, block by block, as an administrator of the cluster."""

    def __init__(
        self,
        page: str,
        control_plane: ControlPlane,
        *,
        directory: Path = ROOT,
        section: str = "",
        programs: Sequence[Path] = (),
    ) -> None:
        """`directory` is where commands run, `programs` are directories of programs that come before all others."""
        self._directory = directory
        self.warned = ""
        """What the last command that was done printed as errors."""
        self._steps = [step for step in steps(TASKS / page, section=section) if step[0] in ("", "yaml")]
        usual = (control_plane.tools["kubectl"].parent, Path(sys.executable).parent, os.environ["PATH"])
        self._environment = {
            **os.environ,
            "HOME": str(control_plane.directory / "home"),
            "KUBECONFIG": str(control_plane.kubeconfig()),
            "PATH": ":".join(map(str, (*programs, *usual))),
        }

    def uses(self, kubeconfig: Path) -> None:
        """Have the blocks from now on use another kubeconfig."""
        self._environment["KUBECONFIG"] = str(kubeconfig)

    def do(self, **names: str) -> str:
        """The next block, with these names in the place of words in capitals; what was printed."""
        kind, text = self._steps.pop(0)
        if kind == "yaml":
            return self.run("kubectl apply -f -", text)
        for word, name in names.items():
            text = re.sub(rf"\b{word}\b", name, text)
        return self.run(text)

    def see(self, *patterns: str, **names: str) -> str:
        """The next block, again and again until all of these are found in what it prints."""
        step, seen = self._steps[0], ""

        def look() -> bool:
            nonlocal seen
            self._steps.insert(0, step)
            try:
                seen = self.do(**names)
            except AssertionError as error:  # what the command names may not be there yet
                seen = str(error)
                return False
            return all(re.search(pattern, seen) for pattern in patterns)

        self._steps.pop(0)
        wait_until(look, timeout=15, every=2, describe=lambda: f"{step[1]}should show {patterns}, but shows\n{seen}")
        return seen

    def skip(self, kind: str) -> None:
        """Leave out the next block, which is of that language."""
        assert self._steps.pop(0)[0] == kind

    def end(self) -> None:
        """Nothing of the page is left to do."""
        assert self._steps == []

    def run(self, command: str, text: str = "") -> str:
        """A command of the shell that must succeed, with `text` as its standard input; what was printed."""
        shell = ["bash", "-euo", "pipefail", "-c", command]
        done = subprocess.run(
            shell,
            input=text,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        self.warned = done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def queues(control_plane: ControlPlane, installation: Turnstile, nodes: dict[str, str]) -> Iterator[None]:
    """What two-teams.md makes, on which the other pages rest."""
    installation.start()
    api = control_plane.api
    page = Reader("two-teams.md", control_plane)
    try:
        for _ in range(5):
            page.do()
        open_queues = (rf"{team} +Can admit new workloads\n" for team in TEAMS)
        empty_queues = (rf"{team} +default +{team} +0 +0\n" for team in TEAMS)
        page.see(*open_queues, *empty_queues)
        page.do()
        page.end()
        yield
    finally:  # another module may create objects of the same names, after a set-up that failed too
        for kind, names in OF_THE_CLUSTER.items():
            for name in names:
                api.delete(resource_path("v1" if kind == "namespaces" else GROUP, kind, name))
        for name in OF_THE_CLUSTER["namespaces"]:
            api.wait_gone(resource_path("v1", "namespaces", name), timeout=60)


@pytest.fixture
def team_a(control_plane: ControlPlane, turnstile: Turnstile, queues: None) -> Iterator[Scenario]:
    """The first team's namespace; its jobs go with the test."""
    yield from team(control_plane, "team-a")


@pytest.fixture
def team_b(control_plane: ControlPlane, turnstile: Turnstile, queues: None) -> Iterator[Scenario]:
    """The second team's namespace; its jobs go with the test."""
    yield from team(control_plane, "team-b")


def team(control_plane: ControlPlane, namespace: str) -> Iterator[Scenario]:
    """A namespace of the pages; nothing of it holds quota or waits after the test."""
    api = control_plane.api
    yield Scenario(api, namespace)
    for path in (
        resource_path("batch/v1", "jobs", namespace=namespace),
        resource_path("v1", "pods", namespace=namespace),
    ):
        api.request("DELETE", path, {"propagationPolicy": "Background"})
    workloads = resource_path(GROUP, "workloads", namespace=namespace)

    def left() -> list[Json]:
        return [found for found in api.items(workloads) if not condition(found, "Finished")]

    wait_until(lambda: not left(), timeout=60, describe=lambda: f"{left()}")


def use_up(team: Scenario, *cpus: int) -> None:
    """Jobs that leave no CPU of the team's queue, whatever it may borrow."""
    for number, cpu in enumerate(cpus):
        team.job(f"large-{number}", queue="default", cpu=str(cpu))
        team.wait_workload(f"large-{number}", lambda workload: condition(workload, "QuotaReserved"))
