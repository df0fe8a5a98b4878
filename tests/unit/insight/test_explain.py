"""A pending Workload is explained by what the engine says, and each remedy admits it."""

import re

import msgspec
import pytest

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import preempting, settled, team, world
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Condition
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.causes import Eviction
from turnstile.insight.blockers import Holder
from turnstile.insight.explain import Explanation, explain
from turnstile.insight.remedies import Remedy
from turnstile.insight.running import PodSetRun
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, WhatIf

STATES = examples(80)


def told(snapshot: Snapshot, key: str, *, remedies: int | None = None, namespace: str = "team") -> Explanation:
    """The explanation for an asker who sees one namespace."""
    return explain(snapshot, Options(), b.NOW, key, sees=lambda each: each == namespace, remedies=remedies)


def works(snapshot: Snapshot, key: str, remedy: Remedy) -> bool:
    """Whether the Workload is admitted once the remedy was applied."""
    changed = snapshot.changed(remedy.put, [(Workload, each) for each in remedy.ends])
    state, refused = changed.state(Options(), b.NOW)
    assert not refused
    fates = [part for part in WhatIf(now=b.NOW).answer(state) if isinstance(part, Fate) and part.key == key]
    return bool(fates) and fates[-1].outcome == "admitted"


def busy(*, strategy: str = "BestEffortFIFO", waits: int = 3) -> Snapshot:
    """A queue of 4 cpus in which 2 run, and one Workload waits for more."""
    snapshot = Snapshot()
    for each in (
        team(),
        b.flavor(), b.queue("main", {"default": {"cpu": 4}}, queueingStrategy=strategy), b.local("main", "main"),
        b.held("runs", "main", {"cpu": "2"}, flavor="default"), b.workload("waits", cpu=waits, second=1),
    ):  # fmt: skip
        snapshot.put(each)
    return snapshot


def test_one_that_is_about_to_be_admitted() -> None:
    """The scheduler has not looked at it yet, and will admit it: nothing needs to be changed."""
    answer = told(busy(waits=2), "team/waits")
    assert answer.state == "pending"
    assert "the next cycles of the scheduler admit it" in answer.sentence
    assert answer.remedies == ()
    assert answer.place is not None
    assert answer.place.in_cluster_queue == 0


def test_a_job_that_waits_to_grow() -> None:
    """It runs on meanwhile: what is short is for the pods that it has not."""
    snapshot = busy()
    chain = {"kueue.x-k8s.io/workload-slice-replacement-for": "team/runs"}
    snapshot.put(b.workload("grows", cpu=1, count=9, annotations=chain))
    answer = told(snapshot, "team/grows")
    assert answer.state == "pending"
    assert answer.sentence.startswith("Growth to 9 pods: ")


def test_one_that_cannot_be_charged_for_its_devices() -> None:
    """Nothing that changes quota helps."""
    snapshot = busy()
    snapshot.put(b.workload("claims", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}))
    answer = told(snapshot, "team/claims")
    assert answer.sentence.startswith("It cannot be charged for the devices that its pods ask for")
    assert answer.remedies == ()


