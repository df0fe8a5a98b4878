"""Whatever happens in whatever order, the promises of the engine hold."""

import os
from collections.abc import Generator, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, invariant, multiple, rule

from app.api.workload import Workload
from app.engine import Cycle, Decision, Options, State, cycle, cycle_steps
from app.engine.decisions import admission_of
from app.engine.options import AdmissionFairSharing, FairSharing, Gates
from app.engine.reasons import Mode
from tests.unit.engine import builders as b
from tests.unit.engine import told
from tests.unit.engine.plain import Head, Plain
from tests.unit.engine.told import PAIRS, Told

COHORTS = ("left", "outer", "right")
QUEUES = ("a", "b", "c", "d")
LINES = tuple(f"{name}-{line}" for name in QUEUES for line in ("first", "second"))

TRIED = (
    *("run", "run", "run", "more quota", "another queue", "another cohort", "no cohort", "no queue", "one more"),
    *("failures", "fewer", "more urgent", "writes", "lines", "time"),
)

limit = st.none() | st.integers(0, 4)
quota = st.tuples(st.integers(0, 6), limit, limit)
few = st.tuples(st.integers(0, 2), limit, limit)
priorities = st.integers(0, 2)
seconds = st.integers(0, 8)
weights = st.sampled_from(["1", "1", "0", "2"])
borrowing = st.one_of(
    st.just({"policy": "Never"}),
    st.just({"policy": "LowerPriority"}),
    st.builds(
        lambda threshold: {"policy": "LowerPriority", "maxPriorityThreshold": threshold}, threshold=st.integers(-1, 1)
    ),
)
policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
        "borrowWithinCohort": borrowing,
    }
)
next_flavor = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
fungibility = st.one_of(
    st.fixed_dictionaries(
        {
            "whenCanBorrow": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
            "whenCanPreempt": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
        }
    ),
    st.sampled_from(
        [{**next_flavor, "preference": how} for how in ("BorrowingOverPreemption", "PreemptionOverBorrowing")]
    ),
)
specs = st.fixed_dictionaries(
    {
        "preemption": policies,
        "flavorFungibility": fungibility,
        "queueingStrategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        "stopPolicy": st.sampled_from(["None", "None", "None", "None", "Hold", "HoldAndDrain"]),
        "fairSharing": st.builds(lambda weight: {"weight": weight}, weight=weights),
    },
    optional={
        "admissionScope": st.just({"admissionMode": "UsageBasedAdmissionFairSharing"}),
        "admissionChecksStrategy": st.sampled_from(
            [{"admissionChecks": [{"name": told.CHECK, **flavors}]} for flavors in ({}, {"onFlavors": ["y"]})]
        ),
    },
)
resource_groups = st.builds(told.groups, quota, quota, quota)
pod_set = st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3), st.none() | st.just(1))
pod_sets = st.lists(pod_set, min_size=1, max_size=2).map(
    # at most one pod set may be cut short
    lambda sets: [(*item[:3], item[3] if index == 0 else None) for index, item in enumerate(sets)]
)
strategies = st.sampled_from(
    [
        ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
        ("LessThanOrEqualToFinalShare",),
        ("LessThanInitialShare",),
    ]
)


def shape(state: State) -> Any:
    """Quota, usage, who holds it and who waits where: what does not depend on the way that led here."""
    nodes = {}
    for node in (*state.ledger.cohorts.values(), *(queue.node for queue in state.cluster_queues.values())):
        nodes[f"{node.is_queue}/{node.name}"] = (
            {str(pair): amount for pair, amount in sorted(node.usage.items(), key=str) if amount},
            {str(pair): amount for pair, amount in sorted(node.subtree.items(), key=str) if amount},
            {str(pair): amount for pair, amount in sorted(node.guaranteed.items(), key=str) if amount},
            {str(pair): amount for pair, amount in sorted(node.borrowing_limit.items(), key=str)},
            node.height,
            node.weight,
            node.parent.name if node.parent is not None else None,
        )
    lines = {}
    for name, queue in state.cluster_queues.items():
        infos = [*queue.pending.active_infos(), *queue.pending.inadmissible_infos()]
        lines[name] = (
            sorted((info.order, info.local_queue, info.hash) for info in infos),
            sorted(
                (key, str(sorted(info.usage.items(), key=str)), info.admitted) for key, info in queue.workloads.items()
            ),
            sorted(
                (key, sorted(held.infos), str(sorted(held.usage.items(), key=str)), held.admitted)
                for key, held in queue.holders.items()
            ),
            queue.active,
        )
    counts = {key: state.local_queue_counts(key) for key in sorted(state.local_queues)}
    return nodes, lines, sorted(state.waiting), sorted(state.ledger.holders.items()), counts


