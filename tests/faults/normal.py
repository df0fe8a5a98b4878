"""A namespace and its queues in a normal form: all objects without ids, times and names by lot.

Two runs of the same lifecycle that ended the same way have the same normal form, whatever happened between. Must leave
nothing out that a user can see and that does not depend on chance.
"""

import json
import re
from typing import Any, Final

from testbed.client import Json, resource_path
from testbed.errors import ApiError
from tests.cluster.scenario import GROUP, Scenario

Form = dict[str, list[Any]]
"""Objects by kind, sorted."""
NAMESPACED: Final = (
    ("batch/v1", "jobs"),
    ("apps/v1", "deployments"),
    ("apps/v1", "statefulsets"),
    ("v1", "pods"),
    ("v1", "podtemplates"),
    ("autoscaling.x-k8s.io/v1", "provisioningrequests"),
    (GROUP, "workloads"),
    (GROUP, "localqueues"),
)
CLUSTER: Final = ("clusterqueues", "cohorts")

_BY_CHANCE: Final = {
    "uid", "resourceVersion", "generation", "observedGeneration", "managedFields", "selfLink", "nodeName", "hostIP",
    "hostIPs", "podIP", "podIPs", "hash", "generateName", "currentRevision", "updateRevision",
    "accumulatedPastExecutionTimeSeconds", "terminating", "uncountedTerminatedPods",
}  # fmt: skip
"""Fields that differ from run to run, or that other controllers write whenever they come to it."""
_REPLICA: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_REPLACED: Final = (
    (re.compile(rf"-{_REPLICA}{{8,10}}(-{_REPLICA}{{5}})?(?![0-9a-z])"), "-HASH"),
    (re.compile(rf'"{_REPLICA}{{8,10}}"'), '"HASH"'),  # of the template of a Deployment
    (re.compile(r"\b(job|pod|statefulset)-([a-zA-Z0-9-]+?)-[0-9a-f]{5}\b"), r"\1-\2-HASH"),  # Workloads
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b[0-9a-f]{40,64}\b"), "DIGEST"),
    (re.compile(r"kube-api-access-[0-9a-z]{5}\b"), "kube-api-access-HASH"),
)
_POD_STATUS: Final = ("phase", "reason")


def normal_form(scenario: Scenario) -> Form:
    """All objects of the namespace, and the queues of the scenario, by kind."""
    found: Form = {}
    for version, plural in NAMESPACED:
        try:
            items = scenario.api.items(resource_path(version, plural, namespace=scenario.namespace))
        except ApiError as error:
            if error.code != 404:
                raise
            continue
        found[plural] = _sorted(_reduced(plural, each) for each in items)
    for plural in CLUSTER:
        items = scenario.api.items(resource_path(GROUP, plural))
        ours = [each for each in items if each["metadata"]["name"].endswith(f"-{scenario.namespace}")]
        found[plural] = _sorted(_reduced(plural, each) for each in ours)
    text = json.dumps(found).replace(scenario.namespace, "NS")
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    return {plural: _sorted(items) for plural, items in json.loads(text).items()}


def difference(ours: Form, wanted: Form) -> str:
    """What differs, for people; empty if nothing does."""
    lines: list[str] = []
    for plural in wanted:
        _compare(plural, ours[plural], wanted[plural], lines)
    return "\n".join(lines)


def _compare(path: str, ours: Any, wanted: Any, lines: list[str]) -> None:
    if ours == wanted:
        return
    if isinstance(ours, dict) and isinstance(wanted, dict):
        for key in sorted({*ours, *wanted}):
            _compare(f"{path}.{key}", ours.get(key), wanted.get(key), lines)
    elif isinstance(ours, list) and isinstance(wanted, list) and len(ours) == len(wanted):
        for index, (left, right) in enumerate(zip(ours, wanted, strict=True)):
            _compare(f"{path}[{index}]", left, right, lines)
    else:
        lines.append(f"{path}: {json.dumps(ours)} instead of {json.dumps(wanted)}")


def _reduced(plural: str, obj: Json) -> Any:
    if plural != "pods":
        return _without_chance(obj)
    meta = {**obj["metadata"]}
    if (meta.get("generateName") or "").endswith("-"):
        meta["name"] = meta["generateName"]
    status = {key: obj["status"][key] for key in _POD_STATUS if key in obj["status"]}
    return _without_chance({**obj, "metadata": meta, "status": status})


def _without_chance(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_chance(each)
            for key, each in value.items()
            if key not in _BY_CHANCE and each not in (None, {})
        }
    if isinstance(value, list):
        parts = [_without_chance(each) for each in value]
        if all(isinstance(each, dict) and "type" in each for each in parts):
            return sorted(parts, key=lambda each: str(each["type"]))  # conditions
        return parts
    return value


def _sorted(items: Any) -> list[Any]:
    return sorted(items, key=lambda each: json.dumps(each, sort_keys=True))
