"""Builds pinned Go programs once, into a cache outside the tree.

What to build is said by a Go module in the tree (`Module`): the bed's own is `BED`, each operator has one
(`testbed/operators`). Its cache is a directory named by the hash of go.mod and go.sum, so a change of any pin builds
anew and an old checkout still finds its own. A binary found in $KUBEBUILDER_ASSETS is used instead of building it.
Never prunes, and never touches what another builder has finished: files and folders appear by rename, under a file
lock.
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

NEWEST = "1.36.3"
"""The release of Kubernetes that go.mod pins."""
OTHERS = {"1.30": "1.30.14"}
"""Other releases that can be asked for, by their minor version."""
ASKED_FOR = "TESTBED_KUBERNETES"
"""The variable that asks for one of them."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: its file name and its main package."""

    name: str
    package: str


@dataclass(frozen=True, slots=True)
class Carried:
    """A folder that a Go module carries besides its code: it belongs to that module and changes with its version."""

    name: str
    module: str
    folder: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a module's source before it is built: `old`, which stands in `file` once, becomes `new`."""

    module: str
    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Where the built programs and the carried folders are, by name."""

    directory: Path
    binaries: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        return self.binaries[name]

    def folder(self, name: str) -> Path:
        """A carried folder."""
        return self.directory / name


@dataclass(frozen=True, slots=True)
class Module:
    """A directory with go.mod and go.sum, and what is made from it; `link` are flags for the linker besides -s -w."""

    directory: Path
    tools: tuple[Tool, ...]
    carried: tuple[Carried, ...] = ()
    link: str = ""
    edits: tuple[Edit, ...] = ()

    def cache(self) -> Path:
        """`testbed/<hash of go.mod, go.sum and the edits>` of what is kept."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.directory / name).read_bytes())
        for edit in self.edits:
            digest.update(repr(edit).encode())
        return kept() / "testbed" / digest.hexdigest()[:16]

    def ensure(self, report: Report | None = None) -> Toolbox:
        """Return all programs, building what is missing (minutes when the Go cache is cold, nothing when all is there).

        `report` gets one line a step; by default lines go to standard error. Raises `BuildError` naming the cure.
        """
        report = report or _print
        cache = self.cache()
        assets = self._assets()
        toolbox = Toolbox(cache, {tool.name: assets.get(tool.name, cache / tool.name) for tool in self.tools})
        if self._complete(toolbox):
            return toolbox
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / ".lock", report):
            if not self._complete(toolbox):  # another builder may have made it while we waited
                self._require_go()
                self._make(toolbox, report)
        return toolbox

    def _complete(self, toolbox: Toolbox) -> bool:
        return not self._missing(toolbox) and all(toolbox.folder(carried.name).is_dir() for carried in self.carried)

    def _make(self, toolbox: Toolbox, report: Report) -> None:
        started = time.monotonic()
        missing = self._missing(toolbox)
        with self._edited(toolbox.directory) as flags:
            for number, tool in enumerate(missing, 1):
                report(f"[{number}/{len(missing)}] building {tool.name} ({tool.package})")
                seconds = self._build(tool, toolbox.directory / tool.name, flags, report)
                report(f"[{number}/{len(missing)}] built {tool.name} in {seconds:.0f} s")
        if missing:
            report(f"{len(missing)} tools built in {time.monotonic() - started:.0f} s, kept in {toolbox.directory}")
        for carried in self.carried:
            if not toolbox.folder(carried.name).is_dir():
                self._copy(carried, toolbox.folder(carried.name))

    def _assets(self) -> dict[str, Path]:
        directory = os.environ.get("KUBEBUILDER_ASSETS")
        if not directory:
            return {}
        if not Path(directory).is_dir():
            raise BuildError(f"KUBEBUILDER_ASSETS: {directory!r} is not a directory: unset it or let it name one")
        found = {tool.name: Path(directory, tool.name).absolute() for tool in self.tools}
        return {name: path for name, path in found.items() if os.access(path, os.X_OK)}

    def _missing(self, toolbox: Toolbox) -> list[Tool]:
        return [tool for tool in self.tools if not os.access(toolbox[tool.name], os.X_OK)]

    def _require_go(self) -> None:
        """Ask Go itself in the module's directory: it knows the go line and whether it may fetch a newer toolchain."""
        wanted = next(
            line.split()[1] for line in (self.directory / "go.mod").read_text().splitlines() if line[:3] == "go "
        )
        cure = (
            f"install Go {wanted} or newer (https://go.dev/dl), "
            "or set KUBEBUILDER_ASSETS to a directory that has all tools"
        )
        if shutil.which("go") is None:
            raise BuildError(f"go is not on PATH, and the test bed's tools are not built yet: {cure}")
        # GOVERSION alone would print the version of a too old go without a word; resolving a module checks the go line.
        answer = self._go("list", "-m")
        if answer.returncode:
            asked = subprocess.run(["go", "version"], capture_output=True, text=True, check=False, cwd="/")
            version = asked.stdout.strip() or "go"
            raise BuildError(f"{version} cannot build the test bed: {answer.stderr.strip()}: {cure}")

    def _go(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["go", *arguments], cwd=self.directory, env=_environment(), capture_output=True, text=True, check=False
        )

    @contextmanager
    def _edited(self, directory: Path) -> Iterator[list[str]]:
        """The flags of `go build` that have it take the edited modules instead of those in the module cache."""
        if not self.edits:
            yield []
            return
        with tempfile.TemporaryDirectory(prefix=".edited-", dir=directory) as temporary:
            for name in ("go.mod", "go.sum"):
                shutil.copyfile(self.directory / name, Path(temporary, name))
            pins = Path(temporary, "go.mod")
            for number, module in enumerate(sorted({edit.module for edit in self.edits})):
                copy = Path(temporary, str(number))
                _copy_tree(self._source(module), copy, _link)
                for edit in self.edits:
                    if edit.module == module:
                        _apply(edit, copy / edit.file)
                self._go("mod", "edit", f"-replace={module}={copy}", str(pins)).check_returncode()
            yield [f"-modfile={pins}"]

    def _build(self, tool: Tool, target: Path, flags: list[str], report: Report) -> float:
        """Build one tool and put it at `target` atomically; returns the seconds it took."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f".{tool.name}-", dir=target.parent) as directory:
            output = Path(directory) / tool.name
            log = Path(directory) / "log"
            command = [
                "go",
                "build",
                "-mod=readonly",
                *flags,
                "-trimpath",
                "-ldflags",
                f"-s -w {self.link}".strip(),
                "-o",
                str(output),
                tool.package,
            ]
            with log.open("wb") as file:
                process = subprocess.Popen(
                    command, cwd=self.directory, env=_environment(), stdin=subprocess.DEVNULL, stdout=file, stderr=file
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
                    f"{' '.join(command)} (in {self.directory}) failed with exit code {process.returncode}:\n{tail}"
                )
            output.replace(target)
        return time.monotonic() - started

    def _copy(self, carried: Carried, target: Path) -> None:
        """Copy a folder out of the module cache, which may be emptied at any time."""
        with tempfile.TemporaryDirectory(prefix=f".{carried.name}-", dir=target.parent) as directory:
            copy = Path(directory) / carried.name
            _copy_tree(self._source(carried.module) / carried.folder, copy)
            copy.replace(target)

    def _source(self, module: str) -> Path:
        """Where the module cache has a module."""
        downloaded = self._go("mod", "download", module)
        found = self._go("list", "-m", "-f", "{{.Dir}}", module)
        if downloaded.returncode or found.returncode:
            raise BuildError(f"the module {module} cannot be fetched: {downloaded.stderr}{found.stderr}".strip())
        return Path(found.stdout.strip())


def _link_version(version: str) -> str:
    """Without it the server calls itself v0.0.0-master+$Format and clients cannot parse that."""
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"
    return f"-X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"


_KUBERNETES = tuple(
    Tool(name, f"k8s.io/kubernetes/cmd/{name}")
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
)
BED = Module(
    Path(__file__).parent,
    (
        *_KUBERNETES,
        Tool("etcd", "go.etcd.io/etcd/server/v3"),
        Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
        Tool("helm", "helm.sh/helm/v4/cmd/helm"),
    ),
    (Carried("kwok-stage", "sigs.k8s.io/kwok", "kustomize/stage"),),
    _link_version(NEWEST),
)


def kept() -> Path:
    """`$XDG_CACHE_HOME` (or `~/.cache`) `/turnstile`: what is made once for all checkouts."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnstile"


