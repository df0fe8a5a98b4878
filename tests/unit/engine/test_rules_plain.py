"""The engine and the rules in plain words agree in any small world."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.rules import Head, Held, Pair, Plain, Policy, Quota
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.engine.cycle.entries import Entry
from turnstile.engine.cycle.tournament import Tournament
from turnstile.engine.options import FairSharing, FairSharingStrategy, Gates
from turnstile.engine.pace import Pace, finish
from turnstile.engine.quota import tree
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.shares import share
from turnstile.engine.quota.usage import Usage

PAIRS: tuple[Pair, ...] = (("x", "gpu"), ("y", "gpu"), ("x", "tpu"))

limits = st.none() | st.sampled_from([0, 1, 3])
quotas = st.dictionaries(st.sampled_from(PAIRS), st.tuples(st.integers(0, 6), limits, limits), max_size=3)
weights = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0])
usages = st.dictionaries(st.sampled_from(PAIRS), st.integers(0, 4), max_size=3)
policies = st.builds(
    Policy,
    within=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    reclaim=st.sampled_from(["Never", "LowerPriority", "Any", "Any"]),
    borrow=st.sampled_from(["Never", "LowerPriority"]),
    threshold=st.none() | st.integers(-1, 1),
)


@st.composite
def worlds(draw: st.DrawFn) -> Plain:
    """Up to five cohorts, six queues and twelve workloads."""
    cohorts = [f"c{index}" for index in range(draw(st.integers(0, 5)))]
    queues = [f"q{index}" for index in range(draw(st.integers(1, 6)))]
    parents: dict[str, str | None] = {
        name: draw(st.sampled_from([None, *cohorts[:index]])) for index, name in enumerate(cohorts)
    }
    found: dict[str, dict[Pair, Quota]] = {name: draw(quotas) for name in cohorts}
    for name in queues:
        parents[name] = draw(st.sampled_from([*cohorts, None]))
        found[name] = draw(quotas)
        if parents[name] is None:  # the API refuses limits then
            found[name] = {pair: (nominal, None, None) for pair, (nominal, _, _) in found[name].items()}
    held = [
        Held(
            uid=f"w{index:02}",
            queue=draw(st.sampled_from(queues)),
            priority=draw(st.integers(-2, 2)),
            since=draw(st.integers(0, 2)),
            stood=draw(st.integers(0, 4)),
            evicted=draw(st.integers(0, 7)) == 0,
            usage=draw(usages),
        )
        for index in range(draw(st.integers(0, 12)))
    ]
    return Plain(
        parents,
        found,
        {name: draw(weights) for name in parents},
        {name: draw(policies) for name in queues},
        held,
    )


def group(quota: dict[Pair, Quota]) -> list[Any]:
    """One resource group; the engine takes a flavor that lacks a resource."""
    flavors: dict[str, list[Any]] = {}
    for (flavor, resource), values in quota.items():
        names = ("nominalQuota", "borrowingLimit", "lendingLimit")
        limits = {name: str(value) for name, value in zip(names, values, strict=True) if value is not None}
        flavors.setdefault(flavor, []).append({"name": resource, **limits})
    covered = sorted({resource for _, resource in quota})
    items = [{"name": name, "resources": resources} for name, resources in flavors.items()]
    return [{"coveredResources": covered, "flavors": items}] if quota else []


def holding(item: Held) -> Workload:
    """One pod set a flavor."""
    base = b.held(
        item.uid, item.queue, {}, priority=item.priority, second=item.stood, at=item.since, evicted=item.evicted
    )
    body = msgspec.to_builtins(base)
    body["metadata"]["uid"] = item.uid
    body["status"]["admission"]["podSetAssignments"] = [
        {
            "name": flavor,
            "count": 1,
            "flavors": {resource: flavor for each, resource in item.usage if each == flavor},
            "resourceUsage": {
                resource: str(amount) for (each, resource), amount in item.usage.items() if each == flavor
            },
        }
        for flavor in sorted({flavor for flavor, _ in item.usage})
    ]
    return msgspec.convert(body, Workload)


def build(plain: Plain, options: Options | None = None) -> State:
    """The same world in the engine."""
    state = State(options)
    state.put_namespace("team", {})
    for flavor in ("x", "y"):
        state.put_flavor(b.flavor(flavor))
    for name, parent in plain.parents.items():
        sharing = {"weight": str(plain.weights[name])}
        spec: dict[str, Any] = {"resourceGroups": group(plain.quotas[name]), "fairSharing": sharing}
        policy = plain.policies.get(name)
        if policy is None:
            body = {"metadata": {"name": name}, "spec": {**spec, "parentName": parent or ""}}
            state.put_cohort(msgspec.convert(body, Cohort))
            continue
        borrow: dict[str, Any] = {"policy": policy.borrow}
        if policy.threshold is not None:
            borrow["maxPriorityThreshold"] = policy.threshold
        spec |= {
            "cohortName": parent or "",
            "namespaceSelector": {},
            "preemption": {
                "withinClusterQueue": policy.within,
                "reclaimWithinCohort": policy.reclaim,
                "borrowWithinCohort": borrow,
            },
        }
        state.put_cluster_queue(msgspec.convert({"metadata": {"name": name}, "spec": spec}, ClusterQueue), b.NOW)
    for item in plain.held:
        state.put_workload(holding(item), b.NOW)
    state.ledger.settle()
    return state


def nodes(state: State) -> dict[str, tree.Node]:
    """By name."""
    return {**state.ledger.cohorts, **{name: queue.node for name, queue in state.cluster_queues.items()}}


def usage_of(state: State) -> dict[tuple[str, str], int]:
    """Of every node."""
    return {
        (name, str(pair)): amount
        for name, node in nodes(state).items()
        for pair, amount in node.usage.items()
        if amount
    }


small = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@small
@given(worlds())
def test_quota_and_shares(plain: Plain) -> None:
    """Of every node and pair."""
    state = build(plain)
    for name, node in nodes(state).items():
        for each in PAIRS:
            pair = state.surroundings.catalog.pair(*each)
            assert tree.available(node, pair) == plain.room(name, each)
            assert tree.potential(node, pair) == plain.tree(each).most(name)
            assert node.usage.get(pair, 0) == plain.used(name, each)
            if node.is_queue:
                for amount in (1, 3, 6):
                    assert tree.level(node, pair, amount) == plain.tree(each).level(name, amount, plain.usage(each))
        found = share(node)
        assert (found.infinite, found.value) == plain.share(name)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Plain, Head, set[Pair]]:
    """A world, a workload that waits in it, and which pairs have no room."""
    plain = draw(worlds())
    asked = draw(st.dictionaries(st.sampled_from(PAIRS), st.integers(1, 6), min_size=1, max_size=3))
    head = Head(
        "in", draw(st.sampled_from(sorted(plain.policies))), draw(st.integers(-1, 2)), draw(st.integers(0, 4)), asked
    )
    return plain, head, draw(st.sets(st.sampled_from(sorted(asked)), min_size=1))


def search(state: State, head: Head, pairs: set[Pair]) -> list[tuple[str, str]]:
    """The engine's victims."""
    waiting = b.workload(head.uid, head.queue, priority=head.priority, second=head.stood)
    pair = state.surroundings.catalog.pair
    before = usage_of(state)
    found = finish(
        state.preemptor(b.NOW).find(
            state.cluster_queues[head.queue],
            Info(waiting, state.surroundings, head.queue),
            Usage({pair(*each): amount for each, amount in head.usage.items()}),
            {pair(*each) for each in pairs},
        )
    )
    assert usage_of(state) == before
    return [(target.info.uid, target.reason) for target in found]


