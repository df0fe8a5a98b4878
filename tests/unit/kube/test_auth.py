"""Who we are and where the server is, from files as people have them."""

import asyncio
import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turnstile.api.errors import InvalidValue
from turnstile.kube import auth

pytestmark = pytest.mark.asyncio


def kubeconfig(path: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with one of everything, named after its file."""
    name = path.stem
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.example/", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
    }
    path.write_text(json.dumps(config))
    return path


class TestUsers:
    """Each way to prove who one is."""

    @pytest.mark.parametrize(
        ("user", "header"),
        [
            ({"token": "t0"}, "Bearer t0"),
            ({"username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
            ({}, ""),
        ],
    )
    async def test_the_header_says_it(self, tmp_path: Path, user: dict[str, Any], header: str) -> None:
        """Token, user and password, or nothing."""
        access = await auth.connect(str(kubeconfig(tmp_path / "one", user=user)))
        assert access.credentials.authorization() == header
        assert access.server == "http://one.example"

    async def test_a_token_file_goes_before_a_token_and_is_relative_to_its_kubeconfig(self, tmp_path: Path) -> None:
        """As kubectl has it."""
        (tmp_path / "secret").write_text("from-file\n")
        path = kubeconfig(tmp_path / "one", user={"token": "t0", "tokenFile": "secret"})
        assert (await auth.connect(str(path))).credentials.authorization() == "Bearer from-file"

    async def test_impersonation_goes_with_every_request(self, tmp_path: Path) -> None:
        """User, groups and extras."""
        user = {"token": "t", "as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"x/y": ["z"]}}
        access = await auth.connect(str(kubeconfig(tmp_path / "one", user=user)))
        assert access.headers == (
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-x/y", "z"),
        )

    async def test_a_plugin_is_asked_and_asked_again_when_refused(self, tmp_path: Path) -> None:
        """Its command is relative to the kubeconfig if it has a slash."""
        count = tmp_path / "count"
        count.write_text("")
        answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%s"}}'
        script = tmp_path / "plugin.sh"
        script.write_text(f"#!/bin/sh\nprintf x >> {count}\nprintf '{answer}' $(wc -c < {count})\n")
        script.chmod(0o755)
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh"}}
        access = await auth.connect(str(kubeconfig(tmp_path / "one", user=user)))
        assert access.credentials.authorization() == "Bearer t1"
        await access.credentials.refresh(access.tls)
        assert access.credentials.authorization() == "Bearer t2"

    async def test_where_the_client_library_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The image is without it: the error names the context and what to do."""
        monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh"}}
        with pytest.raises(InvalidValue, match="kubernetes-asyncio is needed"):
            await auth.connect(str(kubeconfig(tmp_path / "one", user=user)))

    async def test_the_plain_ways_do_not_load_the_client_library(self, tmp_path: Path) -> None:
        """It takes half of the memory that the whole program may have."""
        path = kubeconfig(tmp_path / "one", user={"token": "t"})
        code = (
            "import asyncio, sys; from turnstile.kube import auth, transport; "
            f"asyncio.run(auth.connect({str(path)!r})); "
            "sys.exit(any(name.startswith('kubernetes_asyncio') for name in sys.modules))"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        assert await process.wait() == 0


class TestFiles:
    """Several kubeconfig files are one."""

    async def test_what_is_named_first_wins(self, tmp_path: Path) -> None:
        """The current context and every entry."""
        one = kubeconfig(tmp_path / "one", user={"token": "first"})
        (tmp_path / "sub").mkdir()
        again = kubeconfig(tmp_path / "sub" / "one", user={"token": "second"})
        two = kubeconfig(tmp_path / "two", user={"token": "other"})
        paths = f"{one}:{again}:{two}:{tmp_path / 'missing'}"
        assert (await auth.connect(paths)).credentials.authorization() == "Bearer first"
        assert (await auth.connect(paths, "two")).credentials.authorization() == "Bearer other"

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "current-context"),
            ("- a\n- b\n", "not a mapping"),
            ("a: [", "not YAML"),
            ("users: [{user: {}}]", "every entry needs a name"),
            ("current-context: x", "no such entry; there are: none"),
        ],
    )
    async def test_a_malformed_one_says_what_is_wrong(self, tmp_path: Path, text: str, complaint: str) -> None:
        """With the place and the cure."""
        path = tmp_path / "config"
        path.write_text(text)
        with pytest.raises(InvalidValue, match=complaint):
            await auth.connect(str(path))

    async def test_a_missing_one_says_what_to_do(self, tmp_path: Path) -> None:
        """Rather than a traceback."""
        with pytest.raises(InvalidValue, match="give --kubeconfig or set KUBECONFIG"):
            await auth.connect(str(tmp_path / "none"))

    @pytest.mark.parametrize(
        ("cluster", "user", "complaint"),
        [
            ({"server": "ftp://x"}, {}, "expected an https:// URL"),
            ({"server": "https://x", "certificate-authority-data": "%%"}, {}, "not base64"),
            ({"server": "https://x", "certificate-authority-data": "Zm9v"}, {}, "no PEM certificate"),
            ({"server": "https://x", "certificate-authority": "none.pem"}, {}, "cannot be read"),
            ({"server": "https://x"}, {"client-certificate-data": "Zm9v"}, "come as a pair"),
            ({"proxy-url": "socks5://x"}, {}, "only http and https proxies"),
        ],
    )
    async def test_a_bad_field_is_named(
        self, tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], complaint: str
    ) -> None:
        """No traceback of the ssl module."""
        with pytest.raises(InvalidValue, match=complaint):
            await auth.connect(str(kubeconfig(tmp_path / "one", cluster=cluster, user=user)))


