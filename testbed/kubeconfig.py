"""Kubeconfig files, rendered from their parts."""

import base64
from pathlib import Path

import yaml


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


class _Dumper(yaml.SafeDumper):
    """Writes bytes as one base64 line without YAML's !!binary tag, as Kubernetes wants it."""


def _bytes(dumper: yaml.SafeDumper, data: bytes) -> yaml.ScalarNode:
    return dumper.represent_str(base64.b64encode(data).decode())


_Dumper.add_representer(bytes, _bytes)
