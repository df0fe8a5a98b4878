"""Rules of Workloads beyond their schema."""

import json
from typing import Any

import msgspec
import pytest

from turnstile.api import gates
from turnstile.api.validation import default_workload, format_errors, template_digests, validate_workload
from turnstile.api.validation.labels import conditions_errors
from turnstile.api.workload import Workload

Json = dict[str, Any]
TIME = "2026-01-02T03:04:05Z"
GATED = "kueue.x-k8s.io/admission-gated-by"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"


def pod_set(name: str = "main", *, count: int = 3, **fields: Any) -> Json:
    """A pod set."""
    return {"name": name, "count": count, "template": {"spec": {"containers": [{"name": "c"}]}}, **fields}


def workload(*pod_sets: Json, annotations: Json | None = None, reserved: bool = False, **status: Any) -> Workload:
    """A Workload, with quota for all its pods if `reserved`."""
    pod_sets = pod_sets or (pod_set(),)
    if reserved:
        assignments = [{"name": entry["name"], "count": entry["count"]} for entry in pod_sets]
        status = {
            "admission": {"clusterQueue": "q", "podSetAssignments": assignments},
            "conditions": [
                {"type": "QuotaReserved", "status": "True", "reason": "R", "message": "", "lastTransitionTime": TIME}
            ],
        } | status
    plain = {"metadata": {"annotations": annotations or {}}, "spec": {"podSets": list(pod_sets)}, "status": status}
    return msgspec.convert(plain, Workload)


def told(new: Workload, old: Workload | None = None, **options: Any) -> str:
    """What is said against it."""
    return format_errors(validate_workload(new, old, **options))


def template(**spec: Any) -> Json:
    """A pod template."""
    return {"template": {"spec": {"containers": [{"name": "c"}], **spec}}}


def resources(**amounts: Any) -> Json:
    """A container or a pod with resources."""
    return {"resources": amounts}


class TestTemplates:
    """Pod templates ask for nothing that is not theirs to ask."""

    SPEC = "spec.podSets[0].template.spec"

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            (template(), ""),
            (template(**resources(requests={"cpu": "0"})), ""),
            (
                template(initContainers=[resources(requests={"pods": 1})]),
                (
                    f'{SPEC}.initContainers[0].resources.requests[pods]: Invalid value: "pods": '
                    "the key is reserved for internal kueue use"
                ),
            ),
            (
                template(containers=[resources(limits={"cpu": "-500m"})]),
                f'{SPEC}.containers[0].resources.limits[cpu]: Invalid value: "-500m": {NEGATIVE}',
            ),
            (
                template(**resources(requests={"memory": "-1024Mi"})),
                f'{SPEC}.resources.requests[memory]: Invalid value: "-1Gi": {NEGATIVE}',
            ),
        ],
    )
    def test_resources(self, fields: Json, text: str) -> None:
        """The number of pods is counted by the queue, and nothing is negative."""
        assert told(workload(pod_set(**fields))) == text

    def test_unreadable_quantity(self) -> None:
        """A request that is no quantity is refused, not stumbled over."""
        text = told(workload(pod_set(**template(**resources(requests={"cpu": "two"})))))
        assert text.startswith(
            f'{self.SPEC}.resources.requests[cpu]: Invalid value: "two": write a Kubernetes quantity'
        )

    def test_metadata(self) -> None:
        """Labels and annotations of the template are those a pod may have, while the gate is on."""
        subject = workload(pod_set(template={"metadata": {"labels": {"a": "@"}, "annotations": {"@": ""}}}))
        paths = [error.path for error in validate_workload(subject)]
        assert paths == ["spec.podSets[0].template.metadata.labels", "spec.podSets[0].template.metadata.annotations"]
        assert validate_workload(subject, gates=gates.ON_BY_DEFAULT - {gates.POD_SET_METADATA}) == []

    @pytest.mark.parametrize(
        ("request_", "text"),
        [
            ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, ""),
            (
                {"podSetSliceRequiredTopology": "rack"},
                "podSetSliceSize: Required value: must be set when podSetSliceRequiredTopology is specified",
            ),
            (
                {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0},
                "podSetSliceSize: Invalid value: 0: must be greater than 0",
            ),
            (
                {"podSetSliceSize": 1},
                "podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology is not specified",
            ),
            (
                {"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 0}]},
                "podsetSliceRequiredTopologyConstraints[0].size: Invalid value: 0: must be greater than 0",
            ),
        ],
    )
    def test_slices(self, request_: Json, text: str) -> None:
        """A slice has a level and a size."""
        assert told(workload(pod_set(topologyRequest=request_))) == (text and f"spec.podSets[0].topologyRequest.{text}")

    def test_a_group_has_two_pod_sets(self) -> None:
        """A third one of the name is refused: a leader and its workers are placed together."""
        grouped = {"topologyRequest": {"required": "rack", "podSetGroupName": "all"}}
        members = [pod_set(name, **grouped) for name in ("leader", "workers", "others")]
        assert told(workload(*members[:2])) == ""
        path = "spec.podSets[2].topologyRequest.podSetGroupName"
        assert told(workload(*members)) == (
            f'{path}: Invalid value: "all": can only define groups of exactly 2 pod sets'
        )

    def test_partial_admission(self) -> None:
        """One pod set may shrink, and not in an elastic job."""
        one, two = pod_set(minCount=1), pod_set("b", minCount=1)
        assert told(workload(one)) == ""
        assert told(workload(one, two)) == "spec.podSets: Invalid value: 2: at most one podSet can use minCount"
        assert told(workload(one, annotations=ELASTIC)) == (
            "spec.podSets: Invalid value: 1: partial admission and elastic job cannot be used together"
        )

    def test_partial_admission_is_off(self) -> None:
        """The minimum is taken from those that have one; what is no Workload is left to the schema."""
        counted = json.dumps({"spec": {"podSets": [pod_set("a"), pod_set("b", minCount=1)]}}).encode()
        assert default_workload(counted) == []
        assert default_workload(counted, gates=()) == [1]
        assert default_workload(b'{"spec": []}', gates=()) == []


