"""Which of the flavors that suit is chosen, how far the scan goes, and what is told of those passed over.

Expectations are the worked examples of Kueue's flavor assigner. A flavor is `one` or `two`, in this order.
"""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.flavors.assigner import Assigner
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.options import FairSharing, Gates
from turnstile.engine.pace import Sliced, finish
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import Mode, Possibility

TRY_NEXT = "TryNextFlavor"
STOP = "MayStopSearch"


def held(name: str, queue: str, amounts: dict[str, str], *, flavor: str = "one", priority: int = 0) -> Workload:
    """A workload that runs in a queue, in flavor `one` if not told otherwise."""
    return b.held(name, queue, amounts, flavor=flavor, priority=priority)


def world(*queues: Any, running: tuple[Workload, ...] = (), **kwargs: Any) -> State:
    """A state with the flavors `one` and `two`."""
    state = b.world(*queues, flavors=("one", "two"), **kwargs)
    for item in running:
        state.put_workload(item, b.NOW)
    return state


def given(decision: Decision, resource: str = "cpu") -> tuple[str, str, int, int]:
    """Flavor, mode, borrowing level and tried index of a resource."""
    assert decision.assignment is not None
    choice = decision.assignment.pod_sets[0].flavors[resource]
    return choice.flavor, choice.mode.text, choice.borrow, choice.tried_index


def fungibility(borrow: str = STOP, preempt: str = TRY_NEXT, preference: str | None = None) -> dict[str, Any]:
    """The field of a ClusterQueue."""
    found: dict[str, Any] = {"whenCanBorrow": borrow, "whenCanPreempt": preempt}
    return found if preference is None else {**found, "preference": preference}


LOWER = {"withinClusterQueue": "LowerPriority"}


