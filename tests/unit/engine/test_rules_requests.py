"""Rules of what a workload asks for: pods after defaults, what quota counts of them, what a reservation holds."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.api.quantity import MAX_INT64
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.engine.options import Gates, Transformation
from turnstile.engine.quota.info import Info


def ask(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Workload:
    """A workload of one pod with these containers' resources; `sidecar=True` among them makes one restartable."""

    def container(index: int, item: dict[str, Any]) -> dict[str, Any]:
        resources = {name: value for name, value in item.items() if name != "sidecar"}
        return {
            "name": f"c{index}",
            "resources": resources,
            **({"restartPolicy": "Always"} if item.get("sidecar") else {}),
        }

    return b.workload(
        "w",
        spec={
            "containers": [container(index, item) for index, item in enumerate(containers)],
            "initContainers": [container(index, item) for index, item in enumerate(init)],
            **spec,
        },
    )


def totals(workload: Workload, state: State | None = None, **options: Any) -> dict[str, int]:
    """What the first pod set asks for in all."""
    state = state or State(Options(**options))
    return Info(workload, state.surroundings).totals[0].requests


def limits(*items: dict[str, Any], name: str = "l") -> LimitRange:
    """A LimitRange of namespace `team`."""
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "team"}, "spec": {"limits": list(items)}}, LimitRange
    )