class TestRandomStates:
    """80 clusters in which Workloads wait, times EXAMPLES."""

    @pytest.mark.timeout(600)
    def test_there_is_a_reason_and_the_first_remedy_admits(self) -> None:
        """Of each cluster one Workload is explained."""
        explained = 0
        seed = 0
        while explained < STATES:
            snapshot, waiting = world(seed)
            if waiting:
                key = waiting[seed % len(waiting)]
                answer = told(snapshot, key, remedies=1)
                assert answer.sentence, f"seed {seed}, {key}: no reason"
                assert answer.remedies, f"seed {seed}, {key}: no remedy: {answer}"
                assert works(snapshot, key, answer.remedies[0]), f"seed {seed}, {key}: {answer.remedies[0].does}"
                explained += 1
            seed += 1

    @pytest.mark.timeout(900)
    def test_preemptors_and_their_victims(self) -> None:
        """One that starts by itself is proposed nothing; a change admits one that does not; no amount is empty."""
        starts, explained, seed = 0, 0, 0
        while explained < STATES:
            snapshot, waiting = preempting(seed)
            urgent = any(each.evicted for each in snapshot.of(Workload)) and "team/w50" in waiting and seed % 3
            key = "team/w50" if urgent else waiting[seed % len(waiting)] if waiting else ""
            seed += 1
            if not key:
                continue
            answer = told(snapshot, key, remedies=1)
            explained += 1
            case = f"seed {seed - 1}, {key}: {answer.sentence}: {[each.does for each in answer.remedies]}"
            assert answer.sentence, case
            if works(snapshot, key, Remedy("owner", "nothing")):
                assert answer.remedies == (), case
                starts += 1
                continue
            assert answer.remedies, case
            (remedy,) = answer.remedies
            assert works(snapshot, key, remedy), case
            assert not re.search(r"by ?$|by  | 0 \w|(?<![\d.])(\d\S*) (\S+) instead of \1 ", remedy.does), case
        assert starts

    @pytest.mark.parametrize("seed", range(40))
    def test_every_remedy_admits(self, seed: int) -> None:
        """Not only the first."""
        snapshot, waiting = world(seed)
        for key in waiting[:1]:
            for remedy in told(snapshot, key).remedies:
                assert works(snapshot, key, remedy), remedy.does


class TestQueuesOfOneNamespace:
    """A namespace may have many LocalQueues, in several trees of Cohorts."""

    def many(self, count: int) -> Snapshot:
        """One that waits in a full queue, and so many other queues that are free."""
        more = [(b.queue(f"q{number:02}", {"default": {"cpu": 4}}), b.local(f"q{number:02}", f"q{number:02}"))
                for number in range(count)]  # fmt: skip
        return busy().changed([each for pair in more for each in pair])

    def test_few_of_many_are_offered(self) -> None:
        """The first three by name; each admits it."""
        snapshot = self.many(5)
        answer = told(snapshot, "team/waits")
        others = [each for each in answer.remedies if each.does.startswith("submit")]
        assert [each.does for each in others] == [f"submit it to LocalQueue q{number:02}" for number in range(3)]
        assert all(works(snapshot, "team/waits", each) for each in others)

    def test_one_in_which_others_wait(self) -> None:
        """It is not offered: those that wait there would have the quota."""
        first = b.workload("first", "q00", cpu=2, second=0)
        answer = told(self.many(1).changed([first]), "team/waits")
        assert "submit it to LocalQueue q00" not in [each.does for each in answer.remedies]


