"""`make certs` gives a developer files that work, and keeps what is good when it is run again."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "certs" / "make_certs.py"
FILES = ["ca.crt", "ca.key", "tls.crt", "tls.key"]

_main = runpy.run_path(str(TOOL))["main"]


def make(directory: Path, *arguments: str) -> int:
    """Run the tool; its exit code."""
    code: int = _main(["--out", str(directory), *arguments])
    return code


def contents(directory: Path) -> dict[str, bytes]:
    """The files it made."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A directory after the first run."""
    directory = tmp_path / "certs"
    assert make(directory) == 0
    return directory


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "turnstile-webhook-service.turnstile-system.svc"])
def test_what_it_makes_works(made: Path, handshake: Callable[..., None], host: str) -> None:
    """A client that trusts ca.crt accepts the leaf on this machine and in a cluster."""
    data = contents(made)
    assert sorted(data) == FILES
    handshake(data, data["ca.crt"], host)


def test_only_the_owner_can_read_the_keys(made: Path) -> None:
    """Keys are 0600, certificates 0644."""
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o644, "tls.key": 0o600}


def test_a_second_run_changes_nothing(made: Path) -> None:
    """It says so, and how to use what is there."""
    before = contents(made)
    done = subprocess.run([sys.executable, TOOL, "--out", made], capture_output=True, text=True, check=True)
    assert "nothing to do" in done.stdout
    assert f"--tls-cert {made}/tls.crt" in done.stdout
    assert contents(made) == before


def test_another_host_needs_no_new_trust(
    made: Path, handshake: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A new leaf of the same CA."""
    before = contents(made)
    assert make(made, "dev.example", "10.1.2.3") == 0
    after = contents(made)
    assert "for other hosts" in capsys.readouterr().out
    assert after["ca.crt"] == before["ca.crt"]
    for host in ("dev.example", "10.1.2.3"):
        handshake(after, before["ca.crt"], host)


def test_new_makes_another_ca(made: Path) -> None:
    """On request everything is replaced."""
    before = contents(made)
    assert make(made, "--new") == 0
    after = contents(made)
    assert not {before[name] for name in FILES} & {after[name] for name in FILES}


def test_damaged_files_are_mended(made: Path, handshake: Callable[..., None]) -> None:
    """A cut key is made anew."""
    (made / "tls.key").write_bytes(b"-----BEGIN PRIVATE KEY-----\n")
    assert make(made) == 0
    data = contents(made)
    handshake(data, data["ca.crt"], "localhost")


def test_a_bad_host_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, no traceback, and nothing written."""
    assert make(tmp_path / "x", "https://dev.example:9443") == 1
    assert capsys.readouterr().err == (
        "hosts: 'https://dev.example:9443': use a DNS name or an IP address without port or scheme\n"
    )
    assert not (tmp_path / "x").exists()
