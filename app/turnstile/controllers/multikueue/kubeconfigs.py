"""Checks what a kubeconfig for a worker cluster contains, and returns the access that it gives.

A kubeconfig comes from a Secret or a file, and is not trusted: nothing in it may run a program, read a file of this
process's machine, or send credentials to a server that was not verified. Must never write.
"""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from turnstile.api import yamltext
from turnstile.api.core import Secret
from turnstile.api.errors import InvalidValue
from turnstile.api.validation.labels import subdomain_faults
from turnstile.kube import auth

FOLDER: Final = Path("/etc/multikueue/kubeconfigs")
"""Kubeconfigs in files are read below this folder only."""
KEY: Final = "kubeconfig"
"""The key of a Secret that holds a kubeconfig."""
MOST: Final = 1 << 18
"""Bytes that a kubeconfig may have: parsing a larger text would keep the leader from its other work."""

_OF_USERS: Final = (
    ("client-certificate", "client certificates must be inline, as client-certificate-data"),
    ("client-key", "client keys must be inline, as client-key-data"),
    ("exec", "exec plugins are not allowed"),
    ("auth-provider", "auth providers are not allowed"),
    ("username", "basic auth is not allowed"),
    ("password", "basic auth is not allowed"),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a cluster is reached: reason and message of its condition Active."""

    reason: str
    message: str

    @property
    def active(self) -> bool:
        """Whether it is."""
        return self.reason == ACTIVE


ACTIVE: Final = "Active"


class BadKubeConfig(Exception):
    """A kubeconfig cannot be used, so the cluster is not reached: `standing` says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.standing = refused(reason, message)


def refused(reason: str, message: str) -> Standing:
    """The standing of a cluster whose kubeconfig cannot be used."""
    return Standing(reason, f"load client config failed: {message}")


NO_PROFILES: Final = refused(
    "MultiKueueClusterProfileFeatureDisabled", "MultiKueueClusterProfile feature gate is disabled"
)
"""The standing of a cluster that names a ClusterProfile."""


async def access_by(data: bytes) -> auth.Access:
    """Server and identity of a kubeconfig. Raises BadKubeConfig."""
    try:
        return await auth.from_kubeconfig(checked(data))
    except InvalidValue as error:
        raise BadKubeConfig("BadKubeConfig", str(error)) from None


def checked(data: bytes) -> dict[str, Any]:
    """The kubeconfig as `auth.merge` returns one. Raises BadKubeConfig if it has what is not allowed."""
    config = _parse(data)
    if fault := fault_of(config):
        raise BadKubeConfig("InsecureKubeConfig", fault)
    return config


def in_secret(name: str, namespace: str, secret: Secret | None) -> bytes | Standing:
    """The kubeconfig in a Secret, or why there is none."""
    if secret is None:
        return refused("BadKubeConfig", f'Secret "{name}" not found')
    found = secret.data.get(KEY)
    return found or refused("BadKubeConfig", f'key "{KEY}" not found in secret "{namespace}/{name}"')


def in_file(location: str, *, safe: bool, folder: Path | None = None) -> bytes | Standing:
    """The kubeconfig in a file, or why it cannot be read. `safe`: only files below the folder are read."""
    if safe and (fault := path_fault(location, folder or FOLDER)):
        return refused("BadKubeConfig", fault)
    try:
        with Path(location).open("rb") as file:
            return file.read(MOST + 1)  # one more, so that it is known to be too large
    except OSError as error:
        return refused("BadKubeConfig", f"{location}: {error.strerror}")


def path_fault(location: str, folder: Path = FOLDER) -> str:
    """Why a file may not be read as a kubeconfig; empty if it may."""
    path = Path(location)
    if not path.is_absolute():
        return f"path {location} is not absolute"
    if ".." in path.parts:
        return f"path {location} has the element '..'"
    if not path.resolve().is_relative_to(folder.resolve()):
        return f"path {location} is not below {folder}"
    return ""


def fault_of(config: dict[str, Any]) -> str:
    """The fault of a kubeconfig that contains what is not allowed; empty if it has none."""
    users = [entry.get("user") or {} for entry in config["users"]]
    if any(user.get("tokenFile") for user in users):
        return "tokenFile is not allowed"
    for entry in config["clusters"]:
        if fault := cluster_fault(str(entry["name"]), entry.get("cluster") or {}):
            return fault
    return next((fault for user in users for name, fault in _OF_USERS if user.get(name)), "")


def cluster_fault(name: str, cluster: dict[str, Any]) -> str:
    """The fault of a cluster in a kubeconfig by which no server may be reached; empty if it has none."""
    if cluster.get("insecure-skip-tls-verify"):
        return f"insecure TLS verification is not allowed for cluster {name}"
    if cluster.get("certificate-authority"):
        instead = "use certificate-authority-data"
        return f"certificate-authority file paths are not allowed, {instead} for cluster {name}"
    if not cluster.get("server"):
        return f"server URL is required for cluster {name}"
    return "" if _is_trusted(str(cluster["server"])) else "untrusted server endpoint"


def _is_trusted(server: str) -> bool:
    """Whether a server is reached by TLS, and named by an address or a DNS name."""
    url = urlsplit(server if "://" in server else f"https://{server}")
    host = url.hostname or ""
    if url.scheme != "https":
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and not subdomain_faults(host)
    return True


def _parse(data: bytes) -> dict[str, Any]:
    """The kubeconfig as `auth.merge` returns one. Raises BadKubeConfig."""
    if len(data) > MOST:
        raise BadKubeConfig("BadKubeConfig", f"the kubeconfig has more than {MOST >> 10} KiB")
    try:
        (plain,) = yamltext.documents(data.decode())
    except yamltext.Aliased as error:
        raise BadKubeConfig("BadKubeConfig", f"the kubeconfig {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadKubeConfig("BadKubeConfig", "the kubeconfig is not YAML") from None
    config = plain if isinstance(plain, dict) else {}
    sections = {name: config.get(name) or [] for name in ("clusters", "users", "contexts")}
    for name, entries in sections.items():
        if not isinstance(entries, list) or not all(isinstance(each, dict) and "name" in each for each in entries):
            raise BadKubeConfig("BadKubeConfig", f"{name} is no list of named entries")
        inner = name.removesuffix("s")
        if any(not isinstance(each.get(inner) or {}, dict) for each in entries):
            raise BadKubeConfig("BadKubeConfig", f"{inner} is no mapping")
    if not sections["clusters"]:
        raise BadKubeConfig("BadKubeConfig", "the kubeconfig names no cluster")
    return {**sections, "current-context": config.get("current-context") or ""}
