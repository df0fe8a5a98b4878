"""A small world that an engine is told of: four queues in a tree of cohorts. Its decisions are judged by the rules in
plain words."""

from collections import Counter
from typing import Any

import msgspec

from tests.model.rules import Head, Plain, allowed
from tests.unit.engine import builders as b
from tests.unit.engine import told
from tests.unit.engine.told import PAIRS, Told
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, cycle
from turnstile.engine.decisions import admission_of
from turnstile.engine.reasons import Mode

COHORTS = ("left", "outer", "right")
QUEUES = ("a", "b", "c", "d")
LINES = tuple(f"{name}-{line}" for name in QUEUES for line in ("first", "second"))

NO = ("False", "QuotaReserved")


class World:
    """Objects as the watches showed them, and the engine that was told."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        self.told = Told()
        self.number = 0
        self.stubborn: set[str] = set()
        """Workloads that do not go when they are evicted."""
        self.begin(options or Options())

    def begin(self, options: Options) -> None:
        """An engine that knows the namespaces and flavors."""
        self.options = options
        self.state = self.told.state(options)

    # What people do

    def put_cohort(self, name: str, resource_groups: list[told.Json], parent: str, weight: str) -> None:
        """A cohort gets another quota, parent or weight."""
        above = {"outer": "", "left": parent if parent == "outer" else "", "right": parent}[name]
        self.told.cohorts[name] = told.cohort(name, resource_groups, parent=above, weight=weight)
        self.state.put_cohort(self.told.cohorts[name])

    def put_queue(self, name: str, cohort: str, resource_groups: list[told.Json], spec: told.Json) -> None:
        """A queue gets another quota, cohort or policy."""
        self.told.queues[name] = told.cluster_queue(name, resource_groups, cohort, **spec)
        self.state.put_cluster_queue(self.told.queues[name], b.NOW)

    def put_line(self, name: str, stop: str, weight: str) -> None:
        """A LocalQueue is stopped, goes on, or gets another weight."""
        line = b.local(name, name[0], stopPolicy=stop, fairSharing={"weight": weight})
        self.told.lines[name] = line
        self.state.put_local_queue(line, b.NOW)

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

    # What the controllers do

    def reserved(self, item: Workload) -> Workload:
        """As the API has it after the write."""
        info = self.state.reservations.assumed[item.metadata.key].info
        status = {"admission": msgspec.to_builtins(admission_of(info, info.cluster_queue))}
        if not info.admitted and not item.status.admission_checks:
            status["admissionChecks"] = told.check_states("Pending")
        made = told.changed(item, status=status)
        admitted = ("True", "Admitted") if info.admitted else ("False", "NoChecks")
        return b.with_conditions(made, QuotaReserved=("True", "QuotaReserved"), Admitted=admitted, Evicted=NO)

    def released(self, item: Workload) -> Workload:
        """As the API has it once its eviction is through."""
        return b.released(told.changed(item, status={"admissionChecks": [], "reclaimablePods": []}))

    # Cycles

    def cycle(self) -> list[Decision]:
        """A cycle admits only who has a right to it, and only what there is room for."""
        before, world, start = b.admitted(self.state), self.told.plain(self.state), self.told.plain(self.state)
        first = {name: self.first_in_line(name) for name in QUEUES}
        # as in Kueue, a preemptor that came first before its queue was strict does so until it is let in
        sticky = {
            queue.name: queue.pending.first for queue in self.state.cluster_queues.values() if queue.pending.first
        }
        decisions = list(cycle(self.state, b.NOW))
        new = {decision.key for decision in decisions if decision.outcome == "admit"}
        self.judge_heads(decisions)
        assert b.admitted(self.state) == before | new
        assert not before & new
        after = self.told.plain(self.state)
        evicting: set[str] = set()
        for decision in decisions:
            spec = self.told.queues[decision.cluster_queue].spec
            strict = spec.queueing_strategy == "StrictFIFO" and not self.by_usage(decision.cluster_queue)
            if strict and decision.key != sticky.get(decision.cluster_queue):
                tried_once = self.out_of_reach(decision.cluster_queue, self.told.workloads[decision.key])
                assert tried_once or decision.key == first[decision.cluster_queue], "not the first of its line"
            if decision.outcome == "admit":
                self.judge_admission(decision, after)
            if decision.outcome == "preempting":
                assert decision.victims
                self.judge_victims(decision, world, start)
                victims = {victim.key for victim in decision.victims}
                assert not victims & evicting, "preempted for two"
                evicting |= victims
            if decision.outcome in {"admit", "preempting"}:
                self.claim(decision, world)
        return decisions

    def judge_heads(self, decisions: list[Decision]) -> None:
        """One head a queue; behind one that waits for victims of earlier cycles another, which preempts nobody."""
        heads: dict[str, Decision] = {}
        assert max(Counter(decision.cluster_queue for decision in decisions).values(), default=0) <= 2
        for decision in decisions:
            head = heads.setdefault(decision.cluster_queue, decision)
            if head is decision:
                continue
            assert head.requeue_reason == "PendingPreemption", "two heads of one queue"
            assert not any(victim.new for victim in head.victims), "passed before the victims were told"
            assert self.told.queues[decision.cluster_queue].spec.queueing_strategy == "BestEffortFIFO"
            assert not decision.victims, "preempted before its turn"

    @staticmethod
    def claim(decision: Decision, world: Plain) -> None:
        """Those decided on later see what it takes, and its victims gone."""
        assert decision.assignment is not None
        for pair, amount in decision.assignment.usage.quota.items():
            where = decision.cluster_queue, (pair.flavor, pair.resource)
            world.extra[where] = world.extra.get(where, 0) + amount
        gone = {victim.key for victim in decision.victims}
        world.held[:] = [each for each in world.held if each.uid not in gone]

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
            and not (item.quota_reserved or item.finished or key in self.state.reservations.assumed)
        ]

    def first_in_line(self, name: str) -> str | None:
        """By priority, age, and UID; whoever could not be admitted if nothing were in use stands in no line."""
        line = [(-(item.spec.priority or 0), told.age(item), item.metadata.uid, item.metadata.key)
                for item in self.waiting_in(name) if not self.out_of_reach(name, item)]  # fmt: skip
        return min(line)[3] if line else None

    def out_of_reach(self, name: str, item: Workload) -> bool:
        """Whether its pod sets ask for more of a resource than all flavors could give, one by one or together."""
        world = self.told.plain(self.state)
        reach: dict[str, list[int]] = {}
        for flavor, resource in PAIRS:
            reach.setdefault(resource, []).append(world.tree((flavor, resource)).most(name))
        asked: dict[str, list[int]] = {}
        for each in item.spec.pod_sets:
            pods = min(each.count, each.min_count or each.count)
            requests = each.template.spec.containers[0].resources.requests  # type: ignore[union-attr]
            for resource, amount in requests.items():
                asked.setdefault(resource, []).append(pods * int(amount))
        return any(
            max(amounts) > max(reach[resource]) or sum(amounts) > sum(reach[resource])
            for resource, amounts in asked.items()
        )

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
                assert world.room(name, (flavor, resource)) >= 0, "over quota"
                nominal, borrow, _ = world.quotas[name].get((flavor, resource), (0, None, None))
                assert borrow is None or world.used(name, (flavor, resource)) <= nominal + borrow
        nominated = self.state.cluster_queues[name].pending.nominated(key, item.metadata.generation)
        if not self.by_usage(name) and nominated is None:
            for other in self.waiting_in(name):
                same = other.spec == item.spec and other.status.conditions == item.status.conditions
                assert not same or told.age(other) >= told.age(item), "an equal one is older"
        checks = self.told.queues[name].spec.admission_checks_strategy
        flavors = {flavor for given in decision.admission.pod_set_assignments for flavor in given.flavors.values()}
        if checks is not None and not item.status.admission_checks:
            wanted = checks.admission_checks[0].on_flavors
            assert decision.admitted is bool(wanted and not flavors & set(wanted))
        if self.by_usage(name):
            assert key in self.state.sharing.usages[f"team/{item.spec.queue_name}"].penalties

    def judge_victims(self, decision: Decision, world: Plain, start: Plain) -> None:
        """Each is taken by right of a policy, from a queue of the tree that uses more than its own, and held quota.
        Victims that do not go count when victims are looked for, and are thought away when others are decided on.
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
            given = policy.within if found.queue == name else policy.reclaim
            assert allowed(given, head.priority - found.priority, older=head.stood < found.stood)
            if found.queue != name:
                lent = not world.within(found.queue, set(PAIRS))
                lent = lent or (bool(self.stubborn) and not start.within(found.queue, set(PAIRS)))
                assert lent, "reclaimed what was not borrowed"
                if victim.reason == "InCohortReclaimWhileBorrowing":
                    assert policy.borrow != "Never"
                    assert policy.threshold is None or found.priority <= policy.threshold
                    assert found.priority < head.priority
            else:
                assert victim.reason == "InClusterQueue"
            assert (victim.reason == "InCohortFairSharing") <= (self.options.fair_sharing is not None)

    # Fixed points

    def come_to_rest(self) -> None:
        """With nobody else acting, cycles come to an end, and then no head that fits is left waiting."""
        self.run_out()
        before = b.admitted(self.state)
        self.judge_those_who_wait()
        self.try_all_again()
        self.run_out()
        missed = b.admitted(self.state) - before
        assert not missed, f"left waiting: {missed}"

    def try_all_again(self) -> None:
        """As if something had changed in every queue, though nothing did."""
        for name in QUEUES:
            self.state.retries.mark(name)
        self.state.log.epoch += 1

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
        decided = self.state.queues.decisions
        for name in QUEUES:
            root = [name, *world.ancestors(name)][-1]
            tree = [each for each in QUEUES if [each, *world.ancestors(each)][-1] == root]
            everybody = [item for each in tree for item in self.waiting_in(each)]
            modes = {decided[key].mode for item in everybody if (key := item.metadata.key) in decided}
            spec = self.told.queues[name].spec
            if spec.stop_policy != "None":
                continue
            if Mode.PREEMPT in modes or Mode.DEFERRED_FIT in modes:
                self.judge_those_behind(name, everybody)
                continue
            line, first = self.waiting_in(name), self.first_in_line(name)
            for item in line:
                if spec.queueing_strategy == "StrictFIFO" and (self.by_usage(name) or item.metadata.key != first):
                    continue
                if len(item.spec.pod_sets) > 1:
                    continue
                if not item.status.admission_checks:
                    assert not self.has_room(world, name, item), f"left waiting: {item.metadata.key}"

    def judge_those_behind(self, name: str, everybody: list[Workload]) -> None:
        """By arithmetic alone: where one preemptor in a tree waits for its victims, nobody behind it in a
        BestEffortFIFO queue fits free nominal quota both now and once they are gone and the preemptor has its place.

        With `whenCanPreempt: MayStopSearch` only the first flavor counts: a Workload that can preempt in that one waits
        for it, as in Kueue, whatever is free in the next."""
        decided = self.state.queues.decisions
        heads = [decided[key] for item in everybody if (key := item.metadata.key) in decided
                 and decided[key].mode in {Mode.PREEMPT, Mode.DEFERRED_FIT}]  # fmt: skip
        (head, *others) = heads
        best_effort = self.told.queues[name].spec.queueing_strategy == "BestEffortFIFO"
        if others or head.cluster_queue != name or not head.victims or not best_effort or self.by_usage(name):
            return
        stops = self.told.queues[name].spec.flavor_fungibility.when_can_preempt == "MayStopSearch"
        now, later = self.told.plain(self.state), self.told.plain(self.state)
        self.claim(head, later)
        for item in self.waiting_in(name):
            if item.metadata.key == head.key or len(item.spec.pod_sets) > 1 or item.status.admission_checks:
                continue
            amounts = self.least(item)
            free = {pair: min(self.own(now, name, pair), self.own(later, name, pair)) for pair in PAIRS}
            gpu = any(amounts["gpu"] <= free[flavor, "gpu"] for flavor in (("x",) if stops else ("x", "y")))
            fits = gpu and amounts.get("tpu", 0) <= max(0, free["z", "tpu"])
            assert not fits, f"left waiting behind {head.key}: {item.metadata.key}"

    def has_room(self, world: Plain, name: str, item: Workload) -> bool:
        """Whether a workload of one pod set fits now."""
        amounts = self.least(item)
        free = {pair: max(0, world.room(name, pair)) for pair in PAIRS}
        gpu = any(amounts["gpu"] <= free[flavor, "gpu"] for flavor in ("x", "y"))
        return gpu and amounts.get("tpu", 0) <= free["z", "tpu"]

    @staticmethod
    def own(world: Plain, name: str, pair: tuple[str, str]) -> int:
        """Free nominal quota of a queue."""
        return min(world.room(name, pair), world.nominal(name, pair) - world.used(name, pair))

    @staticmethod
    def least(item: Workload) -> dict[str, int]:
        """What a workload of one pod set asks for at least."""
        (asked,) = item.spec.pod_sets
        requests = asked.template.spec.containers[0].resources.requests  # type: ignore[union-attr]
        count = asked.min_count or asked.count
        return {resource: int(amount) * count for resource, amount in requests.items()}

    def everyone_does_their_part(self) -> None:
        """With all writes seen, checks ready and victims gone in no time, but for those that do not go, preemption
        comes to an end."""
        for _ in range(60):
            self.run_out()
            moved = False
            for key, item in sorted(self.told.workloads.items()):
                evicted = any(each.type == "Evicted" and each.status == "True" for each in item.status.conditions)
                if key in self.state.reservations.assumed:
                    self.put(self.reserved(item))
                elif item.quota_reserved and not item.finished and (evicted or key in self.state.reservations.evicting):
                    if key in self.stubborn:
                        if evicted:
                            continue
                        self.put(b.with_conditions(item, Evicted=("True", "Preempted")))
                    else:
                        self.put(self.released(item))
                else:
                    continue
                moved = True
            self.in_one_place()
            if not moved:
                return
        raise AssertionError("preemption goes on for ever")

    # At any time

    def in_one_place(self) -> None:
        """A workload waits in one place or holds quota in one place, never both."""
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
        assert set(self.state.queues.waiting) | set(self.state.ledger.holders) <= set(self.told.workloads)
        assert set(self.state.reservations.assumed) <= set(self.state.ledger.holders)
        assert set(self.state.reservations.evicting) <= set(self.state.ledger.holders), "on its way out of nowhere"
        for key, item in self.told.workloads.items():
            line = self.told.lines[item.spec.queue_name or ""]
            stands = line.spec.stop_policy == "None" and item.spec.active
            if item.finished or not (item.quota_reserved or key in self.state.reservations.assumed or stands):
                assert key not in seen, f"{key} is {seen[key]}"
            else:
                assert key in seen, f"{key} is nowhere"
        penalized = {key for line in self.state.sharing.usages.values() for key in line.penalties}
        assert penalized <= set(self.told.workloads)

    def usage_is_the_sum(self) -> None:
        """Usage kept step by step is the usage worked out from the objects, of every queue and cohort."""
        self.state.ledger.settle()
        world = self.told.plain(self.state)
        nodes = {**self.state.ledger.cohorts, **{name: q.node for name, q in self.state.cluster_queues.items()}}
        for name, node in nodes.items():
            kept = {(pair.flavor, pair.resource): amount for pair, amount in node.usage.items() if amount}
            assert kept == {pair: amount for pair in PAIRS if (amount := world.used(name, pair))}, name
        for queue in self.state.cluster_queues.values():
            by_line = {line: (held.count, held.admitted) for line, held in queue.holders.items()}
            admitted = Counter(info.local_queue for info in queue.workloads.values() if info.admitted)
            holding = Counter(info.local_queue for info in queue.workloads.values())
            assert by_line == {line: (count, admitted[line]) for line, count in holding.items()}