def dump(state: State) -> Any:
    """All that a fork must leave as it was."""
    places = {}
    for name, queue in state.cluster_queues.items():
        pending = queue.pending
        places[name] = (
            queue.generation,
            [info.key for info in pending.in_order()],
            sorted(pending.inadmissible),
            (pending.precedence, pending.pop_cycle, pending.retry_cycle),
            sorted(pending.bulk_moved.items()),
            sorted(pending.last_generation.items()),
            {key: list(heap) for key, heap in pending.classes.items()},
            {key: list(heap) for key, heap in pending.heads.items()},
            dict(pending.offered),
            queue.api.spec,
        )
    return (
        shape(state),
        places,
        sorted(state.assumed),
        {
            key: (info.last_assignment.tried if info.last_assignment else None, info.cluster_queue, info.tags)
            for key, info in sorted(state.waiting.items())
        },
        sorted(state.workloads),
        sorted(state.evicting.items()),
        {tree: dict(pairs) for tree, pairs in sorted(state.repeats.by_tree.items())},
        sorted(state.last_decisions),
        sorted(state.ledger.cohorts),
        sorted(state.ledger.declared),
        {name: sorted(items) for name, items in state.ledger.parentless.items()},
        (state.epoch, state.quiet_at, state.scheduling_cycle, state.cycling, len(state.deferred)),
        (sorted(state.retry_queues), sorted(state.retry_cohorts)),
        {key: (line.consumed, dict(line.penalties), line.last_update) for key, line in sorted(state.lines.items())},
        {key: (sorted(local.items), local.open, local.weight) for key, local in sorted(state.local_queues.items())},
    )


