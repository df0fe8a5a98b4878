"""What admission adds to a pod template comes off again, and nothing of the user's is overwritten."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.patch import apply_merge_patch
from turnstile.api.pods import PodTemplate, Toleration
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import TopologyAssignment, TopologyRequest
from turnstile.api.workload import Workload, decode
from turnstile.jobs import pods
from turnstile.jobs.podsets import Directives, PodSetInfo, changes, infos_of, merge
from turnstile.jobs.topologyrequest import UNCONSTRAINED

KEYS = st.sampled_from(["a", "b", "c"])
MAPS = st.dictionaries(KEYS, st.sampled_from(["x", "y"]), max_size=3)
TOLERATIONS = st.lists(st.builds(Toleration, key=KEYS, operator=st.just("Exists")), max_size=3)
GATES = st.lists(st.sampled_from(["g/1", "g/2"]), unique=True, max_size=2)


def template(labels: Any, annotations: Any, selector: Any, tolerations: Any, gates: Any) -> dict[str, Any]:
    """A pod template with these directives, and something else."""
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            "containers": [{"name": "c"}],
            "affinity": {"nodeAffinity": {}},
            "nodeSelector": selector,
            "tolerations": [msgspec.to_builtins(each) for each in tolerations],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
    }


def view(body: dict[str, Any]) -> Directives:
    """Its directives."""
    return Directives.of(msgspec.json.decode(json.dumps(body).encode(), type=PodTemplate))


TEMPLATES = st.builds(template, MAPS, MAPS, MAPS, TOLERATIONS, GATES)
INFOS = st.builds(
    PodSetInfo,
    name=st.just("main"),
    count=st.just(1),
    labels=MAPS,
    annotations=MAPS,
    node_selector=MAPS,
    tolerations=TOLERATIONS.map(tuple),
    scheduling_gates=GATES.map(tuple),
)


@given(TEMPLATES, INFOS)
def test_merged_and_restored_is_as_before(body: dict[str, Any], info: PodSetInfo) -> None:
    """The merge patch leads there, and the one back leads back."""
    before = view(body)
    try:
        merged = merge(before, info)
    except PermanentError:
        assume(False)
        return
    there = apply_merge_patch(body, changes(before, merged))
    assert view(there) == merged
    back = apply_merge_patch(there, changes(view(there), before))
    assert view(back) == before
    assert back["spec"]["affinity"] == body["spec"]["affinity"]
    assert changes(before, before) == {}


@given(TEMPLATES, INFOS)
def test_merging_twice_adds_nothing(body: dict[str, Any], info: PodSetInfo) -> None:
    """A start that is tried again is the same start."""
    try:
        once = merge(view(body), info)
    except PermanentError:
        assume(False)
        return
    assert merge(once, info) == once


@given(TEMPLATES, INFOS)
def test_a_merge_fails_exactly_if_a_key_has_two_values(body: dict[str, Any], info: PodSetInfo) -> None:
    """The error names the key and both values."""
    before = view(body)
    pairs = (
        (before.labels, info.labels),
        (before.annotations, info.annotations),
        (before.node_selector, info.node_selector),
    )
    conflicts = [(k, have[k], want[k]) for have, want in pairs for k in want if have.get(k, want[k]) != want[k]]
    if not conflicts:
        merge(before, info)
        return
    with pytest.raises(PermanentError) as error:
        merge(before, info)
    assert any(
        f"key={key}" in str(error.value) and old in str(error.value) and new in str(error.value)
        for key, old, new in conflicts
    )


class TestWhatAnAdmissionGives:
    """From flavors and admission checks."""

    def workload(self, **status: Any) -> Workload:
        """Admitted to two flavors."""
        flavors = {"cpu": "a", "memory": "a", "gpu": "b"}
        admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": flavors, "count": 2}]}
        body = {
            "metadata": {"name": "wl", "namespace": "team"},
            "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 3}]},
            "status": {"admission": admission, **status},
        }
        return decode(json.dumps(body).encode())

    def flavor(self, name: str) -> ResourceFlavor | None:
        """Each flavor has a label of its own and tolerates the same taint."""
        tolerations = [{"key": "t", "operator": "Exists"}]
        spec = {"nodeLabels": {name: "yes"}, "tolerations": tolerations}
        return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceFlavor)

    def test_each_flavor_gives_its_labels_and_tolerations_once(self) -> None:
        """However many resources it serves."""
        (info,) = infos_of(self.workload(), self.flavor)
        assert info.count == 2
        assert info.node_selector == {"a": "yes", "b": "yes"}
        assert [toleration.key for toleration in info.tolerations] == ["t"]

    @pytest.mark.parametrize("asks", [True, False], ids=["it asks for a topology", "its flavors have topologies"])
    def test_a_place_in_a_topology_gives_the_gate(self, *, asks: bool) -> None:
        """And, where nothing was asked for, the annotation by which Kueue knows such pods."""
        workload, place = self.workload(), TopologyAssignment(levels=["rack"], slices=[])
        workload.spec.pod_sets[0].topology_request = TopologyRequest(
            required="rack" if asks else None, pod_index_label="index"
        )
        assert workload.status.admission is not None
        workload.status.admission.pod_set_assignments[0].topology_assignment = place
        (info,) = infos_of(workload, self.flavor)
        assert info.scheduling_gates == (names.TOPOLOGY_GATE,)
        assert info.annotations.get(UNCONSTRAINED) == (None if asks else "true")
        (info,) = infos_of(workload, self.flavor, topologies=False)
        assert (info.scheduling_gates, info.annotations.keys()) == ((), {names.WORKLOAD})

    def test_a_check_adds_to_it(self) -> None:
        """Of the pod set it names."""
        updates = [{"name": "main", "annotations": {"x": "y"}}, {"name": "other", "annotations": {"no": "no"}}]
        check = {"name": "check", "state": "Ready", "lastTransitionTime": "", "podSetUpdates": updates}
        (info,) = infos_of(self.workload(admissionChecks=[check]), self.flavor)
        assert info.annotations == {"kueue.x-k8s.io/workload": "wl", "x": "y"}

    def test_a_check_that_contradicts_a_flavor_is_named(self) -> None:
        """Nobody can start such a job."""
        updates = [{"name": "main", "nodeSelector": {"a": "no"}}]
        check = {"name": "check", "state": "Ready", "lastTransitionTime": "", "podSetUpdates": updates}
        with pytest.raises(PermanentError, match=r'in admission check "check": .*key=a, value1=yes, value2=no'):
            infos_of(self.workload(admissionChecks=[check]), self.flavor)

    def test_a_flavor_not_to_be_seen_is_no_failure(self) -> None:
        """It may not have arrived."""
        with pytest.raises(LookupError, match="ResourceFlavor a"):
            infos_of(self.workload(), lambda name: None)

    def test_an_admission_of_other_pod_sets_is_refused(self) -> None:
        """Nothing sensible can be made of it."""
        workload = self.workload()
        workload.spec.pod_sets = []
        with pytest.raises(PermanentError, match="podSetAssignments"):
            infos_of(workload, self.flavor)

    def test_a_queue_name_that_is_no_label_value_is_left_out(self) -> None:
        """Pods cannot carry it."""
        workload = self.workload()
        assert workload.status.admission is not None
        workload.status.admission.cluster_queue = "c" * 64
        (info,) = infos_of(workload, self.flavor)
        assert dict(info.labels) == {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/local-queue-name": "main"}


def test_a_toleration_whose_operator_is_left_out_is_not_added_again() -> None:
    """It means Equal, as Kubernetes reads it."""
    short, full = Toleration(key="a", value="x"), Toleration(key="a", operator="Equal", value="x")
    merged = merge(Directives(tolerations=(short,)), PodSetInfo("main", 1, tolerations=(full,)))
    assert merged.tolerations == (short,)


@pytest.mark.parametrize(
    ("gates", "placed", "left"),
    [
        (("admission", "topology"), True, ["topology"]),
        (("admission", "topology"), False, []),
        (("admission",), True, []),
    ],
    ids=["it has a place", "it has none", "it was made without the gate"],
)
def test_a_started_pod_waits_for_its_place(gates: tuple[str, ...], placed: bool, left: list[str]) -> None:
    """Kubernetes adds no gate to a pod, so one that has none starts at once."""
    spec = {"schedulingGates": [{"name": f"kueue.x-k8s.io/{each}"} for each in gates]}
    body = json.dumps({"metadata": {"name": "p", "namespace": "team"}, "spec": spec}).encode()
    info = PodSetInfo("main", 1, scheduling_gates=(names.TOPOLOGY_GATE,) if placed else ())
    patch = pods.started(Pod.decoder()(body), info).body
    assert isinstance(patch, dict)
    kept = patch["spec"]["schedulingGates"]
    assert [each["name"] for each in kept or ()] == [f"kueue.x-k8s.io/{each}" for each in left]
