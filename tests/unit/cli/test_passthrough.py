"""`kubectl turnstile get` and its like without an API server: they answer as the other commands do."""

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from turnstile.cli import commands
from turnstile.cli.connection import Connection
from turnstile.cli.queues import passthrough


def never(*_: Any) -> Any:
    """Called where nothing may be done."""
    raise AssertionError("something was done")


def asked(*words: str, **environment: str) -> Result:
    """The plug-in, called with these words."""
    app = commands.create(run=never, clock=never)
    return CliRunner().invoke(app, words, env=environment)


def kubeconfig(folder: Path, port: int) -> str:
    """A kubeconfig of a server on this machine."""
    file = folder / "config"
    plain = {
        "clusters": [{"name": "one", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "first", "context": {"cluster": "one"}}],
        "current-context": "first",
    }
    file.write_text(yaml.safe_dump(plain))
    return str(file)


def test_without_a_kubeconfig(tmp_path: Path) -> None:
    """The missing file is named with its cure, and kubectl is not called."""
    done = asked("get", "workloads", KUBECONFIG=str(tmp_path / "none"))
    assert done.exit_code == 2
    assert "no such file: give --kubeconfig or set KUBECONFIG" in done.stderr


@pytest.mark.parametrize("words", ["get cq", "delete cq a", "-n x get cq", "get -n x cq"])
def test_without_an_answer(tmp_path: Path, words: str) -> None:
    """The address of the server that does not answer is named in one line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = asked(*words.split(), KUBECONFIG=kubeconfig(tmp_path, port), PATH="")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: no API server answers at http://127.0.0.1:{port}: ")
    assert len(done.stderr.splitlines()) == 1


def test_kubectl_gets_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server listens, kubectl takes over, with options that stood before TYPE."""
    (tmp_path / "kubectl").touch(mode=stat.S_IRWXU)
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: called.append(words))
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = kubeconfig(tmp_path, server.getsockname()[1])
        asked("get", "-n", "x", "cq", "-o", "name", KUBECONFIG=config, PATH=str(tmp_path))
    assert called == [["kubectl", "get", "clusterqueues.kueue.x-k8s.io", "-n", "x", "-o", "name"]]


def test_the_connection_among_kubectls_options() -> None:
    """Options of the connection are found in both forms; others are kubectl's own."""
    words = ["workloads", "-o", "yaml", "--context", "a", "--as=b", "--as-group=c", "--as-group", "d", "-s", "http://e"]
    assert passthrough.connection(words) == Connection(context="a", act_as="b", as_group=["c", "d"], server="http://e")
    assert passthrough.connection(["w", "--insecure-skip-tls-verify", "--", "--user", "x"]) == Connection(
        insecure_skip_tls_verify=True
    )
