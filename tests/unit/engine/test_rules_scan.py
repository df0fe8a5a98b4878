"""The scan for flavors and the rules in plain words agree, whatever the quotas, pods, policies and earlier scans."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.workload import Workload
from turnstile.engine import State
from turnstile.engine.flavors.assigner import Assigner
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.pace import Sliced, finish
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource, fnv1a
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.tree import Node
from turnstile.engine.reasons import Possibility

Rating = tuple[int, int]
"""Possibility, worst first (0 no fit, 1 no candidates, 2 preempt, 3 reclaim, 4 fit), and borrowing level."""

Choice = tuple[str, str, int, int]
"""Flavor, mode, borrowing level, index tried last."""

RESOURCES = ("gpu", "tpu", "pods")
ASKED = RESOURCES[:2]
MODES = ("NoFit", "Preempt", "Preempt", "Preempt", "Fit")
EXAMPLES = examples(200)


@dataclass
class Question:
    """What a scan depends on. Pod sets: requests, selector, whether in the group. Quotas are of the queue and of the
    other one in its cohort: nominal, borrowing limit, used."""

    groups: list[tuple[list[str], list[str]]]
    labels: dict[str, str | None]
    own: dict[tuple[str, str], tuple[int, int | None, int]]
    other: dict[tuple[str, str], tuple[int, int]] | None
    pod_sets: list[tuple[dict[str, int], str | None, bool]]
    when_borrow: str
    when_preempt: str
    preference: str | None
    borrow_within: str | None
    tried: list[dict[str, int]] | None
    pins: dict[str, dict[str, str]] | None
    allowed: list[str] | None
    ignore: bool
    answers: list[tuple[int, int]]

    def oracle(self, flavor: str, resource: str, amount: int) -> Rating:
        """Any answer, but always the same to the same question."""
        return self.answers[(len(flavor + resource) + ord(flavor[-1]) + ord(resource[0]) + amount) % len(self.answers)]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """One or two resource groups of up to three flavors, up to three pod sets."""
    covered = draw(st.permutations(RESOURCES))[: draw(st.integers(1, 3))]
    cut = draw(st.integers(1, len(covered)))
    groups = [
        (part, [f"{letter}{number}" for number in range(draw(st.integers(1, 3)))])
        for part, letter in ((covered[:cut], "f"), (covered[cut:], "g"))
        if part
    ]
    pairs = [(flavor, resource) for part, flavors in groups for flavor in flavors for resource in part]
    flavors = [flavor for _, each in groups for flavor in each]
    small, limit = st.integers(0, 5), st.none() | st.sampled_from([0, 2])
    cohort = draw(st.booleans())
    pod_sets = [
        (
            draw(st.dictionaries(st.sampled_from(ASKED), st.integers(0, 4), max_size=2)),
            draw(st.sampled_from([None, None, "x", "y"])),
            draw(st.integers(0, 2)) == 0,
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    last = {resource: len(each) - 1 for part, each in groups for resource in part}
    index = {resource: st.integers(-1, max(-1, end - 1)) for resource, end in last.items()}
    names = [f"p{number}" for number in range(len(pod_sets))]
    pin = {resource: st.sampled_from(each) for part, each in groups for resource in part}
    return Question(
        groups=groups,
        labels={flavor: draw(st.sampled_from([None, None, "x", "y"])) for flavor in flavors if draw(st.integers(0, 9))},
        own={pair: (draw(small), draw(limit) if cohort else None, draw(small)) for pair in pairs},
        other={pair: (draw(small), draw(small)) for pair in pairs} if cohort else None,
        pod_sets=pod_sets,
        when_borrow=draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        when_preempt=draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        preference=draw(st.sampled_from([None, "PreemptionOverBorrowing", "BorrowingOverPreemption"])),
        borrow_within=draw(st.sampled_from([None, "Never", "LowerPriority"])),
        tried=draw(st.none() | st.lists(st.fixed_dictionaries({}, optional=index), min_size=3, max_size=3)),
        pins=draw(st.none() | st.none() | st.fixed_dictionaries({name: st.fixed_dictionaries(pin) for name in names})),
        allowed=draw(st.none() | st.none() | st.lists(st.sampled_from(flavors), min_size=1)),
        ignore=draw(st.booleans()),
        answers=draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=7)),
    )


def better(this: Rating, that: Rating, preference: str | None) -> bool:
    """Whether one way to get a flavor is preferred."""
    if this[0] == 0 or that[0] == 0:
        return this[0] != 0
    if (this[0] == 1) != (that[0] == 1):
        return that[0] == 1
    if preference == "PreemptionOverBorrowing":
        return (-this[1], this[0]) > (-that[1], that[0])
    return (this[0], -this[1]) > (that[0], -that[1])


class Plain:
    """The rules. Quota is asked of the engine's tree, which has a test of its own."""

    def __init__(self, question: Question, state: State) -> None:
        self.question = question
        self.node: Node = state.cluster_queues["a"].node
        self.pair = state.surroundings.catalog.pair
        self.usage: dict[tuple[str, str], int] = {}
        self.given: dict[int, tuple[dict[str, Choice], list[str]]] = {}
        self.run()

    @property
    def found(self) -> list[tuple[dict[str, Choice], list[str]]]:
        """What was found, in the order of the pod sets of the Workload."""
        return [self.given[number] for number in sorted(self.given)]

    @property
    def tried(self) -> list[dict[str, int]]:
        """How far the scans came, by number of the pod set; not at all for those behind a group that fails."""
        nothing: dict[str, Choice] = {}
        choices = (self.given.get(number, (nothing, []))[0] for number in range(max(self.given, default=-1) + 1))
        return [{resource: choice[3] for resource, choice in each.items()} for each in choices]

    def run(self) -> None:
        """Group by group, until one fails."""
        asked = [dict(requests) for requests, _, _ in self.question.pod_sets]
        if any("pods" in covered for covered, _ in self.question.groups):
            asked = [{**requests, "pods": 1} for requests in asked]
        groups: dict[object, list[int]] = {}
        for number, (_, _, grouped) in enumerate(self.question.pod_sets):
            groups.setdefault("group" if grouped else number, []).append(number)
        for members in groups.values():
            total: dict[str, int] = {}
            for number in members:
                for resource, amount in asked[number].items():
                    total[resource] = total.get(resource, 0) + amount
            choices, reasons = self.choose(members, total)
            for number in members:
                mine = {resource: choices[resource] for resource in asked[number] if resource in choices}
                for resource, choice in mine.items():
                    pair = choice[0], resource
                    self.usage[pair] = self.usage.get(pair, 0) + asked[number][resource]
                self.given[number] = mine, sorted(reasons)
            if not choices and reasons:
                return

    def choose(self, members: list[int], total: dict[str, int]) -> tuple[dict[str, Choice], list[str]]:
        """Flavors of all resources of one group of pod sets; none if one resource fails. A flavor that contradicts one
        of a later resource group is given up, as long as not all of them fit; the first of the best results counts."""
        given_up: dict[str, str] = {}
        results: list[tuple[dict[str, Choice], list[str]]] = []
        while True:
            self.blocking: tuple[str, str] | None = None
            results.append(self.choose_without(given_up, members, total))
            best = max(results, key=self.worth)
            if self.worth(best) == MODES.index("Fit") or self.blocking is None:
                return best
            given_up |= [self.blocking]

    @staticmethod
    def worth(result: tuple[dict[str, Choice], list[str]]) -> int:
        """The worst mode of the resources."""
        choices, reasons = result
        if not choices:
            return MODES.index("NoFit" if reasons else "Fit")
        return min(MODES.index(choice[1]) for choice in choices.values())

    def choose_without(
        self, given_up: dict[str, str], members: list[int], total: dict[str, int]
    ) -> tuple[dict[str, Choice], list[str]]:
        """The same, without the flavors that were given up, each of which has its reason."""
        choices: dict[str, Choice] = {}
        reasons: list[str] = []
        order = sorted(total, key=lambda resource: (fnv1a(resource), resource))
        for resource in order:
            if resource in choices:
                continue
            group = next((each for each in self.question.groups if resource in each[0]), None)
            if group is None:
                if total[resource] == 0 or self.question.ignore:
                    continue
                return {}, [f"resource {resource} unavailable in ClusterQueue"]
            wanted = {name: total[name] for name in order if name in group[0]}
            beside = sorted({choice[0] for choice in choices.values()})
            best, why = self.scan(members, resource, wanted, group[1], given_up, beside)
            if not best:
                return {}, why
            choices |= best
            reasons += why
        return choices, reasons

    def scan(
        self,
        members: list[int],
        resource: str,
        wanted: dict[str, int],
        flavors: list[str],
        given_up: dict[str, str],
        beside: list[str],
    ) -> tuple[dict[str, Choice], list[str]]:
        """The best flavor of a resource group beside those of other groups."""
        question = self.question
        first = 0 if question.tried is None else question.tried[members[0]].get(resource, -1) + 1
        best: dict[str, tuple[str, Rating]] = {}
        best_rating: Rating = (0, 0)
        reasons: list[str] = []
        attempted = -1
        for attempted in range(first, len(flavors)):
            flavor = flavors[attempted]
            refusal = (
                self.refusal(members, resource, flavor) or given_up.get(flavor) or self.contradiction(flavor, beside)
            )
            if refusal is not None:
                reasons.append(refusal)
                continue
            worst: Rating = (4, 0)
            given: dict[str, tuple[str, Rating]] = {}
            for name, amount in wanted.items():
                rating, why = self.rate(self.pair(flavor, name), amount)
                reasons += why
                if better(worst, rating, question.preference):
                    worst = rating
                if worst[0] == 0:
                    break
                given[name] = flavor, rating
            stop = worst[0] > 1 and not (
                (worst[0] in {2, 3} and question.when_preempt == "TryNextFlavor")
                or (worst[1] > 0 and question.when_borrow == "TryNextFlavor")
            )
            if stop or better(worst, best_rating, question.preference):
                best, best_rating = given, worst
            if stop:
                break
        tried = -1 if attempted == len(flavors) - 1 else attempted
        if best_rating[0] == 4:
            reasons = []
        return {name: (flavor, MODES[rating[0]], rating[1], tried) for name, (flavor, rating) in best.items()}, reasons

    def refusal(self, members: list[int], resource: str, flavor: str) -> str | None:
        """Why a flavor is not even looked at."""
        question = self.question
        if question.pins is not None and question.pins[f"p{members[0]}"].get(resource) != flavor:
            return f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
        if question.allowed is not None and flavor not in question.allowed:
            return f"skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
        if flavor not in question.labels:
            return f"flavor {flavor} not found"
        label = question.labels[flavor]
        if label is not None and any(question.pod_sets[number][1] not in {None, label} for number in members):
            return f"flavor {flavor} doesn't match node affinity"
        return None

    def contradiction(self, flavor: str, beside: list[str]) -> str | None:
        """Why no node is of a flavor and of all those beside it. The first that is in the way of a flavor is noted."""
        label = self.question.labels[flavor]
        for other in beside:
            theirs = self.question.labels[other]
            if label is not None and theirs is not None and label != theirs:
                why = f"flavor {flavor} contradicts flavor {other}: node label type is {label} and {theirs}"
                self.blocking = self.blocking or (other, why)
                return why
        return None

    def rate(self, pair: FlavorResource, amount: int) -> tuple[Rating, list[str]]:
        """How one resource fits into one flavor."""
        flavor, resource = pair.flavor, pair.resource
        before = self.usage.get((flavor, resource), 0)
        value, most = before + amount, tree.potential(self.node, pair)
        free = max(0, tree.available(self.node, pair))
        if value > most:
            return (0, 0), [
                (
                    f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests"
                    f" ({before}) + current podset request ({amount}) > maximum capacity ({most})"
                )
            ]
        level, may_reclaim = tree.level(self.node, pair, value)
        if value <= free:
            return (4, level), []
        why = f"insufficient unused quota for {resource} in flavor {flavor}, {value - free} more needed"
        enough = self.question.own[flavor, resource][0] >= value
        if enough or may_reclaim or self.question.borrow_within == "LowerPriority":
            return self.question.oracle(flavor, resource, value), [why]
        return (0, level), [why]