class TestWhatIsTold:
    """The parts of an explanation."""

    def test_amounts_of_what_is_short(self) -> None:
        """The flavor and resource, what is asked and available, and who holds it."""
        answer = told(busy(), "team/waits")
        (blocker,) = answer.blockers
        assert (blocker.flavor, blocker.resource) == ("default", "cpu")
        assert (blocker.requested, blocker.available, blocker.nominal, blocker.used) == ("3", "2", "4", "2")
        assert blocker.holders == (Holder("main", "2"),)
        assert blocker.workloads == ("team/runs",)
        assert answer.sentence == "Waits for 1 more CPU on default nodes: asks 3, 2 free; team/runs holds it."
        assert (answer.state, answer.cluster_queue) == ("pending", "main")

    def test_one_that_is_not_looked_at_because_an_equal_one_failed(self) -> None:
        """What kept the equal one back keeps it back: the amounts are told, not that it was passed over."""
        snapshot = Snapshot()
        for each in (team(), b.flavor(), b.queue("main", {"default": {"cpu": 4}}), b.local("main", "main"),
                     *(b.workload(f"equal-{number}", cpu=3, second=number) for number in range(3))):  # fmt: skip
            snapshot.put(each)
        answer = told(snapshot, "team/equal-2")
        assert answer.message.startswith("Bypassed")
        assert answer.sentence == "Waits for 2 more CPUs on default nodes: asks 3, 1 free; team/equal-0 holds them."

    def test_the_smallest_changes(self) -> None:
        """Each is the least that is enough: 1 cpu less, 1 cpu more of quota, or the end of the Workload that runs."""
        remedies = [(each.by, each.does, each.ends) for each in told(busy(), "team/waits").remedies]
        assert remedies == [
            ("owner", "ask for 2 CPUs instead of 3 in each pod", ()),
            ("administrator", "raise the nominal quota of ClusterQueue main for default nodes by 1 CPU", ()),
            ("time", "wait: it starts when team/runs has ended", ("team/runs",)),
        ]

    def test_others_that_take_part_of_a_raised_quota(self) -> None:
        """One cpu is lacking; the Workload before it takes that of any quota that is raised, so more is proposed."""
        snapshot = busy(waits=3).changed([b.workload("before", cpu=3, second=0)])
        (more,) = (each for each in told(snapshot, "team/waits").remedies if each.does.startswith("raise"))
        assert more.does.endswith("by 4 CPUs")
        assert more.takers == ("team/before",)

    def test_many_that_take_part_of_a_raised_quota(self) -> None:
        """The first of them by name; how many more there are, and how many in other namespaces, is said."""
        before = [b.workload(f"before-{number}", cpu=3, second=0) for number in range(8)]
        elsewhere = [
            team("elsewhere"),
            b.local("main", "main", "elsewhere"),
            b.workload("x", cpu=3, namespace="elsewhere"),
        ]
        snapshot = busy(waits=3).changed([*before, *elsewhere])
        (more,) = (each for each in told(snapshot, "team/waits").remedies if each.does.startswith("raise"))
        assert len(more.takers) == 7
        assert more.takers[5:] == ("3 more", "a Workload of another namespace")

    def test_names_of_other_namespaces_are_hidden(self) -> None:
        """An asker who may not see the namespace of a Workload learns only that there is one."""
        snapshot = busy().changed([b.workload("first", cpu=3, second=0)])
        answer = told(snapshot, "team/waits", namespace="elsewhere")
        assert answer.place is not None
        assert (answer.place.in_cluster_queue, answer.place.before, answer.place.hidden) == (1, (), 1)
        words = [each for remedy in answer.remedies for each in (remedy.does, *remedy.ends, *remedy.preempts)]
        assert not [each for each in (answer.sentence, *words) if "team/" in each]

    def test_the_line_of_a_strict_queue(self) -> None:
        """A Workload that would fit waits for those before it."""
        snapshot, _ = settled(busy(strategy="StrictFIFO").changed([b.workload("small", cpu=1, second=2)]))
        answer = told(snapshot, "team/small")
        assert answer.place is not None
        assert answer.place.before == ("team/waits",)
        assert answer.sentence.startswith("1 Workload is before it in ClusterQueue main, which is StrictFIFO")
        assert answer.remedies

    def test_a_stopped_queue(self) -> None:
        """The remedy is to resume it."""
        stopped = b.queue("main", {"default": {"cpu": 9}}, stopPolicy="Hold")
        answer = told(busy().changed([stopped]), "team/waits")
        assert answer.sentence == "ClusterQueue main is stopped (stopPolicy Hold)."
        assert [each.does for each in answer.remedies] == ["resume ClusterQueue main: set its stopPolicy to None"]

    def test_a_queue_that_admits_nothing(self) -> None:
        """The reason is named, not that the queue is inactive."""
        queue = b.queue("main", {"default": {"cpu": 4}, "spot": {"cpu": 4}})
        answer = told(busy().changed([queue]), "team/waits")
        assert answer.sentence == "ClusterQueue main admits nothing: there is no ResourceFlavor spot."
        assert answer.remedies[0].does == "create ResourceFlavor spot"

    def test_one_that_was_deactivated_and_still_gives_its_quota_back(self) -> None:
        """Kueue's sentence is not shown, and it does not wait again."""
        runs = b.held("runs", "main", {"cpu": "2"}, flavor="default")
        message = f"{Eviction.DEACTIVATED.says()} due to {Eviction.TIME_USED_UP.says()}"
        condition = {"type": "Evicted", "status": "True", "reason": "Deactivated", "message": message}
        runs.status.conditions.append(msgspec.convert(condition, Condition))
        runs.spec.active = False
        answer = told(busy().changed([runs]), "team/runs")
        assert answer.message == message
        assert answer.sentence == "Deactivated: it ran for as long as its maximum execution time."

    def test_a_queue_that_does_not_exist(self) -> None:
        """The remedy is one that does."""
        answer = told(busy().changed([b.workload("lost", "nowhere", cpu=1, second=3)]), "team/lost")
        assert answer.sentence == "LocalQueue nowhere does not exist in namespace team."
        assert answer.remedies[0].does == "submit it to LocalQueue main"

    def test_a_node_selector_that_no_flavor_fits(self) -> None:
        """The flavor was not tried, and is a remedy."""
        snapshot = busy().changed([b.flavor("default", nodeLabels={"pool": "a"})])
        picky = b.workload("picky", cpu=1, second=3, spec={"nodeSelector": {"pool": "b"}})
        answer = told(snapshot.changed([picky]), "team/picky")
        assert [each.partition(":")[0] for each in answer.skipped_flavors] == ["default"]
        assert answer.remedies[0].does.startswith("let its pods run on default nodes")

    def test_one_that_runs(self) -> None:
        """Nothing blocks it; since when it runs, on which quota, and how much it has used are told."""
        answer = told(busy(), "team/runs")
        assert (answer.state, answer.blockers, answer.remedies) == ("admitted", (), ())
        assert answer.run is not None
        assert answer.run.pod_sets == (PodSetRun("main", 1, 0, ("default",)),)

    def test_one_that_does_not_exist(self) -> None:
        """The error says where to look."""
        with pytest.raises(InvalidValue, match="there is no such Workload"):
            told(busy(), "team/nothing")


