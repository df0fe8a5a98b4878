"""A cycle stops often, what happens meanwhile waits, and where it stops changes nothing."""

import math
import sys
from collections.abc import Callable, Generator, Iterator
from operator import itemgetter
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.engine import Cycle, Options, State, cycle, cycle_steps
from turnstile.engine.options import AdmissionFairSharing, FairSharing
from turnstile.engine.pace import Pace, arrange, finish
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.tree import Node, add_usage, rebuild
from turnstile.engine.quota.trial import Trial
from turnstile.engine.quota.usage import Usage

FAIR = Options(fair_sharing=FairSharing())
BY_USAGE = Options(admission_fair_sharing=AdmissionFairSharing(usage_half_life=60.0, usage_sampling_interval=30.0))
QUEUES = ("a", "b", "c")
EXAMPLES = examples(30)
Event = Callable[[State], None]


def calls_between_stops(steps: Generator[None, None, Cycle]) -> tuple[list[int], Cycle]:
    """How many functions are called from stop to stop, and what the cycle decided."""
    counts = [0]

    def count(_frame: FrameType, event: str, _arg: Any) -> None:
        if event in {"call", "c_call"}:
            counts[-1] += 1

    sys.setprofile(count)
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Cycle = end.value
                return counts, result
            counts.append(0)
    finally:
        sys.setprofile(None)


def crowded(candidates: int, options: Options | None = None, **preemption: Any) -> State:
    """Two queues that hold all quota of three, and a workload in the third that may take its own part back."""
    policy = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority", **preemption}}
    part = candidates // 3
    state = b.world(*(b.queue(name, {"default": {"cpu": part}}, "all", **policy) for name in QUEUES), options=options)
    for index in range(candidates):
        name = QUEUES[1 + index % 2]
        waiting = b.workload(f"held-{index}", name, second=index % 50)
        status = {"admission": b.given(name, "default", 1)}
        held = b.workload(waiting.metadata.name, name, second=index % 50, status=status)
        state.put_workload(b.with_conditions(held, QuotaReserved=("True", "QuotaReserved")), b.NOW)
    state.put_workload(b.workload("big", "a", cpu=part, priority=5), b.NOW)
    return state


