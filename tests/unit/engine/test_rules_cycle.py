"""Rules of the cycle that no recorded case shows: why a head is refused, in which words, and what others see of it."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.core import LimitRange
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle, cycle_steps
from turnstile.engine.cycle.entries import outdated
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import FairSharing, Gates
from turnstile.engine.quota.progress import LastAssignment

PENDING = "Pending"


def only(decisions: list[Decision]) -> Decision:
    """The one decision."""
    (decision,) = decisions
    return decision


def limit_range(**item: Any) -> LimitRange:
    """A LimitRange of one item in namespace `team`."""
    return msgspec.convert(
        {"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": [{"type": "Container", **item}]}},
        LimitRange,
    )


def containers(**resources: Any) -> dict[str, Any]:
    """A pod spec of one container."""
    return {"containers": [{"name": "c", "resources": resources}]}


class TestNomination:
    """Why a head is not even given a flavor; the first reason that holds is told."""

    def refused(self, state: State, workload: Workload) -> Decision:
        """The decision about it, in a queue that selects namespaces with `dep=eng`."""
        state.put_workload(workload, b.NOW)
        decision = only(list(cycle(state, b.NOW)))
        assert decision.outcome == "inadmissible"
        return decision

    def world(self, **spec: Any) -> State:
        """A queue that selects namespaces with `dep=eng`, which `team` is not."""
        return b.world(b.queue("a", namespaceSelector={"matchLabels": {"dep": "eng"}}, **spec))

    @pytest.mark.parametrize("check", ["Retry", "Rejected"])
    def test_failed_checks_come_before_all(self, check: str) -> None:
        """Also before the namespace."""
        states = [{"name": "x", "state": check, "lastTransitionTime": b.STAMP, "message": ""}]
        decision = self.refused(self.world(), b.workload("w", status={"admissionChecks": states}))
        assert decision.condition_reason == "PendingEvaluation"
        assert decision.message == "The workload has failed admission checks"
        assert decision.requeue_reason == ""

    def test_a_namespace_that_does_not_exist(self) -> None:
        """It is named twice, as by Kueue's client."""
        state = self.world()
        state.drop_namespace("team")
        decision = self.refused(state, b.workload("w"))
        assert decision.condition_reason == "Misconfigured"
        assert decision.message == 'workload namespace "team" does not exist: namespaces "team" not found'

    def test_the_selector_comes_before_the_resources(self) -> None:
        """A mismatch has a requeue reason of its own."""
        decision = self.refused(
            self.world(), b.workload("w", spec=containers(requests={"cpu": "2"}, limits={"cpu": "1"}))
        )
        assert decision.message == "workload namespace doesn't match ClusterQueue selector"
        assert decision.requeue_reason == "NamespaceMismatch"

    def test_requests_above_limits_come_before_limit_ranges(self) -> None:
        """Every container and the pod itself, each once, init containers first."""
        spec = {
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "2"}, "limits": {"memory": "1"}}}],
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2", "b": "2"}, "limits": {"cpu": "1", "b": "1"}}}
            ],
            "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}},
        }
        state = b.world(b.queue("a"))
        state.put_limit_range(limit_range(max={"cpu": "500m"}), b.NOW)
        decision = self.refused(state, b.workload("w", spec=spec))
        path = "spec.podSets[0].template.spec"
        detail = "requests must not exceed its limits"
        assert decision.condition_reason == "Misconfigured"
        assert decision.message == (
            f'resources validation failed: [{path}.initContainers[0]: Invalid value: ["memory"]: {detail},'
            f' {path}.containers[0]: Invalid value: ["b","cpu"]: {detail},'
            f' {path}.resources: Invalid value: ["cpu"]: {detail}]'
        )

    def test_a_default_limit_below_the_request(self) -> None:
        """Defaults of a LimitRange count as if they were written."""
        state = b.world(b.queue("a"))
        state.put_limit_range(limit_range(default={"cpu": "1"}), b.NOW)
        assert self.refused(state, b.workload("w", cpu=2)).message == (
            'resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]:'
            " requests must not exceed its limits"
        )

    @pytest.mark.parametrize(
        ("item", "detail"),
        [
            ({"max": {"cpu": "1"}}, "requests must not be above the limitRange max"),
            ({"min": {"cpu": "3"}}, "requests must not be below the limitRange min"),
            (
                {"maxLimitRequestRatio": {"cpu": "1500m"}},
                "limits must not be above requests times the limitRange maxLimitRequestRatio, and both must be set",
            ),
        ],
    )
    def test_outside_a_limit_range(self, item: Any, detail: str) -> None:
        """Largest of request and limit against max, smallest against min, limit over request against the ratio."""
        state = b.world(b.queue("a"))
        state.put_limit_range(limit_range(**item), b.NOW)
        workload = b.workload("w", spec=containers(requests={"cpu": "2"}, limits={"cpu": "4"}))
        decision = self.refused(state, workload)
        assert decision.condition_reason == "Misconfigured"
        assert decision.message == (
            "resources didn't satisfy LimitRange constraints: spec.podSets[0].template.spec.containers[0]:"
            f' Invalid value: ["cpu"]: {detail}'
        )

    def test_a_ratio_asks_for_a_limit_and_holds_for_the_pod_together(self) -> None:
        """As the LimitRanger of Kubernetes does; one that is kept lets the workload through."""
        spec = {
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}},
                {"name": "d", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}},
            ]
        }
        for kind, workload, admitted in (
            ("Pod", b.workload("w", spec=spec), True),
            ("Container", b.workload("w", spec=spec), False),
            ("Pod", b.workload("w"), False),
        ):
            state = b.world(b.queue("a"))
            state.put_limit_range(limit_range(type=kind, maxLimitRequestRatio={"cpu": "2"}), b.NOW)
            state.put_workload(workload, b.NOW)
            b.settle(state)
            assert (b.admitted(state) == {"team/w"}) is admitted

    def test_refusals_that_may_end_stay_in_a_strict_line_and_leave_a_best_effort_one(self) -> None:
        """A StrictFIFO queue waits for its head, also for the answer of an admission check."""
        for strategy, admitted in (("StrictFIFO", set()), ("BestEffortFIFO", {"team/next"})):
            state = b.world(b.queue("a", queueingStrategy=strategy))
            refused = {"name": "c", "state": "Retry", "message": "", "lastTransitionTime": b.STAMP}
            state.put_workload(b.workload("w", status={"admissionChecks": [refused]}), b.NOW)
            state.put_workload(b.workload("next", second=1), b.NOW)
            b.settle(state)
            assert b.admitted(state) == admitted