def build(question: Question) -> tuple[State, Info]:
    """The same in the engine."""
    state = State()
    for flavor, label in question.labels.items():
        state.put_flavor(b.flavor(flavor, **({"nodeLabels": {"type": label}} if label is not None else {})))
    for name, quotas in (("a", question.own), ("z", question.other)):
        if quotas is None:
            continue
        groups = []
        for covered, flavors in question.groups:
            items = []
            for flavor in flavors:
                resources = []
                for resource in covered:
                    quota = quotas[flavor, resource]
                    limit = quota[1] if len(quota) == 3 else None
                    limits = {} if limit is None else {"borrowingLimit": str(limit)}
                    resources.append({"name": resource, "nominalQuota": str(quota[0]), **limits})
                items.append({"name": flavor, "resources": resources})
            groups.append({"coveredResources": covered, "flavors": items})
        fungibility = {"whenCanBorrow": question.when_borrow, "whenCanPreempt": question.when_preempt}
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "flavorFungibility": {
                **fungibility,
                **({"preference": question.preference} if question.preference else {}),
            },
            "cohortName": "x" if question.other is not None else "",
        }
        if question.borrow_within is not None:
            spec["preemption"] = {"borrowWithinCohort": {"policy": question.borrow_within}}
        state.put_cluster_queue(msgspec.convert({"metadata": {"name": name}, "spec": spec}, ClusterQueue), b.NOW)
    state.ledger.settle()
    for name, quotas in (("a", question.own), ("z", question.other)):
        for (flavor, resource), quota in (quotas or {}).items():
            pair = state.surroundings.catalog.pair(flavor, resource)
            tree.add_usage(state.cluster_queues[name].node, pair, quota[-1] or 0)
    body = msgspec.to_builtins(b.workload("w"))
    body["spec"]["podSets"] = [
        {
            "name": f"p{number}",
            "count": 1,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c", "resources": {"requests": {name: str(value) for name, value in requests.items()}}}
                    ],
                    "nodeSelector": {} if selector is None else {"type": selector},
                }
            },
            **({"topologyRequest": {"podSetGroupName": "g"}} if grouped else {}),
        }
        for number, (requests, selector, grouped) in enumerate(question.pod_sets)
    ]
    info = Info(msgspec.convert(body, Workload), state.surroundings, "a")
    if question.allowed is not None:
        info.allowed_flavors = frozenset(question.allowed)
    if question.tried is not None:
        info.last_assignment = LastAssignment(question.tried, 0, 0, "")
    return state, info