@small
@given(questions())
def test_victims(question: tuple[Plain, Head, set[Pair]]) -> None:
    """Who, why and in which order; and all is as it was afterwards."""
    plain, head, pairs = question
    assert search(build(plain), head, pairs) == plain.victims(head, pairs)


@small
@given(
    questions(),
    st.sampled_from(
        [
            ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
            ("LessThanOrEqualToFinalShare",),
            ("LessThanInitialShare",),
        ]
    ),
    st.booleans(),
)
def test_victims_of_fair_sharing(
    question: tuple[Plain, Head, set[Pair]], strategies: tuple[FairSharingStrategy, ...], gate: bool
) -> None:
    """By either strategy, or both."""
    plain, head, pairs = question
    gates = Gates(fair_sharing_preempt_within_nominal=gate)
    state = build(plain, Options(fair_sharing=FairSharing(strategies=strategies), gates=gates))
    assert search(state, head, pairs) == plain.fair_victims(head, pairs, strategies, within_nominal=gate)


@small
@given(worlds(), st.data(), st.booleans(), st.booleans())
def test_order_of_the_tournament(plain: Plain, data: st.DataObject, non_borrowing: bool, priority: bool) -> None:
    """One head a queue; who wins counts for those after it. Trees are one another's business in no order."""
    heads = [
        Head(f"h{index}", name, data.draw(st.integers(0, 1)), index % 3 * 10 + index, data.draw(usages))
        for index, name in enumerate(sorted(plain.policies))
        if data.draw(st.booleans())
    ]
    state = build(plain)
    pair = state.surroundings.catalog.pair
    usages_by_uid = {head.uid: Usage({pair(*each): amount for each, amount in head.usage.items()}) for head in heads}
    tournament = Tournament(
        lambda entry: usages_by_uid[entry.info.uid],
        Pace(1.0),
        non_borrowing_first=non_borrowing,
        priority_first=priority,
        preemptors_first=False,
    )
    for head in heads:
        waiting = b.workload(head.uid, head.queue, priority=head.priority, second=head.stood)
        waiting.metadata.uid = head.uid
        tournament.add(Entry(Info(waiting, state.surroundings, head.queue), state.cluster_queues[head.queue]))
    found = []
    for entry in tournament:
        if entry is None:
            continue
        found.append((entry.queue.node.root.name, entry.info.uid))
        usages_by_uid[entry.info.uid].add_to(entry.queue.node)
    assert sorted(found, key=lambda item: item[0]) == sorted(
        plain.tournament(heads, non_borrowing=non_borrowing, priority=priority), key=lambda item: item[0]
    )
