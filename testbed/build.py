"""Builds the pinned tools once, into a cache outside the tree.

The cache is a directory named by the hash of go.mod and go.sum, so a change of any pin builds anew and an old checkout
still finds its own. A binary found in $KUBEBUILDER_ASSETS is used instead of building it. Never prunes, and never
touches what another builder has finished: files appear by rename, under a file lock.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import BuildError

MODULE_DIRECTORY = Path(__file__).parent

_KUBERNETES_VERSION = (
    "-X k8s.io/component-base/version.gitVersion=v1.36.3"
    " -X k8s.io/component-base/version.gitMajor=1"
    " -X k8s.io/component-base/version.gitMinor=36"
)  # without it the server calls itself v0.0.0-master+$Format and clients cannot parse that

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tool:
    """A program of the bed: its file name, its main package, and flags for the linker besides -s -w."""

    name: str
    package: str
    link: str = _KUBERNETES_VERSION


TOOLS = (
    Tool("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Tool("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Tool("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Tool("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    Tool("etcd", "go.etcd.io/etcd/server/v3"),
    Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Tool("helm", "helm.sh/helm/v4/cmd/helm"),
)

_STAGES = "kwok-stages"
_STAGE_FILES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Where the built tools are."""

    binaries: dict[str, Path]
    stages: Path

    def __getitem__(self, name: str) -> Path:
        return self.binaries[name]


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME` (or `~/.cache`) `/turnstile/testbed/<hash of go.mod and go.sum>`."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE_DIRECTORY / name).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "turnstile" / "testbed" / digest.hexdigest()[:16]


def ensure(report: Report | None = None) -> Toolbox:
    """Return all tools, building what is missing (minutes when the Go cache is cold, nothing when all is there).

    `report` gets one line a step; by default lines go to standard error. Raises `BuildError` naming the cure.
    """
    report = report or _print
    cache = cache_directory()
    assets = _assets()
    binaries = {tool.name: assets.get(tool.name, cache / tool.name) for tool in TOOLS}
    stages = cache / _STAGES
    if not (_missing(binaries) or not _has_stages(stages)):
        return Toolbox(binaries, stages)
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / ".lock", report):
        missing = _missing(binaries)  # another builder may have made them while we waited
        if missing or not _has_stages(stages):
            _require_go()
        started = time.monotonic()
        for number, tool in enumerate(missing, 1):
            report(f"[{number}/{len(missing)}] building {tool.name} ({tool.package})")
            seconds = _build(tool, cache / tool.name, report)
            report(f"[{number}/{len(missing)}] built {tool.name} in {seconds:.0f} s")
        if missing:
            report(f"{len(missing)} tools built in {time.monotonic() - started:.0f} s, kept in {cache}")
        if not _has_stages(stages):
            _fetch_stages(stages)
    return Toolbox(binaries, stages)


def _assets() -> dict[str, Path]:
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    if not directory:
        return {}
    if not Path(directory).is_dir():
        raise BuildError(f"KUBEBUILDER_ASSETS: {directory!r} is not a directory: unset it or let it name one")
    found = {tool.name: Path(directory, tool.name).absolute() for tool in TOOLS}
    return {name: path for name, path in found.items() if os.access(path, os.X_OK)}


def _missing(binaries: dict[str, Path]) -> list[Tool]:
    return [tool for tool in TOOLS if not os.access(binaries[tool.name], os.X_OK)]


def _has_stages(directory: Path) -> bool:
    return all((directory / Path(name).name).is_file() for name in _STAGE_FILES)


def _require_go() -> None:
    """Ask Go itself in the module's directory: it knows the go line and whether it may fetch a newer toolchain."""
    wanted = next(
        line.split()[1] for line in (MODULE_DIRECTORY / "go.mod").read_text().splitlines() if line[:3] == "go "
    )
    cure = (
        f"install Go {wanted} or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory that has all tools"
    )
    if shutil.which("go") is None:
        raise BuildError(f"go is not on PATH, and the test bed's tools are not built yet: {cure}")
    # GOVERSION alone would print the version of a too old go without a word; resolving a module checks the go line.
    answer = _go("list", "-m")
    if answer.returncode:
        version = subprocess.run(["go", "version"], capture_output=True, text=True, check=False, cwd="/").stdout.strip()
        raise BuildError(f"{version or 'go'} cannot build the test bed: {answer.stderr.strip()}: {cure}")


def _go(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["go", *arguments], cwd=MODULE_DIRECTORY, env=_environment(), capture_output=True, text=True, check=False
    )


def _environment() -> dict[str, str]:
    # GOWORK=off: a go.work further up must not change the pins.
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _build(tool: Tool, target: Path, report: Report) -> float:
    """Build one tool and put it at `target` atomically; returns the seconds it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{tool.name}-", dir=target.parent) as directory:
        output = Path(directory) / tool.name
        log = Path(directory) / "log"
        command = [
            "go",
            "build",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            f"-s -w {tool.link}",
            "-o",
            str(output),
            tool.package,
        ]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=MODULE_DIRECTORY, env=_environment(), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
            try:
                _follow(process, tool.name, started, report)
            finally:
                if process.poll() is None:  # Ctrl-C
                    process.terminate()
                    process.wait()
        if process.returncode:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
            raise BuildError(
                f"{' '.join(command)} (in {MODULE_DIRECTORY}) failed with exit code {process.returncode}:\n{tail}"
            )
        output.replace(target)
    return time.monotonic() - started


def _follow(process: "subprocess.Popen[bytes]", name: str, started: float, report: Report) -> None:
    """Wait for the end of a build and give a sign of life every 15 s."""
    while True:
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            report(f"      still building {name}, {time.monotonic() - started:.0f} s")
        else:
            return


def _fetch_stages(target: Path) -> None:
    """Copy the Stage files that the kwok module carries: they belong to that module and change with its version."""
    downloaded = _go("mod", "download", "sigs.k8s.io/kwok")
    found = _go("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
    if downloaded.returncode or found.returncode:
        raise BuildError(f"the module sigs.k8s.io/kwok cannot be fetched: {downloaded.stderr}{found.stderr}".strip())
    source = Path(found.stdout.strip()) / "kustomize" / "stage"
    target.mkdir(exist_ok=True)
    for name in _STAGE_FILES:
        temporary = target / f".{Path(name).name}"
        shutil.copyfile(source / name, temporary)  # without the module cache's read-only mode
        temporary.replace(target / Path(name).name)


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another build of the test bed runs; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
