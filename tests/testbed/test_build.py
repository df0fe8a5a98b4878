"""The builder: cached, atomic, one at a time, and clear when it cannot."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed import BuildError, build

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")


@pytest.fixture
def small_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of one tiny program in place of the bed's, with a cache of its own."""
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module example.com/hello\n\ngo 1.21\n")
    (module / "go.sum").write_text("")
    (module / "main.go").write_text('package main\n\nvar word = "?"\n\nfunc main() { print(word) }\n')
    monkeypatch.setattr(build, "MODULE_DIRECTORY", module)
    monkeypatch.setattr(build, "TOOLS", (build.Tool("hello", "example.com/hello", "-X main.word=hi"),))
    monkeypatch.setattr(build, "_STAGE_FILES", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return module


class TestCache:
    """Where tools are kept and what is used instead."""

    def test_directory_follows_the_pins(self, small_module: Path, tmp_path: Path) -> None:
        """Another go.sum is another directory below XDG_CACHE_HOME."""
        before = build.cache_directory()
        (small_module / "go.sum").write_text("changed")
        assert build.cache_directory() != before
        assert before.parent == build.cache_directory().parent == tmp_path / "cache" / "turnstile" / "testbed"

    def test_assets_are_used_instead(self, small_module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A binary in KUBEBUILDER_ASSETS needs no Go at all."""
        (tmp_path / "hello").write_text("#!/bin/sh\n")
        (tmp_path / "hello").chmod(0o755)
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
        monkeypatch.setenv("PATH", "")
        assert build.ensure()["hello"] == tmp_path / "hello"

    def test_assets_that_are_no_directory(self, small_module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The variable is named with its value."""
        monkeypatch.setenv("KUBEBUILDER_ASSETS", "/no/such/place")
        with pytest.raises(BuildError, match="KUBEBUILDER_ASSETS: '/no/such/place' is not a directory"):
            build.ensure()


@needs_go
class TestBuild:
    """Building with the real Go."""

    def test_builds_once_and_reports(self, small_module: Path) -> None:
        """The first call builds with the linker's flags, the second says nothing."""
        lines: list[str] = []
        tools = build.ensure(lines.append)
        said = subprocess.run([tools["hello"]], capture_output=True, text=True, check=True).stderr
        assert said == "hi"
        assert lines[0].startswith("[1/1] building hello")
        assert lines[1].startswith("[1/1] built hello in ")
        lines.clear()
        build.ensure(lines.append)
        assert lines == []

    def test_two_builders_build_once(self, small_module: Path) -> None:
        """The second waits for the first and uses its work."""
        lines: list[str] = []
        threads = [threading.Thread(target=build.ensure, args=(lines.append,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(line.startswith("[1/1] built") for line in lines) == 1

    def test_failed_build_shows_the_compiler(self, small_module: Path) -> None:
        """The compiler's words are in the error, and nothing half done is left."""
        (small_module / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
        with pytest.raises(BuildError, match="undefined: nonsense"):
            build.ensure(lambda _: None)
        assert [path.name for path in build.cache_directory().iterdir()] == [".lock"]

    def test_too_old_go_names_the_version(self, small_module: Path) -> None:
        """Go's own answer and the version to install."""
        (small_module / "go.mod").write_text("module example.com/hello\n\ngo 1.999.0\n")
        with pytest.raises(BuildError, match=r"go1\..* cannot build the test bed(.|\n)*install Go 1.999.0 or newer"):
            build.ensure(lambda _: None)


def test_missing_go_names_the_cure(small_module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without go and without binaries the error says what to install."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"go is not on PATH.*install Go 1.21 or newer"):
        build.ensure(lambda _: None)


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