def kubernetes() -> str:
    """The release of Kubernetes that is asked for. Raises `BuildError` for one that cannot be."""
    asked = os.environ.get(ASKED_FOR, "")
    if not asked or asked == NEWEST.rpartition(".")[0]:
        return NEWEST
    if asked not in OTHERS:
        raise BuildError(f"{ASKED_FOR}: {asked!r} is none of {', '.join((*OTHERS, NEWEST.rpartition('.')[0]))}")
    return OTHERS[asked]


def modules() -> list[Module]:
    """The tools of the bed, and the programs of the release of Kubernetes that is asked for, unless the newest."""
    release = kubernetes()
    if release == NEWEST:
        return [BED]
    directory = Path(__file__).parent / "releases" / f"v{release.rpartition('.')[0]}"
    return [BED, Module(directory, _KUBERNETES, link=_link_version(release))]


def ensure(report: Report | None = None) -> Toolbox:
    """All programs of the bed, with those of the release of Kubernetes that is asked for."""
    toolboxes = [module.ensure(report) for module in modules()]
    return Toolbox(toolboxes[0].directory, {name: at for each in toolboxes for name, at in each.binaries.items()})


def _copy_tree(source: Path, target: Path, copy: Callable[[Path, Path], object] = shutil.copyfile) -> None:
    """Copy a folder of the module cache without its read-only modes."""
    for path in (source, *sorted(source.rglob("*"))):
        to = target / path.relative_to(source)
        if path.is_dir():
            to.mkdir()
        else:
            copy(path, to)


def _link(path: Path, to: Path) -> None:
    """Some modules have hundreds of megabytes."""
    try:
        to.hardlink_to(path)
    except OSError:  # another file system
        shutil.copyfile(path, to)


def _apply(edit: Edit, file: Path) -> None:
    text = file.read_text() if file.exists() else ""
    if text.count(edit.old) != 1:
        raise BuildError(f"{edit.file} of {edit.module} has {edit.old!r} {text.count(edit.old)} times instead of once")
    file.unlink()  # it may be a link to the module cache's own
    file.write_text(text.replace(edit.old, edit.new))


def _environment() -> dict[str, str]:
    # GOWORK=off: a go.work further up must not change the pins.
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _follow(process: "subprocess.Popen[bytes]", name: str, started: float, report: Report) -> None:
    """Wait for the end of a build and give a sign of life every 15 s."""
    while True:
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            report(f"      still building {name}, {time.monotonic() - started:.0f} s")
        else:
            return


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
