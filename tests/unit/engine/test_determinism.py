"""The same world decides the same, however it was told and whatever things are called."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.engine import Decision, Options, State
from turnstile.engine.options import AdmissionFairSharing, FairSharing

QUEUES = ("a", "b", "c")
work = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=12)


def decide(
    work: list[tuple[str, int, int]], order: list[int], queues: list[str], fair: bool
) -> tuple[set[str], list[tuple[str, str, str]]]:
    """Who is admitted and what each is told, when told in this order."""
    state = State(Options(fair_sharing=FairSharing() if fair else None))
    spec = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    for index in order:
        line, cpu, priority = work[index]
        state.put_workload(b.workload(f"w{index}", line, cpu=cpu, priority=priority, second=index), b.NOW)
    for name in queues:
        state.put_local_queue(b.local(name, name), b.NOW)
        state.put_cluster_queue(b.queue(name, {"default": {"cpu": 2}}, "x", preemption=spec), b.NOW)
    state.put_flavor(b.flavor())
    state.put_namespace("team", {})
    told = [(decision.key, decision.outcome, decision.message) for decision in b.settle(state)]
    return b.admitted(state), sorted(told)


@settings(max_examples=examples(20), deadline=None)
@given(work=work, fair=st.booleans(), data=st.data())
def test_the_order_of_events_does_not_matter(work: list[tuple[str, int, int]], fair: bool, data: st.DataObject) -> None:
    """Workloads of different age and queues of different name come out the same in any order of insertion."""
    order = data.draw(st.permutations(range(len(work))))
    queues = data.draw(st.permutations(QUEUES))
    first = decide(work, list(range(len(work))), list(QUEUES), fair)
    assert decide(work, list(order), list(queues), fair) == first


class Equals(NamedTuple):
    """Workloads that differ in nothing but their names: of one line, priority, age and request. `held` run already."""

    line: int
    cpu: int
    pods: int
    partial: bool
    times: int
    held: bool


class World(NamedTuple):
    """Two cohorts below a third, four queues with two LocalQueues each. A parent is the index of a cohort."""

    options: Options
    cohorts: list[dict[int, Any]]
    parents: list[int]
    quotas: list[dict[int, Any]]
    specs: list[dict[str, Any]]
    equals: list[Equals]


class Names(NamedTuple):
    """What things are called, and in which order they are told."""

    cohorts: Sequence[str]
    queues: Sequence[str]
    lines: Sequence[str]
    flavors: Sequence[str]
    workloads: Sequence[str]
    order: Sequence[int]


limit = st.none() | st.integers(0, 3)
quota = st.fixed_dictionaries(
    {0: st.tuples(st.integers(0, 5), limit, limit), 1: st.tuples(st.integers(0, 5), limit, limit)}
)
spec = st.fixed_dictionaries(
    {
        "preemption": st.fixed_dictionaries(
            {
                "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
                "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
                "borrowWithinCohort": st.sampled_from([{"policy": "Never"}, {"policy": "LowerPriority"}]),
            }
        ),
        "flavorFungibility": st.sampled_from(
            [
                {"whenCanBorrow": borrow, "whenCanPreempt": preempt}
                for borrow in ("MayStopSearch", "TryNextFlavor")
                for preempt in ("MayStopSearch", "TryNextFlavor")
            ]
        ),
        "queueingStrategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
    },
    optional={"admissionScope": st.just({"admissionMode": "UsageBasedAdmissionFairSharing"})},
)
equals = st.builds(
    Equals,
    line=st.integers(0, 7),
    cpu=st.integers(1, 4),
    pods=st.integers(1, 2),
    partial=st.booleans(),
    times=st.integers(1, 3),
    held=st.booleans(),
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Under fair sharing the tree is flat: shares of cohorts may tie, and ties go by name."""
    fair = draw(st.booleans())
    usage = AdmissionFairSharing(usage_half_life=10.0) if draw(st.booleans()) else None
    return World(
        Options(fair_sharing=FairSharing() if fair else None, admission_fair_sharing=usage),
        draw(st.lists(quota, min_size=3, max_size=3)),
        [0] * 4 if fair else draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)),
        draw(st.lists(quota, min_size=4, max_size=4)),
        draw(st.lists(spec, min_size=4, max_size=4)),
        draw(st.lists(equals, min_size=1, max_size=8)),
    )


