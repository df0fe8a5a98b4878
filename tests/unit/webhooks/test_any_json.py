"""Whatever JSON comes in a review, a handler answers: it never raises, and a validating one never changes anything."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.jobs.samples import SAMPLES
from tests.unit.jobs.samples.sample import CONDITION, POD_TEMPLATE
from tests.unit.jobs.subjects import REGISTRY
from tests.unit.webhooks.reviews import Cluster, Json, request
from turnstile.api import names
from turnstile.api.timeannotations import MINIMUM_RUN_TIME
from turnstile.webhooks.review import Malformed, read, write
from turnstile.webhooks.routes import routes

PATHS = routes(Cluster(default_queue_in=("team-a",), has_default_priority_class=True, registry=REGISTRY))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def quota() -> Json:
    """A resource group."""
    resources = [{"name": "cpu", "nominalQuota": "10", "borrowingLimit": 5, "lendingLimit": "1"}]
    return {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": resources}]}


def seeds() -> dict[str, Json]:
    """A rich valid object a kind; the mutator starts here."""
    ours = {"apiVersion": names.API_VERSION, "metadata": {"name": "x", "finalizers": ["a/b"]}}
    return {
        **{each.kind.lower(): each.manifest() for each in SAMPLES.values()},
        "resourceflavor": {
            **ours,
            "kind": "ResourceFlavor",
            "spec": {
                "nodeLabels": {"a": "b"},
                "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
        },
        "clusterqueue": {
            **ours,
            "kind": "ClusterQueue",
            "spec": {
                "cohortName": "all",
                "resourceGroups": [quota()],
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
                "fairSharing": {"weight": "1"},
                "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["spot"]}]},
            },
        },
        "cohort": {**ours, "kind": "Cohort", "spec": {"parentName": "p", "resourceGroups": [quota()]}},
        "workloadpriorityclass": {
            **ours,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "x", "annotations": {MINIMUM_RUN_TIME: "30m"}},
            "value": 100,
        },
        "workload": {
            **ours,
            "kind": "Workload",
            "spec": {"podSets": [{"name": "main", "count": 2, "minCount": 1, "template": POD_TEMPLATE}], "priority": 1},
            "status": {
                "conditions": [CONDITION],
                "admission": {
                    "clusterQueue": "q",
                    "podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}],
                },
                "reclaimablePods": [{"name": "main", "count": 1}],
                "admissionChecks": [
                    {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "nodeSelector": {"a": "b"}}]}
                ],
            },
        },
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found += places(part, (*path, key))
    return found


@st.composite
def spoiled(draw: Callable[..., Any], seed: Json) -> Json:
    """The seed with up to three places replaced, taken out or doubled."""
    value = copy.deepcopy(seed)
    for _ in range(draw(st.integers(0, 3))):
        *parents, last = draw(st.sampled_from(places(value)))
        target = value
        for key in parents:
            target = target[key]
        match draw(st.sampled_from(("replace", "drop", "double"))):
            case "drop":
                del target[last]
            case "double" if isinstance(target, list):
                target.append(copy.deepcopy(target[last]))
            case _:
                target[last] = draw(json_values)
        if not places(value):
            break
    return value


@pytest.mark.parametrize("path", sorted(PATHS))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_handler_answers_whatever_the_objects_are(path: str, data: st.DataObject) -> None:
    """Allowed, changed, refused or to be tried again; always an answer that can be written."""
    seed = seeds()[path.rsplit("-", 1)[1]]
    new, old = data.draw(spoiled(seed)), data.draw(st.none() | spoiled(seed))
    sub_resource = data.draw(st.sampled_from(["", "", "status"]))
    asked = request(new, old=old, sub_resource=sub_resource, seen_as=seed)
    answer = PATHS[path](asked)
    assert answer.code in {0, 400, 403, 500}
    assert bool(answer.code) == bool(answer.message)
    if path.startswith("/validate"):
        assert answer.patch is None
    assert json.loads(write(asked.uid, answer))["response"]["uid"] == asked.uid


@settings(max_examples=examples(60), deadline=None)
@given(body=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_body_is_a_review_or_malformed(body: bytes) -> None:
    """There is no third way out."""
    try:
        uid = read(body).uid
    except Malformed as error:
        uid = str(error)
    assert uid
