"""Additions of KubeRay to the pods that it makes from the templates of a Ray kind, as far as the pods request more for
them.

A head pod gets the autoscaler's container and, for a RayJob with a sidecar, the submitter's; the Redis cleanup Job of a
head with fault tolerance has one pod of the head's template with requests of its own. A worker pod gets an init
container that waits for the head. Pure functions on the JSON of a PodTemplateSpec: they return the template that is
charged, never the one that is written back, and raise msgspec.ValidationError for what is no template. Source:
KubeRay's ray-operator/controllers/ray/common/pod.go; what is added to heads is Kueue's rule too, what is added to
workers is not.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.pods import Container, PodTemplate, ResourceRequirements
from turnstile.api.quantity import from_int, to_int
from turnstile.api.remembered import remembered

FIXED: Final = {"cpu": "200m", "memory": "256Mi"}
"""Requests of the Redis cleanup Job's pod, and of the init container by which a worker waits for its head."""
NODE_TYPE: Final = "ray.io/node-type"
GROUP: Final = "ray.io/group"
_AUTOSCALER: Final = {
    "limits": {"cpu": "500m", "memory": "512Mi"},
    "requests": {"cpu": "500m", "memory": "512Mi"},
}
_SUBMITTER: Final = {
    "limits": {"cpu": "1", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "200Mi"},
}
_decode_template: Final = msgspec.json.Decoder(PodTemplate).decode


def pod_set(labels: Mapping[str, str]) -> str:
    """The pod set of a pod: KubeRay labels it with the name of its worker group, or as the head."""
    return "head" if labels.get(NODE_TYPE) == "head" else labels.get(GROUP, "").lower()


def autoscaler(resources: dict[str, Any] | None) -> dict[str, Any]:
    """The autoscaler's container, with the resources that the user gives to it, if any."""
    return {"name": "autoscaler", "resources": _AUTOSCALER if resources is None else resources}


def submitter(head: bytes | msgspec.Raw) -> dict[str, Any]:
    """The container by which KubeRay submits a RayJob where the user gives none; it has the head's image."""
    containers = _plain(head)["spec"].get("containers") or [{}]
    image = containers[0].get("image")
    return {"name": "ray-job-submitter", **({"image": image} if image else {}), "resources": _SUBMITTER}


def submitter_template(head: bytes | msgspec.Raw) -> bytes:
    """The template of the submitter's pod where the user gives none."""
    return msgspec.json.encode({"spec": {"containers": [submitter(head)], "restartPolicy": "Never"}})


def head_template(template: bytes, added: Sequence[dict[str, Any]], *, fault_tolerant: bool) -> bytes:
    """A head's template with the containers `added`; with fault tolerance, it requests no less than its cleanup. Raises
    PermanentError if it has no container for the head: the cleanup is made of that, and could not be charged."""
    if not added and not fault_tolerant:
        return template
    plain = _plain(template)
    spec = plain["spec"]
    containers = spec["containers"] = list(spec.get("containers") or [])
    if fault_tolerant and not containers:
        raise PermanentError("the head's template has no container, so that the Redis cleanup has none: give it one")
    if fault_tolerant:
        containers[0] = _at_least(containers[0])
    containers.extend(added)
    return msgspec.json.encode(plain)


def _at_least(container: dict[str, Any]) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    limits, requests = resources.get("limits") or {}, dict(resources.get("requests") or {})
    for name, value in FIXED.items():
        with suppress(InvalidValue):
            if to_int(name, requests.get(name, limits.get(name, "0"))) < to_int(name, value):
                requests[name] = value
    if requests:
        resources["requests"] = requests
    return {**container, "resources": resources}


@remembered()
def named_resources(template: bytes) -> tuple[str, ...]:
    """CPU and memory, the resources of a worker's init container, as far as a pod of the template names them."""
    view = _decode_template(template).spec
    own = (view.resources,) if view.resources is not None else ()
    named = [*own, *_named((*view.containers, *view.init_containers))]
    return tuple(name for name in FIXED if any(name in each.requests or name in each.limits for each in named))


@remembered()
def worker_template(template: bytes, beside: tuple[str, ...] = ()) -> bytes:
    """A worker's template with what its init container requests beyond the worker's own containers, as overhead.

    The overhead is no part of what is compared when a job is compared with its Workload, so that a Workload which Kueue
    made still fits its job. A resource that no pod of the job requests otherwise is not charged: its ClusterQueue need
    not have quota for it. `beside` are the resources that other pods of the job request. A pod with resources of its
    own, or of a RuntimeClass that has an overhead, stays as it is.
    """
    view = _decode_template(template).spec
    if view.resources is not None or view.runtime_class_name or view.overhead:
        return template
    asked = {*beside, *named_resources(template)}
    try:
        missing = {
            name: _missing(name, value, view.containers, view.init_containers)
            for name, value in FIXED.items()
            if name in asked
        }
    except InvalidValue:
        return template
    overhead = {name: from_int(name, amount) for name, amount in missing.items() if amount > 0}
    if not overhead:
        return template
    plain = _plain(template)
    plain["spec"]["overhead"] = overhead
    return msgspec.json.encode(plain)


def _plain(template: bytes | msgspec.Raw) -> dict[str, Any]:
    """A template as plain values; it has a spec."""
    _decode_template(template)
    plain: dict[str, Any] = msgspec.json.decode(bytes(template))
    plain.setdefault("spec", {})
    return plain


def _missing(resource: str, value: str, containers: Sequence[Container], before: Sequence[Container]) -> int:
    """How much more of a resource the init container requests than all others of the pod."""
    together = sum(_requested(resource, each) for each in containers)
    alone = max((_requested(resource, each) for each in before if each.restart_policy != "Always"), default=0)
    return to_int(resource, value) - max(together, alone)


def _named(containers: Sequence[Container]) -> list[ResourceRequirements]:
    return [each.resources for each in containers if each.resources is not None]


def _requested(resource: str, container: Container) -> int:
    resources = container.resources
    if resources is None:
        return 0
    return to_int(resource, resources.requests.get(resource, resources.limits.get(resource, "0")))
