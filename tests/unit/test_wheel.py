"""The wheel, installed into an empty environment: it adds one package, and only its servers need the extra `server`."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

REPOSITORY: Final = Path(__file__).parents[2]
DUMP: Final = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: train, namespace: team, uid: u, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  queueName: absent
  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c}]}}}]
"""


def needed(requirements: list[str] | None) -> Iterator[str]:
    """The distributions that requirements without extras install, each once or more."""
    for each in map(Requirement, requirements or ()):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield each.name
            yield from needed(metadata.requires(each.name))


def program(name: str) -> Path:
    """A program of the environment that runs the tests, else of the PATH."""
    beside = Path(sys.executable).parent / name
    return beside if beside.exists() else Path(shutil.which(name) or name)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing but the wheel."""
    made = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", made]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=100)
    (wheel,) = made.glob("*.whl")
    venv.create(made / "empty", symlinks=True)
    install = [program("uv"), "pip", "install", "--offline", "--no-deps", "--python", made / "empty/bin/python", wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    return made / "empty"


@pytest.fixture(scope="module")
def packages(installed: Path) -> Path:
    """The site-packages of the environment."""
    (found,) = installed.glob("lib/python*/site-packages")
    return found


@pytest.fixture(scope="module")
def without_extra(installed: Path, packages: Path) -> Path:
    """The environment with the packages that the wheel requires without its extra, linked to those of the tests."""
    (own,) = packages.glob("*.dist-info")
    for name in set(needed(metadata.PathDistribution(own).requires)):
        distribution = metadata.distribution(name)
        for part in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / part).exists():
                (packages / part).symlink_to(Path(str(distribution.locate_file(part))))
    return installed


def test_nothing_but_the_package_is_installed(installed: Path, packages: Path) -> None:
    """One package named turnstile and the data of the installer: no module of a name that others may have too."""
    version = metadata.version("turnstile-queue")
    assert {each.name for each in packages.iterdir()} == {"turnstile", f"turnstile_queue-{version}.dist-info"}
    scripts = {each.name for each in (installed / "bin").iterdir() if "turnstile" in each.name}
    assert scripts == {"turnstile", "kubectl-turnstile", "kubectl_complete-turnstile"}


def run(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `turnstile` of an environment, far from the sources."""
    command = [environment / "bin/turnstile", *arguments]
    return subprocess.run(command, cwd=environment, capture_output=True, text=True, check=False, timeout=100)


def test_help_works(without_extra: Path) -> None:
    """With no more than the wheel requires."""
    done = run(without_extra, "--help")
    assert (done.returncode, "explain" in done.stdout) == (0, True), done.stderr


def test_explain_needs_no_server(without_extra: Path) -> None:
    """Whoever wants explanations installs no web server and no database driver."""
    (without_extra / "dump.yaml").write_text(DUMP)
    done = run(without_extra, "explain", "--state", "dump.yaml", "-n", "team", "workload/train")
    assert (done.returncode, "LocalQueue absent does not exist" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve",),
        ("web", "--state", "dump.yaml"),
        ("timeline", "--recorder", "postgresql://user:secret@db/x", "team/train"),
        ("serve", "--recorder", "postgresql://user:secret@db/x"),
    ],
    ids=" ".join,
)
def test_the_extra_is_named_where_it_is_needed(without_extra: Path, arguments: tuple[str, ...]) -> None:
    """In one sentence, without a traceback and without the password of a database."""
    (without_extra / "dump.yaml").write_text(DUMP)
    done = run(without_extra, *arguments)
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert sentence.endswith("which is not installed: install turnstile-queue[server]")
    assert "secret" not in sentence