class TestOldReasons:
    """Reasons of conditions while UnadmittedWorkloadsObservability is off."""

    def test_whatever_holds_a_head_is_pending(self) -> None:
        """Also what does not fit and what is misconfigured; the message tells."""
        state = b.world(
            b.queue("a", {"default": {"cpu": 4}}),
            options=Options(gates=Gates(unadmitted_workloads_observability=False)),
        )
        state.put_workload(b.workload("big", cpu=5), b.NOW)
        state.put_workload(b.workload("bad", second=1, spec=containers(requests={"cpu": 2}, limits={"cpu": 1})), b.NOW)
        reasons = {decision.key: decision.condition_reason for decision in b.settle(state)}
        assert reasons == {"team/big": PENDING, "team/bad": PENDING}

    def test_what_its_queues_hold_back_is_inadmissible(self) -> None:
        """And an equal of what was refused is pending."""
        gates = Gates(unadmitted_workloads_observability=False)
        state = b.world(b.queue("a", {"default": {"cpu": 4}}), options=Options(gates=gates))
        state.put_workload(b.workload("w", "elsewhere"), b.NOW)
        state.put_workload(b.workload("big", cpu=5), b.NOW)
        state.put_workload(b.workload("equal", cpu=5, second=1), b.NOW)
        b.settle(state)
        why = {key: state.questions.why(f"team/{key}") for key in ("w", "equal")}
        assert why["w"] == ("Inadmissible", "LocalQueue elsewhere doesn't exist", ())
        assert why["equal"] == (
            "Pending",
            "Bypassed scheduling evaluation because an equivalent workload recently failed",
            (),
        )


