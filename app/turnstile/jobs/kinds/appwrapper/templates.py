"""The part of a pod template that a wrapper of jobs copies into its Workload, with the defaults of the API server.

The AppWrapper library computes the same on the client's side, so a Workload that Kueue made for a running AppWrapper
still equals what Turnstile computes. Unlike the library, everything that decides how much a pod requests is kept: the
restart policy of sidecars, the RuntimeClass, requests of the whole pod, and resource claims.
"""

from typing import Any, Final

Json = Any

_POD: Final = (
    "affinity",
    "nodeName",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
_POD_DEFAULTS: Final = {
    "dnsPolicy": "ClusterFirst",
    "preemptionPolicy": "PreemptLowerPriority",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_GRACE_PERIOD: Final = "terminationGracePeriodSeconds"
_CONTAINER: Final = ("args", "command", "image", "name", "restartPolicy", "securityContext")
_CONTAINER_DEFAULTS: Final = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_RESOURCES: Final = ("claims", "limits", "requests")


def shaped(template: dict[str, Json]) -> dict[str, Json]:
    """The pod template of a Workload for a PodTemplateSpec, or a Pod, in plain JSON. Raises TypeError or AttributeError
    if it is neither."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    kept = {name: spec[name] for name in _POD if spec.get(name)}
    kept |= {name: default if spec.get(name) is None else spec[name] for name, default in _POD_DEFAULTS.items()}
    if spec.get(_GRACE_PERIOD) is None:
        kept[_GRACE_PERIOD] = 30  # the default; the library does not copy one that is given
    for name in ("initContainers", "containers"):
        if containers := spec.get(name):
            kept[name] = [_container(each) for each in containers]
    texts = {
        name: {key: value for key, value in metadata[name].items() if isinstance(value, str)}
        for name in ("labels", "annotations")
        if metadata.get(name)
    }
    return {"metadata": texts, "spec": kept}


def _container(container: dict[str, Json]) -> dict[str, Json]:
    kept = {name: container[name] for name in _CONTAINER if container.get(name)}
    kept |= {name: container.get(name) or default for name, default in _CONTAINER_DEFAULTS.items()}
    resources = container.get("resources") or {}
    kept["resources"] = {name: resources[name] for name in _RESOURCES if resources.get(name)}
    kept["imagePullPolicy"] = container.get("imagePullPolicy") or (
        "Always" if _tag(container.get("image") or "") == "latest" else "IfNotPresent"
    )
    return kept


def _tag(image: str) -> str:
    """The tag of an image: `latest` if it has neither tag nor digest, empty if it has a digest only."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag or ("" if digest or not image else "latest")
