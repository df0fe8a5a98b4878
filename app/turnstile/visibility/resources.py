"""The API group: its versions, its kinds, and what a path of it means."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnstile.api import names
from turnstile.api.meta import ObjectMeta

GROUP: Final = names.VISIBILITY_GROUP
VERSIONS: Final = names.VISIBILITY_VERSIONS
"""Both have the same fields."""
SUBRESOURCE: Final = "pendingworkloads"
SUMMARY: Final = "PendingWorkloadsSummary"
RESOURCES: Final = (("clusterqueues", "clusterqueue", "ClusterQueue", False),
                    ("localqueues", "localqueue", "LocalQueue", True))  # fmt: skip
"""Plural, singular, kind, and whether the kind is namespaced."""
SINGULAR: Final = {plural: singular for plural, singular, _, _ in RESOURCES}

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 100_000

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class PendingWorkload(msgspec.Struct, rename="camel"):
    """A pending Workload and its positions. `priority` is that of the spec."""

    metadata: ObjectMeta
    priority: int
    local_queue_name: str
    position_in_cluster_queue: int
    position_in_local_queue: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The meaning of a request: about a resource if `version` is given, else of a path that is no resource."""

    method: str
    path: str
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def verb(self) -> str:
        """The verb of RBAC."""
        if not self.version:
            return self.method.lower()
        if self.method in _VERBS:
            return _VERBS[self.method]
        return "get" if self.name else "list"

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the request in a SubjectAccessReview."""
        if not self.version:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        return {
            "resourceAttributes": {
                "group": GROUP,
                "version": self.version,
                "resource": self.resource,
                "subresource": self.subresource,
                "namespace": self.namespace,
                "name": self.name,
                "verb": self.verb,
            }
        }

    def refusal(self, user: str) -> str:
        """The answer of the API server to a user without the right."""
        if not self.version:
            return f'forbidden: User "{user}" cannot {self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        name = f' "{self.name}"' if self.name else ""
        return (
            f'{self.resource}.{GROUP}{name} is forbidden: User "{user}" cannot {self.verb} resource "{resource}" in API'
            f' group "{GROUP}" {where}'
        )


def read(method: str, path: str) -> Asked:
    """The meaning of a request."""
    parts = path.strip("/").split("/")
    if len(parts) < 4 or parts[:2] != ["apis", GROUP]:
        return Asked(method, path)
    version, rest = parts[2], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, *below = [*rest, ""] if len(rest) == 1 else rest
    return Asked(method, path, version, namespace, resource, name, "/".join(below))


def page(limit: int, offset: int) -> tuple[int, int]:
    """Limit and offset as Kueue understands them: 0 is the default limit, and a negative limit gets nothing."""
    return min(max(0, limit or DEFAULT_LIMIT), MAX_LIMIT), max(0, offset)
