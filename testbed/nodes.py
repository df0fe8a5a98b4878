"""Node objects as a kubelet would register them. Pure: words in, manifest out."""

from collections.abc import Mapping, Sequence
from typing import Any


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str] | str] = (),
    cpu: str | int = 8,
    memory: str = "32Gi",
    pods: int = 110,
    extra: Mapping[str, str | int] | None = None,
) -> dict[str, Any]:
    """A Node with its capacity; `extra` adds resources (`{"nvidia.com/gpu": 8}`), a taint may be `key=value:Effect`."""
    capacity = {key: str(value) for key, value in {"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})}.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **(labels or {}),
            },
        },
        "spec": {"taints": [_taint(taint) for taint in taints]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether the Node is Ready and rid of the taints that keep pods off a node that is not."""
    conditions = obj.get("status", {}).get("conditions", ())
    ready = any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
    taints = obj.get("spec", {}).get("taints", ())
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)


def _taint(taint: Mapping[str, str] | str) -> dict[str, str]:
    if not isinstance(taint, str):
        return dict(taint)
    pair, colon, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    if not colon or not key:
        raise ValueError(f"taint: {taint!r} is not of the form key=value:Effect or key:Effect")
    return {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}