@pytest.mark.parametrize("options", [None, FAIR, BY_USAGE], ids=["classical", "fair sharing", "by usage"])
class TestALongSearch:
    """One head, three thousand candidates."""

    def test_it_stops_often(self, options: Options | None) -> None:
        """However many candidates there are, little is done from one stop to the next."""
        counts, result = calls_between_stops(cycle_steps(crowded(3000, options), b.NOW))
        assert sum(counts) > 50_000
        assert max(counts) < 4_000
        assert sum(len(decision.victims) for decision in result) == 1000

    def test_it_finds_the_same_at_one_stretch(self, options: Options | None) -> None:
        """Stops do not change who is preempted, nor in which order."""
        whole, sliced = crowded(3000, options), crowded(3000, options)
        steps = cycle_steps(sliced, b.NOW)
        result = drive(steps)
        assert told(result) == told(cycle(whole, b.NOW))

    def test_what_people_see_does_not_change_meanwhile(self, options: Options | None) -> None:
        """Nobody hears of victims that are only imagined gone."""
        state = crowded(600, options)
        before = seen(state)
        for _ in cycle_steps(state, b.NOW, stretch=20):
            assert seen(state) == before

    @pytest.mark.parametrize("percent", [1, 20, 40, 60, 80, 99])
    def test_it_can_be_left_anywhere(self, options: Options | None, percent: int) -> None:
        """Then nothing happened: usage, places and victims are as before, and the next cycle decides the same."""
        state, other = crowded(600, options), crowded(600, options)
        before = everything(state)
        steps = cycle_steps(state, b.NOW, stretch=20)
        for _ in range(percent * sum(1 for _ in cycle_steps(crowded(600, options), b.NOW, stretch=20)) // 100):
            next(steps)
        steps.close()
        assert everything(state) == before
        assert told(cycle(state, b.NOW)) == told(cycle(other, b.NOW))


def test_a_search_for_fewer_pods_stops_often() -> None:
    """Each count that is tried is a search of its own."""
    state = crowded(3000)
    state.put_workload(b.workload("elastic", "a", count=3000, min_count=1, priority=9), b.NOW)
    counts, result = calls_between_stops(cycle_steps(state, b.NOW))
    assert max(counts) < 4_000
    assert told(result)[0][:2] == ("team/elastic", "preempting")


def in_many_flavors(flavors: int, resources: int) -> State:
    """One Workload holds all of each flavor, and a head that may have them preempted asks for every resource."""
    names, listed = [f"example.com/{index}" for index in range(resources)], [f"f{index}" for index in range(flavors)]
    spec = {
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "flavorFungibility": {"whenCanPreempt": "TryNextFlavor"},
        "resourceGroups": b.groups({flavor: dict.fromkeys(names, 1) for flavor in listed}),
    }
    state = b.world(b.queue("a", **spec), flavors=tuple(listed))
    asked = dict.fromkeys(names, "1")
    for flavor in listed:
        state.put_workload(b.held(f"in-{flavor}", "a", asked, flavor=flavor), b.NOW)
    containers = [{"name": "c", "resources": {"requests": asked}}]
    state.put_workload(b.workload("big", "a", priority=5, spec={"containers": containers}), b.NOW)
    return state


def test_a_search_for_flavors_goes_on_where_it_stopped() -> None:
    """A head that is judged in many flavors stops often, and costs hardly more work than at one stretch."""
    whole, expected = calls_between_stops(cycle_steps(in_many_flavors(32, 8), b.NOW, stretch=math.inf))
    counts, result = calls_between_stops(cycle_steps(in_many_flavors(32, 8), b.NOW))
    assert told(result) == told(expected)
    assert max(counts) < 4_000
    assert sum(counts) < 1.2 * sum(whole)


def test_parked_workloads_are_woken_in_slices() -> None:
    """A change of quota wakes thousands: they go back in line a few at a time."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}))
    status = {"requeueState": {"count": 1, "requeueAt": b.STAMP}}
    for index in range(3000):
        state.put_workload(b.workload(f"w{index}", "a", cpu=2, priority=index, status=status), b.NOW - 60)
    state.put_cluster_queue(b.queue("a", {"default": {"cpu": 2}}), b.NOW)
    counts, result = calls_between_stops(cycle_steps(state, b.NOW))
    assert max(counts) < 4_000
    assert [decision.key for decision in result] == ["team/w2999"]


def keepers(queues: int) -> State:
    """One queue borrows the quota of all others of its cohort; nobody may preempt, so each head keeps its own part."""
    state = b.world(b.queue("hog", {"default": {"cpu": 0}}, "all"))
    names = [f"q{index}" for index in range(queues)]
    for name in names:
        state.put_cluster_queue(b.queue(name, {"default": {"cpu": 1}}, "all"), b.NOW)
        state.put_local_queue(b.local(name, name), b.NOW)
    held = b.workload("held", "hog", cpu=queues, status={"admission": b.given("hog", "default", queues)})
    state.put_workload(b.with_conditions(held, QuotaReserved=("True", "QuotaReserved")), b.NOW)
    for number, name in enumerate(reversed(names)):
        state.put_workload(b.workload(f"w{number}", name, priority=number % 3, second=number), b.NOW)
    return state


class TestManyHeads:
    """Hundreds of queues have a head each, that sets quota aside while the cycle lasts."""

    def test_a_cycle_stops_often(self) -> None:
        """Nothing is done for all of them at once: quota is worked out, heads are put in order, and what they set
        aside is taken off, a few at a time."""
        counts, result = calls_between_stops(cycle_steps(keepers(600), b.NOW))
        assert {decision.requeue_reason for decision in result} == {"PreemptionNoCandidates"}
        assert len(result) == 600
        assert max(counts) < 2_000

    def test_where_it_stops_changes_nothing(self) -> None:
        """The same order and the same words, and nothing is left counted."""
        sliced, whole = keepers(600), keepers(600)
        result, expected = drive(cycle_steps(sliced, b.NOW, stretch=7)), cycle(whole, b.NOW)
        assert result.order == expected.order
        assert told(result) == told(expected)
        assert_sums(sliced)

    def test_it_can_be_left_anywhere(self) -> None:
        """Then nothing is left counted, and all heads are in their places."""
        stops = sum(1 for _ in cycle_steps(keepers(100), b.NOW, stretch=7))
        for percent in (3, 40, 60, 70, 80, 99):
            state, other = keepers(100), keepers(100)
            steps = cycle_steps(state, b.NOW, stretch=7)
            for _ in range(percent * stops // 100):
                next(steps)
            steps.close()
            assert everything(state) == everything(other)
        assert_sums(state)


def test_queues_where_all_are_parked_are_passed_in_slices() -> None:
    """A cycle for one looks at all others too, and finds nobody in line."""
    state = b.world(*(b.queue(f"q{index}", {"default": {"cpu": 0}}) for index in range(600)))
    for index in range(600):
        state.put_workload(b.workload(f"w{index}", f"q{index}"), b.NOW)
    cycle(state, b.NOW)
    assert not state.has_work
    state.put_cluster_queue(b.queue("q7", {"default": {"cpu": 1}}), b.NOW)
    assert state.has_work
    counts, result = calls_between_stops(cycle_steps(state, b.NOW))
    assert [(decision.key, decision.outcome) for decision in result] == [("team/w7", "admit")]
    assert max(counts) < 2_000


@given(st.lists(st.integers(), max_size=2000), st.integers(1, 300))
@settings(max_examples=examples(20))
def test_sorting_in_slices(numbers: list[int], stretch: int) -> None:
    """A long list is sorted as at one stretch, equals in their order."""
    items = [(number % 50, place) for place, number in enumerate(numbers)]
    expected = sorted(items, key=itemgetter(0))
    finish(arrange(items, itemgetter(0), Pace(stretch)))
    assert items == expected


def test_usage_is_not_sampled_in_the_middle_of_a_cycle() -> None:
    """A cycle that sorts by usage sees one usage; what was due is counted at its end."""
    state = crowded(60, BY_USAGE)
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    state.put_cluster_queue(b.queue("b", {"default": {"cpu": 20}}, "all", admissionScope=scope), b.NOW)
    assert state.sample_usage("team/b", b.NOW - 60) == 30
    steps = cycle_steps(state, b.NOW, stretch=5)
    next(steps)
    before = state.sharing.consumed("team/b")
    assert state.sample_usage("team/b", b.NOW) == 0
    assert state.sharing.consumed("team/b") == before
    drive(steps)
    assert state.sharing.consumed("team/b")[1] == b.NOW


def test_trials_nest() -> None:
    """The inner one leaves what the outer one tried; nothing of either is left in the end."""
    state = b.world(b.queue("a", cohort="all"), b.queue("b", cohort="all"))
    state.ledger.settle()
    node = state.cluster_queues["a"].node
    pair = state.surroundings.catalog.pair("default", "cpu")
    add_usage(node, pair, 15_000)
    before = usages(state)
    with Trial() as outer:
        outer.remove(node, Usage({pair: 10_000}))
        tried = usages(state)
        with Trial() as inner:
            inner.add(state.cluster_queues["b"].node, Usage({pair: 30_000}))
            inner.remove(node, Usage({pair: 5_000}))
            assert usages(state) != tried
        assert usages(state) == tried != before
    assert usages(state) == before


# Random worlds

amounts = st.one_of(st.integers(0, 6), st.tuples(st.integers(0, 6), st.none() | st.integers(0, 4), st.just(None)))
policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
        "borrowWithinCohort": st.sampled_from([{"policy": "Never"}, {"policy": "LowerPriority"}]),
    }
)
queue_specs = st.fixed_dictionaries(
    {
        "x": amounts,
        "y": amounts,
        "cohort": st.sampled_from(["inner", "outer", ""]),
        "preemption": policies,
        "strategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        "usage_based": st.booleans(),
    }
)
workload_specs = st.fixed_dictionaries(
    {
        "line": st.sampled_from([f"{name}-{line}" for name in QUEUES for line in "12"]),
        "cpu": st.integers(1, 4),
        "count": st.integers(1, 3),
        "min_count": st.none() | st.just(1),
        "priority": st.integers(0, 3),
    }
)
held_specs = st.fixed_dictionaries(
    {
        "line": st.sampled_from([f"{name}-{line}" for name in QUEUES for line in "12"]),
        "cpu": st.integers(1, 3),
        "priority": st.integers(0, 2),
        "flavor": st.sampled_from("xy"),
    }
)
worlds = st.fixed_dictionaries(
    {
        "options": st.sampled_from([None, FAIR, BY_USAGE]),
        "queues": st.fixed_dictionaries(dict.fromkeys(QUEUES, queue_specs)),
        "held": st.lists(held_specs, min_size=3, max_size=9),
        "waiting": st.lists(workload_specs, min_size=2, max_size=7),
    }
)
events = st.one_of(
    st.tuples(st.just("drop"), st.sampled_from([f"h{n}" for n in range(9)] + [f"w{n}" for n in range(7)])),
    st.tuples(st.just("new"), workload_specs),
    st.tuples(st.just("quota"), st.sampled_from(QUEUES), queue_specs),
    st.tuples(st.just("settle"), st.sampled_from([f"w{n}" for n in range(7)]), st.booleans()),
    st.tuples(st.just("sample"), st.sampled_from([f"{name}-1" for name in QUEUES])),
)


def put_queue(state: State, name: str, spec: dict[str, Any]) -> None:
    """A queue of that spec."""
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if spec["usage_based"] else {}
    flavors = {"x": {"cpu": spec["x"]}, "y": {"cpu": spec["y"]}}
    more = {"preemption": spec["preemption"], "queueingStrategy": spec["strategy"], **scope}
    state.put_cluster_queue(b.queue(name, flavors, spec["cohort"] or None, **more), b.NOW)


def build(spec: dict[str, Any]) -> State:
    """A small world."""
    state = State(spec["options"])
    state.put_namespace("team", {})
    for name in "xy":
        state.put_flavor(b.flavor(name))
    state.put_cohort(b.cohort("inner", {"x": {"cpu": 1}}, parent="outer"))
    for name in QUEUES:
        put_queue(state, name, spec["queues"][name])
        for line in "12":
            state.put_local_queue(b.local(f"{name}-{line}", name), b.NOW)
    for number, item in enumerate(spec["held"]):
        name, cpu = item["line"][0], item["cpu"]
        held = b.workload(
            f"h{number}",
            item["line"],
            cpu=cpu,
            priority=item["priority"],
            second=number,
            status={"admission": b.given(name, item["flavor"], cpu)},
        )
        state.put_workload(
            b.with_conditions(held, QuotaReserved=("True", "QuotaReserved"), Admitted=("True", "Admitted")), b.NOW
        )
    for number, item in enumerate(spec["waiting"]):
        state.put_workload(b.workload(f"w{number}", second=20 + number, **item), b.NOW)
    return state


def happen(state: State, event: tuple[Any, ...]) -> None:
    """One thing that others do."""
    match event:
        case "drop", name:
            state.drop_workload(f"team/{name}")
        case "new", spec:
            state.put_workload(b.workload("new", second=50, **spec), b.NOW)
        case "quota", name, spec:
            put_queue(state, name, spec)
        case "settle", name, good:
            if good:
                state.confirm(f"team/{name}", "7")
            else:
                state.forget(f"team/{name}", b.NOW)
        case "sample", line:
            state.sample_usage(f"team/{line}", b.NOW)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=worlds, stretch=st.integers(1, 12), plan=st.lists(st.tuples(st.integers(0, 30), events), max_size=6))
def test_random_worlds(spec: dict[str, Any], stretch: int, plan: list[tuple[int, tuple[Any, ...]]]) -> None:
    """Sliced, with others busy at every stop, three cycles decide what they decide at one stretch with the same events
    behind each; and what is counted is what is held."""
    sliced, whole = build(spec), build(spec)
    for _ in range(3):
        decided = drive(cycle_steps(sliced, b.NOW, stretch=stretch), at_stop=busy(sliced, plan))
        expected = cycle(whole, b.NOW)
        for _, event in sorted(plan, key=lambda item: item[0]):
            happen(whole, event)
        assert told(decided) == told(expected)
        assert everything(sliced) == everything(whole)
        assert_sums(sliced)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=worlds, stretch=st.integers(1, 12), stops=st.integers(1, 200), event=st.none() | events)
def test_random_worlds_left(spec: dict[str, Any], stretch: int, stops: int, event: tuple[Any, ...] | None) -> None:
    """A cycle that is closed at any stop did nothing, but what happened meanwhile is not lost."""
    state, other = build(spec), build(spec)
    cycle(state, b.NOW)
    cycle(other, b.NOW)
    steps = cycle_steps(state, b.NOW, stretch=stretch)
    for _ in range(stops):
        try:
            next(steps)
        except StopIteration:
            return
    if event is not None:
        happen(state, event)
        happen(other, event)
    steps.close()
    assert_sums(state)
    assert everything(state) == everything(other)
    assert told(cycle(state, b.NOW)) == told(cycle(other, b.NOW))


def busy(state: State, plan: list[tuple[int, tuple[Any, ...]]]) -> Iterator[None]:
    """What happens at each stop, and at the end what did not come to pass."""
    left = sorted(plan, key=lambda item: item[0])
    stop = 0
    while state.log.cycling:
        while left and left[0][0] <= stop:
            happen(state, left.pop(0)[1])
        stop += 1
        yield
    for _, event in left:
        happen(state, event)


def drive(steps: Generator[None, None, Cycle], at_stop: Iterator[None] | None = None) -> Cycle:
    """A cycle to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            if at_stop is not None:
                next(at_stop, None)
            result: Cycle = end.value
            return result
        if at_stop is not None:
            next(at_stop, None)


def told(result: Cycle) -> list[tuple[Any, ...]]:
    """All that a cycle decided."""
    return [
        (
            decision.key,
            decision.outcome,
            decision.status,
            decision.message,
            decision.condition_reason,
            decision.requeue_reason,
            decision.borrowing,
            [(victim.key, victim.reason, victim.message, victim.new) for victim in decision.victims],
            b.flavors_of(decision),
        )
        for decision in result
    ]


def usages(state: State) -> dict[str, dict[str, int]]:
    """Usage of every node."""
    found: dict[str, dict[str, int]] = {}
    for queue in state.cluster_queues.values():
        node: Node | None = queue.node
        while node is not None:
            found[repr(node)] = {str(pair): amount for pair, amount in sorted(node.usage.items(), key=str) if amount}
            node = node.parent
    return found


def everything(state: State) -> tuple[Any, ...]:
    """Usage, who holds quota, who waits in line and how far its scan came, who is on the way out."""
    b.retried(state, b.NOW)
    state.ledger.settle()
    return (
        usages(state),
        sorted(state.ledger.holders.items()),
        sorted(state.reservations.assumed),
        sorted(state.reservations.evicting.items()),
        {
            queue.name: (
                [info.key for info in queue.pending.in_order()],
                sorted(info.key for info in queue.pending.inadmissible_infos()),
                _promised(queue.pending.nomination),
            )
            for queue in state.cluster_queues.values()
        },
        {
            key: info.last_assignment.tried if info.last_assignment is not None else None
            for key, info in sorted(state.queues.waiting.items())
        },
        {
            key: (line.consumed, line.penalties)
            for key, line in sorted(state.sharing.usages.items())
            if line.consumed or line.penalties
        },
    )


def seen(state: State) -> tuple[Any, ...]:
    """What people are told of the queues."""
    return (
        [(state.questions.queue_counts(name), state.questions.queue_usage(name)) for name in QUEUES],
        [
            (state.questions.local_queue_counts(f"team/{name}"), state.questions.local_queue_usage(f"team/{name}"))
            for name in QUEUES
        ],
        state.questions.holders("default", "cpu", "a"),
    )


def assert_sums(state: State) -> None:
    """Usage kept step by step is the usage computed from scratch."""
    state.ledger.settle()
    for queue in state.cluster_queues.values():
        total: dict[str, int] = {}
        for info in queue.workloads.values():
            for pair, amount in info.usage.quota.items():
                total[str(pair)] = total.get(str(pair), 0) + amount
        assert {str(pair): amount for pair, amount in queue.node.usage.items() if amount} == total
        assert {str(pair): amount for pair, amount in queue.held().items()} == total
    kept = usages(state)
    for root in {queue.node.root for queue in state.cluster_queues.values()}:
        rebuild(root)
    assert usages(state) == kept


def _promised(nomination: Nomination | None) -> tuple[str, bool, list[tuple[str, str]]] | None:
    """A nomination as a value that two states can have."""
    if nomination is None:
        return None
    return nomination.preemptor, nomination.sticky, sorted(nomination.victims.items())
