"""The OpenAPI documents of the API group, version 2 and 3, which the aggregator merges into those of the API server."""

import hashlib
from typing import Any, Final

import msgspec

from turnstile import __version__
from turnstile.visibility.resources import DEFAULT_LIMIT, GROUP, RESOURCES, SUBRESOURCE, SUMMARY, VERSIONS

_KIND: Final = "x-kubernetes-group-version-kind"
_TEXTS: Final = {
    SUMMARY: "PendingWorkloadsSummary lists pending Workloads in the order in which they are tried.",
    "PendingWorkload": "PendingWorkload is a Workload that waits for quota, and its positions.",
}


def v3_index() -> dict[str, Any]:
    """`/openapi/v3`: where the document of each version is. The hash changes with the document."""
    paths = {}
    for version in VERSIONS:
        path = f"apis/{GROUP}/{version}"
        digest = hashlib.sha256(msgspec.json.encode(v3(version))).hexdigest()[:32].upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def v3(version: str) -> dict[str, Any]:
    """`/openapi/v3/apis/visibility.kueue.x-k8s.io/VERSION`."""
    prefix = "#/components/schemas/"
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": _paths(version, prefix),
        "components": {"schemas": _schemas(version, prefix)},
    }


def v2() -> dict[str, Any]:
    """`/openapi/v2`: all versions in one document."""
    prefix = "#/definitions/"
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for version in VERSIONS:
        paths |= _paths(version, prefix)
        definitions |= _schemas(version, prefix)
    return {"swagger": "2.0", "info": _info(), "paths": paths, "definitions": definitions}


def _info() -> dict[str, str]:
    return {"title": "Turnstile", "version": __version__}


def _definition(version: str, kind: str) -> str:
    return f"io.x-k8s.kueue.visibility.{version}.{kind}"


def _paths(version: str, prefix: str) -> dict[str, Any]:
    newer = not prefix.startswith("#/definitions")

    def parameter(name: str, place: str, kind: str, text: str, **more: Any) -> dict[str, Any]:
        typed: dict[str, Any] = {"type": kind, "uniqueItems": True} | more
        described: dict[str, Any] = {"name": name, "in": place, "description": text}
        described |= {"schema": typed} if newer else typed
        return described | ({"required": True} if place == "path" else {})

    paths: dict[str, Any] = {}
    for plural, _, kind, namespaced in RESOURCES:
        path = (
            f"/apis/{GROUP}/{version}/{'namespaces/{namespace}/' if namespaced else ''}{plural}/{{name}}/{SUBRESOURCE}"
        )
        in_path = [parameter("name", "path", "string", f"name of the {kind}")]
        if namespaced:
            in_path.append(parameter("namespace", "path", "string", "namespace of the LocalQueue"))
        schema = {"$ref": prefix + _definition(version, SUMMARY)}
        ok: dict[str, Any] = {"description": "OK"}
        ok |= {"content": {"application/json": {"schema": schema}}} if newer else {"schema": schema}
        operation: dict[str, Any] = {
            "description": f"read the pending Workloads of the {kind}",
            "operationId": f"readVisibilityKueueXK8sIo{version.capitalize()}{kind}Pendingworkloads",
            "tags": [f"visibilityKueueXK8sIo_{version}"],
            "parameters": [
                parameter("limit", "query", "integer", f"items at most; {DEFAULT_LIMIT} by default"),
                parameter("offset", "query", "integer", "items before the first; 0 by default"),
            ],
            "responses": {"200": ok},
            "x-kubernetes-action": "connect",
            _KIND: {"group": GROUP, "version": version, "kind": SUMMARY},
        }
        if not newer:
            operation |= {"produces": ["application/json"], "schemes": ["https"]}
        paths[path] = {"get": operation, "parameters": in_path}
    return paths


def _schemas(version: str, prefix: str) -> dict[str, Any]:
    def text(description: str, kind: str = "string", **more: Any) -> dict[str, Any]:
        return {"description": description, "type": kind, **more}

    owner = {
        "type": "object",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {name: text(f"{name} of the owner") for name in ("apiVersion", "kind", "name", "uid")},
    }
    metadata = {
        "description": "What is shown of the Workload's metadata.",
        "type": "object",
        "properties": {
            "name": text("Name of the Workload."),
            "namespace": text("Namespace of the Workload."),
            "creationTimestamp": text("When the Workload was created.", format="date-time"),
            "ownerReferences": {"description": "The jobs of the Workload.", "type": "array", "items": owner},
        },
    }
    int32 = {"format": "int32", "default": 0}
    item = {
        "description": _TEXTS["PendingWorkload"],
        "type": "object",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": metadata,
            "priority": text("Priority of the Workload.", "integer", **int32),
            "localQueueName": text("LocalQueue of the Workload.", default=""),
            "positionInClusterQueue": text("Position in the ClusterQueue, from 0.", "integer", **int32),
            "positionInLocalQueue": text("Position in the LocalQueue, from 0.", "integer", **int32),
        },
    }
    summary = {
        "description": _TEXTS[SUMMARY],
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("Version of the schema."),
            "kind": text("Kind of the object."),
            "metadata": text("Empty.", "object"),
            "items": {
                "description": "Pending Workloads in order.",
                "type": "array",
                "items": {"$ref": prefix + _definition(version, "PendingWorkload")},
            },
        },
        _KIND: [{"group": GROUP, "version": version, "kind": SUMMARY}],
    }
    return {_definition(version, SUMMARY): summary, _definition(version, "PendingWorkload"): item}
