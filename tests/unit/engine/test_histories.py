"""Whatever happens in whatever order, the promises of the engine hold."""

from collections.abc import Generator

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, invariant, multiple, rule

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.engine import told
from tests.unit.engine.drawn import few, pod_sets, priorities, resource_groups, seconds, specs, strategies, weights
from tests.unit.engine.pictures import differences, shape
from tests.unit.engine.world import COHORTS, LINES, QUEUES, World
from turnstile.engine import Cycle, Options, cycle_steps
from turnstile.engine.options import AdmissionFairSharing, FairSharing, Gates
from turnstile.engine.pace import Pace, finish


class Histories(World, RuleBasedStateMachine):
    """Objects come, change and go; cycles run; writes succeed, fail, or come late."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
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
        self.begin(Options(fair_sharing=fair, admission_fair_sharing=usage, gates=gates))
        for name in COHORTS:
            self.put_cohort(name, told.groups(*data.draw(st.tuples(few, few, few))), "outer", "1")
        for name, parent in zip(QUEUES, ("left", "left", "right", "outer"), strict=True):
            self.put_queue(name, parent, data.draw(resource_groups), data.draw(specs))
            for line in ("first", "second"):
                self.put_line(f"{name}-{line}", "None", "1")
        some = st.tuples(st.sampled_from(LINES), pod_sets, priorities, seconds)
        return multiple(*(str(self.create(*given)) for given in data.draw(st.lists(some, max_size=5))))

    # What people do

    put_cohort = rule(
        name=st.sampled_from(COHORTS),
        resource_groups=st.builds(told.groups, few, few, few),
        parent=st.sampled_from(["", "left", "outer", "outer"]),
        weight=weights,
    )(World.put_cohort)

    put_queue = rule(
        name=st.sampled_from(QUEUES),
        cohort=st.sampled_from(["left", "right", "outer", ""]),
        resource_groups=resource_groups,
        spec=specs,
    )(World.put_queue)

    put_line = rule(name=st.sampled_from(LINES), stop=st.sampled_from(["None", "None", "Hold"]), weight=weights)(
        World.put_line
    )

    create = rule(
        target=keys,
        line=st.sampled_from(LINES),
        pod_sets=pod_sets,
        priority=priorities,
        second=seconds,
    )(World.create)

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
            if not self.state.log.cycling and key in self.state.reservations.assumed:
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
        if key in self.state.reservations.assumed and key in self.told.workloads:
            item = self.told.workloads[key]
            if lag:
                self.state.put_workload(item, b.NOW)
            assert key in self.state.reservations.assumed
            self.put(self.reserved(item))
            assert self.state.log.cycling or key not in self.state.reservations.assumed

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
        if key in self.state.reservations.assumed:
            self.state.forget(key, b.NOW)
            if not self.state.log.cycling and self.told.workloads[key].spec.active:
                assert key in self.state.queues.waiting

    @rule(key=keys, seen=st.booleans())
    def eviction_is_written(self, key: str, seen: bool) -> None:
        """The write of an eviction is seen, or fails."""
        if (
            key in self.state.reservations.evicting
            and key in self.told.workloads
            and self.told.workloads[key].quota_reserved
        ):
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
        if key in self.state.reservations.evicting or evicted:
            self.put(self.released(item))

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
            assumed = set(self.state.reservations.assumed)
            steps.close()
            assert set(self.state.reservations.assumed) <= assumed
        else:
            for _ in steps:
                pass
        assert not self.state.log.cycling
        assert not self.state.log.refused

    # Fixed points

    @rule()
    def fixed_point(self) -> None:
        """A fixed point is reached, and nobody is left waiting at it."""
        self.end_slices()
        self.come_to_rest()

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
                waiting = sorted(self.state.queues.waiting) or ["nobody"]
                self.move(data.draw(st.sampled_from(waiting)), data.draw(st.sampled_from(LINES)))
            case _:
                self.write_succeeds(key, lag=False)
                self.check_answers(key, ready=True)
                self.finish(key) if change == "finish" else self.pods_end(key, 2)
        self.fixed_point()

    @rule()
    def everybody(self) -> None:
        """With all writes seen, checks ready and victims gone in no time, preemption comes to an end."""
        self.end_slices()
        self.everyone_does_their_part()

    # A second look

    @rule(backwards=st.booleans())
    def restart(self, backwards: bool) -> None:
        """Who starts from the objects alone has the same usage and the same lines, in whatever order they come."""
        self.end_slices()
        fresh = self.told.state(self.options, backwards=backwards)
        for each in (fresh, self.state):
            finish(each.catching_up(Pace()))
            each.ledger.settle()
        for key in sorted(self.state.reservations.assumed):
            self.state.forget(key, b.NOW)
        found = list(differences(shape(fresh), shape(self.state)))
        assert not found, "\n".join(found)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Between cycles, everybody is in one place, and usage is the sum of what they hold."""
        if self.steps is None:
            self.in_one_place()
            self.usage_is_the_sum()


TestHistories = pytest.mark.timeout(3600)(Histories.TestCase)
TestHistories.settings = settings(
    max_examples=examples(50),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