class TestPartialAdmission:
    """Fewer pods, if the pod sets allow it."""

    def pod_sets(self, *sets: tuple[int, int | None]) -> Workload:
        """Pod sets of 1 core a pod: count and least count."""
        base = msgspec.to_builtins(b.workload("w"))
        template = base["spec"]["podSets"][0]["template"]
        base["spec"]["podSets"] = [
            {"name": f"s{index}", "count": count, "template": template, **({"minCount": low} if low else {})}
            for index, (count, low) in enumerate(sets)
        ]
        return msgspec.convert(base, Workload)

    def test_cuts_are_spread_in_proportion(self) -> None:
        """20 fixed, 30 down to 10, 15 down to 5, in 50 cores."""
        state = b.world(b.queue("a", {"default": {"cpu": 50}}))
        state.put_workload(self.pod_sets((20, None), (30, 10), (15, 5)), b.NOW)
        b.settle(state)
        info = state.cluster_queues["a"].workloads["team/w"]
        assert [item.count for item in info.totals] == [20, 20, 10]

    def test_without_the_gate_the_least_counts_mean_nothing(self) -> None:
        """The whole is asked for, and refused."""
        state = b.world(b.queue("a", {"default": {"cpu": 50}}), options=Options(gates=Gates(partial_admission=False)))
        state.put_workload(self.pod_sets((20, None), (30, 10), (15, 5)), b.NOW)
        decision = only(b.settle(state))
        assert decision.condition_reason == "ExceedsMaxQuota"
        assert decision.message == (
            "couldn't assign flavors to pod set s2: insufficient quota for cpu in flavor default, previously considered"
            " podsets requests (50) + current podset request (15) > maximum capacity (50)"
        )

    def test_all_pods_by_preemption_rather_than_some_without(self) -> None:
        """Unless even that does not make room enough."""
        for asked, given in ((20, 20), (30, 20)):
            state = b.world(b.queue("a", {"default": {"cpu": 20}}, preemption={"withinClusterQueue": "LowerPriority"}))
            low = b.workload("low", count=10)
            state.put_workload(low, b.NOW)
            b.settle(state)
            state.put_workload(b.workload("high", count=asked, min_count=10, priority=5), b.NOW)
            decision = next(iter(cycle(state, b.NOW)))
            assert [victim.key for victim in decision.victims] == ["team/low"]
            assert decision.assignment is not None
            assert [item.count for item in decision.assignment.pod_sets] == [given]