class TestAmounts:
    """What is proposed is what is free, to the unit."""

    def asks(self, pods: int, **requests: str) -> Snapshot:
        """A Workload that asks a queue for more than it has: 40 cpus, 96Gi of memory and 10 GPUs."""
        quota = {"cpu": 40, "memory": "96Gi", "nvidia.com/gpu": 10}
        container = {"name": "c", "resources": {"requests": {each.replace("gpu", "nvidia.com/gpu"): amount
                                                             for each, amount in requests.items()}}}  # fmt: skip
        pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
        snapshot = Snapshot()
        for each in (
            team(), b.flavor(), b.queue("main", {"default": quota}), b.local("main", "main"),
            b.changed(b.workload("wide"), spec={"podSets": [pod_set]}),
        ):  # fmt: skip
            snapshot.put(each)
        return snapshot

    @pytest.mark.parametrize(
        ("pods", "requests", "does"),
        [
            (1, {"cpu": "48"}, "ask for 40 CPUs instead of 48"),
            (1, {"memory": "128Gi"}, "ask for 96Gi of memory instead of 128Gi"),
            (3, {"cpu": "14"}, "ask for 13.333 CPUs instead of 14"),
            (1, {"cpu": "48", "memory": "128Gi", "gpu": "12"},
             "ask for 10 GPUs instead of 12, 40 CPUs instead of 48 and 96Gi of memory instead of 128Gi"),
        ],
    )  # fmt: skip
    def test_the_free_amount(self, pods: int, requests: dict[str, str], does: str) -> None:
        """In the unit that people write."""
        answer = told(self.asks(pods, **requests), "team/wide")
        found = [each.does for each in answer.remedies if each.does.startswith("ask for")]
        assert [each.partition(" in each pod")[0] for each in found] == [does]