def differences(left: Any, right: Any, path: str = "") -> Iterator[str]:
    """Where two dumps differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in (*left, *(key for key in right if key not in left)):
            yield from differences(left.get(key), right.get(key), f"{path}/{key}")
    elif isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differences(one, other, f"{path}/{index}")
    elif left != right:
        yield f"{path}: {left} became {right}"


class Histories(RuleBasedStateMachine):
    """Objects come, change and go; cycles run; writes succeed, fail, or come late."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.told = Told()
        self.number = 0
        self.state = State()
        self.steps: Generator[None, None, Cycle] | None = None
        self.before: set[str] = set()

    @initialize(
        target=keys,
        fair=st.none() | st.builds(lambda given: FairSharing(strategies=given), given=strategies),
        usage=st.sampled_from([None, AdmissionFairSharing(usage_half_life=10.0, usage_sampling_interval=5.0)]),
        progress=st.booleans(),
        data=st.data(),
    )
    def start(
        self, fair: FairSharing | None, usage: AdmissionFairSharing | None, progress: bool, data: st.DataObject
    ) -> MultipleResults[str]:
        """Namespaces, flavors, four queues in a tree of cohorts."""
        gates = Gates(flavor_fungibility_preserve_scan_progress=progress)
        self.options = Options(fair_sharing=fair, admission_fair_sharing=usage, gates=gates)
        self.state = self.told.state(self.options)
        for name in COHORTS:
            self.put_cohort(name, told.groups(*data.draw(st.tuples(few, few, few))), "outer", "1")
        for name, parent in zip(QUEUES, ("left", "left", "right", "outer"), strict=True):
            self.put_queue(name, parent, data.draw(resource_groups), data.draw(specs))
            for line in ("first", "second"):
                self.put_line(f"{name}-{line}", "None", "1")
        some = st.tuples(st.sampled_from(LINES), pod_sets, priorities, seconds)
        return multiple(*(str(self.create(*given)) for given in data.draw(st.lists(some, max_size=5))))

    # What people do

    @rule(
        name=st.sampled_from(COHORTS),
        resource_groups=st.builds(told.groups, few, few, few),
        parent=st.sampled_from(["", "left", "outer", "outer"]),
        weight=weights,
    )
    def put_cohort(self, name: str, resource_groups: list[told.Json], parent: str, weight: str) -> None:
        """A cohort gets another quota, parent or weight."""
        above = {"outer": "", "left": parent if parent == "outer" else "", "right": parent}[name]
        self.told.cohorts[name] = told.cohort(name, resource_groups, parent=above, weight=weight)
        self.state.put_cohort(self.told.cohorts[name])

    @rule(
        name=st.sampled_from(QUEUES),
        cohort=st.sampled_from(["left", "right", "outer", ""]),
        resource_groups=resource_groups,
        spec=specs,
    )
    def put_queue(self, name: str, cohort: str, resource_groups: list[told.Json], spec: told.Json) -> None:
        """A queue gets another quota, cohort or policy."""
        self.told.queues[name] = told.cluster_queue(name, resource_groups, cohort, **spec)
        self.state.put_cluster_queue(self.told.queues[name], b.NOW)

    @rule(name=st.sampled_from(LINES), stop=st.sampled_from(["None", "None", "Hold"]), weight=weights)
    def put_line(self, name: str, stop: str, weight: str) -> None:
        """A LocalQueue is stopped, goes on, or gets another weight."""
        line = b.local(name, name[0], stopPolicy=stop, fairSharing={"weight": weight})
        self.told.lines[name] = line
        self.state.put_local_queue(line, b.NOW)

    @rule(
        target=keys,
        line=st.sampled_from(LINES),
        pod_sets=pod_sets,
        priority=priorities,
        second=seconds,
    )
    def create(self, line: str, pod_sets: Any, priority: int, second: int) -> str:
        """A workload is created."""
        self.number += 1
        made = told.workload(f"w{self.number:02}", line, pod_sets=pod_sets, priority=priority, second=second)
        self.put(made)
        return made.metadata.key

    def put(self, item: Workload) -> None:
        """The watch shows a workload."""
        self.told.workloads[item.metadata.key] = item
        self.state.put_workload(item, b.NOW)

    @rule(key=keys)
    def delete(self, key: str) -> None:
        """A workload is deleted, whatever it was doing."""
        self.told.workloads.pop(key, None)
        self.state.drop_workload(key)

    @rule(key=keys, priority=st.integers(0, 2))
    def set_priority(self, key: str, priority: int) -> None:
        """The priority of a workload changes, whatever it is doing."""
        if key in self.told.workloads:
            self.put(told.changed(self.told.workloads[key], spec={"priority": priority}))

    @rule(key=keys, active=st.booleans())
    def set_active(self, key: str, active: bool) -> None:
        """A workload that waits is suspended or goes on."""
        item = self.told.workloads.get(key)
        if item is not None and not item.quota_reserved and not item.finished:
            self.put(told.changed(item, spec={"active": active}))

    @rule(key=keys, line=st.sampled_from(LINES))
    def move(self, key: str, line: str) -> None:
        """A workload that waits goes to another LocalQueue; a write of its admission that is under way conflicts."""
        item = self.told.workloads.get(key)
        if item is not None and not item.quota_reserved:
            self.put(told.changed(item, spec={"queueName": line}))
            if not self.state.cycling and key in self.state.assumed:
                self.write_fails(key)

    @rule(key=keys)
    def finish(self, key: str) -> None:
        """A job that holds quota ends."""
        if key in self.told.workloads and self.told.workloads[key].quota_reserved:
            self.put(b.with_conditions(self.told.workloads[key], Finished=("True", "Succeeded")))

    @rule(key=keys, count=st.integers(1, 2))
    def pods_end(self, key: str, count: int) -> None:
        """Pods of a workload end before the others."""
        item = self.told.workloads.get(key)
        if item is not None and item.quota_reserved:
            self.put(told.changed(item, status={"reclaimablePods": [{"name": "set-0", "count": count}]}))

    # What the controllers do

    @rule(key=keys, lag=st.booleans())
    def write_succeeds(self, key: str, lag: bool) -> None:
        """The write of an admission comes back, perhaps after the watch showed the object as it was."""
        if key in self.state.assumed and key in self.told.workloads:
            item = self.told.workloads[key]
            if lag:
                self.state.put_workload(item, b.NOW)
            assert key in self.state.assumed
            self.put(self.reserved(item))
            assert self.state.cycling or key not in self.state.assumed

    def reserved(self, item: Workload) -> Workload:
        """As the API has it after the write."""
        info = self.state.assumed[item.metadata.key].info
        status = {"admission": msgspec.to_builtins(admission_of(info, info.cluster_queue))}
        if not info.admitted and not item.status.admission_checks:
            status["admissionChecks"] = told.check_states("Pending")
        made = told.changed(item, status=status)
        admitted = ("True", "Admitted") if info.admitted else ("False", "NoChecks")
        return b.with_conditions(made, QuotaReserved=("True", "QuotaReserved"), Admitted=admitted, Evicted=NO)

    @rule(key=keys, ready=st.booleans())
    def check_answers(self, key: str, ready: bool) -> None:
        """An admission check is ready, and the workload admitted; or it has to be tried again, which evicts."""
        item = self.told.workloads.get(key)
        if item is not None and item.quota_reserved and not item.admitted and item.status.admission_checks:
            if ready:
                made = told.changed(item, status={"admissionChecks": told.check_states("Ready")})
                self.put(b.with_conditions(made, Admitted=("True", "Admitted")))
            else:
                made = told.changed(item, status={"admissionChecks": told.check_states("Retry")})
                self.put(b.with_conditions(made, Evicted=("True", "AdmissionCheck")))

    @rule(key=keys)
    def write_fails(self, key: str) -> None:
        """The write of an admission fails: the workload is where it was."""
        if key in self.state.assumed:
            self.state.forget(key, b.NOW)
            if not self.state.cycling and self.told.workloads[key].spec.active:
                assert key in self.state.waiting

    @rule(key=keys, seen=st.booleans())
    def eviction_is_written(self, key: str, seen: bool) -> None:
        """The write of an eviction is seen, or fails."""
        if key in self.state.evicting and key in self.told.workloads and self.told.workloads[key].quota_reserved:
            if seen:
                self.put(b.with_conditions(self.told.workloads[key], Evicted=("True", "Preempted")))
            else:
                self.state.forget_eviction(key)

    @rule(key=keys)
    def eviction_ends(self, key: str) -> None:
        """The pods of a victim are gone."""
        item = self.told.workloads.get(key)
        if item is None or not item.quota_reserved or item.finished:
            return
        evicted = any(each.type == "Evicted" and each.status == "True" for each in item.status.conditions)
        if key in self.state.evicting or evicted:
            self.put(self.released(item))

    def released(self, item: Workload) -> Workload:
        """As the API has it once its eviction is through."""
        return b.released(told.changed(item, status={"admissionChecks": [], "reclaimablePods": []}))

    # Cycles

    @rule()
    def run_cycle(self) -> None:
        """One cycle."""
        self.end_slices()
        self.cycle()

    @rule(after=st.integers(1, 20), stretch=st.sampled_from([1, 5, 1000]))
    def run_slices(self, after: int, stretch: int) -> None:
        """A cycle begins and stops; whatever happens next happens meanwhile."""
        self.end_slices()
        self.before = b.admitted(self.state)
        self.steps = cycle_steps(self.state, b.NOW, stretch=stretch)
        for _ in range(after):
            try:
                next(self.steps)
            except StopIteration:
                self.steps = None
                return

    @rule(leave=st.booleans())
    def end_slices(self, leave: bool = False) -> None:
        """It goes on to its end, or is left."""
        steps, self.steps = self.steps, None
        if steps is None:
            return
        if leave:
            assumed = set(self.state.assumed)
            steps.close()
            assert set(self.state.assumed) <= assumed
        else:
            for _ in steps:
                pass
        assert not self.state.cycling
        assert not self.state.refused

    def cycle(self) -> list[Decision]:
        """A cycle admits only who has a right to it, and only what there is room for."""
        before, world = b.admitted(self.state), self.told.plain(self.state)
        first = {name: self.first_in_line(name) for name in QUEUES}
        # as in Kueue, a preemptor that came first before its queue was strict does so until it is let in
        sticky = {
            queue.name: queue.pending.preemptor for queue in self.state.cluster_queues.values() if queue.pending.sticky
        }
        decisions = list(cycle(self.state, b.NOW))
        new = {decision.key for decision in decisions if decision.outcome == "admit"}
        assert len({decision.cluster_queue for decision in decisions}) == len(decisions), "two heads of one queue"
        assert b.admitted(self.state) == before | new
        assert not before & new
        after = self.told.plain(self.state)
        evicting: set[str] = set()
        for decision in decisions:
            spec = self.told.queues[decision.cluster_queue].spec
            strict = spec.queueing_strategy == "StrictFIFO" and not self.by_usage(decision.cluster_queue)
            if strict and decision.key != sticky.get(decision.cluster_queue):
                assert decision.key == first[decision.cluster_queue], "not the first of its line"
            if decision.outcome == "admit":
                self.judge_admission(decision, after)
            if decision.outcome == "preempting":
                assert decision.victims
                self.judge_victims(decision, world)
                victims = {victim.key for victim in decision.victims}
                assert not victims & evicting, "preempted for two"
                evicting |= victims
        return decisions

    def by_usage(self, name: str) -> bool:
        """Whether the usage of LocalQueues orders the line."""
        return (
            self.options.admission_fair_sharing is not None and self.told.queues[name].spec.admission_scope is not None
        )

    def waiting_in(self, name: str) -> list[Workload]:
        """Who may be admitted to a queue, if there is room."""
        return [
            item
            for key, item in self.told.workloads.items()
            if (item.spec.queue_name or "")[0] == name
            and self.told.lines[item.spec.queue_name or ""].spec.stop_policy == "None"
            and item.spec.active
            and not (item.quota_reserved or item.finished or key in self.state.assumed)
        ]

    def first_in_line(self, name: str) -> str | None:
        """By priority, age, and UID."""
        line = [(-(item.spec.priority or 0), told.age(item), item.metadata.uid, item.metadata.key)
                for item in self.waiting_in(name)]  # fmt: skip
        return min(line)[3] if line else None

    def judge_admission(self, decision: Decision, world: Plain) -> None:
        """The queue is open, and what was admitted is within nominal quota plus borrowing limit, and within what every
        cohort above had free, with all victims still there."""
        name, key = decision.cluster_queue, decision.key
        item = self.told.workloads[key]
        assert item.spec.active
        assert (item.spec.queue_name or "")[0] == name
        assert self.told.queues[name].spec.stop_policy == "None"
        assert self.told.lines[item.spec.queue_name or ""].spec.stop_policy == "None"
        assert decision.admission is not None
        for given, asked in zip(decision.admission.pod_set_assignments, item.spec.pod_sets, strict=True):
            assert given.count is not None
            assert (asked.min_count or asked.count) <= given.count <= asked.count
            requests = asked.template.spec.containers[0].resources.requests  # type: ignore[union-attr]
            assert {key: int(value) for key, value in given.resource_usage.items()} == {
                resource: int(amount) * given.count for resource, amount in requests.items()
            }
            for resource, flavor in given.flavors.items():
                assert world.available(name, (flavor, resource)) >= 0, "over quota"
                nominal, borrow, _ = world.quota(name, (flavor, resource))
                assert borrow is None or world.used(name, (flavor, resource)) <= nominal + borrow
        if not self.by_usage(name) and self.state.cluster_queues[name].pending.preemptor != key:
            for other in self.waiting_in(name):
                same = other.spec == item.spec and other.status.conditions == item.status.conditions
                assert not same or told.age(other) >= told.age(item), "an equal one is older"
        checks = self.told.queues[name].spec.admission_checks_strategy
        flavors = {flavor for given in decision.admission.pod_set_assignments for flavor in given.flavors.values()}
        if checks is not None and not item.status.admission_checks:
            wanted = checks.admission_checks[0].on_flavors
            assert decision.admitted is bool(wanted and not flavors & set(wanted))
        if self.by_usage(name):
            assert key in self.state.lines[f"team/{item.spec.queue_name}"].penalties

    def judge_victims(self, decision: Decision, world: Plain) -> None:
        """Each is taken by right of a policy, from a queue of the tree that uses more than its own, and held quota.
        Those that were on their way out already were judged when they were taken, by what held then."""
        item = self.told.workloads[decision.key]
        name = decision.cluster_queue
        head = Head("", name, item.spec.priority or 0, told.age(item), {})
        held = {each.uid: each for each in world.held}
        policy = world.policies[name]
        victims = [victim for victim in decision.victims if victim.new]
        roots = [[each, *world.ancestors(each)][-1] for each in (name, *(v.cluster_queue for v in victims))]
        assert len(set(roots)) == 1
        for victim in victims:
            found = held[victim.key]
            assert found.queue == victim.cluster_queue
            assert world.allowed(policy.within if found.queue == name else policy.reclaim, head, found)
            if found.queue != name:
                assert not world.within(found.queue, set(PAIRS)), "reclaimed what was not borrowed"
                if victim.reason == "InCohortReclaimWhileBorrowing":
                    assert policy.borrow != "Never"
                    assert policy.threshold is None or found.priority <= policy.threshold
                    assert found.priority < head.priority
            else:
                assert victim.reason == "InClusterQueue"
            assert (victim.reason == "InCohortFairSharing") <= (self.options.fair_sharing is not None)

    # Fixed points

    @rule()
    def fixed_point(self) -> None:
        """With nobody else acting, cycles come to an end, and then no head that fits is left waiting."""
        self.end_slices()
        self.run_out()
        before = b.admitted(self.state)
        self.judge_those_who_wait()
        for name in QUEUES:
            self.state.mark_retry(name)
        self.state.epoch += 1
        self.run_out()
        missed = b.admitted(self.state) - before
        assert not missed, f"left waiting: {missed}"

    @rule(change=st.sampled_from(["finish", "delete", "fail", "quota", "cohort", "move", "pods"]), data=st.data())
    def one_thing_changes(self, change: str, data: st.DataObject) -> None:
        """When all is quiet in a full queue and one thing changes, whoever fits now is let in."""
        line = data.draw(st.sampled_from(LINES))
        for gpu in data.draw(st.lists(st.integers(1, 3), max_size=4)):
            self.create(line, [(gpu, 0, 1, None)], 1, 4)
        self.fixed_point()
        holders = sorted(b.admitted(self.state)) or ["nobody"]
        key = data.draw(st.sampled_from(holders))
        match change:
            case "quota":
                name = data.draw(st.sampled_from(QUEUES))
                queue = self.told.queues[name]
                spec = {**msgspec.to_builtins(queue.spec), "resourceGroups": data.draw(resource_groups)}
                parent = spec.pop("cohortName", "")
                self.put_queue(name, parent, spec.pop("resourceGroups"), spec)
            case "cohort":
                name = data.draw(st.sampled_from(COHORTS))
                parent = self.told.cohorts[name].spec.parent_name or ""
                self.put_cohort(name, told.groups(*data.draw(st.tuples(few, few, few))), parent, "1")
            case "delete":
                self.delete(key)
            case "fail":
                self.write_fails(key)
            case "move":
                waiting = sorted(self.state.waiting) or ["nobody"]
                self.move(data.draw(st.sampled_from(waiting)), data.draw(st.sampled_from(LINES)))
            case _:
                self.write_succeeds(key, lag=False)
                self.check_answers(key, ready=True)
                self.finish(key) if change == "finish" else self.pods_end(key, 2)
        self.fixed_point()

    def run_out(self) -> None:
        """Cycles until there is nothing to decide."""
        for _ in range(400):
            if not self.state.has_work:
                return
            self.cycle()
        raise AssertionError("no fixed point was reached")

    def judge_those_who_wait(self) -> None:
        """By arithmetic alone: unless somebody keeps room for himself, there is none for the first of a line, nor for
        anyone in a line that does not wait for its first."""
        world = self.told.plain(self.state)
        decided = self.state.last_decisions
        for name in QUEUES:
            root = [name, *world.ancestors(name)][-1]
            tree = [each for each in QUEUES if [each, *world.ancestors(each)][-1] == root]
            everybody = [item for each in tree for item in self.waiting_in(each)]
            modes = {decided[key].mode for item in everybody if (key := item.metadata.key) in decided}
            spec = self.told.queues[name].spec
            if Mode.PREEMPT in modes or Mode.DEFERRED_FIT in modes or spec.stop_policy != "None":
                continue
            line, first = self.waiting_in(name), self.first_in_line(name)
            for item in line:
                if spec.queueing_strategy == "StrictFIFO" and (self.by_usage(name) or item.metadata.key != first):
                    continue
                if len(item.spec.pod_sets) > 1:
                    continue
                if not item.status.admission_checks:
                    assert not self.has_room(world, name, item), f"left waiting: {item.metadata.key}"

    def has_room(self, world: Plain, name: str, item: Workload) -> bool:
        """Whether a workload of one pod set fits now."""
        (asked,) = item.spec.pod_sets
        requests = asked.template.spec.containers[0].resources.requests  # type: ignore[union-attr]
        count = asked.min_count or asked.count
        amounts = {resource: int(amount) * count for resource, amount in requests.items()}
        free = {pair: max(0, world.available(name, pair)) for pair in PAIRS}
        gpu = any(amounts["gpu"] <= free[flavor, "gpu"] for flavor in ("x", "y"))
        return gpu and amounts.get("tpu", 0) <= free["z", "tpu"]

    @rule()
    def everyone_does_their_part(self) -> None:
        """With all writes seen, checks ready and victims gone in no time, preemption comes to an end."""
        self.end_slices()
        for _ in range(60):
            self.run_out()
            moved = False
            for key, item in sorted(self.told.workloads.items()):
                evicted = any(each.type == "Evicted" and each.status == "True" for each in item.status.conditions)
                if key in self.state.assumed:
                    self.put(self.reserved(item))
                elif item.quota_reserved and not item.finished and (evicted or key in self.state.evicting):
                    self.put(self.released(item))
                else:
                    continue
                moved = True
            self.in_one_place()
            if not moved:
                return
        raise AssertionError("preemption goes on for ever")

    # A second look

    @rule(tried=st.lists(st.sampled_from(TRIED), min_size=1, max_size=8))
    def fork(self, tried: list[str]) -> None:
        """What is tried on a fork leaves no trace."""
        self.end_slices()
        before = dump(self.state)
        with self.state.fork() as what_if:
            for what in tried:
                self.what_if(what_if, what)
        found = list(differences(before, dump(self.state)))
        assert not found, "\n".join(found)

    def what_if(self, state: State, what: str) -> None:
        """One thing that is tried."""
        big = told.groups((20, None, None), (20, None, None), (9, None, None))
        match what:
            case "run":
                cycle(state, b.NOW)
            case "more quota":
                state.put_cluster_queue(told.cluster_queue("a", big, "outer"), b.NOW)
            case "another queue":
                state.put_cluster_queue(told.cluster_queue("new", big, "left"), b.NOW)
            case "another cohort":
                state.put_cohort(told.cohort("right", big, parent="", weight="3"))
            case "no cohort":
                state.drop_cohort("outer")
            case "no queue":
                state.drop_cluster_queue("b")
            case "one more":
                sets = [(2, 0, 1, None)]
                state.put_workload(told.workload("what-if", "a-first", pod_sets=sets, priority=9, second=0), b.NOW)
            case "failures":
                for key in sorted(state.assumed)[:2]:
                    state.forget(key, b.NOW)
            case "fewer":
                for key in sorted(state.workloads)[:2]:
                    state.drop_workload(key)
            case "more urgent":
                for key in sorted(state.workloads)[2:4]:
                    if key in self.told.workloads:
                        state.put_workload(told.changed(self.told.workloads[key], spec={"priority": 5}), b.NOW)
            case "writes":
                for key in sorted(state.assumed)[:2]:
                    if key in self.told.workloads:
                        state.put_workload(self.reserved(self.told.workloads[key]), b.NOW)
            case "lines":
                state.put_local_queue(b.local("c-first", "d", stopPolicy="Hold"), b.NOW)
                state.drop_local_queue("team/d-first")
            case _:
                for key in sorted(state.lines):
                    state.sample_usage(key, b.NOW + 60)

    @rule(backwards=st.booleans())
    def restart(self, backwards: bool) -> None:
        """Who starts from the objects alone has the same usage and the same lines, in whatever order they come."""
        self.end_slices()
        fresh = self.told.state(self.options, backwards=backwards)
        fresh.ledger.settle()
        self.state.ledger.settle()
        for key in sorted(self.state.assumed):
            self.state.forget(key, b.NOW)
        found = list(differences(shape(fresh), shape(self.state)))
        assert not found, "\n".join(found)

    @invariant()
    def in_one_place(self) -> None:
        """A workload waits in one place or holds quota in one place, never both."""
        if self.steps is not None:
            return
        seen: dict[str, str] = {}
        for queue in self.state.cluster_queues.values():
            pending = queue.pending
            assert pending.inflight is None
            for place, keys in (
                ("active", [info.key for info in pending.active_infos()]),
                ("inadmissible", [info.key for info in pending.inadmissible_infos()]),
                ("reserved", list(queue.workloads)),
            ):
                for key in keys:
                    assert key not in seen, f"{key} is {seen[key]} and {queue.name} {place}"
                    seen[key] = f"{queue.name} {place}"
        assert set(self.state.waiting) | set(self.state.ledger.holders) <= set(self.told.workloads)
        assert set(self.state.assumed) <= set(self.state.ledger.holders)
        assert set(self.state.evicting) <= set(self.state.ledger.holders), "on its way out of nowhere"
        for key, item in self.told.workloads.items():
            line = self.told.lines[item.spec.queue_name or ""]
            stands = line.spec.stop_policy == "None" and item.spec.active
            if item.finished or not (item.quota_reserved or key in self.state.assumed or stands):
                assert key not in seen, f"{key} is {seen[key]}"
            else:
                assert key in seen, f"{key} is nowhere"
        penalized = {key for line in self.state.lines.values() for key in line.penalties}
        assert penalized <= set(self.told.workloads)

    @invariant()
    def usage_is_the_sum(self) -> None:
        """Usage kept step by step is the usage worked out from the objects, of every queue and cohort."""
        if self.steps is not None:
            return
        self.state.ledger.settle()
        world = self.told.plain(self.state)
        nodes = {**self.state.ledger.cohorts, **{name: q.node for name, q in self.state.cluster_queues.items()}}
        for name, node in nodes.items():
            kept = {(pair.flavor, pair.resource): amount for pair, amount in node.usage.items() if amount}
            assert kept == {pair: amount for pair in PAIRS if (amount := world.used(name, pair))}, name
        for queue in self.state.cluster_queues.values():
            by_line = {key: line for line, held in queue.holders.items() for key in held.infos}
            assert by_line == {key: info.local_queue for key, info in queue.workloads.items()}