class TestEffectivePod:
    """Limits as requests, then the pod level, then LimitRange defaults and RuntimeClass overhead: the order of the API
    server, against which tests/cluster/test_pod_requests.py tries all combinations."""

    def runtime(self, state: State) -> None:
        """A RuntimeClass with overhead."""
        state.put_runtime_class(
            msgspec.convert({"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "250m"}}}, RuntimeClass),
            b.NOW,
        )

    def test_overhead_of_the_runtime_class_only_without_its_own(self) -> None:
        """What a pod names itself stays; an unknown class adds nothing."""
        state = State()
        self.runtime(state)
        one = {"requests": {"cpu": "1"}}
        assert totals(ask(one, runtimeClassName="kata"), state) == {"cpu": 1250}
        assert totals(ask(one, runtimeClassName="kata", overhead={"cpu": "100m"}), state) == {"cpu": 1100}
        assert totals(ask(one, runtimeClassName="other"), state) == {"cpu": 1000}

    def test_an_explicit_limit_wins_over_a_default_request(self) -> None:
        """Limits are taken for requests before a LimitRange adds its defaults."""
        state = State()
        state.put_limit_range(limits({"type": "Container", "defaultRequest": {"cpu": "500m"}}), b.NOW)
        assert totals(ask({"limits": {"cpu": "2"}}), state) == {"cpu": 2000}
        assert totals(ask({"limits": {"gpu": "1"}}), state) == {"cpu": 500, "gpu": 1}
        assert totals(ask({"limits": {"cpu": "2"}})) == {"cpu": 2000}

    def test_a_default_limit_is_the_request_where_nothing_else_is(self) -> None:
        """What is written wins."""
        state = State()
        state.put_limit_range(limits({"type": "Container", "default": {"cpu": "2"}}), b.NOW)
        assert totals(ask({}), state) == {"cpu": 2000}
        assert totals(ask({"limits": {"cpu": "3"}}), state) == {"cpu": 3000}
        assert totals(ask({"requests": {"cpu": "1"}}), state) == {"cpu": 1000}

    def test_every_container_and_init_container_gets_the_defaults(self) -> None:
        """One default each."""
        state = State()
        state.put_limit_range(limits({"type": "Container", "defaultRequest": {"cpu": "1"}}), b.NOW)
        assert totals(ask({}, {}, init=({"requests": {"cpu": "5"}},)), state) == {"cpu": 5000}
        assert totals(ask({}, {}, init=({},)), state) == {"cpu": 2000}

    def test_the_largest_default_request_of_several_limit_ranges_counts(self) -> None:
        """The API server takes any of them, so no other is safe; each adds what the others do not name."""
        state = State()
        state.put_limit_range(limits({"type": "Container", "defaultRequest": {"cpu": "2", "m": "7"}}, name="z"), b.NOW)
        state.put_limit_range(limits({"type": "Container", "defaultRequest": {"cpu": "1"}}, name="a"), b.NOW)
        assert totals(ask({}), state) == {"cpu": 2000, "m": 7}

    def test_a_pod_level_limit_is_a_request_only_where_no_container_requests_the_resource(self) -> None:
        """Else the pod requests what its containers request, or their limits."""
        whole = {"limits": {"cpu": "4"}}
        assert totals(ask({"requests": {"cpu": "1"}}, resources=whole)) == {"cpu": 1000}
        assert totals(ask({"limits": {"cpu": "1"}}, resources=whole)) == {"cpu": 1000}
        assert totals(ask({"requests": {"memory": "1"}}, resources=whole)) == {"cpu": 4000, "memory": 1}

    def test_a_default_request_does_not_change_the_pod_level(self) -> None:
        """The pod level is completed before a LimitRange adds to containers."""
        state = State()
        state.put_limit_range(limits({"type": "Container", "defaultRequest": {"cpu": "3"}}), b.NOW)
        assert totals(ask({}, resources={"limits": {"cpu": "4"}}), state) == {"cpu": 4000}
        assert totals(ask({}, resources={"limits": {"memory": "4"}}), state) == {"cpu": 3000, "memory": 4}

    def test_limits_of_another_namespace_do_not_count(self) -> None:
        """LimitRanges are of a namespace."""
        state = State()
        state.put_limit_range(limits({"type": "Container", "defaultRequest": {"cpu": "9"}}), b.NOW)
        other = b.workload("w", namespace="other", spec={"containers": [{"name": "c"}]})
        assert Info(other, state.surroundings).totals[0].requests == {}


class TestPodRequests:
    """Kubernetes' sum of one pod."""

    def test_sidecars_run_along_and_init_containers_one_by_one(self) -> None:
        """Containers 1 + 2, sidecar 1, init 5 after it: 6."""
        one, two = {"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}
        sidecar, start = {"requests": {"cpu": "1"}, "sidecar": True}, {"requests": {"cpu": "5"}}
        assert totals(ask(one, two, init=(sidecar, start))) == {"cpu": 6000}
        assert totals(ask(one, two, init=(start, sidecar))) == {"cpu": 5000}
        assert totals(ask(one, two, init=(sidecar, sidecar))) == {"cpu": 5000}

    def test_pod_level_requests_replace_cpu_memory_and_huge_pages(self) -> None:
        """Other resources are added up as ever; overhead comes on top."""
        item = {"requests": {"cpu": "1", "memory": "1", "hugepages-2Mi": "2Mi", "gpu": "1"}}
        block = {"requests": {"cpu": "3", "memory": "5", "hugepages-2Mi": "4Mi", "gpu": "9"}}
        assert totals(ask(item, resources=block, overhead={"cpu": "1"})) == {
            "cpu": 4000,
            "memory": 5,
            "hugepages-2Mi": 4 * 2**20,
            "gpu": 1,
        }

    def test_fractions_are_rounded_up_after_the_sum(self) -> None:
        """Milli for cpu, whole units for the rest."""
        item = {"requests": {"cpu": "500u", "memory": "500m"}}
        assert totals(ask(item)) == {"cpu": 1, "memory": 1}
        assert totals(ask(item, item)) == {"cpu": 1, "memory": 1}
        assert totals(ask(item, item, item)) == {"cpu": 2, "memory": 2}

    def test_negative_amounts_count_as_none(self) -> None:
        """They never free quota."""
        assert totals(ask({"requests": {"cpu": "-1", "gpu": "1"}})) == {"cpu": 0, "gpu": 1}

    def test_totals_saturate(self) -> None:
        """Past int64 they stay at its end."""
        huge = b.workload("w", count=3, spec={"containers": [{"name": "c", "resources": {"requests": {"x": "5E"}}}]})
        assert totals(huge) == {"x": MAX_INT64}


MIG = "nvidia.com/mig-1g"


class TestTransformations:
    """One resource counted as others."""

    def rule(self, strategy: Any = "Replace", multiply_by: str | None = None, name: str = MIG, **outputs: Any) -> Any:
        """Outputs for one unit of the input."""
        return Transformation(
            input=name,
            outputs={key: Fraction(value) for key, value in outputs.items()},
            strategy=strategy,
            multiply_by=multiply_by,
        )

    def pods(self, count: Any = 3, **requests: Any) -> Workload:
        """Pods that ask for so much each."""
        return b.workload("w", count=count, spec={"containers": [{"name": "c", "resources": {"requests": requests}}]})

    def test_replace_and_retain(self) -> None:
        """2 of it in each of 3 pods, at 10 credits."""
        asked = self.pods(**{MIG: "2", "cpu": "1"})
        assert totals(asked, transformations=(self.rule(credits=10),)) == {"cpu": 3000, "credits": 60}
        assert totals(asked, transformations=(self.rule("Retain", credits=10),)) == {
            "cpu": 3000,
            "credits": 60,
            MIG: 6,
        }

    def test_multiplied_by_another_resource_if_the_pod_asks_for_it(self) -> None:
        """Without it the input counts alone."""
        rule = self.rule(multiply_by="cpu", credits=10)
        assert totals(self.pods(**{MIG: "2", "cpu": "2"}), transformations=(rule,)) == {"cpu": 6000, "credits": 120}
        assert totals(self.pods(**{MIG: "2"}), transformations=(rule,)) == {"credits": 60}
        zero = self.pods(**{MIG: "2", "cpu": "0"})
        assert totals(zero, transformations=(rule,)) == {"cpu": 0, "credits": 0}

    def test_outputs_of_several_inputs_and_what_is_asked_of_them_add_up(self) -> None:
        """Also where an output is asked for by the pod itself."""
        rules = (self.rule(credits=10), self.rule(name="gpu", credits=5))
        asked = self.pods(1, **{MIG: "1", "gpu": "2", "credits": "3"})
        assert totals(asked, transformations=rules) == {"credits": 23}

    def test_a_negative_sum_of_outputs_counts_as_none(self) -> None:
        """Each output's sum, before what the pod asks for itself."""
        rules = (self.rule(credits=-10), self.rule(name="gpu", credits=4))
        assert totals(self.pods(1, **{MIG: "1", "gpu": "1", "credits": "3"}), transformations=rules) == {"credits": 3}
        assert totals(self.pods(1, **{MIG: "1", "gpu": "3"}), transformations=rules) == {"credits": 2}

    def test_excluded_prefixes_go_first(self) -> None:
        """What is excluded is neither counted nor transformed, nor multiplied by."""
        rule = self.rule(multiply_by="networking.example.com/vpc", credits=10)
        asked = self.pods(1, **{MIG: "1", "networking.example.com/vpc": "4"})
        prefixes = ("networking.example.com/",)
        assert totals(asked, transformations=(rule,), exclude_resource_prefixes=prefixes) == {"credits": 10}
        assert totals(asked, transformations=(rule,), exclude_resource_prefixes=("nvidia.com/",)) == {
            "networking.example.com/vpc": 4
        }

    def test_an_output_may_be_a_fraction(self) -> None:
        """Rounded up for each pod."""
        assert totals(self.pods(3, **{MIG: "1"}), transformations=(self.rule(credits="0.5"),)) == {"credits": 3}


class TestReclaimable:
    """Pods that are not needed any more."""

    def status(self, count: int) -> dict[str, Any]:
        """So many pods reclaimed."""
        return {"reclaimablePods": [{"name": "main", "count": count}]}

    @pytest.mark.parametrize(("reclaimable", "left"), [(0, 4), (1, 3), (4, 0), (9, 0)])
    def test_a_waiting_workload_asks_for_the_rest(self, reclaimable: int, left: int) -> None:
        """Never less than none."""
        info = Info(b.workload("w", count=4, status=self.status(reclaimable)), State().surroundings)
        assert (info.totals[0].count, info.totals[0].requests) == (left, {"cpu": left * 1000})

    def test_without_the_gate_all_pods_count(self) -> None:
        """ReclaimablePods off."""
        state = State(Options(gates=Gates(reclaimable_pods=False)))
        assert Info(b.workload("w", count=4, status=self.status(1)), state.surroundings).totals[0].count == 4

    @pytest.mark.parametrize(
        ("stored", "usage", "reclaimable", "count", "held"),
        [(4, "4", 1, 3, 3000), (2, "2", 1, 2, 2000), (2, "2", 3, 1, 1000), (3, "1", 2, 2, 666), (4, "4", 4, 0, 0)],
    )
    def test_a_reservation_shrinks_by_pods(
        self, stored: int, usage: str, reclaimable: int, count: int, held: int
    ) -> None:
        """What is stored for a pod is rounded down; a partial admission shrinks once fewer are left than it has."""
        status = {
            "admission": {
                "clusterQueue": "a",
                "podSetAssignments": [
                    {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": usage}, "count": stored}
                ],
            },
            **self.status(reclaimable),
        }
        workload = b.with_conditions(b.workload("w", count=4, status=status), QuotaReserved=("True", "QuotaReserved"))
        info = Info(workload, State().surroundings)
        assert (info.totals[0].count, sum(info.usage.quota.values())) == (count, held)


class TestUndeclared:
    """Resources that a ClusterQueue does not cover, and the `pods` resource."""

    def decide(self, workload: Workload, resources: dict[str, Any], **options: Any) -> Any:
        """The decision about it in a queue with that quota."""
        state = b.world(b.queue("a", {"default": resources}), options=Options(**options))
        state.put_workload(workload, b.NOW)
        (decision,) = b.settle(state)
        return decision

    def test_they_block_unless_they_are_to_be_ignored(self) -> None:
        """Ignoring needs the gate as well as the setting."""
        asked = ask({"requests": {"cpu": "1", "gpu": "1"}})
        blocked = self.decide(asked, {"cpu": 4})
        assert blocked.condition_reason == "NoMatchingFlavor"
        assert blocked.message == ("couldn't assign flavors to pod set main: resource gpu unavailable in ClusterQueue")
        ignored = self.decide(asked, {"cpu": 4}, quota_check_strategy="IgnoreUndeclared")
        assert ignored.outcome == "admit"
        given = ignored.admission.pod_set_assignments[0]
        assert (given.flavors, given.resource_usage) == ({"cpu": "default"}, {"cpu": "1"})
        gates = Gates(quota_check_strategy=False)
        assert self.decide(asked, {"cpu": 4}, quota_check_strategy="IgnoreUndeclared", gates=gates).outcome == "pending"

    def test_none_of_an_uncovered_resource_is_no_matter(self) -> None:
        """And none of a covered one still gets a flavor."""
        decision = self.decide(ask({"requests": {"cpu": "0", "gpu": "0"}}), {"cpu": 4})
        given = decision.admission.pod_set_assignments[0]
        assert (given.flavors, given.resource_usage) == ({"cpu": "default"}, {"cpu": "0"})

    def test_pods_are_counted_where_they_are_covered(self) -> None:
        """One for each pod."""
        decision = self.decide(b.workload("w", count=3), {"cpu": 4, "pods": 3})
        given = decision.admission.pod_set_assignments[0]
        assert given.resource_usage == {"cpu": "3", "pods": "3"}
        refused = self.decide(b.workload("w", count=4), {"cpu": 4, "pods": 3})
        assert refused.condition_reason == "ExceedsMaxQuota"
        assert refused.message == (
            "couldn't assign flavors to pod set main: insufficient quota for pods in flavor default, previously"
            " considered podsets requests (0) + current podset request (4) > maximum capacity (3)"
        )
