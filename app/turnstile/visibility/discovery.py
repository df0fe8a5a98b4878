"""The discovery documents of the API group: which versions and resources there are.

A client of the API server sees them merged with those of all other groups; the aggregator asks for them here, in the
aggregated form at `/apis` if it knows it. `clusterqueues` and `localqueues` have no verb of their own: only their
subresource `pendingworkloads` can be read.
"""

from typing import Any, Final

from turnstile.visibility.resources import GROUP, RESOURCES, SUBRESOURCE, SUMMARY, VERSIONS

AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def wants_aggregated(accept: str) -> bool:
    """Whether a client prefers the aggregated document."""
    for each in accept.split(","):
        parameters = {part.strip() for part in each.split(";")}
        if "as=APIGroupDiscoveryList" in parameters and "v=v2" in parameters and "application/json" in parameters:
            return True
    return False


def group_list() -> dict[str, Any]:
    """`/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> dict[str, Any]:
    """`/apis/visibility.kueue.x-k8s.io`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def _group() -> dict[str, Any]:
    versions = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in VERSIONS]
    return {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}


def resource_list(version: str) -> dict[str, Any]:
    """`/apis/visibility.kueue.x-k8s.io/VERSION`."""
    resources: list[dict[str, Any]] = []
    for plural, singular, kind, namespaced in RESOURCES:
        common = {"namespaced": namespaced}
        resources.append({"name": plural, "singularName": singular, **common, "kind": kind, "verbs": []})
        below = {"name": f"{plural}/{SUBRESOURCE}", "singularName": "", **common, "kind": SUMMARY, "verbs": ["get"]}
        resources.append(below)
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{version}", "resources": resources
    }  # fmt: skip


def aggregated() -> dict[str, Any]:
    """`/apis` in one document: all groups, versions and resources."""

    def kind_of(version: str, kind: str) -> dict[str, str]:
        return {"group": GROUP, "version": version, "kind": kind}

    versions = [
        {
            "version": version,
            "freshness": "Current",
            "resources": [
                {
                    "resource": plural,
                    "responseKind": kind_of(version, kind),
                    "scope": "Namespaced" if namespaced else "Cluster",
                    "singularResource": singular,
                    "verbs": [],
                    "subresources": [
                        {"subresource": SUBRESOURCE, "responseKind": kind_of(version, SUMMARY), "verbs": ["get"]}
                    ],
                }
                for plural, singular, kind, namespaced in RESOURCES
            ],
        }
        for version in VERSIONS
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP, "creationTimestamp": None}, "versions": versions}],
    }