class TestAnnotations:
    """Annotations that the queue acts on are well-formed."""

    @pytest.mark.parametrize(
        ("value", "detail"),
        [
            ("", ""),
            ("a.io/x", ""),
            (" a.io/x , a.io/y", ""),
            ("a.io/x,", "cannot contain empty gate names"),
            ("a.io/x,a.io/x", "duplicate gate name: a.io/x"),
            ("x", 'must be a domain-prefixed path (such as "acme.io/foo")'),
            ("a.io/" + "x" * 59, "may not be more than 63 bytes"),
        ],
    )
    def test_gates(self, value: str, detail: str) -> None:
        """Gates are domain-prefixed paths, each once."""
        details = [error.detail for error in validate_workload(workload(annotations={GATED: value}))]
        assert details == ([detail] if detail else [])
        assert validate_workload(workload(annotations={GATED: value}), gates=()) == []

    def test_gates_only_go(self) -> None:
        """A gate may be lifted after creation, not put on."""
        both, one, none = (workload(annotations={GATED: value}) for value in ("a.io/x,a.io/y", "a.io/y", ""))
        assert told(one, both) == told(none, both) == ""
        path = f"metadata.annotations[{GATED}]: Forbidden"
        assert told(both, one) == f"{path}: can only remove gates, not add new ones"
        assert told(one, none) == f"{path}: cannot add admission gate after creation"

    @pytest.mark.parametrize(
        ("value", "fine"),
        [
            ("0", True),
            ("-5", True),
            ("2147483647", True),
            ("2147483648", False),
            ("1.5", False),
            ("", False),
            ("-", False),
        ],
    )
    def test_priority_boost(self, value: str, fine: bool) -> None:
        """A boost is a 32-bit integer."""
        subject = workload(annotations={"kueue.x-k8s.io/priority-boost": value})
        assert (validate_workload(subject, gates={gates.PRIORITY_BOOST}) == []) == fine
        assert validate_workload(subject) == []


