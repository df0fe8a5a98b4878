"""Objects keep all that both versions know, there and back; what is lost is what the module says."""

import asyncio
import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.api import schemas
from tests.unit.api.schemas import Json
from turnstile.api.errors import InvalidValue
from turnstile.api.kinds import KINDS
from turnstile.api.topologyassignment import MAX_DOMAINS, compact, expand
from turnstile.api.v1beta1.conversion import convert
from turnstile.webhooks import conversion

CONVERTED = [kinds.stored.KIND for kinds in KINDS if kinds.converted]


def child(obj: Json, *path: str) -> Json:
    """A part of an object, an empty one if it is not there."""
    for name in path:
        obj = obj.get(name) or {}
    return obj


def lost_from_v1beta1(obj: Json) -> Json:
    """A v1beta1 object as it comes back."""
    spec, status = child(obj, "spec"), child(obj, "status")
    match obj["kind"]:
        case "ClusterQueue":
            if checks := spec.pop("admissionChecks", None):
                spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in checks]}
            fungibility = child(spec, "flavorFungibility")
            for name, value in list(fungibility.items()):
                fungibility[name] = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}.get(value, value)
            status.pop("pendingWorkloadsStatus", None)
            child(status, "fairSharing").pop("admissionFairSharingStatus", None)
        case "Cohort":
            child(status, "fairSharing").pop("admissionFairSharingStatus", None)
        case "LocalQueue":
            status.pop("flavors", None)
        case "MultiKueueCluster" if spec and not child(spec, "kubeConfig").get("location"):
            spec["kubeConfig"] = {"location": "", "locationType": ""}
        case "Workload" if spec:
            if spec.get("priorityClassSource"):
                spec.setdefault("priorityClassName", "")
            else:
                spec.pop("priorityClassSource", None)
                spec.pop("priorityClassName", None)
    return obj


def lost_from_v1beta2(obj: Json) -> Json:
    """A v1beta2 object as it comes back, topology assignments spelled out."""
    spec, status = child(obj, "spec"), child(obj, "status")
    spec.pop("concurrentAdmissionPolicy", None)
    for part in (spec, status):
        part.pop("preemptionGates", None)
    for pod_set in spec.get("podSets", ()):
        child(pod_set, "topologyRequest").pop("podsetSliceRequiredTopologyConstraints", None)
    if obj["kind"] == "MultiKueueCluster" and spec and not any(child(spec, "clusterSource").values()):
        spec.pop("clusterSource", None)
    reference = child(spec, "priorityClassRef")
    if reference:  # which of the two kinds follows from the group, by a rule of the schema
        reference["kind"] = {"scheduling.k8s.io": "PriorityClass"}.get(reference["group"], "WorkloadPriorityClass")
    return spelled_out(obj)


def spelled_out(obj: Json) -> Json:
    """The object with its topology assignments as lists of domains."""
    for assignment in child(obj, "status", "admission").get("podSetAssignments", ()):
        if "topologyAssignment" in assignment:
            assignment["topologyAssignment"] = expand(assignment["topologyAssignment"])
    return obj


