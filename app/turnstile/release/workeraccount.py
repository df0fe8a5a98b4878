"""The account of a MultiKueue manager on a worker cluster: its rights there, and a kubeconfig for it.

The rights are those that `turnstile.controllers.multikueue` uses, for every kind of jobs that can be sent away; a
manager with Kueue reads each object before it writes, and replaces Workloads. Nothing here is applied: an administrator
of the worker does that.
"""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api.errors import InvalidValue
from turnstile.jobs.integration import Integration
from turnstile.kube.transport import Transport

Plain = dict[str, Any]

_READ: Final = ["list", "watch"]
_SEND: Final = ["create", "list", "watch", "delete"]


def manifests(
    kinds: Iterable[Integration[Any]], *, name: str, namespace: str, queues: bool = False, kueue: bool = False
) -> list[Plain]:
    """A ServiceAccount, its ClusterRole and their binding. `queues`: the manager reads the queues of the worker, for
    the dispatcher by room or for automated quotas. `kueue`: the manager is Kueue."""
    read, send = (["get", *_READ], ["get", *_SEND]) if kueue else (_READ, _SEND)
    change = ["update", "patch"] if kueue else ["patch"]
    rules: list[Plain] = [
        {"apiGroups": [names.GROUP], "resources": ["workloads"], "verbs": [*send, *change]},
        {"apiGroups": [names.GROUP], "resources": ["workloads/status"], "verbs": change},
    ]
    if queues:
        rules.append({"apiGroups": [names.GROUP], "resources": ["clusterqueues", "localqueues"], "verbs": read})
    groups: dict[tuple[str, bool], list[str]] = {}
    for each in kinds:
        if each.copies is not None:
            groups.setdefault((each.kind.GROUP, each.copies.size is not None), []).append(each.kind.PLURAL)
    rules += [
        {"apiGroups": [group], "resources": sorted(plurals), "verbs": [*send, *change] if resized else send}
        for (group, resized), plurals in sorted(groups.items())
    ]
    definitions = {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": _READ}
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [*rules, definitions],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


async def token_of(transport: Transport, *, name: str, namespace: str, seconds: int) -> tuple[str, str]:
    """A token of a ServiceAccount, and when it expires, which the API server may choose to be earlier."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    answer = orjson.loads(await transport.request("POST", path, body=orjson.dumps(body), retry="never"))
    return answer["status"]["token"], answer["status"]["expirationTimestamp"]


def kubeconfig(cluster: Plain, *, server: str, token: str) -> Plain:
    """A kubeconfig with everything in it. `cluster` is the worker's entry in the kubeconfig of its administrator.
    Raises InvalidValue without a certificate authority: a manager takes no server that is not verified."""
    authority = cluster.get("certificate-authority-data", "")
    if not authority and (path := cluster.get("certificate-authority")):
        authority = base64.b64encode(Path(path).read_bytes()).decode()
    if not authority:
        cure = "give --certificate-authority: a manager takes no kubeconfig without one"
        raise InvalidValue("certificate-authority", "", cure)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "worker", "cluster": {"server": server, "certificate-authority-data": authority}},
        ],
        "users": [{"name": "manager", "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "manager"}}],
        "current-context": "worker",
    }
