"""v1beta1 is v1beta2 as its views see it: every word of a view counts, and what no view names is the same."""

from typing import Any, get_type_hints

import msgspec
import pytest

from turnstile.api import crd
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.schema import View
from turnstile.api.v1beta1.views import VIEWS

VIEWED = sorted(VIEWS.items(), key=lambda item: item[0].__name__)


def versions(kinds: Definition) -> dict[str, Any]:
    """The entries of `spec.versions` by name."""
    return {entry["name"]: entry for entry in crd.definition(kinds)["spec"]["versions"]}


def of(kind: str) -> Definition:
    """The kind of that name."""
    return next(kinds for kinds in KINDS if kind == kinds.stored.KIND)


def part(kind: str, version: str, path: str) -> Any:
    """A part of a schema by the names of its fields; a list stands for its items."""
    found = versions(of(kind))[version]["schema"]["openAPIV3Schema"]
    for name in path.split("."):
        found = found.get("items", found)["properties"][name]
    return found


@pytest.mark.parametrize(("struct", "view"), VIEWED, ids=[struct.__name__ for struct, _ in VIEWED])
def test_every_word_counts(struct: type[msgspec.Struct], view: View) -> None:
    """A view names fields that there are, and is silent only of what the stored version says."""
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
    named = {*view.renamed, *view.dropped, *view.silent, *view.said}
    assert named <= set(fields)
    hints = get_type_hints(struct, include_extras=True)
    for name, words in view.silent.items():
        _, said = crd._unwrap(hints[fields[name]])
        assert all(getattr(said, word) is not None for word in words), name


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: kinds.stored.KIND)
def test_versions(kinds: Definition) -> None:
    """v1beta2 is stored; the others are deprecated, and served by us only once somebody converts."""
    stored, *older = versions(kinds).values()
    assert (stored["name"], stored["served"], stored["storage"]) == ("v1beta2", True, True)
    assert "deprecated" not in stored
    for entry in older:
        assert (entry["served"], entry["storage"]) == (not kinds.converted, False)
        assert entry.get("deprecated", False) == kinds.deprecated
        warning = "This version is deprecated. Use v1beta2 instead." if kinds.deprecated else None
        assert entry.get("deprecationWarning") == warning
        assert entry.get("subresources") == stored.get("subresources")


def test_same_schema() -> None:
    """Of a ResourceFlavor both versions say the same."""
    found = versions(of("ResourceFlavor"))
    assert found["v1beta1"]["schema"] == found["v1beta2"]["schema"]
    assert versions(of("ClusterQueue"))["v1alpha2"]["schema"] == versions(of("ClusterQueue"))["v1beta1"]["schema"]


@pytest.mark.parametrize(
    ("kind", "path", "changes"),
    [
        ("WorkloadPriorityClass", "description", {"maxLength": 2048}),
        ("Workload", "status.conditions", {"maxItems": 16}),
        ("Workload", "status.unhealthyNodes.name", {"maxLength": 63}),
        ("Workload", "spec.podSets.topologyRequest.subGroupCount", {"minimum": 0}),
        ("Workload", "status.admissionChecks.podSetUpdates.tolerations", {"x-kubernetes-list-type": "atomic"}),
        ("ClusterQueue", "spec.resourceGroups.coveredResources", {"x-kubernetes-list-type": "atomic"}),
        ("AdmissionCheck", "spec.parameters.apiGroup", {"minLength": 1}),
        (
            "ProvisioningRequestConfig",
            "spec.podSetUpdates.nodeSelector",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]},
        ),
    ],
)
def test_looser(kind: str, path: str, changes: dict[str, Any]) -> None:
    """v1beta1 lacks the limit and says the same else."""
    assert part(kind, "v1beta2", path) == part(kind, "v1beta1", path) | changes


def test_names_of_v1beta1() -> None:
    """Names to copy letter for letter."""
    assert part("ClusterQueue", "v1beta1", "spec.cohort") == part("ClusterQueue", "v1beta2", "spec.cohortName")
    assert "accumulatedPastExexcutionTimeSeconds" in part("Workload", "v1beta1", "status")["properties"]
    assert "flavorUsage" in part("LocalQueue", "v1beta1", "status")["properties"]
    assert versions(of("ClusterQueue"))["v1beta1"]["additionalPrinterColumns"][0]["jsonPath"] == ".spec.cohort"
    assert "selectableFields" not in versions(of("Workload"))["v1beta1"]


def test_rules_of_v1beta1() -> None:
    """Rules about a class go by its name and source; those about quota are the same."""
    rules = {
        version: {rule["message"] for rule in entry["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]}
        for version, entry in versions(of("Workload")).items()
    }
    assert not any("priorityClassRef" in message for message in rules["v1beta1"])
    assert {message for message in rules["v1beta2"] if "priorityClassRef" not in message} < rules["v1beta1"]
    assert sum("priorityClassSource is immutable" in message for message in rules["v1beta1"]) == 1
    (first, *_) = part("Topology", "v1beta1", "spec.levels")["x-kubernetes-validations"]
    assert first == {"rule": "self == oldSelf", "message": "field is immutable"}


def test_requires_what_v1beta1_requires() -> None:
    """Pod sets and their count are required there, and an assignment's name."""
    assert part("Workload", "v1beta1", "spec")["required"] == ["podSets"]
    assert "count" in part("Workload", "v1beta1", "spec.podSets")["items"]["required"]
    assert part("ClusterQueue", "v1beta1", "spec.admissionChecksStrategy").get("required") is None