class TestScanProgress:
    """A head that another one came before goes on from the flavor it reached, or starts over, as the gate says."""

    def world(self, *, preserve: bool, second: int = 1) -> State:
        """Two queues that borrow from a cohort: one core of `x`, and `second` of `y`."""
        queues = [
            b.queue(
                name,
                {"x": {"cpu": 0}, "y": {"cpu": 0}},
                "team",
                flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            )
            for name in ("a", "z")
        ]
        gates = Gates(flavor_fungibility_preserve_scan_progress=preserve)
        state = b.world(*queues, options=Options(gates=gates), flavors=("x", "y"))
        state.put_cohort(b.cohort("team", {"x": {"cpu": 1}, "y": {"cpu": second}}))
        return state

    @pytest.mark.parametrize("preserve", [True, False])
    def test_a_skipped_head_is_admitted_with_the_next_flavor(self, preserve: bool) -> None:
        """Both want the first flavor; the later one gets the second."""
        state = self.world(preserve=preserve)
        state.put_workload(b.workload("first", "a"), b.NOW)
        state.put_workload(b.workload("later", "z", second=1), b.NOW)
        result = cycle(state, b.NOW)
        skipped = result.entries[1]
        assert skipped.status == "skipped"
        assert skipped.message == "Workload no longer fits after processing another workload"
        last = skipped.info.last_assignment
        assert (last is not None) is preserve
        assert last is None or last.tried == [{"cpu": 0}]
        b.settle(state)
        later = state.cluster_queues["z"].workloads["team/later"]
        assert later.totals[0].flavors == {"cpu": "y"}

    def test_room_that_came_during_the_scan_is_not_missed(self) -> None:
        """The first flavor is free again when the second does not do: the head is admitted there."""
        state = self.world(preserve=True, second=0)
        state.put_workload(b.workload("first", "a"), b.NOW)
        state.put_workload(b.workload("later", "z", second=1), b.NOW)
        cycle(state, b.NOW)
        state.drop_workload("team/first")
        b.settle(state)
        assert b.admitted(state) == {"team/later"}

    def test_a_scan_to_the_end_parks(self) -> None:
        """The first pod set has another flavor to try, the second none at all: it goes on once, and no more."""
        state = b.world(b.queue("a", {"x": {"cpu": 4}, "y": {"cpu": 4}}), flavors=("x", "y"))
        body = msgspec.to_builtins(b.workload("w"))
        small, large = (
            body["spec"]["podSets"][0] | {"name": name, "count": count} for name, count in (("s", 1), ("l", 9))
        )
        body["spec"]["podSets"] = [small, large]
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        pending = state.cluster_queues["a"].pending
        first = only(list(cycle(state, b.NOW)))
        assert first.requeue_reason == "NoFit"
        assert [info.key for info in pending.in_order()] == ["team/w"]
        cycle(state, b.NOW)
        assert [info.key for info in pending.inadmissible_infos()] == ["team/w"]
        assert b.settle(state) == []

    def test_a_scan_comes_to_its_end_again_after_a_change(self) -> None:
        """It goes the same way as before, and then those behind it have their turn."""
        state = b.world(b.queue("a", {"x": {"cpu": 4}, "y": {"cpu": 4}}), flavors=("x", "y"))
        body = msgspec.to_builtins(b.workload("w"))
        body["spec"]["podSets"] = [
            body["spec"]["podSets"][0] | {"name": name, "count": count} for name, count in (("s", 1), ("l", 9))
        ]
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        b.settle(state)
        state.put_cluster_queue(b.queue("a", {"x": {"cpu": 5}, "y": {"cpu": 5}}), b.NOW)
        state.put_workload(b.workload("behind", second=1), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/behind"}

    @pytest.mark.parametrize(
        ("last", "hash_", "cycle_", "generation", "over"),
        [
            ("one", "one", 8, 4, False),
            ("one", "two", 8, 3, True),
            ("", "two", 8, 3, False),
            ("one", "", 8, 3, False),
            ("one", "one", 9, 4, True),
            ("one", "one", 9, 3, False),
        ],
    )
    def test_it_starts_over(self, last: str, hash_: str, cycle_: int, generation: int, over: bool) -> None:
        """If another request is known, or quota changed (generation 3 to 4) and its last scan (cycle 7) is not of the
        cycle before."""
        scan = LastAssignment([], 3, 7, last)
        assert outdated(scan, cycle=cycle_, generation=generation, hash_=hash_, preserve_progress=True) is over

    def test_without_the_gate_any_change_of_quota_starts_it_over(self) -> None:
        """However short ago, and whatever it asks for."""
        scan = LastAssignment([], 3, 7, "one")
        for generation, over in ((4, True), (3, False)):
            assert outdated(scan, cycle=8, generation=generation, hash_="two", preserve_progress=False) is over


def test_a_cycle_that_is_left_does_not_count() -> None:
    """By number, as progress of scans is kept by number."""
    state = b.world(b.queue("a"))
    state.put_workload(b.workload("w"), b.NOW)
    steps = cycle_steps(state, b.NOW)
    next(steps)
    steps.close()
    assert cycle(state, b.NOW).number == 1


class TestChecks:
    """Reservation first, admission when the checks of the flavors that were given are ready."""

    @pytest.mark.parametrize(
        ("on", "state_of_check", "admitted"),
        [([], None, False), ([], "Pending", False), ([], "Ready", True), (["other"], None, True), (["x"], None, False)],
    )
    def test_checks_of_the_flavors_that_were_given(
        self, on: list[str], state_of_check: str | None, admitted: bool
    ) -> None:
        """A check for other flavors does not count."""
        state = b.world(
            b.queue(
                "a",
                {"x": {"cpu": 4}, "other": {"cpu": 4}},
                admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": on}]},
            ),
            flavors=("x", "other"),
        )
        state.put_admission_check("c", active=True)
        checks = [{"name": "c", "state": state_of_check, "lastTransitionTime": b.STAMP, "message": ""}]
        state.put_workload(b.workload("w", status={"admissionChecks": checks} if state_of_check else {}), b.NOW)
        assert only(b.settle(state)).admitted is admitted


class TestInactiveQueues:
    """Why a ClusterQueue admits nothing: all reasons in one order, the first names the condition."""

    def test_all_reasons_in_their_order(self) -> None:
        """Each with what it is about: checks sorted, flavors as the spec has them."""
        state = b.world(
            b.queue(
                "a",
                {"b2": {"cpu": 1}, "b1": {"cpu": 1}},
                stopPolicy="Hold",
                admissionChecksStrategy={
                    "admissionChecks": [
                        {"name": "z-missing"},
                        {"name": "a-missing"},
                        {"name": "idle"},
                        {"name": "m1"},
                        {"name": "m2", "onFlavors": ["b1"]},
                        {"name": "p"},
                    ]
                },
            )
        )
        state.put_admission_check("idle", active=False)
        state.put_admission_check("m1", active=True, controller="kueue.x-k8s.io/multikueue")
        state.put_admission_check("m2", active=True, controller="kueue.x-k8s.io/multikueue")
        state.put_admission_check("p", active=True, controller="kueue.x-k8s.io/provisioning-request")
        assert [reason for reason, _ in state.cluster_queues["a"].problems] == [
            "Stopped",
            "FlavorNotFound",
            "AdmissionCheckNotFound",
            "AdmissionCheckInactive",
            "MultipleMultiKueueAdmissionChecks",
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "MultiKueueWithProvisioningRequest",
        ]
        active, reason, message = state.questions.active_reason("a")
        assert (active, reason) == (False, "Stopped")
        assert message.startswith(
            "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): b2,b1, references missing"
            " AdmissionCheck(s): a-missing,z-missing, references inactive AdmissionCheck(s): idle, "
        )
        assert message.endswith(".")

    def test_names_are_in_alphabetical_order(self) -> None:
        """Of every reason that lists some, but for flavors, which are in the order of the spec."""
        names = [f"{letter}-check" for letter in "hgfedcba"]
        rules = [{"name": name, "onFlavors": ["f0"]} for name in names]
        state = b.world(
            b.queue(
                "a",
                {f"f{number}": {"cpu": 1} for number in range(7, -1, -1)},
                admissionChecksStrategy={"admissionChecks": [*rules, *({"name": f"x{name}"} for name in names)]},
            ),
            flavors=(),
        )
        for name in names:
            state.put_admission_check(name, active=False, controller="kueue.x-k8s.io/multikueue")
        listed = ",".join(sorted(names))
        missing = ",".join(sorted(f"x{name}" for name in names))
        flavors = ",".join(f"f{number}" for number in range(7, -1, -1))
        assert dict(state.cluster_queues["a"].problems) == {
            "FlavorNotFound": f"references missing ResourceFlavor(s): {flavors}",
            "AdmissionCheckNotFound": f"references missing AdmissionCheck(s): {missing}",
            "AdmissionCheckInactive": f"references inactive AdmissionCheck(s): {listed}",
            "MultipleMultiKueueAdmissionChecks": (
                f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {listed}"
            ),
            "MultiKueueAdmissionCheckAppliedPerFlavor": (
                f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {listed}"
            ),
        }

    @pytest.mark.parametrize("on", [True, False])
    def test_a_missing_topology_matters_only_with_its_feature(self, on: bool) -> None:
        """TopologyAwareScheduling off."""
        options = Options(gates=Gates(topology_aware_scheduling=on))
        state = b.world(b.queue("a", {"one": {"cpu": 1}}), options=options, flavors=())
        state.put_flavor(b.flavor("one", topologyName="t"))
        said = 'Can\'t admit new workloads: there is no Topology "t" for TAS flavor "one".'
        ready = (True, "Ready", "Can admit new workloads")
        assert state.questions.active_reason("a") == ((False, "TopologyNotFound", said) if on else ready)

    def test_a_topology_has_to_have_levels(self) -> None:
        """Without any no pod can be placed by it, so it is missing; whether it or the ClusterQueue came first."""
        state = b.world(b.queue("a", {"one": {"cpu": 1}}), flavors=())
        state.put_flavor(b.flavor("one", topologyName="t"))
        levels = [{"nodeLabel": "rack"}]
        for spec, reason in (({"levels": levels}, "Ready"), ({"levels": []}, "TopologyNotFound")):
            FEEDING[Topology].put(state, msgspec.convert({"metadata": {"name": "t"}, "spec": spec}, Topology), b.NOW)
            assert state.questions.active_reason("a")[1] == reason
        FEEDING[Topology].drop(state, "t", b.NOW)
        assert state.questions.active_reason("a")[1] == "TopologyNotFound"


class TestFairSharing:
    """Order between ClusterQueues by share."""

    def test_who_does_not_borrow_comes_first_unless_the_gate_is_off(self) -> None:
        """A smaller share by weight wins only without the gate."""
        for on, first in ((True, "team/owner"), (False, "team/borrower")):
            options = Options(fair_sharing=FairSharing(), gates=Gates(fair_sharing_prioritize_non_borrowing=on))
            state = b.world(
                b.queue("own", {"default": {"cpu": 4}}, "x"),
                b.queue("rich", {"default": {"cpu": 0}}, "x", fairSharing={"weight": "1"}),
                b.queue("lender", {"default": {"cpu": 6}}, "x"),
                options=options,
            )
            state.put_workload(b.workload("owner", "own", cpu=2, second=9), b.NOW)
            state.put_workload(b.workload("borrower", "rich", cpu=1, priority=9), b.NOW)
            order = cycle(state, b.NOW).order
            assert order[0] == "team/owner", (on, first)


class TestFaults:
    """A head at which the engine itself fails."""

    def test_it_costs_the_others_nothing(self) -> None:
        """It is parked and told of; who comes after it, in its line and in others, is let in."""
        state = b.world(b.queue("a"), b.queue("z"))
        state.put_workload(b.workload("broken", "a", cpu=1), b.NOW)
        state.put_workload(b.workload("behind", "a", cpu=1, second=1), b.NOW)
        state.put_workload(b.workload("beside", "z", cpu=1), b.NOW)
        state.queues.waiting["team/broken"].allowed_flavors = 7  # type: ignore[assignment]
        first = cycle(state, b.NOW)
        ((key, error),) = first.faults
        assert (key, type(error)) == ("team/broken", TypeError)
        told = next(decision for decision in first if decision.key == "team/broken")
        assert (told.outcome, told.condition_reason) == ("inadmissible", "PendingEvaluation")
        assert told.message == "The workload could not be looked at (TypeError): see the log of Turnstile"
        b.settle(state)
        assert b.admitted(state) == {"team/behind", "team/beside"}
        assert [info.key for info in state.cluster_queues["a"].pending.inadmissible_infos()] == ["team/broken"]