class TestFungibility:
    """When the scan stops, and what is better."""

    def _in_own_queue(self, preempt: str) -> Decision:
        queue = b.queue(
            "a",
            {"one": {"cpu": 10}, "two": {"cpu": 10}},
            flavorFungibility=fungibility(preempt=preempt),
            preemption=LOWER,
        )
        state = world(queue, running=(held("low", "a", {"cpu": "2"}, priority=-1),))
        state.put_workload(b.workload("w", cpu=9), b.NOW)
        return b.decide(state)

    def test_the_next_flavor_is_tried_before_anybody_is_preempted(self) -> None:
        """With whenCanPreempt TryNextFlavor, the default."""
        assert given(self._in_own_queue(TRY_NEXT)) == ("two", "Fit", 0, -1)

    def test_the_scan_stops_where_preemption_helps(self) -> None:
        """With whenCanPreempt MayStopSearch."""
        decision = self._in_own_queue(STOP)
        assert given(decision) == ("one", "Preempt", 0, 0)
        assert decision.message == (
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor one, 1 more needed."
            " Pending the preemption of 1 workload(s)"
        )
        assert [victim.key for victim in decision.victims] == ["team/low"]

    @pytest.mark.parametrize(
        ("borrow", "second", "expected"),
        [
            (STOP, 10, ("one", "Fit", 1, 0)),
            (TRY_NEXT, 10, ("two", "Fit", 0, -1)),
            (TRY_NEXT, 1, ("one", "Fit", 1, -1)),
        ],
    )
    def test_borrowing_stops_the_scan_only_if_it_may(
        self, borrow: str, second: int, expected: tuple[str, str, int, int]
    ) -> None:
        """Otherwise borrowing is the last resort."""
        state = world(
            b.queue(
                "a",
                {"one": {"cpu": (10, 1, None)}, "two": {"cpu": second}},
                "x",
                flavorFungibility=fungibility(borrow=borrow),
            ),
            b.queue("peer", {"one": {"cpu": 1}}, "x"),
            running=(held("mine", "a", {"cpu": "2"}),),
        )
        state.put_workload(b.workload("w", cpu=9), b.NOW)
        assert given(b.decide(state)) == expected

    @pytest.mark.parametrize(
        ("policy", "sharing", "expected"),
        [
            ({"borrowWithinCohort": {"policy": "LowerPriority"}}, False, ("one", "Preempt", 1, 0)),
            ({"borrowWithinCohort": {"policy": "Never"}}, False, ("two", "Fit", 0, -1)),
            ({}, False, ("two", "Fit", 0, -1)),
            ({}, True, ("one", "Preempt", 1, 0)),
        ],
    )
    def test_preemption_past_nominal_needs_the_right_to_borrow_meanwhile(
        self, policy: dict[str, Any], sharing: bool, expected: tuple[str, str, int, int]
    ) -> None:
        """By borrowWithinCohort, or by fair sharing with reclaimWithinCohort."""
        state = world(
            b.queue(
                "a",
                {"one": {"cpu": (0, 12, None)}, "two": {"cpu": 12}},
                "x",
                flavorFungibility=fungibility(preempt=STOP),
                preemption={"reclaimWithinCohort": "LowerPriority", **policy},
            ),
            b.queue("peer", {"one": {"cpu": 12}}, "x"),
            b.queue("taker", {"one": {"cpu": 0}}, "x"),
            options=Options(fair_sharing=FairSharing() if sharing else None),
            running=(held("other", "taker", {"cpu": "10"}, priority=-1),),
        )
        state.put_workload(b.workload("w", cpu=12 if not sharing else 6), b.NOW)
        decision = b.decide(state)
        assert given(decision) == expected
        if expected[1] == "Preempt":
            needed = "10" if not sharing else "4"
            assert f"insufficient unused quota for cpu in flavor one, {needed} more needed" in decision.message

    @pytest.mark.parametrize("preempt", [STOP, TRY_NEXT])
    def test_a_flavor_without_candidates_never_stops_the_scan(self, preempt: str) -> None:
        """Nobody there may be preempted, so it is like no room at all."""
        state = world(
            b.queue(
                "a",
                {"one": {"cpu": 10}, "two": {"cpu": 10}},
                flavorFungibility=fungibility(preempt=preempt),
                preemption=LOWER,
            ),
            running=(held("high", "a", {"cpu": "2"}, priority=5),),
        )
        state.put_workload(b.workload("w", cpu=9), b.NOW)
        assert given(b.decide(state)) == ("two", "Fit", 0, -1)

    @pytest.mark.parametrize(
        ("preference", "priority", "expected"),
        [
            (None, -1, ("two", "Fit", 1, -1)),
            ("BorrowingOverPreemption", -1, ("two", "Fit", 1, -1)),
            ("PreemptionOverBorrowing", -1, ("one", "Preempt", 0, -1)),
            ("PreemptionOverBorrowing", 5, ("two", "Fit", 1, -1)),
        ],
    )
    def test_preference_between_preempting_and_borrowing(
        self, preference: str | None, priority: int, expected: tuple[str, str, int, int]
    ) -> None:
        """Only where there is somebody to preempt."""
        state = world(
            b.queue(
                "a",
                {"one": {"cpu": 10}, "two": {"cpu": 1}},
                "x",
                flavorFungibility=fungibility(TRY_NEXT, TRY_NEXT, preference),
                preemption=LOWER,
            ),
            b.queue("peer", {"two": {"cpu": 10}}, "x"),
            running=(held("mine", "a", {"cpu": "2"}, priority=priority),),
        )
        state.put_workload(b.workload("w", cpu=9), b.NOW)
        assert given(b.decide(state)) == expected

    def test_reclaiming_is_better_than_preempting_in_the_own_queue(self) -> None:
        """Of two flavors where somebody would have to go."""
        state = world(
            b.queue(
                "a",
                {"one": {"cpu": 10}, "two": {"cpu": 10}},
                "x",
                flavorFungibility=fungibility(TRY_NEXT, TRY_NEXT),
                preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            ),
            b.queue("peer", {"one": {"cpu": 0}, "two": {"cpu": 0}}, "x"),
            running=(
                held("own", "a", {"cpu": "10"}, priority=-1),
                held("theirs", "peer", {"cpu": "10"}, flavor="two"),
            ),
        )
        state.put_workload(b.workload("w", cpu=5), b.NOW)
        decision = b.decide(state)
        assert given(decision) == ("two", "Preempt", 0, -1)
        assert [victim.key for victim in decision.victims] == ["team/theirs"]

    def test_without_fungibility_the_first_of_the_best_is_taken(self) -> None:
        """The feature gate off: stop at the first that fits, else the first of the highest mode; no progress kept."""
        queue = b.queue(
            "a",
            {"one": {"cpu": 10}, "two": {"cpu": 10}},
            flavorFungibility=fungibility(preempt=STOP),
            preemption=LOWER,
        )
        for second, expected in (("2", "one"), ("0", "two")):
            state = world(
                queue,
                options=Options(gates=Gates(flavor_fungibility=False)),
                running=(
                    held("low", "a", {"cpu": "2"}, priority=-1),
                    held("also", "a", {"cpu": second}, flavor="two", priority=-1),
                ),
            )
            state.put_workload(b.workload("w", cpu=9), b.NOW)
            assert given(b.decide(state))[0] == expected


