"""The role of a pod in its group: which of its peers ask for the same.

Pods of one role make up one pod set. Must never look at images, commands, environment or volumes: quota and placement
do not depend on them. Source: Kueue's pkg/controller/jobs/pod, role hash.
"""

import hashlib
from typing import Any, Final

import msgspec


class _Resources(msgspec.Struct):
    requests: Any = None


class _Container(msgspec.Struct):
    ports: Any = None
    resources: _Resources | None = None


class _Shape(msgspec.Struct):
    """The part of a pod's spec that makes its role, as the API server sends it: names and order of the wire."""

    affinity: Any = None
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    nodeSelector: Any = None  # noqa: N815
    overhead: Any = None
    priority: Any = None
    resourceClaims: Any = None  # noqa: N815
    runtimeClassName: Any = None  # noqa: N815
    tolerations: Any = None
    topologySpreadConstraints: Any = None  # noqa: N815
    resources: _Resources | None = None


_decode: Final = msgspec.json.Decoder(_Shape).decode
_encode: Final = msgspec.json.Encoder().encode
_HTML: Final = ((b"&", rb"\u0026"), (b"<", rb"\u003c"), (b">", rb"\u003e"))


def role_hash(spec: bytes | msgspec.Raw) -> str:
    """The role of a pod in its group: 8 hexadecimal digits over the shape of its spec (JSON).

    The shape is what quota and placement depend on, without images, commands and volumes. It is written as Kueue
    writes it, so that both agree on the role of one pod: keys sorted, absent parts null, Go's escapes of `<`, `>`, `&`.
    Raises `msgspec.MsgspecError` if the spec is not a pod's.
    """
    decoded = _decode(spec)
    shape: dict[str, Any] = {
        "affinity": decoded.affinity,
        "containers": _containers(decoded.containers),
        "initContainers": _containers(decoded.initContainers),
        "nodeSelector": decoded.nodeSelector or None,
        "overhead": decoded.overhead or None,
        "priority": decoded.priority,
        "resourceClaims": decoded.resourceClaims or None,
    }
    if decoded.resources and decoded.resources.requests:
        shape["resources"] = {"requests": decoded.resources.requests}
    shape["runtimeClassName"] = decoded.runtimeClassName
    shape["tolerations"] = decoded.tolerations or None
    shape["topologySpreadConstraints"] = decoded.topologySpreadConstraints or None
    text = _encode({"spec": shape})
    for plain, escaped in _HTML:
        text = text.replace(plain, escaped)
    return hashlib.sha256(text).hexdigest()[:8]


def _containers(containers: list[_Container] | None) -> list[dict[str, Any]] | None:
    if not containers:
        return None
    return [  # requests are an empty map where there are none: the known hashes are made with it
        {
            "ports": container.ports or None,
            "resources": {"requests": (container.resources.requests if container.resources else None) or {}},
        }
        for container in containers
    ]