def names(world: World, draw: Any) -> Names:
    """Any names, in any order."""

    def some(prefix: str, count: int) -> Sequence[str]:
        found: Sequence[str] = draw(st.permutations([f"{prefix}{index}" for index in range(count)]))
        return found

    total = sum(each.times for each in world.equals)
    order = draw(st.permutations(range(3 + 4 + 8 + 2 + total)))
    return Names(some("c", 3), some("q", 4), some("l", 8), some("f", 2), some("w", total), order)


def outcome(world: World, called: Names) -> tuple[Counter[Any], Counter[Any]]:
    """Who holds quota and what was decided, with equals counted and names taken out."""
    state = State(world.options)
    state.put_namespace("team", {})
    classes: dict[str, int] = {}
    events: list[Any] = []
    for index in range(3):
        quotas = {called.flavors[flavor]: {"cpu": amount} for flavor, amount in world.cohorts[index].items()}
        if not index:  # a cohort without parent has no limits
            quotas = {flavor: {"cpu": each["cpu"][0]} for flavor, each in quotas.items()}
        cohort = b.cohort(called.cohorts[index], quotas, parent=called.cohorts[0] if index else None)
        events.append(lambda cohort=cohort: state.put_cohort(cohort))
    for index in range(4):
        quotas = {called.flavors[flavor]: {"cpu": amount} for flavor, amount in world.quotas[index].items()}
        parent = called.cohorts[world.parents[index]]
        queue = b.queue(called.queues[index], quotas, parent, **world.specs[index])
        events.append(lambda queue=queue: state.put_cluster_queue(queue, b.NOW))
    for index in range(8):
        line = b.local(called.lines[index], called.queues[index // 2])
        events.append(lambda line=line: state.put_local_queue(line, b.NOW))
    events += [lambda name=name: state.put_flavor(b.flavor(name)) for name in called.flavors]
    for index, each in enumerate(world.equals):
        for _ in range(each.times):
            name = called.workloads[len(classes)]
            classes[f"team/{name}"] = index
            item = b.workload(
                name,
                called.lines[each.line],
                cpu=each.cpu,
                count=each.pods,
                min_count=1 if each.partial else None,
                priority=index,  # else those of different queues could tie
                second=9 - index,
            )
            if each.held:
                status = {"admission": b.given(called.queues[each.line // 2], called.flavors[0], each.cpu)}
                item = b.workload(name, called.lines[each.line], cpu=each.cpu, priority=index, status=status)
                item = b.with_conditions(item, QuotaReserved=("True", "QuotaReserved"), Admitted=("True", "Admitted"))
            events.append(lambda item=item: state.put_workload(item, b.NOW))
    for index in called.order:
        events[index]()

    def told(decision: Decision) -> Any:
        flavors = [sorted(called.flavors.index(name) for name in each.values()) for each in b.flavors_of(decision)]
        return (
            classes[decision.key],
            decision.outcome,
            decision.condition_reason,
            str(flavors),
            tuple(sorted((classes[victim.key], victim.reason, victim.new) for victim in decision.victims)),
            tuple(item.count for item in decision.info.totals),
        )

    decisions = Counter(told(decision) for decision in b.settle(state))
    return Counter(classes[key] for key in b.admitted(state)), decisions


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(), data=st.data())
def test_names_change_only_ties(world: World, data: st.DataObject) -> None:
    """Whatever things are called, in whatever order they are told: the same is decided, up to an exchange of equals."""
    assert outcome(world, names(world, data.draw)) == outcome(world, names(world, data.draw))