def pod_sets(*items: tuple[str, int, dict[str, str]], group: str | None = None, name: str = "w") -> Workload:
    """A workload of several pod sets: name, count, requests."""
    body = msgspec.to_builtins(b.workload(name))
    body["spec"]["podSets"] = [
        {
            "name": title,
            "count": count,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
            **({"topologyRequest": {"podSetGroupName": group}} if group else {}),
        }
        for title, count, requests in items
    ]
    return msgspec.convert(body, Workload)


class TestResources:
    """Several resources, groups and pod sets."""

    def test_every_resource_of_a_group_gets_the_same_flavor(self) -> None:
        """The one where all of them fit."""
        state = world(b.queue("a", {"one": {"cpu": 2, "memory": 10}, "two": {"cpu": 4, "memory": 10}}))
        state.put_workload(pod_sets(("main", 1, {"cpu": "3", "memory": "5"})), b.NOW)
        decision = b.decide(state)
        assert given(decision) == given(decision, "memory") == ("two", "Fit", 0, -1)

    @pytest.mark.parametrize(("short", "lent"), [("cpu", "memory"), ("memory", "cpu")])
    def test_the_worst_resource_speaks_for_a_flavor(self, short: str, lent: str) -> None:
        """One that fits by borrowing does not end a scan while another needs a preemption."""
        state = world(
            b.queue(
                "a",
                {"one": {short: 2, lent: 1}, "two": {short: 9, lent: 9}},
                "x",
                flavorFungibility=fungibility(),
                preemption=LOWER,
            ),
            b.queue("peer", {"one": {lent: 5}}, "x"),
            running=(held("low", "a", {short: "1"}, priority=-1),),
        )
        state.put_workload(pod_sets(("main", 1, {short: "2", lent: "2"})), b.NOW)
        decision = b.decide(state)
        assert given(decision) == given(decision, "memory") == ("two", "Fit", 0, -1)

    @pytest.mark.parametrize(("short", "lent"), [("cpu", "memory"), ("memory", "cpu")])
    def test_an_event_tells_how_far_a_flavor_would_have_borrowed(self, short: str, lent: str) -> None:
        """That is the highest level over its resources, whichever of them speaks for its mode."""
        state = world(
            b.queue("a", {"one": {short: 2, lent: 1}, "two": {"cpu": 10, "memory": 10}}, "x", preemption=LOWER),
            b.queue("peer", {"one": {lent: 5}}, "x"),
            running=(held("low", "a", {short: "1"}, priority=-1),),
        )
        state.put_workload(pod_sets(("main", 1, {short: "2", lent: "2"})), b.NOW)
        assert b.decide(state).flavors_considered == (
            "main: one(preemptionMode=Preempt;borrow=1;"
            f"insufficient unused quota for {short} in flavor one, 1 more needed)"
        )

    def test_groups_are_searched_one_by_one(self) -> None:
        """Each with its own index; one that fails leaves the pod set without any flavor."""
        queue = b.queue(
            "a",
            resourceGroups=b.groups({"one": {"cpu": 2}, "two": {"cpu": 4}}, {"b1": {"memory": 1}, "b2": {"memory": 5}}),
        )
        state = world(queue)
        for name in ("b1", "b2"):
            state.put_flavor(b.flavor(name))
        state.put_workload(pod_sets(("main", 1, {"cpu": "3", "memory": "1"})), b.NOW)
        decision = b.decide(state)
        assert given(decision) == ("two", "Fit", 0, -1)
        assert given(decision, "memory") == ("b1", "Fit", 0, 0)
        state.put_workload(pod_sets(("main", 1, {"cpu": "3", "memory": "6"}), name="big"), b.NOW)
        decision = b.decide(state, "big")
        assert decision.assignment is not None
        assert decision.assignment.pod_sets[0].flavors == {}
        assert decision.message == (
            "couldn't assign flavors to pod set main:"
            " insufficient quota for memory in flavor b1, previously considered podsets requests (0) + current podset"
            " request (6) > maximum capacity (1), insufficient quota for memory in flavor b2, previously considered"
            " podsets requests (0) + current podset request (6) > maximum capacity (5)"
        )
        assert decision.condition_reason == "ExceedsMaxQuota"

    def test_pods_are_counted_where_they_are_covered(self) -> None:
        """The implicit resource, without asking for it."""
        state = world(b.queue("a", {"one": {"cpu": 10, "pods": 3}}))
        state.put_workload(b.workload("few", count=3, cpu=1), b.NOW)
        assert given(b.decide(state, "few"), "pods") == ("one", "Fit", 0, -1)
        state = world(b.queue("a", {"one": {"cpu": 10, "pods": 3}}))
        state.put_workload(b.workload("many", count=4, cpu=1), b.NOW)
        assert b.decide(state, "many").message == (
            "couldn't assign flavors to pod set main: insufficient quota for pods in flavor one, previously considered"
            " podsets requests (0) + current podset request (4) > maximum capacity (3)"
        )

    @pytest.mark.parametrize(("strategy", "admitted"), [("BlockUndeclared", False), ("IgnoreUndeclared", True)])
    def test_a_resource_that_the_queue_does_not_know(self, strategy: Any, admitted: bool) -> None:
        """Blocks, unless undeclared resources are to be ignored; it gets no flavor and uses no quota."""
        state = world(b.queue("a", {"one": {"cpu": 10}}), options=Options(quota_check_strategy=strategy))
        state.put_workload(pod_sets(("main", 1, {"cpu": "1", "gpu": "1"})), b.NOW)
        decision = b.decide(state)
        if admitted:
            assert decision.admission is not None
            assert decision.admission.pod_set_assignments[0].flavors == {"cpu": "one"}
            assert decision.admission.pod_set_assignments[0].resource_usage == {"cpu": "1"}
        else:
            assert decision.message == (
                "couldn't assign flavors to pod set main: resource gpu unavailable in ClusterQueue"
            )
            assert decision.condition_reason == "NoMatchingFlavor"

    def test_a_request_of_zero_gets_a_flavor_only_where_it_is_covered(self) -> None:
        """And is no obstacle where it is not."""
        state = world(b.queue("a", {"one": {"cpu": 10, "memory": 0}}))
        state.put_workload(pod_sets(("main", 1, {"cpu": "1", "memory": "0", "gpu": "0"})), b.NOW)
        decision = b.decide(state)
        assert decision.admission is not None
        assert decision.admission.pod_set_assignments[0].flavors == {"cpu": "one", "memory": "one"}

    def test_pod_sets_of_a_group_share_their_flavors(self) -> None:
        """Their requests are summed, and each gets the flavors of what it asks for."""
        queue = b.queue("a", {"one": {"cpu": 4, "gpu": 9}, "two": {"cpu": 5, "gpu": 4}})
        state = world(queue)
        workers, leader = ("worker", 4, {"cpu": "1", "gpu": "1"}), ("leader", 1, {"cpu": "1"})
        state.put_workload(pod_sets(workers, leader, group="g"), b.NOW)
        decision = b.decide(state)
        assert decision.admission is not None
        assert [item.flavors for item in decision.admission.pod_set_assignments] == [
            {"cpu": "two", "gpu": "two"},
            {"cpu": "two"},
        ]
        state = world(queue)
        state.put_workload(pod_sets(workers, leader), b.NOW)
        decision = b.decide(state)
        assert decision.admission is not None
        assert [item.flavors.get("cpu") for item in decision.admission.pod_set_assignments] == ["one", "two"]

    def test_later_pod_sets_see_what_earlier_ones_took(self) -> None:
        """And the message lists pod sets up to the first that fails."""
        state = world(b.queue("a", {"one": {"cpu": 5}}))
        state.put_workload(pod_sets(("x", 1, {"cpu": "3"}), ("y", 1, {"cpu": "3"}), ("z", 1, {"cpu": "9"})), b.NOW)
        decision = b.decide(state)
        assert decision.message == (
            "couldn't assign flavors to pod set y: insufficient quota for cpu in flavor one, previously considered"
            " podsets requests (3) + current podset request (3) > maximum capacity (5)"
        )
        assert decision.assignment is not None
        assert [item.name for item in decision.assignment.pod_sets] == ["x", "y"]
        assert decision.info.last_assignment is not None
        assert decision.info.last_assignment.tried == [{"cpu": -1}, {}]

    def test_pod_sets_that_wait_are_told_of_one_by_one(self) -> None:
        """Joined by a semicolon; the reasons of each in alphabetical order."""
        state = world(
            b.queue("a", {"one": {"cpu": 10, "memory": 10}}, preemption=LOWER),
            running=(held("high", "a", {"cpu": "9", "memory": "9"}, priority=5),),
        )
        request = {"memory": "2", "cpu": "2"}
        state.put_workload(pod_sets(("x", 1, request), ("y", 1, request)), b.NOW)
        assert b.decide(state).message == (
            "couldn't assign flavors to pod set x: insufficient unused quota for cpu in flavor one, 1 more needed,"
            " insufficient unused quota for memory in flavor one, 1 more needed;"
            " couldn't assign flavors to pod set y: insufficient unused quota for cpu in flavor one, 3 more needed,"
            " insufficient unused quota for memory in flavor one, 3 more needed"
        )

    def test_a_flavor_that_is_gone_is_passed_over(self) -> None:
        """Though its queue does not admit while it lacks a flavor, an assigner may meet it."""
        state = world(b.queue("a", {"one": {"cpu": 10}, "gone": {"cpu": 10}}))
        state.put_workload(b.workload("w"), b.NOW)
        assert list(cycle(state, b.NOW)) == []

    def test_quota_without_end_takes_any_number(self) -> None:
        """Requests at the end of int64 included, and twice of them."""
        state = world(b.queue("a", {"one": {"cpu": 9223372036854775807, "memory": 10}}))
        state.put_workload(pod_sets(("x", 2, {"cpu": "5E"}), ("y", 1, {"cpu": "5E"})), b.NOW)
        assert b.decide(state).outcome == "admit"

    def test_huge_requests_do_not_wrap(self) -> None:
        """Two that are each near the end of int64 are past any bounded quota together."""
        state = world(b.queue("a", {"one": {"memory": "5E"}}))
        state.put_workload(pod_sets(("x", 1, {"memory": "5E"}), ("y", 1, {"memory": "5E"})), b.NOW)
        decision = b.decide(state)
        assert decision.outcome == "pending"
        assert decision.condition_reason == "ExceedsMaxQuota"
        assert decision.message.startswith("couldn't assign flavors to pod set y: insufficient quota for memory")


