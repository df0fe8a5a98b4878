"""The builder: cached, atomic, one at a time, and clear when it cannot."""

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed import BuildError, build

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")


@pytest.fixture(scope="session")
def compiled() -> str:
    """Go's own cache, which it would look for below XDG_CACHE_HOME; empty without Go. It has the standard library."""
    if shutil.which("go") is None:
        return ""
    return subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: str) -> build.Module:
    """A module of one tiny program and a folder, with a cache of its own."""
    if compiled:
        monkeypatch.setenv("GOCACHE", compiled)
    directory = tmp_path / "module"
    (directory / "config" / "crds").mkdir(parents=True)
    (directory / "config" / "crds" / "a.yaml").write_text("kind: A\n")
    (directory / "config").chmod(0o555)  # as in Go's module cache
    (directory / "go.mod").write_text("module example.com/hello\n\ngo 1.21\n")
    (directory / "go.sum").write_text("")
    (directory / "main.go").write_text('package main\n\nvar word = "?"\n\nfunc main() { print(word) }\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return build.Module(directory, (build.Tool("hello", "example.com/hello"),), link="-X main.word=hi")


class TestCache:
    """Where tools are kept and what is used instead."""

    def test_directory_follows_the_pins(self, small: build.Module, tmp_path: Path) -> None:
        """Another go.sum is another directory below XDG_CACHE_HOME."""
        before = small.cache()
        (small.directory / "go.sum").write_text("changed")
        assert small.cache() != before
        assert before.parent == small.cache().parent == tmp_path / "cache" / "turnstile" / "testbed"

    def test_assets_are_used_instead(
        self, small: build.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A binary in KUBEBUILDER_ASSETS needs no Go at all."""
        (tmp_path / "hello").write_text("#!/bin/sh\n")
        (tmp_path / "hello").chmod(0o755)
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
        monkeypatch.setenv("PATH", "")
        assert small.ensure()["hello"] == tmp_path / "hello"

    def test_assets_that_are_no_directory(self, small: build.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        """The variable is named with its value."""
        monkeypatch.setenv("KUBEBUILDER_ASSETS", "/no/such/place")
        with pytest.raises(BuildError, match="KUBEBUILDER_ASSETS: '/no/such/place' is not a directory"):
            small.ensure()


@needs_go
class TestBuild:
    """Building with the real Go."""

    def test_builds_once_and_reports(self, small: build.Module) -> None:
        """The first call builds with the linker's flags, the second says nothing."""
        lines: list[str] = []
        tools = small.ensure(lines.append)
        said = subprocess.run([tools["hello"]], capture_output=True, text=True, check=True).stderr
        assert said == "hi"
        assert lines[0].startswith("[1/1] building hello")
        assert lines[1].startswith("[1/1] built hello in ")
        lines.clear()
        small.ensure(lines.append)
        assert lines == []

    def test_a_carried_folder_is_copied_to_stay(self, small: build.Module) -> None:
        """It is found in the module, and the copy can be removed, which what is in Go's module cache cannot."""
        carrying = dataclasses.replace(small, carried=(build.Carried("crds", "example.com/hello", "config"),))
        copy = carrying.ensure(lambda _: None).folder("crds")
        assert (copy / "crds" / "a.yaml").read_text() == "kind: A\n"
        assert os.stat(copy).st_mode & 0o200

    def test_two_builders_build_once(self, small: build.Module) -> None:
        """The second waits for the first and uses its work."""
        lines: list[str] = []
        threads = [threading.Thread(target=small.ensure, args=(lines.append,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(line.startswith("[1/1] built") for line in lines) == 1

    def test_failed_build_shows_the_compiler(self, small: build.Module) -> None:
        """The compiler's words are in the error, and nothing half done is left."""
        (small.directory / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
        with pytest.raises(BuildError, match="undefined: nonsense"):
            small.ensure(lambda _: None)
        assert [path.name for path in small.cache().iterdir()] == [".lock"]

    def test_too_old_go_names_the_version(self, small: build.Module) -> None:
        """Go's own answer and the version to install."""
        (small.directory / "go.mod").write_text("module example.com/hello\n\ngo 1.999.0\n")
        with pytest.raises(BuildError, match=r"go1\..* cannot build the test bed(.|\n)*install Go 1.999.0 or newer"):
            small.ensure(lambda _: None)


def test_missing_go_names_the_cure(small: build.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without go and without binaries the error says what to install."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"go is not on PATH.*install Go 1.21 or newer"):
        small.ensure(lambda _: None)


def test_command_line_reports_errors_plainly(tmp_path: Path) -> None:
    """`python -m testbed build` ends with one sentence and exit code 1, no traceback."""
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path / "none")}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "build"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: KUBEBUILDER_ASSETS")
    assert "Traceback" not in done.stderr
