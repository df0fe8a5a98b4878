"""Which API server and identity the options and the kubeconfig make together."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from typer.testing import CliRunner

from turnstile.api.errors import InvalidValue
from turnstile.cli import commands
from turnstile.cli.connection import Where, configuration, namespace_of
from turnstile.cli.queues import passthrough
from turnstile.kube import auth

Json = dict[str, Any]

FILE = {
    "clusters": [
        {"name": "one", "cluster": {"server": "https://one", "certificate-authority-data": "b25l"}},
        {"name": "two", "cluster": {"server": "https://two"}},
    ],
    "users": [{"name": "ann", "user": {"token": "a"}}, {"name": "bob", "user": {"client-key": "k", "as": "carol"}}],
    "contexts": [
        {"name": "first", "context": {"cluster": "one", "user": "ann", "namespace": "team-a"}},
        {"name": "second", "context": {"cluster": "two", "user": "bob"}},
    ],
    "current-context": "first",
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """A file of two clusters."""
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(FILE))
    return str(file)


def made(**options: Any) -> tuple[Json, Json, str]:
    """The cluster, the user and the namespace of some options."""
    config, namespace = configuration(Where(**options))
    return config["clusters"][0]["cluster"], config["users"][0]["user"], namespace


def test_the_current_context(kubeconfig: str) -> None:
    """Without options all is as in the file."""
    cluster, user, namespace = made(kubeconfig=kubeconfig)
    assert (cluster["server"], user, namespace) == ("https://one", {"token": "a"}, "team-a")


def test_parts_of_other_contexts(kubeconfig: str) -> None:
    """Context, cluster and user are chosen one by one."""
    cluster, user, namespace = made(kubeconfig=kubeconfig, context="second", user="ann")
    assert (cluster["server"], user, namespace) == ("https://two", {"token": "a"}, "")
    assert made(kubeconfig=kubeconfig, cluster="two")[0]["server"] == "https://two"


def test_a_token_takes_the_place_of_all_credentials(kubeconfig: str) -> None:
    """But not of the user who is impersonated."""
    _, user, _ = made(kubeconfig=kubeconfig, user="bob", token="t", as_group=["g"])
    assert user == {"as": "carol", "token": "t", "as-groups": ["g"]}


def test_another_server_and_authority(kubeconfig: str, tmp_path: Path) -> None:
    """The authority of the file does not count beside that of the options."""
    cluster, _, _ = made(kubeconfig=kubeconfig, server="https://three", certificate_authority="ca.pem")
    assert cluster == {"server": "https://three", "certificate-authority": "ca.pem"}


def test_a_server_needs_no_file(tmp_path: Path) -> None:
    """With a token it is all that is needed."""
    cluster, user, _ = made(kubeconfig=str(tmp_path / "none"), server="https://three", token="t")
    assert (cluster, user) == ({"server": "https://three"}, {"token": "t"})


def test_the_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod its service account is used, also to impersonate others, and its namespace."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("team-b\n")
    (tmp_path / "ca.crt").write_text("")
    monkeypatch.setattr(auth, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(auth.in_cluster, "__defaults__", (tmp_path,))
    monkeypatch.setattr(auth.service_account, "__defaults__", (tmp_path,))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cluster, user, namespace = made(act_as="dave")
    assert cluster["server"] == "https://10.0.0.1:443"
    assert user == {"tokenFile": str(tmp_path / "token"), "as": "dave"}
    assert namespace == "team-b"


@pytest.mark.parametrize(("option", "section"), [("context", "contexts"), ("cluster", "clusters"), ("user", "users")])
def test_a_name_that_is_not_there(kubeconfig: str, option: str, section: str) -> None:
    """The error names those that are."""
    with pytest.raises(InvalidValue, match=f"kubeconfig: {section}: 'x': no such entry; there are: "):
        made(kubeconfig=kubeconfig, **{option: "x"})


def test_the_namespace_of_a_question(kubeconfig: str, tmp_path: Path) -> None:
    """It is that of the options, else that of the context, and `default` where neither names one."""
    assert namespace_of(Where(kubeconfig=kubeconfig, namespace="mine")) == "mine"
    assert namespace_of(Where(kubeconfig=kubeconfig)) == "team-a"
    assert namespace_of(Where(kubeconfig=kubeconfig, context="second")) == "default"
    assert namespace_of(Where(kubeconfig=str(tmp_path / "none"))) == "default"


ASKING = {
    "explain": "explain workload/a",
    "when": "when --all",
    "what-if": "what-if --drop localqueue/a",
    "list": "list workload",
    "logs": "logs job/a",
    "top": "top --once",
    "create": "create localqueue a -c b",
    "stop": "stop localqueue a",
    "resume": "resume localqueue a",
    "delete": "delete workload a",
    "lint": "lint --live",
    "bundle": "bundle",
    "check": "check",
    "import": "import --queue a",
    "uninstall": "uninstall",
    "web": "web --port 0",
    "worker": "worker kubeconfig",
}
"""Commands that ask an API server, each with words that make it do so."""
WITHOUT = {
    "timeline",
    "usage",
    "config",
    "serve",
    "replay",
    "run",
    "completion",
    "version",
    "preflight",
    *passthrough.COMMANDS,
}
"""Commands that read files, or have tests of their own."""


def test_every_command_is_looked_at() -> None:
    """A new command asks an API server or does not."""
    assert ASKING.keys() | WITHOUT == {entry.name for entry in commands.COMMANDS}


@pytest.fixture
def kept_logs() -> Iterator[None]:
    """`web` sets up logs for its process, on a standard error that ends with the command: undone for later tests."""
    configuration, handlers, level = structlog.get_config(), logging.root.handlers[:], logging.root.level
    yield
    structlog.configure(**configuration)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.usefixtures("kept_logs")
@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in ASKING.items()])
def test_all_commands_take_the_same_options(kubeconfig: str, words: str) -> None:
    """Each looks for the context that is named before it, in the file that is named behind it, for another user."""
    app = commands.create(run=asyncio.run, clock=lambda: datetime.now(UTC))
    behind = ["--kubeconfig", kubeconfig, "--as", "alice", "--server", "https://three", "--cluster", "first"]
    given = ["--context", "x", *words.split(), *behind]
    done = CliRunner().invoke(app, given)
    assert (done.exit_code, done.stderr) == (
        2,
        "error: kubeconfig: contexts x: no such entry; there are: first, second\n",
    )