GPU = "example.com/gpu"


def _asks(spec: dict[str, Any] | None = None) -> Workload:
    """A workload whose pod asks for a core and a GPU."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1", GPU: "1"}}}]
    return b.workload("w", spec={"containers": containers, **(spec or {})})


def _labelled(cpu: dict[str, dict[str, str]], gpu: dict[str, dict[str, str]], **spec: Any) -> State:
    """A state with a queue that has flavors for cpu and flavors for GPUs, with these node labels."""
    groups = b.groups({name: {"cpu": 8} for name in cpu}, {name: {GPU: 8} for name in gpu})
    state = b.world(b.queue("a", resourceGroups=groups, **spec), flavors=())
    for name, labels in {**cpu, **gpu}.items():
        state.put_flavor(b.flavor(name, nodeLabels=labels))
    return state


class TestTogether:
    """Flavors of one pod set for resources of different groups fit together, or none of them is given."""

    def test_flavors_that_set_a_label_differently_are_not_given_to_one_pod_set(self) -> None:
        """No node has two values of a label: the pods would hold quota and never be placed."""
        state = _labelled(
            {"general": {"pool": "general", "zone": "a"}}, {"fast": {"pool": "accelerated", "disk": "ssd"}}
        )
        state.put_workload(_asks(), b.NOW)
        decision = b.decide(state)
        assert decision.outcome != "admit"
        assert decision.message == (
            "couldn't assign flavors to pod set main: "
            "flavor general contradicts flavor fast: node label pool is general and accelerated"
        )

    @pytest.mark.parametrize(("gpus", "outcome"), [("0", "pending"), (None, "admit")])
    def test_a_request_of_nothing_is_given_a_flavor_and_none_is_given_without_a_request(
        self, gpus: str | None, outcome: str
    ) -> None:
        """The pods get the node labels of each flavor that is given, whatever the amount."""
        state = _labelled({"general": {"pool": "general"}}, {"fast": {"pool": "accelerated"}})
        asked = {"cpu": "1"} if gpus is None else {"cpu": "1", GPU: gpus}
        containers = [{"name": "c", "resources": {"requests": asked}}]
        state.put_workload(b.workload("w", spec={"containers": containers}), b.NOW)
        assert b.decide(state).outcome == outcome

    def test_the_next_flavor_of_the_group_is_taken_that_fits_with_the_one_chosen(self) -> None:
        """As a flavor with an untolerated taint is passed over."""
        state = _labelled({"spot": {"kind": "spot"}, "paid": {"kind": "paid"}}, {"fast": {"kind": "paid"}})
        state.put_workload(_asks(), b.NOW)
        assert b.flavors_of(b.decide(state)) == [{"cpu": "paid", GPU: "fast"}]

    def test_a_flavor_is_given_up_if_none_of_another_group_fits_with_it(self) -> None:
        """The order of the resource groups decides nothing about what can be admitted."""
        state = _labelled({"spot": {"kind": "spot"}}, {"fast": {"kind": "paid"}, "slow": {"kind": "spot"}})
        state.put_workload(_asks(), b.NOW)
        assert b.flavors_of(b.decide(state)) == [{"cpu": "spot", GPU: "slow"}]

    @pytest.mark.parametrize(("resource", "full"), [("cpu", "spot"), (GPU, "slow")])
    def test_a_flavor_is_given_up_if_its_like_in_another_group_has_no_room(self, resource: str, full: str) -> None:
        """Quota that is in use, without a Workload that may be preempted, is no reason to wait beside free quota."""
        state = _labelled(
            {"spot": {"kind": "spot"}, "paid": {"kind": "paid"}}, {"slow": {"kind": "spot"}, "fast": {"kind": "paid"}}
        )
        state.put_workload(b.held("runs", "a", {resource: "8"}, flavor=full), b.NOW)
        state.put_workload(_asks(), b.NOW)
        assert b.flavors_of(b.decide(state)) == [{"cpu": "paid", GPU: "fast"}]

    def test_a_flavor_is_judged_once_however_many_are_given_up(self) -> None:
        """The search goes back to the group of a flavor that is given up, and does not begin anew."""
        cpu, gpu = ({f"{kind}-{index}": {"pool": f"{kind}-{index}"} for index in range(6)} for kind in ("cpu", "gpu"))
        state = _labelled(cpu, gpu, flavorFungibility=fungibility(preempt=TRY_NEXT))
        for flavor in (*cpu, *gpu):
            state.put_workload(
                b.held(f"in-{flavor}", "a", {flavor[:3] if flavor in cpu else GPU: "8"}, flavor=flavor), b.NOW
            )
        state.ledger.settle()
        judged: list[FlavorResource] = []

        def oracle(*asked: Any) -> Sliced[tuple[Possibility, int]]:
            yield from ()
            judged.append(asked[2])
            return Possibility.PREEMPT, 0

        setup = Setup(flavors=state.activity.flavors, pair=state.surroundings.catalog.pair, oracle=oracle)
        found = finish(Assigner(setup).assign(state.cluster_queues["a"], Info(_asks(), state.surroundings, "a")))
        assert found.mode is Mode.NO_FIT
        assert len(judged) == len(set(judged)) == 6

    def test_flavors_that_meet_the_affinity_one_by_one_and_not_together_are_not_given(self) -> None:
        """Each is held against the terms of the affinity without the labels of the other."""
        state = _labelled({"one": {"zone": "a"}}, {"two": {"disk": "hdd"}})
        terms = [
            {"matchExpressions": [_in("zone", "a"), _in("disk", "ssd")]},
            {"matchExpressions": [_in("zone", "b"), _in("disk", "hdd")]},
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        state.put_workload(_asks({"affinity": {"nodeAffinity": required}}), b.NOW)
        assert b.decide(state).message == (
            "couldn't assign flavors to pod set main: flavors two, one together don't match node affinity"
        )

    def test_labels_that_agree_are_no_contradiction(self) -> None:
        """Also beside labels that only one of them sets."""
        state = _labelled({"one": {"zone": "a", "disk": "ssd"}}, {"two": {"zone": "a", "gpu": "new"}})
        state.put_workload(_asks(), b.NOW)
        assert b.flavors_of(b.decide(state)) == [{"cpu": "one", GPU: "two"}]


def _in(key: str, value: str) -> dict[str, Any]:
    """A requirement of a node affinity."""
    return {"key": key, "operator": "In", "values": [value]}