class TestStatus:
    """A status speaks of what the spec has."""

    def test_admission_is_set(self) -> None:
        """Quota is held in some queue; a Workload that lost it already stays open to change."""
        lost = workload(reserved=True, admission=None)
        assert told(lost) == "status.admission: Required value: must be set while the QuotaReserved condition is true"
        assert told(lost, workload(reserved=True))
        assert told(lost, lost) == ""

    def test_assignments(self) -> None:
        """Assignments are of known pod sets, and a usage is the same for each pod."""
        admission = {"podSetAssignments": [{"name": "x"}, {"name": "main", "count": 3, "resourceUsage": {"cpu": "1"}}]}
        assert told(workload(reserved=True, admission=admission)).startswith(
            '[status.admission.podSetAssignments[0].name: Not found: "x", '
            'status.admission.podSetAssignments[1].resourceUsage[cpu]: Invalid value: "1": is not a multiple of '
        )

    def test_reclaimable_pods(self) -> None:
        """No more pods are done than there are, of pod sets that exist."""
        pods = [{"name": "main", "count": 4}, {"name": "x", "count": 1}]
        assert told(workload(reclaimablePods=pods)) == (
            "[status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3, "
            'status.reclaimablePods[x].name: Unsupported value: "x": supported values: "main"]'
        )

    def test_pod_set_updates(self) -> None:
        """What a check adds to pods is of a known pod set and well-formed."""
        update = {"name": "x", "labels": {"a": "@"}, "nodeSelector": {"@": "b"}, "tolerations": [{"key": "@"}]}
        checks = [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]
        path = "status.admissionChecks[0].podSetUpdates[0]"
        assert [error.path for error in validate_workload(workload(admissionChecks=checks))] == [
            f"{path}.name",
            f"{path}.labels",
            f"{path}.nodeSelector",
            f"{path}.tolerations[0].key",
        ]

    def test_conditions(self) -> None:
        """A condition has a type, a reason and a time, each type once."""
        bare = {"type": "A", "status": "True", "reason": ""}
        subject = workload(conditions=[bare, bare | {"reason": "1", "lastTransitionTime": TIME}])
        errors = conditions_errors("c", subject.status.conditions)
        assert [(error.path, error.type) for error in errors] == [
            ("c[0].lastTransitionTime", "FieldValueRequired"),
            ("c[0].reason", "FieldValueRequired"),
            ("c[1].type", "FieldValueDuplicate"),
            ("c[1].reason", "FieldValueInvalid"),
        ]


