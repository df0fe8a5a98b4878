"""Random histories of one group of pods: what runs is always paid for, and the decisions come to rest."""

import functools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.examples import examples
from tests.unit.controllers.group_cluster import GROUP, GroupCluster
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers import wakes
from turnstile.controllers.runtime.actions import Create, Delete, Patch, ReconcileResult, RequeueAfter
from turnstile.jobs.kinds.pod.single import PlainPod

PODS = st.integers(0, 9)


class OneGroup(RuleBasedStateMachine):
    """A user, a scheduler, kubelets and a garbage collector around one group; looks that may die half way.

    The cluster refuses what the API server would refuse, and a patch that changes nothing, so every rule also checks
    that no write is wasted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = GroupCluster(total=3)
        self.made = 0
        self.settled = False

    def true(self, kind: str) -> bool:
        """Whether the Workload is there and has that condition."""
        return bool(self.cluster.workloads) and (self.cluster.condition(kind) or ("",))[0] == "True"

    def some(self, number: int) -> str | None:
        """A pod that is there."""
        names = sorted(self.cluster.pods)
        return names[number % len(names)] if names else None

    @rule()
    def settle(self) -> None:
        """Looks until nothing is written; the end is reached, and soon."""
        self.cluster.settle(GROUP, limit=20)
        self.settled = True

    @rule(only=st.integers(0, 4))
    def look(self, only: int) -> None:
        """One look that dies after some writes."""
        self.cluster.step(GROUP, only=only)
        self.settled = False

    @rule(cpu=st.sampled_from([1, 1, 2]), claims=st.booleans(), retriable=st.integers(0, 9))
    def create(self, cpu: int, claims: bool, retriable: int) -> None:
        """The user sends a pod, of one of two sizes, that may claim the role of an earlier one."""
        roles = [each["name"] for each in self.cluster.workload["spec"]["podSets"]] if self.cluster.workloads else []
        told = {"role_hash": roles[0]} if claims and roles else {}
        final = {"retriable_in_group": "false"} if retriable == 0 else {}
        if len(self.cluster.pods) < 7:
            self.cluster.member(f"p{self.made:02}", cpu=cpu, **told, **final)
            self.made += 1
        self.settled = False

    @rule()
    def run(self) -> None:
        """What takes many steps by chance: pods are sent until there are enough, and run as far as quota allows."""
        for _ in range(3):
            live = [*self.cluster.held(), *self.cluster.started()]
            if len(live) < 3:
                self.create(1 + self.made % 2, False, 1)
        self.settle()
        if self.cluster.workloads and not self.true("QuotaReserved") and not self.true("Finished"):
            self.admit()
        self.settle()
        self.bind()

    @rule()
    def bind(self) -> None:
        """What is not held is scheduled and runs."""
        self.cluster.bind()
        self.settled = False

    @rule(number=PODS, phase=st.sampled_from(["Succeeded", "Failed"]))
    def end(self, number: int, phase: str) -> None:
        """A running pod ends."""
        name = self.some(number)
        if name is not None and self.cluster.pods[name]["status"]["phase"] == "Running":
            self.cluster.end(name, phase)
            self.settled = False

    @rule(number=PODS)
    def delete(self, number: int) -> None:
        """The user deletes a pod."""
        if (name := self.some(number)) is not None:
            self.cluster.delete(Pod, f"team/{name}")
            self.settled = False

    @rule()
    def delete_all(self) -> None:
        """The user deletes the group."""
        for name in self.cluster.pods:
            self.cluster.delete(Pod, f"team/{name}")
        self.settled = False

    @rule()
    def kubelet_stops(self) -> None:
        """Deleted pods stop."""
        self.cluster.kubelet_stops()
        self.settled = False

    @rule(seconds=st.sampled_from([20, 40, 90]))
    def later(self, seconds: int) -> None:
        """Grace periods end."""
        self.time_passes(seconds)
        self.settled = False

    def time_passes(self, seconds: int) -> None:
        """For all clocks."""
        self.cluster.later(seconds=seconds)

    @precondition(lambda self: self.cluster.workloads and not self.true("QuotaReserved") and not self.true("Finished"))
    @rule()
    def admit(self) -> None:
        """The scheduler admits the group."""
        self.cluster.admit_all()
        self.settled = False

    @precondition(lambda self: self.true("Admitted") and not self.true("Finished"))
    @rule(reason=st.sampled_from(["Preempted", "PodsReadyTimeout", "Deactivated"]))
    def evict(self, reason: str) -> None:
        """It has to give its quota back."""
        self.cluster.evict(reason=reason)
        self.settled = False

    @precondition(lambda self: self.cluster.workloads)
    @rule()
    def delete_workload(self) -> None:
        """The user deletes the Workload by hand."""
        self.cluster.delete(Workload, "team/ring")
        self.settled = False

    @rule()
    def collect(self) -> None:
        """The garbage collector looks."""
        self.cluster.collect()
        self.settled = False

    @invariant()
    def all_that_runs_is_paid_for(self) -> None:
        """At any moment, also between two writes of one decision."""
        assert sum(self.cluster.containers()) <= self.cluster.charged()

    @invariant()
    def nothing_starts_without_admission(self) -> None:
        """At rest a pod is started only under an admission that stands."""
        if self.settled and not (self.true("Admitted") and not self.true("Evicted") and not self.true("Finished")):
            assert not self.cluster.started()

    @invariant()
    def nothing_is_held_that_is_paid_for(self) -> None:
        """At rest, what an admission charges for and is there runs, once what ran before has left its place."""
        if not self.settled or not self.true("Admitted") or self.true("Evicted") or self.true("Finished"):
            return
        if self.cluster.workload["metadata"].get("deletionTimestamp") or self.cluster.containers():
            return
        if self.cluster.leaving() or self.changes_shape_too_early():
            return
        waiting = [n for n in self.cluster.held() if not self.cluster.pods[n]["metadata"].get("deletionTimestamp")]
        assert not waiting or self.cluster.started()

    def changes_shape_too_early(self) -> bool:
        """Whether pods wait that need another Workload, which is made when the API server says that the pods of this
        one have ended: for these it does not matter that their grace period is over."""

        def cpu(spec: Any) -> str:
            return str(spec["containers"][0]["resources"]["requests"]["cpu"])

        charged = {cpu(each["template"]["spec"]) for each in self.cluster.workload["spec"]["podSets"]}
        pods = self.cluster.pods
        others = any(cpu(pods[name]["spec"]) not in charged for name in self.cluster.held())
        return others and any(
            each["metadata"].get("deletionTimestamp") and each["status"]["phase"] == "Running" for each in pods.values()
        )

    @invariant()
    def nothing_is_left_of_a_group_that_is_gone(self) -> None:
        """At rest and without a pod, no quota is held."""
        if self.settled and not self.cluster.pods:
            assert self.cluster.charged() == 0


OneGroup.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
TestOneGroup = OneGroup.TestCase


def test_a_replacement_waits_for_pods_whose_end_no_kubelet_reported() -> None:
    """The whole group was deleted: a new pod starts when twice their grace period is over, and not before."""
    history = OneGroup()
    history.run()
    history.delete_all()
    history.later(40)
    history.create(cpu=1, claims=False, retriable=0)
    history.settle()
    history.nothing_is_held_that_is_paid_for()
    (waits,) = history.cluster.decide(GROUP).actions
    assert waits == RequeueAfter(20.0)
    assert history.cluster.held() == ["p03"]
    history.later(20)
    history.settle()
    assert history.cluster.started() == ["p03"]
    history.nothing_is_held_that_is_paid_for()


class Unlooked(OneGroup):
    """Where nothing is left to write, a change that is passed over leaves nothing to write; so does time."""

    def __init__(self) -> None:
        super().__init__()
        self.missed: list[ReconcileResult] = []
        self.latest = self.cluster.decide(GROUP)
        world = self.cluster.world
        concerned = functools.partial(wakes.job_concerned, integration=PlainPod(), options=world.options)
        world.jobs[Pod].subscribe(lambda _, *change: self.check(passed_over=not concerned(*change)))
        world.workloads.subscribe(lambda _, *change: self.check(passed_over=not wakes.owner_concerned(*change)))

    def check(self, *, passed_over: bool) -> None:
        """Decide again after one change."""
        decided = self.cluster.decide(GROUP)
        if passed_over and not writes(self.latest) and writes(decided):
            self.missed.append(decided)
        self.latest = decided

    def time_passes(self, seconds: int) -> None:
        """A look that time alone makes necessary was asked for."""
        asked = min((a.seconds for a in self.latest.actions if isinstance(a, RequeueAfter)), default=float("inf"))
        super().time_passes(seconds)
        self.check(passed_over=seconds < asked)

    @invariant()
    def nothing_is_missed(self) -> None:
        """A store does not let its subscribers fail, so what was missed is told here."""
        assert not self.missed


def writes(decision: ReconcileResult) -> bool:
    """Whether anything would be written."""
    return any(isinstance(action, Create | Patch | Delete) for action in decision.actions)


Unlooked.TestCase.settings = settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
TestUnlookedGroup = Unlooked.TestCase
