"""Every way to prove who one is, against a server that checks."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import ControlPlane
from turnstile.api import errors
from turnstile.api.core import Namespace
from turnstile.kube import auth
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


def changed(source: Path, target: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> str:
    """A kubeconfig like another one, with another user or cluster fields (None takes one out)."""
    config = yaml.safe_load(source.read_text())
    fields = config["clusters"][0]["cluster"]
    fields.update(cluster)
    config["clusters"][0]["cluster"] = {key: value for key, value in fields.items() if value is not None}
    if user is not None:
        config["users"][0]["user"] = user
    target.write_text(json.dumps(config))
    return str(target)


def pem(entry: dict[str, str], name: str) -> bytes:
    """What a kubeconfig has under a name, in a file or inside."""
    inside = entry.get(f"{name}-data")
    return base64.b64decode(inside) if inside else Path(entry[name]).read_bytes()


async def names(kubeconfig: str) -> list[str]:
    """Namespaces as seen by that identity."""
    async with await Transport.connect(kubeconfig, timeout=3.0) as transport:
        return [each.metadata.name for each in await transport.list_all(Namespace)]


class TestIdentities:
    """The server knows us."""

    async def test_a_client_certificate(self, control_plane: ControlPlane) -> None:
        """As administrators have it."""
        assert "default" in await names(str(control_plane.kubeconfig()))

    async def test_a_client_certificate_inside_the_kubeconfig(
        self, control_plane: ControlPlane, tmp_path: Path
    ) -> None:
        """Base64 of PEM, as kind and most clouds write it."""
        user = yaml.safe_load(control_plane.kubeconfig().read_text())["users"][0]["user"]
        for name in ("client-certificate", "client-key"):
            user[f"{name}-data"] = base64.b64encode(pem(user, name)).decode()
            user.pop(name, None)
        assert "default" in await names(changed(control_plane.kubeconfig(), tmp_path / "config", user=user))

    async def test_the_token_of_a_service_account_in_a_pod(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """Read from the files that the kubelet mounts. It may do nothing yet, and is told who it is."""
        control_plane.kubectl("create", "serviceaccount", "robot", "-n", namespace)
        (tmp_path / "token").write_text(control_plane.service_account_token(namespace, "robot"))
        cluster = yaml.safe_load(control_plane.kubeconfig().read_text())["clusters"][0]["cluster"]
        (tmp_path / "ca.crt").write_bytes(pem(cluster, "certificate-authority"))
        host, port = control_plane.server.removeprefix("https://").split(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        async with Transport(auth.service_account(environment, tmp_path)) as transport:
            with pytest.raises(errors.Forbidden, match=f"system:serviceaccount:{namespace}:robot"):
                await transport.list_all(Namespace)
            (tmp_path / "token").write_text("forged")
            await transport._access.credentials.refresh(None)
            with pytest.raises(errors.Unauthorized):
                await transport.list_all(Namespace)

    async def test_a_plugin_that_gives_a_token(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        """As managed clusters have it. A token that is refused is asked for again, once."""
        control_plane.kubectl("create", "serviceaccount", "robot", "-n", namespace)
        token, status = control_plane.service_account_token(namespace, "robot"), tmp_path / "status"
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        status.write_text(json.dumps({**credential, "status": {"token": "stale"}}))
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [str(status)]}
        config = changed(control_plane.kubeconfig(), tmp_path / "config", user={"exec": plugin})
        async with await Transport.connect(config) as transport:
            status.write_text(json.dumps({**credential, "status": {"token": token}}))
            with pytest.raises(errors.Forbidden, match="robot"):
                await transport.list_all(Namespace)
            assert transport.stats.requests["GET", "401"] == 1

    async def test_impersonation(self, control_plane: ControlPlane, tmp_path: Path) -> None:
        """Administrators act as others to see what they may."""
        user = yaml.safe_load(control_plane.kubeconfig().read_text())["users"][0]["user"]
        config = changed(control_plane.kubeconfig(), tmp_path / "config", user={**user, "as": "jane"})
        with pytest.raises(errors.Forbidden, match='User "jane"'):
            await names(config)


class TestServers:
    """We know the server."""

    async def test_a_server_of_another_authority_is_refused_at_once(
        self, control_plane: ControlPlane, tmp_path: Path
    ) -> None:
        """Trying again would give the same certificate."""
        config = changed(
            control_plane.kubeconfig(),
            tmp_path / "config",
            **{"certificate-authority": None, "certificate-authority-data": None},
        )
        async with await Transport.connect(config) as transport:
            with pytest.raises(errors.ConnectionLost, match="certificate verify failed"):
                await transport.list_all(Namespace)
            assert transport.stats.requests["GET", "lost"] == 1

    async def test_the_name_to_check_may_be_given(self, control_plane: ControlPlane, tmp_path: Path) -> None:
        """For servers behind a tunnel."""
        right = changed(control_plane.kubeconfig(), tmp_path / "right", **{"tls-server-name": "kubernetes.default.svc"})
        assert "default" in await names(right)
        wrong = changed(control_plane.kubeconfig(), tmp_path / "wrong", **{"tls-server-name": "elsewhere.example"})
        with pytest.raises(errors.ConnectionLost, match="certificate"):
            await names(wrong)

    async def test_verification_may_be_switched_off(self, control_plane: ControlPlane, tmp_path: Path) -> None:
        """By him who says so in as many words."""
        config = changed(
            control_plane.kubeconfig(),
            tmp_path / "config",
            **{
                "certificate-authority": None,
                "certificate-authority-data": None,
                "insecure-skip-tls-verify": True,
                "server": control_plane.server + "/",
            },
        )
        access = await auth.connect(config)
        assert access.tls is not None
        assert access.tls.verify_mode == ssl.CERT_NONE
        assert "default" in await names(config)
