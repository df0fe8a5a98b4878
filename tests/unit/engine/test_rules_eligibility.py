"""Which flavors suit a pod: their labels, their taints, and the topology that they have or lack.

Expectations are the worked examples of Kueue's flavor assigner.
"""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.options import Transformation


class TestLabelsAndTaints:
    """Labels and taints of flavors against pods."""

    def _chosen(self, flavors: dict[str, dict[str, Any]], spec: dict[str, Any]) -> tuple[str, str]:
        state = b.world(b.queue("a", {name: {"cpu": 10} for name in flavors}), flavors=())
        for name, body in flavors.items():
            state.put_flavor(b.flavor(name, **body))
        state.put_workload(b.workload("w", spec=spec), b.NOW)
        decision = b.decide(state)
        assert decision.assignment is not None
        flavor = decision.assignment.pod_sets[0].flavors.get("cpu")
        return (flavor.flavor if flavor is not None else ""), decision.message

    @staticmethod
    def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
        required = {"nodeSelectorTerms": list(terms)}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}

    def test_only_keys_that_the_flavor_sets_count(self) -> None:
        """A selector by another key is for the kube-scheduler."""
        flavors = {"label-x-a": {"nodeLabels": {"x": "a"}}, "label-xy-b": {"nodeLabels": {"x": "b", "y": "k"}}}
        assert self._chosen(flavors, {"nodeSelector": {"x": "a", "y": "g"}})[0] == "label-x-a"
        assert self._chosen(flavors, {"nodeSelector": {"x": "b", "y": "k", "z": "any"}})[0] == "label-xy-b"
        assert self._chosen(flavors, {"nodeSelector": {"x": "b", "y": "g"}}) == (
            "",
            (
                "couldn't assign flavors to pod set main: flavor label-x-a doesn't match node affinity,"
                " flavor label-xy-b doesn't match node affinity"
            ),
        )

    def test_a_flavor_without_labels_takes_all(self) -> None:
        """If it comes first."""
        flavors: dict[str, dict[str, Any]] = {"default": {}, "two": {"nodeLabels": {"type": "two"}}}
        assert self._chosen(flavors, {"nodeSelector": {"type": "two"}})[0] == "default"

    def test_terms_of_required_affinity_are_alternatives(self) -> None:
        """A term left without a known key holds anywhere; expressions within a term must all hold."""
        flavors = {"one": {"nodeLabels": {"type": "one"}}, "two": {"nodeLabels": {"type": "two", "zone": "z"}}}
        two = {"key": "type", "operator": "In", "values": ["two"]}
        unknown = {"key": "rack", "operator": "Exists"}
        elsewhere = {"key": "zone", "operator": "NotIn", "values": ["z"]}
        assert self._chosen(flavors, self._affinity({"matchExpressions": [two]}))[0] == "two"
        assert (
            self._chosen(flavors, self._affinity({"matchExpressions": [two]}, {"matchExpressions": [unknown]}))[0]
            == "one"
        )
        assert self._chosen(flavors, self._affinity({"matchExpressions": [two, unknown]}))[0] == "two"
        assert self._chosen(flavors, self._affinity({"matchExpressions": [two, elsewhere]}))[0] == ""
        fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
        assert self._chosen(flavors, self._affinity(fields))[0] == "one"

    @pytest.mark.parametrize(
        ("operator", "values", "holds"),
        [
            ("In", ["4", "8"], True),
            ("In", ["4"], False),
            ("NotIn", ["4"], True),
            ("NotIn", ["4", "8"], False),
            ("Exists", [], True),
            ("DoesNotExist", [], False),
            ("Gt", ["7"], True),
            ("Gt", ["8"], False),
            ("Lt", ["9"], True),
            ("Lt", ["8"], False),
        ],
    )
    def test_operators(self, operator: str, values: list[str], holds: bool) -> None:
        """Against a label `cores: 8`."""
        term = {"matchExpressions": [{"key": "cores", "operator": operator, "values": values}]}
        chosen, _ = self._chosen({"one": {"nodeLabels": {"cores": "8"}}}, self._affinity(term))
        assert chosen == ("one" if holds else "")

    def test_affinity_without_terms_says_nothing(self) -> None:
        """There is no term that could fail."""
        assert self._chosen({"one": {"nodeLabels": {"type": "one"}}}, self._affinity())[0] == "one"

    def test_malformed_affinity_is_an_error_of_the_pod_set(self) -> None:
        """The message is not that of a flavor that does not suit."""
        bad = {"key": "type", "operator": "In", "values": []}
        flavor, message = self._chosen(
            {"one": {"nodeLabels": {"type": "one"}}}, self._affinity({"matchExpressions": [bad]})
        )
        assert flavor == ""
        assert message.startswith("failed to assign flavors to pod set main: ")

    @pytest.mark.parametrize(
        ("operator", "values", "said"),
        [
            ("In", [], "for 'in', 'notin' operators, values set can't be empty"),
            ("NotIn", [], "for 'in', 'notin' operators, values set can't be empty"),
            ("Exists", ["8"], "values set must be empty for exists and does not exist"),
            ("DoesNotExist", ["8"], "values set must be empty for exists and does not exist"),
            ("Gt", ["4", "5"], "for 'Gt', 'Lt' operators, exactly one value is required"),
            ("Lt", [], "for 'Gt', 'Lt' operators, exactly one value is required"),
            ("Gt", ["4.5"], "for 'Gt', 'Lt' operators, the value must be an integer"),
            ("Gt", ["1_000"], "for 'Gt', 'Lt' operators, the value must be an integer"),
            ("Gt", [" 4"], "for 'Gt', 'Lt' operators, the value must be an integer"),
            ("Lt", ["٤"], "for 'Gt', 'Lt' operators, the value must be an integer"),
            ("Lt", ["9223372036854775808"], "for 'Gt', 'Lt' operators, the value must be an integer"),
            ("Lt", ["9" * 5000], "for 'Gt', 'Lt' operators, the value must be an integer"),
            ("Near", ["8"], '"Near" is not a valid label selector operator'),
            ("", ["8"], '"" is not a valid label selector operator'),
        ],
    )
    def test_what_is_wrong_with_it_is_told(self, operator: str, values: list[str], said: str) -> None:
        """The key and the fault, and the cycle goes on."""
        bad = {"key": "cores", "operator": operator, "values": values}
        flavor, message = self._chosen(
            {"one": {"nodeLabels": {"cores": "8"}}}, self._affinity({"matchExpressions": [bad]})
        )
        assert flavor == ""
        cause = f"required node affinity, key 'cores': {said}"
        assert message == f"failed to assign flavors to pod set main: {cause}"

    def test_a_label_that_is_no_number_is_neither_more_nor_less(self) -> None:
        """That is no fault of the pod."""
        for value in ("many", "1_000", "", "9223372036854775808"):
            for operator in ("Gt", "Lt"):
                term = {"matchExpressions": [{"key": "cores", "operator": operator, "values": ["4"]}]}
                flavor, message = self._chosen({"one": {"nodeLabels": {"cores": value}}}, self._affinity(term))
                assert (flavor, "doesn't match node affinity" in message) == ("", True)

    def test_a_malformed_term_does_not_spoil_the_others(self) -> None:
        """Terms are alternatives, in whatever order; without one that holds the fault is told."""
        bad = {"matchExpressions": [{"key": "type", "operator": "In", "values": []}]}
        good, other = (
            {"matchExpressions": [{"key": "type", "operator": "In", "values": [value]}]} for value in ("one", "two")
        )
        flavors = {"one": {"nodeLabels": {"type": "one"}}}
        assert self._chosen(flavors, self._affinity(bad, good))[0] == "one"
        assert self._chosen(flavors, self._affinity(good, bad))[0] == "one"
        assert "values set can't be empty" in self._chosen(flavors, self._affinity(other, bad))[1]

    def test_a_malformed_head_does_not_stop_the_others(self) -> None:
        """It is put aside with its reason, and the next in line is admitted."""
        state = b.world(b.queue("a", {"one": {"cpu": 10}}), flavors=())
        state.put_flavor(b.flavor("one", nodeLabels={"type": "one"}))
        bad = {"matchExpressions": [{"key": "type", "operator": "Near", "values": ["one"]}]}
        state.put_workload(b.workload("bad", spec=self._affinity(bad)), b.NOW)
        state.put_workload(b.workload("good", second=1), b.NOW)
        found = {decision.key: decision for decision in b.settle(state)}
        assert found["team/good"].outcome == "admit"
        assert found["team/bad"].condition_reason == "NoMatchingFlavor"

    def test_a_namespace_selector_with_an_unknown_operator_selects_nothing(self) -> None:
        """The head is told that its namespace is not selected, and waits for another selector."""
        odd = {"matchExpressions": [{"key": "team", "operator": "Near", "values": ["a"]}]}
        state = b.world(b.queue("a", namespaceSelector=odd))
        state.put_workload(b.workload("w"), b.NOW)
        assert b.decide(state).message == "workload namespace doesn't match ClusterQueue selector"

    def test_taints_must_be_tolerated_by_the_pod_or_the_flavor(self) -> None:
        """NoSchedule and NoExecute; PreferNoSchedule is no obstacle."""
        taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
        hard = {**taint, "effect": "NoExecute"}
        soft = {**taint, "effect": "PreferNoSchedule"}
        toleration = {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
        assert self._chosen({"one": {"nodeTaints": [taint]}}, {}) == (
            "",
            "couldn't assign flavors to pod set main: untolerated taint {spot yes NoSchedule <nil>} in flavor one",
        )
        assert self._chosen({"one": {"nodeTaints": [hard]}}, {"tolerations": [toleration]})[0] == ""
        assert self._chosen({"one": {"nodeTaints": [taint]}}, {"tolerations": [toleration]})[0] == "one"
        assert self._chosen({"one": {"nodeTaints": [taint], "tolerations": [toleration]}}, {})[0] == "one"
        assert self._chosen({"one": {"nodeTaints": [soft]}}, {})[0] == "one"
        bare = {"key": "spot", "effect": "NoSchedule"}
        assert self._chosen({"one": {"nodeTaints": [bare]}}, {"tolerations": [{"key": "spot"}]})[0] == "one"
        assert self._chosen({"one": {"nodeTaints": [taint]}}, {"tolerations": [{"key": "spot"}]})[0] == ""
        assert self._chosen({"one": {"nodeTaints": [hard]}}, {"tolerations": [{"operator": "Exists"}]})[0] == "one"


class TestTopology:
    """Whether a flavor with, or without, a topology suits what a pod set asks of one."""

    def _told(self, request: dict[str, Any] | None, *, tas: bool, only: bool = False, covered: str = "cpu") -> str:
        """What is said against flavor `one`; it has the topology `t` of two levels if `tas`."""
        flavors: dict[str, dict[str, Any]] = {"one": {covered: 4}}
        if not only and tas:
            flavors["plain"] = {covered: 0}
        queue = b.queue("a", resourceGroups=b.quotas(flavors))
        state = b.world(queue, flavors=())
        state.put_topology("t", ("block", "rack"))
        state.put_flavor(b.flavor("plain"))
        state.put_flavor(b.flavor("one", **({"topologyName": "t"} if tas else {})))
        body = msgspec.to_builtins(b.workload("w"))
        if request is not None:
            body["spec"]["podSets"][0]["topologyRequest"] = request
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        decision = b.decide(state)
        assert decision.assignment is not None
        attempts = decision.assignment.pod_sets[0].merged_attempts()
        return "".join(reason for attempt in attempts if attempt.flavor == "one" for reason in attempt.reasons)

    @pytest.mark.parametrize(
        "request_",
        [
            {"required": "rack"},
            {"preferred": "block"},
            {"unconstrained": True},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 1},
        ],
    )
    def test_an_explicit_request_needs_a_topology(self, request_: dict[str, Any]) -> None:
        """With all of the levels it names."""
        assert self._told(request_, tas=True) == ""
        assert self._told(request_, tas=False) == 'Flavor "one" does not support TopologyAwareScheduling'

    @pytest.mark.parametrize("field", ["required", "preferred", "podSetSliceRequiredTopology"])
    def test_every_level_must_be_there(self, field: str) -> None:
        """Of whatever kind the request is."""
        assert self._told({field: "zone"}, tas=True) == 'Flavor "one" does not contain the requested level'

    def test_without_a_request_a_topology_is_for_others(self) -> None:
        """Unless all flavors of the queue have one; a pod set group alone is no request."""
        only = 'Flavor "one" supports only TopologyAwareScheduling'
        assert self._told(None, tas=True) == only
        assert self._told({"podSetGroupName": "g"}, tas=True) == only
        assert self._told(None, tas=True, only=True) == ""
        assert self._told(None, tas=False) == ""

    def test_quota_of_what_no_pod_asks_for_needs_no_topology(self) -> None:
        """A resource that stands for another."""
        queue = b.queue("a", resourceGroups=b.groups({"one": {"credits": 4}}, {"tas": {"cpu": 4}}))
        credit = Transformation(input="cpu", outputs={"credits": Fraction(1)})
        state = b.world(queue, flavors=("one",), options=Options(transformations=(credit,)))
        state.put_topology("t", ("rack",))
        state.put_flavor(b.flavor("tas", topologyName="t"))
        body = msgspec.to_builtins(b.workload("w"))
        body["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        assert b.flavors_of(b.decide(state)) == [{"credits": "one", "cpu": "tas"}]
