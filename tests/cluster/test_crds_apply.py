"""Server-side apply by two field managers: each owns its entries of a list, and only those."""

import itertools
from typing import Any

import pytest

from testbed import Api
from testbed.errors import ApiError
from tests.cluster.schema_server import Json, thing

pytestmark = pytest.mark.cluster

NAMES = (f"shared-{number}" for number in itertools.count())
TIME = "2026-01-02T03:04:05Z"


def template(image: str = "a") -> Json:
    """A pod template."""
    return {"spec": {"containers": [{"name": "c", "image": image}]}}


def pod_set(name: str, **fields: Any) -> Json:
    """A pod set of one pod."""
    return {"name": name, "count": 1, "template": template(), **fields}


def condition(kind: str, reason: str = "R") -> Json:
    """A condition."""
    return {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": TIME}


def check(name: str, state: str = "Pending") -> Json:
    """State of an admission check."""
    return {"name": name, "state": state, "message": "", "lastTransitionTime": TIME}


def flavor(name: str, quota: str = "1") -> Json:
    """Quota of a flavor."""
    return {"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]}


def names(items: list[Json], key: str = "name") -> list[str]:
    """What the entries are called."""
    return [item[key] for item in items]


def test_pod_sets(crd_api: Api) -> None:
    """Pod sets are told apart by name: two managers each bring one, and one leaves with who brought it."""
    name = next(NAMES)

    def apply(manager: str, *pod_sets: Json, force: bool = False) -> Json:
        obj = thing("Workload", name, {"podSets": list(pod_sets)}, namespace="default")
        return crd_api.apply(obj, field_manager=manager, force=force)

    apply("one", pod_set("a"))
    assert names(apply("two", pod_set("b"))["spec"]["podSets"]) == ["a", "b"]
    with pytest.raises(ApiError, match="conflict"):
        apply("two", pod_set("a", count=2), pod_set("b"))
    assert names(apply("one", pod_set("a"), pod_set("c"))["spec"]["podSets"]) == ["a", "b", "c"]
    assert names(apply("two")["spec"]["podSets"]) == ["a", "c"]


@pytest.mark.parametrize(
    ("field", "key", "entry"),
    [("conditions", "type", condition), ("admissionChecks", "name", check)],
    ids=["conditions", "admissionChecks"],
)
def test_status_lists(crd_api: Api, field: str, key: str, entry: Any) -> None:
    """Conditions are told apart by type and checks by name; each stays with who wrote it."""
    obj = crd_api.create(thing("Workload", next(NAMES), {"podSets": [pod_set("main")]}, namespace="default"))
    head = {name: obj[name] for name in ("apiVersion", "kind")}
    head["metadata"] = {name: obj["metadata"][name] for name in ("name", "namespace")}

    def apply(manager: str, *entries: Json, force: bool = False) -> list[Json]:
        body = head | {"status": {field: list(entries)}}
        found: list[Json] = crd_api.apply(body, field_manager=manager, force=force, subresource="status")["status"][
            field
        ]
        return found

    apply("one", entry("A"))
    assert names(apply("two", entry("B")), key) == ["A", "B"]
    other = "Other" if field == "conditions" else "Ready"
    with pytest.raises(ApiError, match="conflict"):
        apply("two", entry("A", other), entry("B"))
    apply("two", entry("A", other), entry("B"), force=True)
    assert names(apply("one", entry("C")), key) == ["A", "B", "C"]


def test_flavors(crd_api: Api) -> None:
    """Resource groups are one value, though flavors within have names: who applies one owns all of them."""
    name = next(NAMES)

    def apply(manager: str, *flavors: Json, force: bool = False) -> list[Json]:
        spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": list(flavors)}]}
        obj = crd_api.apply(thing("ClusterQueue", name, spec), field_manager=manager, force=force)
        found: list[Json] = obj["spec"]["resourceGroups"][0]["flavors"]
        return found

    apply("one", flavor("a"))
    with pytest.raises(ApiError, match="conflict"):
        apply("two", flavor("b"))
    assert names(apply("two", flavor("b"), force=True)) == ["b"]


def test_flavors_in_use(crd_api: Api) -> None:
    """Usage is told apart by flavor, and within by resource."""
    obj = crd_api.create(thing("ClusterQueue", next(NAMES), {}))
    head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}

    def apply(manager: str, *resources: str) -> Json:
        usage = [{"name": "f", "resources": [{"name": name, "total": "1"} for name in resources]}]
        body = head | {"status": {"flavorsUsage": usage}}
        found: Json = crd_api.apply(body, field_manager=manager, force=False, subresource="status")
        return found

    apply("one", "cpu")
    (entry,) = apply("two", "memory")["status"]["flavorsUsage"]
    assert names(entry["resources"]) == ["cpu", "memory"]
