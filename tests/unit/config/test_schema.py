"""The JSON schema of the configuration file takes what a file may say, and names what it may not."""

import json
from typing import Any

import pytest
import yaml

from tests.documents import ROOT
from tests.unit.config.files import HEAD, loaded
from turnstile.api.config.schema import schema

SCHEMA = schema()
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int,
    "number": (int, float), "boolean": bool, "null": type(None),
}  # fmt: skip
FILES = [
    "waitForPodsReady: {timeout: 10m}",
    "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}",
    "integrations: {frameworks: [batch/job, pod]}\nleaderElection: {leaderElect: true, leaseDuration: 15s}",
    "managedJobsNamespaceSelector: {matchLabels: {team: research}}\nfeatureGates: {PriorityBoost: true}",
    "resources: {excludeResourcePrefixes: [example.com/]}\nobjectRetentionPolicies: {workloads: {afterFinished: 1h}}",
]


def faults(part: Any, of: dict[str, Any], path: str = "") -> list[str]:
    """What a validator would find, of the words that the schema uses."""
    if "$ref" in of:
        return faults(part, SCHEMA["$defs"][of["$ref"].rpartition("/")[2]], path)
    if "anyOf" in of:
        found = [faults(part, each, path) for each in of["anyOf"]]
        return [] if [] in found else found[0]
    if "const" in of:
        return [] if part == of["const"] else [path]
    if "type" in of and (
        not isinstance(part, TYPES[of["type"]]) or (isinstance(part, bool) and of["type"] != "boolean")
    ):
        return [path]
    if isinstance(part, list):
        return [each for item in part for each in faults(item, of.get("items", {}), path)]
    if not isinstance(part, dict):
        return []
    others = of.get("additionalProperties", {})
    missing = [f"{path}.{name}" for name in of.get("required", ()) if name not in part]
    unknown = [f"{path}.{name}" for name in part if name not in of.get("properties", {}) and others is False]
    inner = ((name, value, of.get("properties", {}).get(name, others or {})) for name, value in part.items())
    return missing + unknown + [each for name, value, kind in inner for each in faults(value, kind, f"{path}.{name}")]


@pytest.mark.parametrize("body", FILES)
def test_it_takes_what_is_read(body: str) -> None:
    """As people write it, and as it is printed with all that holds."""
    assert faults(yaml.safe_load(HEAD + body), SCHEMA) == []
    assert faults(yaml.safe_load(loaded(body).text()), SCHEMA) == []


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("waitForPodsReady: {timeuot: 10m}", ".waitForPodsReady.timeuot"),
        ("manageJobsWithoutQueueName: sometimes", ".manageJobsWithoutQueueName"),
        ("integrations: {frameworks: pod}", ".integrations.frameworks"),
    ],
)
def test_it_names_what_is_wrong(body: str, path: str) -> None:
    """A field that is unknown, and values of a wrong type."""
    assert faults(yaml.safe_load(HEAD + body), SCHEMA) == [path]


def test_the_file_for_editors_is_fresh() -> None:
    """`make generate` writes it."""
    assert json.loads((ROOT / "docs/reference/configuration.schema.json").read_text()) == SCHEMA