def scanned(question: Question, state: State, info: Info) -> Assignment:
    """By the engine."""

    def oracle(queue: Any, info: Any, pair: FlavorResource, amount: int) -> Sliced[tuple[Possibility, int]]:
        yield from ()
        how, level = question.oracle(pair.flavor, pair.resource, amount)
        return Possibility(how), level

    setup = Setup(
        flavors=state.activity.flavors,
        pair=state.surroundings.catalog.pair,
        oracle=oracle,
        ignore_undeclared=question.ignore,
    )
    return finish(Assigner(setup).assign(state.cluster_queues["a"], info, pins=question.pins))


NOTHING_IN_USE = Question(
    groups=[(["gpu"], ["f0", "f1"]), (["pods"], ["g0"])],
    labels={"f0": "x", "f1": "y", "g0": "y"},
    own={("f0", "gpu"): (4, None, 0), ("f1", "gpu"): (4, None, 0), ("g0", "pods"): (3, None, 0)},
    other=None,
    pod_sets=[({"gpu": 1}, None, True)],
    when_borrow="MayStopSearch",
    when_preempt="MayStopSearch",
    preference=None,
    borrow_within=None,
    tried=None,
    pins=None,
    allowed=None,
    ignore=False,
    answers=[(1, 0)],
)
"""Of two flavors for GPUs one contradicts the flavor that the pods get."""


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(questions())
@example(NOTHING_IN_USE)
@example(replace(NOTHING_IN_USE, labels={"f0": "x", "g0": "y"}, pod_sets=[({}, None, True), ({"gpu": 0}, None, True)]))
def test_flavors_reasons_and_progress(question: Question) -> None:
    """Of every pod set, and what all of it would use."""
    state, info = build(question)
    plain = Plain(question, state)
    found = scanned(question, state, info)
    assert [
        (
            {
                resource: (choice.flavor, choice.mode.text, choice.borrow, choice.tried_index)
                for resource, choice in pod_set.flavors.items()
            },
            sorted(pod_set.reasons),
        )
        for pod_set in found.pod_sets
    ] == plain.found
    assert {(pair.flavor, pair.resource): amount for pair, amount in found.usage.quota.items()} == plain.usage
    assert found.borrowing == max((choice[2] for choices, _ in plain.found for choice in choices.values()), default=0)
    assert found.last.tried == plain.tried