class TestObjects:
    """Every object that a schema allows."""

    @pytest.mark.parametrize("kind", CONVERTED)
    @settings(max_examples=examples(40), deadline=None)
    @given(data=st.data())
    def test_old_there_and_back(self, kind: str, data: st.DataObject) -> None:
        """v1beta1 comes back from v1beta2 with all but the known losses, and v1beta2 knows every field on the way."""
        kinds = schemas.of(kind)
        old = data.draw(schemas.objects(kinds, "v1beta1"))
        new = convert(copy.deepcopy(old), "v1beta2")
        assert list(schemas.unknown(schemas.schema(kinds, "v1beta2"), new)) == []
        assert convert(new, "v1beta1") == lost_from_v1beta1(old)

    @pytest.mark.parametrize("kind", CONVERTED)
    @settings(max_examples=examples(40), deadline=None)
    @given(data=st.data())
    def test_new_there_and_back(self, kind: str, data: st.DataObject) -> None:
        """v1beta2 comes back from v1beta1 with all but the known losses, and v1beta1 knows every field on the way."""
        kinds = schemas.of(kind)
        new = data.draw(schemas.objects(kinds, "v1beta2"))
        old = convert(copy.deepcopy(new), "v1beta1")
        assert list(schemas.unknown(schemas.schema(kinds, "v1beta1"), old)) == []
        assert spelled_out(convert(old, "v1beta2")) == lost_from_v1beta2(new)

    @settings(max_examples=30, deadline=None)
    @given(old=schemas.objects(schemas.of("ClusterQueue"), "v1beta1"))
    def test_v1alpha2(self, old: Json) -> None:
        """v1alpha2 is v1beta1 by another name: nothing is lost between them, and both become the same v1beta2."""
        older = convert(copy.deepcopy(old), "v1alpha2")
        assert older == old | {"apiVersion": "kueue.x-k8s.io/v1alpha2"}
        assert convert(older, "v1beta2") == convert(old, "v1beta2")

    @pytest.mark.parametrize("kind", CONVERTED)
    def test_unknown_fields_stay(self, kind: str) -> None:
        """What no version knows is not ours to drop: the API server prunes by its schema."""
        part = {"unknown": {"a": 1}}
        obj = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": "x"}}
        both = convert(obj | {"spec": dict(part), "status": dict(part), "more": 1}, "v1beta2")
        assert (both["spec"], both["status"], both["more"]) == (part, part, 1)

    @pytest.mark.parametrize(
        ("obj", "version", "field"),
        [
            ([], "v1beta2", "object"),
            ({"kind": "Pod"}, "v1beta2", "kind"),
            ({"kind": ["Cohort"]}, "v1beta2", "kind"),
            ({"kind": "Cohort", "apiVersion": "kueue.x-k8s.io/v1alpha2"}, "v1beta2", "apiVersion"),
            ({"kind": "Cohort", "apiVersion": "v1beta1"}, "v1beta2", "apiVersion"),
            ({"kind": "Cohort", "apiVersion": "kueue.x-k8s.io/v1beta1"}, "v1", "desiredAPIVersion"),
            ({"kind": "Cohort", "apiVersion": "kueue.x-k8s.io/v1beta1", "status": []}, "v1beta2", "status"),
            (
                {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta1", "spec": {"admissionChecks": "a"}},
                "v1beta2",
                "admissionChecks",
            ),
        ],
    )
    def test_malformed(self, obj: Any, version: str, field: str) -> None:
        """What cannot be converted is refused, and the field is named."""
        with pytest.raises(InvalidValue) as caught:
            convert(obj, version)
        assert caught.value.field == field


class TestTopologyAssignments:
    """Domains one by one, and in runs."""

    @given(assignment=schemas.assignments_by_domains())
    def test_compacted(self, assignment: Json) -> None:
        """A compact assignment spells out to what it was made of."""
        assert expand(compact(copy.deepcopy(assignment))) == assignment

    @given(assignment=schemas.assignments_by_runs())
    def test_any_form(self, assignment: Json) -> None:
        """Whatever its form, an assignment means the same once it was spelled out and made compact again."""
        domains = expand(assignment)
        assert expand(compact(domains)) == domains

    def test_says_once_what_is_common(self) -> None:
        """What all values of a level have in common is said once; prefix and suffix never overlap."""
        rows = [["r1", "node-1-x", "aba"], ["r1", "node-2-x", "ababa"]]
        domains = [{"values": row, "count": 2} for row in rows]
        (piece,) = compact({"levels": ["a", "b", "c"], "domains": domains})["slices"]
        assert piece == {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "r1"},
                {"individual": {"roots": ["1", "2"], "prefix": "node-", "suffix": "-x"}},
                {"individual": {"roots": ["", "ab"], "suffix": "aba"}},
            ],
            "podCounts": {"universal": 2},
        }

    @pytest.mark.parametrize(
        ("slices", "field"),
        [
            ([{"domainCount": 10**9, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}], "slices"),
            ([{"domainCount": -1}], "domainCount"),
            ([{"domainCount": True}], "domainCount"),
            ([[]], "domainCount"),
            ([{"domainCount": 1, "valuesPerLevel": []}], "valuesPerLevel"),
            ([{"domainCount": 1, "valuesPerLevel": [{}], "podCounts": {"universal": 1}}], "valuesPerLevel"),
            ([{"domainCount": 1, "valuesPerLevel": [{"individual": {"roots": []}}]}], "roots"),
            ([{"domainCount": 1, "valuesPerLevel": [{"individual": {"roots": [1]}}]}], "roots"),
            ([{"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {}}], "podCounts"),
            ("a", "slices"),
        ],
    )
    def test_malformed_runs(self, slices: Any, field: str) -> None:
        """Runs that do not add up are refused, and so are those without end."""
        with pytest.raises(InvalidValue) as caught:
            expand({"levels": ["a"], "slices": slices})
        assert caught.value.field == field

    @pytest.mark.parametrize("values", [[], ["a", "b"], [1], "a", None])
    def test_malformed_domains(self, values: Any) -> None:
        """A domain has a text for each level."""
        with pytest.raises(InvalidValue, match="values"):
            compact({"levels": ["a"], "domains": [{"values": values, "count": 1}]})

    @pytest.mark.parametrize("domain", [1, None, "a", []])
    def test_no_domain(self, domain: Any) -> None:
        """A domain is an object, also where there is no level."""
        with pytest.raises(InvalidValue, match="domains"):
            compact({"levels": [], "domains": [domain]})

    def test_largest(self) -> None:
        """An assignment as large as etcd takes needs less than a second; one without end is refused."""
        domains = [{"values": [f"rack-{i % 100}", f"node-{i}"], "count": 1} for i in range(30_000)]
        began = time.process_time()
        expand(compact({"levels": ["rack", "node"], "domains": domains}))
        assert time.process_time() - began < 1
        with pytest.raises(InvalidValue, match="at most"):
            compact({"levels": ["rack", "node"], "domains": [domains[0]] * (MAX_DOMAINS + 1)})


def converted(objects: list[Any], version: str = "kueue.x-k8s.io/v1beta2") -> Json:
    """The response of the conversion webhook."""
    request = {"uid": "u", "desiredAPIVersion": version, "objects": objects}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    reply, _ = asyncio.run(conversion.review(conversion.read(json.dumps(body).encode())))
    whole = json.loads(reply)
    assert (whole["apiVersion"], whole["kind"]) == (body["apiVersion"], body["kind"])
    response: Json = whole["response"]
    assert response["uid"] == "u"
    return response


WORKLOAD: Json = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "team", "labels": {"a": "b"}},
    "spec": {
        "queueName": "q",
        "priority": 1,
        "priorityClassName": "p",
        "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        "podSets": [{"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c"}] * 3}}}],
    },
    "status": {
        "accumulatedPastExexcutionTimeSeconds": 1,
        "admission": {
            "clusterQueue": "q",
            "podSetAssignments": [
                {
                    "name": "main",
                    "topologyAssignment": {
                        "levels": ["host"],
                        "domains": [{"values": [f"node-{i}"], "count": 1} for i in range(3)],
                    },
                }
            ],
        },
    },
}


class TestReviews:
    """What the API server gets back."""

    def test_order(self) -> None:
        """Objects come back in the order they were sent, also those that are in the version already."""
        names = [("a", "v1beta1"), ("b", "v1beta2"), ("c", "v1beta1")]
        objects = [
            {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "Cohort", "metadata": {"name": name}}
            for name, version in names
        ]
        response = converted(objects)
        assert response["result"] == {"status": "Success"}
        assert [obj["metadata"]["name"] for obj in response["convertedObjects"]] == ["a", "b", "c"]
        assert {obj["apiVersion"] for obj in response["convertedObjects"]} == {"kueue.x-k8s.io/v1beta2"}

    def test_nothing(self) -> None:
        """No objects, no objects."""
        assert converted([])["convertedObjects"] == []

    @pytest.mark.parametrize(
        ("obj", "said"),
        [
            (WORKLOAD | {"spec": []}, "Workload team/w: spec: "),
            ({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}, "Pod p: kind: 'Pod'"),
            (1, "objects[0]: object: "),
            ({"metadata": 1}, "objects[0]: kind: "),
        ],
    )
    def test_failure(self, obj: Any, said: str) -> None:
        """One object that cannot be converted fails the review, with what it is called and what is wrong."""
        response = converted([obj, WORKLOAD])
        assert response["result"]["status"] == "Failure"
        assert said in response["result"]["message"]
        assert "convertedObjects" not in response

    def test_another_group(self) -> None:
        """A version of somebody else's is refused."""
        assert "desiredAPIVersion" in converted([WORKLOAD], "batch/v1")["result"]["message"]

    def test_a_long_list(self) -> None:
        """5,000 Workloads take less than a second of CPU."""
        request = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [WORKLOAD] * 5000}
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
        data = json.dumps(body).encode()
        began = time.process_time()
        reply, done = asyncio.run(conversion.review(conversion.read(data)))
        assert time.process_time() - began < 1
        assert done
        assert reply.count(b'"kueue.x-k8s.io/v1beta2"') == 5000
