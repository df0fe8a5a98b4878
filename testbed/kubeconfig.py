"""Kubeconfig files, rendered from their parts, and read by the programs that stand in for others."""

import base64
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from testbed.client import Api


def write(
    path: Path,
    *,
    server: str,
    authority: Path,
    user: str,
    client: tuple[Path, Path] | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig with one cluster, one user and one context, all certificates embedded as data.

    `client` is a (certificate, key) pair of files; `token` a bearer token; one of them must be given.
    """
    if (client is None) == (token is None):
        raise ValueError("client and token: give exactly one of them")
    credentials: dict[str, object] = (
        {"token": token}
        if client is None
        else {"client-certificate-data": client[0].read_bytes(), "client-key-data": client[1].read_bytes()}
    )
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [
            {"name": "testbed", "cluster": {"server": server, "certificate-authority-data": authority.read_bytes()}}
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user, "namespace": namespace}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.dump(document, Dumper=_Dumper, sort_keys=False))
    return path


def service_account_client(path: Path) -> Api:
    """A client with the token of a kubeconfig that `write` has written."""
    config = yaml.safe_load(path.read_text())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    server = urlsplit(cluster["server"])
    return Api(str(server.hostname), int(server.port or 443), tls, headers={"Authorization": f"Bearer {token}"})


class _Dumper(yaml.SafeDumper):
    """Writes bytes as one base64 line without YAML's !!binary tag, as Kubernetes wants it."""


def _bytes(dumper: yaml.SafeDumper, data: bytes) -> yaml.ScalarNode:
    return dumper.represent_str(base64.b64encode(data).decode())


_Dumper.add_representer(bytes, _bytes)
