"""Paths of objects on the API server, from plain names."""

from typing import Final
from urllib.parse import quote

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = f"{GROUP}/v1beta2"
VISIBILITY: Final = "visibility.kueue.x-k8s.io/v1beta2"


def path_of(version: str, collection: str, name: str = "", namespace: str = "") -> str:
    """The path of a collection or an object, from its API version and its plural."""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    middle = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{middle}/{collection}" + (f"/{quote(name, safe='')}" if name else "")
