"""Words for the webhook tests: reviews, objects and the little of the cluster that handlers see."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import msgspec

from turnstile.advice.offer import Offer
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.registry import Registry
from turnstile.webhooks.review import Answer, GroupVersionKind, Handler, Request

Json = dict[str, Any]
MANAGED = {"kubernetes.io/metadata.name": "team-a"}


@dataclass
class Cluster:
    """A World made of plain values."""

    options: JobOptions = field(
        default_factory=lambda: JobOptions(managed_jobs_namespace_selector=namespaces(without=["kube-system"]))
    )
    default_queue_in: tuple[str, ...] = ()
    has_default_priority_class: bool = False
    sent_away: tuple[str, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    jobs: tuple[Kind, ...] = ()
    registry: Registry = field(default_factory=Registry)
    offer: Offer | None = None

    def default_local_queue(self, namespace: str) -> bool:
        """Namespaces with a LocalQueue `default` are listed."""
        return namespace in self.default_queue_in

    def sends_away(self, namespace: str, queue: str) -> bool:
        """Queues whose jobs run on other clusters are listed, as `namespace/name`."""
        return f"{namespace}/{queue}" in self.sent_away

    def default_priority_class(self) -> bool:
        """As told."""
        return self.has_default_priority_class

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """None for a namespace that the cache has not seen."""
        return self.namespaces.get(namespace)

    def find(self, kind: type[Kind], key: str) -> Kind | None:
        """Jobs of the cluster by key."""
        return next((job for job in self.jobs if isinstance(job, kind) and job.metadata.key == key), None)


def job(*, labels: Json | None = None, annotations: Json | None = None, owner: Json | None = None, **spec: Any) -> Json:
    """A batch Job of namespace team-a, as the API server sends it."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata("job", labels, annotations, owner),
        "spec": {"parallelism": 1, "completions": 1, "template": _template(), **spec},
        "status": {},
    }


def pod(*, labels: Json | None = None, annotations: Json | None = None, owner: Json | None = None, **spec: Any) -> Json:
    """A Pod of namespace team-a, as the API server sends it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata("pod", labels, annotations, owner),
        "spec": {**_template()["spec"], **spec},
        "status": {},
    }


def owned_by(kind: str, name: str, *, uid: str = "uid-1", api_version: str = "batch/v1") -> Json:
    """An owner reference of a controller."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def _metadata(name: str, labels: Json | None, annotations: Json | None, owner: Json | None) -> Json:
    metadata: Json = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}", "creationTimestamp": None}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if owner:
        metadata["ownerReferences"] = [owner]
    return metadata


def _template() -> Json:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"creationTimestamp": None}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def request(
    obj: Json | None,
    *,
    old: Json | None = None,
    operation: str = "",
    sub_resource: str = "",
    namespace: str = "team-a",
    seen_as: Json | None = None,
) -> Request:
    """The request of a review: an update if there is an old object. `seen_as` has the kind, else `obj` has."""
    kind = seen_as or obj or old or {}
    group, _, version = kind.get("apiVersion", "v1").rpartition("/")
    return Request(
        uid="review-1",
        kind=GroupVersionKind(group=group, version=version, kind=kind.get("kind", "")),
        operation=operation or ("UPDATE" if old else "CREATE"),
        sub_resource=sub_resource,
        namespace=namespace,
        object=msgspec.Raw(json.dumps(obj).encode()),
        old_object=msgspec.Raw(json.dumps(old).encode()),
    )


def operations(answer: Answer) -> list[Json]:
    """The operations of the patch, none if there is no patch."""
    return json.loads(answer.patch.encode()) if answer.patch else []


def mutated(handler: Handler, obj: Json, **options: Any) -> Json:
    """The object as the API server would go on with it; asks the handler again and expects nothing more to change."""
    answer = handler(request(obj, **options))
    assert not answer.code, answer.message
    after: Json = jsonpatch.apply_patch(obj, operations(answer))
    again = handler(request(after, **options))
    assert operations(again) == []
    return after


def refusal(handler: Handler, obj: Json, *, old: Json | None = None) -> str:
    """Why the object is refused; empty if it is allowed. No validating handler may change anything."""
    answer = handler(request(obj, old=old))
    assert answer.patch is None
    assert answer.code in {0, 403}
    return answer.message


def meta(**fields: Any) -> ObjectMeta:
    """Metadata of an object in team-a."""
    return ObjectMeta(namespace="team-a", **fields)