class TestProxies:
    """The environment's proxy, read once."""

    async def test_it_serves_far_servers_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Loopback is never proxied; `no_proxy` is heeded; the kubeconfig's own goes first."""
        monkeypatch.setenv("http_proxy", "http://proxy:3128")
        monkeypatch.setenv("no_proxy", "near.example")
        for server, extra, expected in (
            ("http://far.example", {}, "http://proxy:3128"),
            ("http://near.example", {}, None),
            ("http://127.0.0.1:1", {}, None),
            ("http://far.example", {"proxy-url": "http://own:1"}, "http://own:1"),
        ):
            path = kubeconfig(tmp_path / "one", cluster={"server": server, **extra})
            assert (await auth.connect(str(path))).proxy == expected


@dataclass
class Hand:
    """A clock moved by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class TestTokenFile:
    """A token that the kubelet renews."""

    async def test_it_is_read_again_every_minute(self, tmp_path: Path) -> None:
        """And not for every request."""
        path, clock = tmp_path / "token", Hand()
        path.write_text("one")
        token = auth.TokenFile(path, clock=clock)
        path.write_text("two")
        assert token.authorization() == "Bearer one"
        clock.now = 61.0
        assert token.authorization() == "Bearer two"

    async def test_the_last_good_one_stays_while_the_file_is_away(self, tmp_path: Path) -> None:
        """The kubelet's swap takes a moment."""
        path, clock = tmp_path / "token", Hand()
        path.write_text("one")
        token = auth.TokenFile(path, clock=clock)
        path.unlink()
        clock.now = 61.0
        assert token.authorization() == "Bearer one"

    async def test_an_empty_one_at_the_start_is_an_error(self, tmp_path: Path) -> None:
        """Nothing would ever be allowed."""
        path = tmp_path / "token"
        path.write_text("\n")
        with pytest.raises(InvalidValue, match="empty"):
            auth.TokenFile(path)


class TestInCluster:
    """The pod's service account."""

    async def test_a_pod_is_told_from_a_laptop(self, tmp_path: Path) -> None:
        """By the environment and the token together."""
        assert not auth.in_cluster({}, tmp_path)
        assert not auth.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
        (tmp_path / "token").write_text("t")
        assert auth.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)

    async def test_a_missing_authority_is_named(self, tmp_path: Path) -> None:
        """Not a handshake error later."""
        (tmp_path / "token").write_text("t")
        with pytest.raises(InvalidValue, match=r"ca\.crt"):
            auth.service_account({"KUBERNETES_SERVICE_HOST": "::1"}, tmp_path)