NO = ("False", "QuotaReserved")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_preemption_on_a_fork_leaves_no_trace(steps: int) -> None:
    """Victims chosen, gone and replaced on a fork are as they were; so it is with whoever was let in at their place."""
    preemption = {"withinClusterQueue": "LowerPriority"}
    state = b.world(b.queue("main", {"default": {"cpu": 2}}, preemption=preemption))
    state.put_workload(b.held("low", "main", {"cpu": "2"}, priority=0), b.NOW)
    state.put_workload(b.workload("high", cpu=2, priority=5), b.NOW)
    before = dump(state)
    for _ in range(2):
        with state.fork() as what_if:
            (decision,) = list(cycle(what_if, b.NOW))
            assert decision.outcome == "preempting"
            assert what_if.evicting
            if steps > 1:
                what_if.put_workload(b.released(state.workloads["team/low"].workload), b.NOW)
                assert [each.outcome for each in cycle(what_if, b.NOW)] == ["admit"]
            if steps > 2:
                what_if.forget("team/high", b.NOW)
        found = list(differences(before, dump(state)))
        assert not found, "\n".join(found)


@pytest.mark.parametrize("how", ["admitted", "deleted", "suspended"])
def test_who_waits_waits_on_after_a_fork(how: str) -> None:
    """Whoever is let in, deleted or suspended on a fork still waits, with whatever else the fork touched."""
    state = b.world(b.queue("main", {"default": {"cpu": 2}}))
    item = b.workload("w", cpu=2)
    state.put_workload(item, b.NOW)
    before = dump(state)
    with state.fork() as what_if:
        if how == "admitted":
            cycle(what_if, b.NOW)
        elif how == "deleted":
            what_if.drop_workload("team/w")
        else:
            what_if.put_workload(b.changed(item, spec={"active": False}), b.NOW)
        assert "team/w" not in what_if.waiting
    found = list(differences(before, dump(state)))
    assert not found, "\n".join(found)


TestHistories = pytest.mark.timeout(3600)(Histories.TestCase)
TestHistories.settings = settings(
    max_examples=int(os.environ.get("HISTORIES", "200")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