class TestUpdate:
    """What a reservation was made for stays."""

    def test_pod_sets(self) -> None:
        """Pod sets are fixed while quota is held, and free before."""
        more = pod_set(minCount=1)
        assert told(workload(more, reserved=True), workload(reserved=True)).startswith(
            "spec.podSets.0: Invalid value: {"
        )
        assert told(workload(pod_set(), pod_set("b")), workload(reserved=True)).startswith(
            "spec.podSets: Invalid value: ["
        )
        assert told(workload(more), workload()) == ""

    def test_count(self) -> None:
        """A count may shrink, where elastic jobs are on, and never grow."""
        old = workload(reserved=True)
        assert told(workload(pod_set(count=2), reserved=True, admission=old.status.admission), old) == ""
        for count, on in ((4, gates.ON_BY_DEFAULT), (2, gates.ON_BY_DEFAULT - {gates.ELASTIC_JOBS})):
            new = workload(pod_set(count=count), reserved=True, admission=old.status.admission)
            assert told(new, old, gates=on).endswith(IMMUTABLE)

    @pytest.mark.parametrize(
        ("container", "same"),
        [
            ({"name": "c", "image": "a"}, True),
            ({"name": "c", "image": "a", "env": [], "resources": {}}, True),
            ({"name": "c", "image": "b"}, False),
        ],
    )
    def test_template(self, container: Json, same: bool) -> None:
        """With digests a change that the structs leave out counts, and one that means nothing does not."""
        texts = [
            json.dumps({"spec": {"podSets": [pod_set(template={"spec": {"containers": [part]}})]}}).encode()
            for part in (container, {"name": "c", "image": "a"})
        ]
        new, old = (workload(*json.loads(text)["spec"]["podSets"], reserved=True) for text in texts)
        digests = (template_digests(texts[0]), template_digests(texts[1]))
        assert (told(new, old, templates=digests) == "") == same

    def test_admission(self) -> None:
        """An admission may be given back, and changed in its topology alone."""
        old = workload(reserved=True)
        assert old.status.admission is not None
        assigned = {"name": "main", "count": 3}
        placed = {"clusterQueue": "q", "podSetAssignments": [assigned | {"delayedTopologyRequest": "Ready"}]}
        moved = {"clusterQueue": "other", "podSetAssignments": [assigned]}
        assert told(workload(reserved=True, admission=placed), old) == ""
        assert told(workload(reserved=True, admission=moved), old) == (
            'status.admission: Invalid value: {"clusterQueue":"other","podSetAssignments":[{"name":"main","count":3}]}'
            ": field is immutable"
        )
        assert told(workload(), old) == ""

    def test_reclaimable_pods(self) -> None:
        """Pods that are done stay done while quota is held."""
        old = workload(reserved=True, reclaimablePods=[{"name": "main", "count": 2}])
        path = "status.reclaimablePods[main]"
        fewer = workload(reserved=True, reclaimablePods=[{"name": "main", "count": 1}])
        assert told(fewer, old) == f"{path}.count: Invalid value: 1: cannot be less than 2"
        assert told(workload(reserved=True), old) == f"{path}: Required value: cannot be removed"
        assert told(workload(), old) == ""

    def test_reclaimable_pods_of_a_shrunk_job(self) -> None:
        """An elastic job that runs fewer pods than were admitted may count its finished pods anew."""
        admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 5}]}
        done = [{"name": "main", "count": 2}]
        old = workload(annotations=ELASTIC, reserved=True, admission=admission, reclaimablePods=done)
        assert told(workload(annotations=ELASTIC, reserved=True, admission=admission), old) == ""

    @pytest.mark.parametrize(("was", "refused"), [(8, True), (3, False)])
    def test_reclaimable_pods_that_were_there_before(self, was: int, refused: bool) -> None:
        """A count that a smaller pod set makes too large is refused while quota is held; one that was too large already
        blocks no other change."""
        done = [{"name": "main", "count": 4}]
        old, new = (workload(reserved=True, reclaimablePods=done) for _ in range(2))
        old.spec.pod_sets[0].count, new.spec.pod_sets[0].count = was, 3
        assert ("count: Invalid value: 4: should be less or equal to 3" in told(new, old)) is refused

    def test_ready_check(self) -> None:
        """What a check that is ready added to pods is fixed; its message is not."""

        def checked(label: str, message: str = "", state: str = "Ready") -> Workload:
            updates = [{"name": "main", "labels": {"a": label}}]
            return workload(
                admissionChecks=[{"name": "c", "state": state, "message": message, "podSetUpdates": updates}]
            )

        assert told(checked("x", "new"), checked("x")) == ""
        assert told(checked("y"), checked("x", state="Pending")) == ""
        assert told(checked("y"), checked("x")).startswith("status.admissionChecks[0].podSetUpdates: Invalid value: [{")

    def test_cluster_name(self) -> None:
        """The cluster that takes a Workload is one of those nominated."""
        old = workload(nominatedClusterNames=["a"])
        assert told(workload(clusterName="a"), old) == ""
        assert told(workload(clusterName="b"), old) == (
            'status.clusterName: Invalid value: "b": '
            "when setting clusterName it must be one of the nominatedClusterNames"
        )

    def test_cluster_name_of_a_slice(self) -> None:
        """A slice that replaces another goes to the cluster of that other one, which need not be nominated."""
        old, replaces = workload(), {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/x"}
        new = workload(clusterName="b", annotations=replaces)
        on = gates.ON_BY_DEFAULT | {gates.ELASTIC_JOBS}
        assert told(new, old, gates=on) == ""
        assert told(new, old, gates=on - {gates.ELASTIC_JOBS}) != ""
        assert told(workload(clusterName="b"), old, gates=on) != ""
