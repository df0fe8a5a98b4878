"""The page about the Python client, with a clean environment in which Turnstile is installed as the page says."""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import wait_until
from tests.cluster.reader import TASKS
from tests.cluster.scenario import Scenario
from tests.documents import ROOT, steps
from tests.submitters.environments import PINS

pytestmark = pytest.mark.cluster

JOBS: Final = "batch.kubernetes.io/job-name"
NOTEBOOK: Final = """
import sys
import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(open(name).read()) for name in sys.argv[1:]]
found = nbformat.v4.new_notebook(cells=cells)
NotebookClient(found, timeout=1500).execute()
for output in found.cells[-1].outputs:
    print(output["text"])
"""


class Shell:
    """A clean environment, and a folder to run the page's blocks in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._variables = {
            **os.environ,
            "VIRTUAL_ENV": str(folder / "clean"),
            "PATH": f"{folder / 'clean' / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._variables.pop("PYTHONPATH", None)

    def begin(self, command: str, *, folder: Path | None = None, kubeconfig: str = "") -> "subprocess.Popen[str]":
        """Begin a command in the environment."""
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder or self.folder,
            env={**self._variables, "KUBECONFIG": kubeconfig},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, *, folder: Path | None = None) -> str:
        """Run a command that must succeed; what it printed."""
        process = self.begin(command, folder=folder)
        printed, _ = process.communicate(timeout=600)
        assert process.returncode == 0, f"{command}\n{printed}"
        return printed


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The environment, with the package as the page's first block installs it."""
    found = Shell(tmp_path_factory.mktemp("python"))
    venv.create(found.folder / "clean", symlinks=True)
    (kind, install), *_ = steps(TASKS / "python.md")
    assert kind == "sh"
    for command in (install, "uv pip install '.[server]'"):  # the second for comparison only
        if "server" in command:
            venv.create(found.folder / "other", symlinks=True)
            command = f"VIRTUAL_ENV={found.folder / 'other'} {command}"
        began = time.monotonic()
        found.run(command, folder=ROOT)
        place = found.folder / ("other" if "server" in command else "clean")
        size = sum(each.lstat().st_size for each in place.rglob("*") if each.is_file())
        print(f"{command.strip()}: {time.monotonic() - began:.1f} s, {size / 2**20:.0f} MiB")
    return found


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, team_a: Scenario, tmp_path: Path) -> Iterator[str]:
    """A user's kubeconfig whose context has the namespace team-a, in which there is a LocalQueue `main` with GPUs."""
    control_plane.add_node("gpus", cpu=64, memory="512Gi", extra={"nvidia.com/gpu": 8})
    team_a.queue("main", {team_a.flavor("gpus"): {"cpu": "4", "memory": "200Gi", "nvidia.com/gpu": "8"}})
    config = yaml.safe_load(control_plane.kubeconfig().read_text())
    config["contexts"][0]["context"]["namespace"] = team_a.namespace
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config))
    yield str(file)
    team_a.remove()
    control_plane.remove_node("gpus")


def test_nothing_of_the_server_is_loaded(shell: Shell) -> None:
    """Neither what decides about jobs, nor web servers, nor the client of others."""
    never = ("turnstile.engine", "turnstile.webhooks", "turnstile.controllers", "fastapi", "kubernetes_asyncio")
    code = f"import sys; from turnstile import Client; print([name for name in {never} if name in sys.modules])"
    assert shell.run(f'python -c "{code}"') == "[]\n"


def test_every_example_runs_as_it_is_written(control_plane: ControlPlane, shell: Shell, kubeconfig: str) -> None:
    """The script, the cells of the notebook, the program with a loop of its own, and the command."""
    blocks = steps(TASKS / "python.md")[1:]
    kinds = [kind for kind, _ in blocks]
    assert kinds == ["python", "python", "python", "python", ""]
    for number, (_, text) in enumerate(blocks[:4]):
        (shell.folder / f"block-{number}.py").write_text(text)
    (shell.folder / "notebook.py").write_text(NOTEBOOK)

    def printed_by(command: str) -> str:
        process = shell.begin(command, kubeconfig=kubeconfig)

        def ended() -> bool:
            control_plane.end_pods("team-a", labels=JOBS)
            return process.poll() is not None

        try:
            wait_until(ended, timeout=90, every=1, describe=lambda: f"goes on: {command}")
        finally:
            process.kill()
            printed, _ = process.communicate()
        assert process.returncode == 0, f"{command}\n{printed}"
        return printed

    assert "succeeded" in printed_by("python block-0.py").splitlines()[-1]
    assert "succeeded" in printed_by("python block-3.py").splitlines()[-1]
    assert "succeeded" in printed_by(blocks[4][1])
    shell.run(f"uv pip install --requirement {PINS / 'notebook.txt'}")
    shown = printed_by("python notebook.py block-1.py block-2.py")
    table = [line.split()[1] for line in shown.splitlines() if line.startswith("sweep-")]
    assert table == ["succeeded"] * 8, shown
