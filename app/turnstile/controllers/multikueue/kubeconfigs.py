"""Checks what a kubeconfig for a worker cluster contains, and returns the access that it gives.

A kubeconfig comes from a Secret or a file, and is not trusted: nothing in it may run a program, read a file of this
process's machine, or send credentials to a server that was not verified. Must never write.
"""

import ipaddress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from turnstile.api.errors import InvalidValue
from turnstile.api.validation.labels import subdomain_faults
from turnstile.kube import auth

FOLDER: Final = Path("/etc/multikueue/kubeconfigs")
"""Kubeconfigs in files are read below this folder only."""
KEY: Final = "kubeconfig"
"""The key of a Secret that holds a kubeconfig."""

_FILES: Final = (
    ("tokenFile", "tokenFile is not allowed"),
    ("client-certificate", "client certificates must be inline, as client-certificate-data"),
    ("client-key", "client keys must be inline, as client-key-data"),
    ("exec", "exec plugins are not allowed"),
    ("auth-provider", "auth providers are not allowed"),
    ("username", "basic auth is not allowed"),
    ("password", "basic auth is not allowed"),
)


class BadKubeConfig(Exception):
    """A kubeconfig cannot be used. `reason` is that of the cluster's condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def access_by(data: bytes) -> auth.Access:
    """Server and identity of a kubeconfig. Raises BadKubeConfig."""
    config = _parse(data)
    if fault := fault_of(config):
        raise BadKubeConfig("InsecureKubeConfig", f"load client config failed: {fault}")
    try:
        return await auth.from_kubeconfig(config)
    except InvalidValue as error:
        raise BadKubeConfig("BadKubeConfig", f"load client config failed: {error}") from None


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
    for entry in config["users"]:
        user = entry.get("user") or {}
        for name, fault in _FILES:
            if user.get(name):
                return fault
    for entry in config["clusters"]:
        cluster = entry.get("cluster") or {}
        if cluster.get("insecure-skip-tls-verify"):
            return "insecure-skip-tls-verify is not allowed"
        if cluster.get("certificate-authority"):
            return "certificate-authority must be inline, as certificate-authority-data"
        if not cluster.get("server"):
            return "server is not specified"
        if fault := _server_fault(str(cluster["server"])):
            return fault
    return ""


def _server_fault(server: str) -> str:
    url = urlsplit(server if "://" in server else f"https://{server}")
    host = url.hostname or ""
    if url.scheme != "https":
        return f"untrusted server endpoint: {server}"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return f"untrusted server endpoint: {server}" if not host or subdomain_faults(host) else ""
    return ""


def _parse(data: bytes) -> dict[str, Any]:
    """The kubeconfig as `auth.merge` returns one. Raises BadKubeConfig."""
    try:
        plain = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise BadKubeConfig("BadKubeConfig", "load client config failed: the kubeconfig is not YAML") from None
    config = plain if isinstance(plain, dict) else {}
    sections = {name: config.get(name) or [] for name in ("clusters", "users", "contexts")}
    for name, entries in sections.items():
        if not isinstance(entries, list) or not all(isinstance(each, dict) and "name" in each for each in entries):
            raise BadKubeConfig("BadKubeConfig", f"load client config failed: {name} is no list of named entries")
        inner = name.removesuffix("s")
        if any(not isinstance(each.get(inner) or {}, dict) for each in entries):
            raise BadKubeConfig("BadKubeConfig", f"load client config failed: {inner} is no mapping")
    if not sections["clusters"]:
        raise BadKubeConfig("BadKubeConfig", "load client config failed: the kubeconfig names no cluster")
    return {**sections, "current-context": config.get("current-context") or ""}
