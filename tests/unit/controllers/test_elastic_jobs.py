"""A Job that changes its parallelism while it runs: its slices, its quota and the gates of its pods."""

from datetime import datetime
from typing import Any

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE, Body, Cluster
from turnstile.api.conditions import timestamp
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Delete, RequeueAfter
from turnstile.controllers.workloads import heldpods
from turnstile.jobs.options import JobOptions, PodsReadyOptions

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
GATE = {"name": "kueue.x-k8s.io/elastic-job"}
GATED: Body = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "schedulingGates": [GATE]}}


class Elastic(Cluster):
    """An elastic Job that ran with two pods, unless a test says otherwise."""

    @property
    def names(self) -> list[str]:
        """Names of the unfinished slices, from the first to the last."""
        unfinished = [each for each in self.workloads if "Finished" not in self.conditions(each)]
        unfinished.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        made = {each["metadata"]["name"]: self.made.index(each["metadata"]["name"]) for each in unfinished}
        return sorted(made, key=lambda name: made[name])

    @property
    def made(self) -> list[str]:
        """Names of all slices in the order in which they were created."""
        notes = (note for reason, note in self.events if reason == "CreatedWorkload")
        return [note.rpartition("/")[2] for note in notes]

    def slice(self, name: str) -> Body:
        """A slice."""
        found = self.get(Workload, f"team/{name}")
        assert found is not None
        return found

    @staticmethod
    def conditions(workload: Body) -> dict[str, str]:
        """The reasons of the conditions that are True, by type."""
        found = workload.get("status", {}).get("conditions", [])
        return {each["type"]: each["reason"] for each in found if each["status"] == "True"}

    def counts(self) -> dict[str, int]:
        """Pods that each unfinished slice is for."""
        return {name: self.slice(name)["spec"]["podSets"][0]["count"] for name in self.names}

    def let_in(self, name: str, *kinds: str) -> None:
        """The scheduler's write: admitted, or with these conditions."""
        count = self.slice(name)["spec"]["podSets"][0]["count"]
        self.say(name, *(kinds or ("QuotaReserved", "Admitted")))
        usage = {"name": "main", "flavors": {"cpu": "default"}, "count": count, "resourceUsage": {"cpu": str(count)}}
        admission = {"clusterQueue": "cq", "podSetAssignments": [usage]}
        self.patch(Workload, f"team/{name}", {"status": {"admission": admission}})

    def say(self, name: str, *kinds: str, reason: str = "ByTest") -> None:
        """Set conditions of a slice."""
        known = self.slice(name).get("status", {}).get("conditions", [])
        at = "2026-01-02T03:04:00Z"
        told = {"status": "True", "reason": reason, "message": "", "lastTransitionTime": at}
        more = [{"type": kind, **told} for kind in kinds]
        status = {"conditions": [*(each for each in known if each["type"] not in kinds), *more]}
        self.patch(Workload, f"team/{name}", {"status": status})

    def scale(self, parallelism: int) -> None:
        """The user changes the Job; the reconciler follows."""
        self.patch(Job, "team/train", {"spec": {"parallelism": parallelism}})
        self.settle()

    def pods(self, *running: str, gated: tuple[str, ...] = (), made: datetime | None = None) -> None:
        """The pods that the Job controller has made by now, those that are gated at a time if that matters."""
        job = self.get(Job, "team/train")
        assert job is not None
        uid = job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
        template = job["spec"]["template"]
        for pod in [each for each in self.pod_names if each not in (*running, *gated)]:
            self.delete(Pod, f"team/{pod}", grace_seconds=0)
        for name in (*running, *gated):
            meta = {**template["metadata"], "name": name, "namespace": "team", "ownerReferences": [owner]}
            if name in gated and made is not None:
                meta["creationTimestamp"] = timestamp(made)
            held = {"schedulingGates": [GATE]} if name in gated else {"schedulingGates": [], "nodeName": "node"}
            self.put(Pod, {"metadata": meta, "spec": {**template["spec"], **held}, "status": {"phase": "Running"}})

    @property
    def pod_names(self) -> list[str]:
        """Names of the pods."""
        keys = self.world.pods.keys()
        return [key.rpartition("/")[2] for key in keys]

    def lift(self, name: str) -> set[str]:
        """The Workload's reconciler lifts gates; the names of the pods that it lets run."""
        workload = self.world.workloads.get(f"team/{name}")
        assert workload is not None
        decision = heldpods.lift(workload, self.world)
        for action in decision.actions if decision is not None else ():
            self.act(action)
        return {name for name in self.pod_names if not self.gates(name)}

    def stop_surplus(self, name: str) -> list[str]:
        """The Workload's reconciler deletes pods that its slice does not charge for; their names."""
        workload = self.world.workloads.get(f"team/{name}")
        assert workload is not None
        decision = heldpods.stop_surplus(workload, self.world)
        return [each.name for each in (decision.actions if decision is not None else ()) if isinstance(each, Delete)]

    def gates(self, pod: str) -> list[Any]:
        """The gates of a pod."""
        found = self.get(Pod, f"team/{pod}")
        assert found is not None
        return found["spec"].get("schedulingGates") or []


@pytest.fixture
def cluster() -> Elastic:
    """A Job that runs with two pods."""
    made = Elastic()
    made.flavor(nodeLabels={"pool": "a"})
    made.job(parallelism=2, completions=100, annotations=ELASTIC, template=GATED)
    made.settle()
    made.let_in(made.names[0])
    made.settle()
    made.pods("a", "b")
    return made


def test_its_first_slice_says_so(cluster: Elastic) -> None:
    """By Kueue's annotations; the pods name the chain."""
    (name,) = cluster.names
    marks = cluster.slice(name)["metadata"]["annotations"]
    assert marks == {**ELASTIC, "kueue.x-k8s.io/workload-slice-name": name}
    job = cluster.get(Job, "team/train")
    assert job is not None
    assert job["spec"]["suspend"] is False
    said = job["spec"]["template"]["metadata"]["annotations"]
    assert said == {"kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/workload-slice-name": name}
    assert job["spec"]["template"]["spec"]["schedulingGates"] == [GATE]


def test_a_start_adds_the_gate_that_no_webhook_added() -> None:
    """No webhook was called for the Job."""
    cluster = Elastic()
    cluster.flavor()
    cluster.job(parallelism=2, annotations=ELASTIC)
    cluster.settle()
    cluster.let_in(cluster.names[0])
    cluster.settle()
    job = cluster.get(Job, "team/train")
    assert job is not None
    assert job["spec"]["template"]["spec"]["schedulingGates"] == [GATE]


class TestGrowth:
    """More pods need another slice."""

    def test_is_a_second_slice_while_the_first_runs_on(self, cluster: Elastic) -> None:
        """However long it waits."""
        (first,) = cluster.names
        cluster.scale(5)
        first_now, second = cluster.names
        assert first_now == first
        assert cluster.counts() == {first: 2, second: 5}
        marks = cluster.slice(second)["metadata"]["annotations"]
        assert marks["kueue.x-k8s.io/workload-slice-replacement-for"] == f"team/{first}"
        assert marks["kueue.x-k8s.io/workload-slice-name"] == first
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False

    def test_asks_for_the_pods_as_they_were_before_the_admission(self, cluster: Elastic) -> None:
        """It may get another flavor, if the job has to start again."""
        cluster.scale(5)
        first, second = (cluster.slice(name)["spec"]["podSets"][0]["template"] for name in cluster.names)
        assert first == second

    def test_its_admission_ends_the_first_slice(self, cluster: Elastic) -> None:
        """With Kueue's reason."""
        (first,) = cluster.names
        cluster.scale(5)
        second = cluster.names[1]
        cluster.let_in(second)
        cluster.settle()
        assert cluster.names == [second]
        assert cluster.conditions(cluster.slice(first))["Finished"] == "WorkloadSliceReplaced"

    def test_pods_run_as_far_as_the_admitted_slice_charges(self, cluster: Elastic) -> None:
        """And get their flavor's labels with that."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.pods("a", "b", gated=("c", "d"))
        assert cluster.lift(first) == {"a", "b"}
        cluster.let_in(second)
        cluster.settle()
        assert cluster.lift(second) == {"a", "b", "c", "d"}
        pod = cluster.get(Pod, "team/c")
        assert pod is not None
        assert pod["spec"]["nodeSelector"] == {"pool": "a"}

    def test_changes_its_mind_while_it_waits(self, cluster: Elastic) -> None:
        """The slice that waits gets other numbers; no third one is made."""
        cluster.scale(5)
        cluster.scale(8)
        assert list(cluster.counts().values()) == [2, 8]
        cluster.scale(3)
        assert list(cluster.counts().values()) == [2, 3]

    def test_twice_in_a_row(self, cluster: Elastic) -> None:
        """Each slice takes the place of the one before."""
        cluster.scale(4)
        second = cluster.names[1]
        cluster.let_in(second)
        cluster.scale(6)
        assert cluster.names[0] == second
        third = cluster.names[1]
        assert cluster.counts() == {second: 4, third: 6}
        cluster.let_in(third)
        cluster.settle()
        assert cluster.names == [third]

    def test_that_waits_for_a_check_leaves_the_first_slice(self, cluster: Elastic) -> None:
        """Kueue finishes it when the second has quota; if the check fails, the job stops."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.let_in(second, "QuotaReserved")
        cluster.settle()
        assert cluster.names == [first, second]
        cluster.say(second, "Evicted", reason="AdmissionCheck")
        cluster.settle()
        assert cluster.names == [first, second]
        assert "QuotaReserved" not in cluster.conditions(cluster.slice(second))
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False

    def test_a_new_leader_goes_on_between_admission_and_finish(self, cluster: Elastic) -> None:
        """The write that ended the first slice was lost."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.let_in(second)
        cluster.step(only=0)
        assert cluster.names == [first, second]
        cluster.settle()
        assert cluster.names == [second]

    @pytest.mark.parametrize("ready", [True, False])
    def test_that_waits_leaves_the_job_as_ready_as_its_pods(self, ready: bool) -> None:
        """Otherwise waitForPodsReady would evict a job because its growth has to wait."""
        cluster = Elastic(options=JobOptions(pods_ready=PodsReadyOptions(timeout=300.0, recovery_timeout=60.0)))
        cluster.flavor()
        cluster.job(parallelism=2, completions=100, annotations=ELASTIC, template=GATED)
        cluster.settle()
        (first,) = cluster.names
        cluster.let_in(first)
        cluster.settle()
        cluster.patch(Job, "team/train", {"status": {"active": 2, "ready": 2}})
        cluster.pods("a", "b", gated=("c", "d"))
        for name in ("a", "b") if ready else ("a",):
            cluster.patch(Pod, f"team/{name}", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        cluster.settle()
        assert "PodsReady" in cluster.conditions(cluster.slice(first))
        cluster.scale(4)
        assert ("PodsReady" in cluster.conditions(cluster.slice(first))) is ready

    def test_finished_slices_do_not_pile_up(self, cluster: Elastic) -> None:
        """Kueue keeps them all."""
        for parallelism in range(3, 12):
            cluster.scale(parallelism)
            cluster.let_in(cluster.names[-1])
            cluster.settle()
        assert len(cluster.workloads) == 4
        assert len(cluster.names) == 1


class TestShrinking:
    """Quota follows pods."""

    def test_gives_quota_back_when_the_pods_have_gone(self, cluster: Elastic) -> None:
        """Kueue gives it back at once."""
        (only,) = cluster.names
        cluster.scale(1)
        assert cluster.counts() == {only: 2}
        assert any(isinstance(each, RequeueAfter) for each in cluster.decide().actions)
        cluster.pods("a")
        cluster.settle()
        assert cluster.counts() == {only: 1}

    def test_gated_pods_hold_nothing(self, cluster: Elastic) -> None:
        """They never ran."""
        (only,) = cluster.names
        cluster.pods("a", gated=("b",))
        cluster.scale(1)
        assert cluster.counts() == {only: 1}

    def test_a_gate_that_may_be_lifted_at_this_moment_holds_quota(self, cluster: Elastic) -> None:
        """Of a new pod: the slice does not shrink below it until its gate is known to stay. One that waits for long, or
        is being deleted, holds nothing."""
        (only,) = cluster.names
        cluster.pods("a", gated=("b",), made=cluster.now)
        cluster.scale(1)
        assert cluster.counts() == {only: 2}
        assert any(isinstance(each, RequeueAfter) for each in cluster.decide().actions)
        cluster.later(seconds=6)
        cluster.settle()
        assert cluster.counts() == {only: 1}

    def test_no_gate_is_lifted_for_a_pod_that_the_job_does_not_ask_for_any_more(self, cluster: Elastic) -> None:
        """The slice is to shrink. If the job asks for the pod again before it has, it runs; the Workload, which does
        not change by that, is reconciled again for it."""
        (only,) = cluster.names
        cluster.pods("a", gated=("b",), made=cluster.now)
        cluster.patch(Job, "team/train", {"spec": {"parallelism": 1}})
        assert cluster.lift(only) == {"a"}
        workload = cluster.world.workloads.get(f"team/{only}")
        assert workload is not None
        decision = heldpods.lift(workload, cluster.world)
        assert decision is not None
        assert [type(each) for each in decision.actions] == [RequeueAfter]
        cluster.patch(Job, "team/train", {"spec": {"parallelism": 2}})
        assert cluster.lift(only) == {"a", "b"}

    def test_a_gate_that_was_lifted_in_the_same_moment_gains_nothing(self, cluster: Elastic) -> None:
        """The pod that runs beyond what the slice charges for goes, also while the job waits to grow again."""
        (only,) = cluster.names
        cluster.pods("a", gated=("b",))
        cluster.scale(1)
        cluster.pods("a", "b")
        assert cluster.stop_surplus(only) == ["b"]
        cluster.scale(9)
        assert cluster.counts()[only] == 1
        assert cluster.stop_surplus(only) == ["b"]

    def test_pods_of_a_slice_that_was_replaced_stay(self, cluster: Elastic) -> None:
        """The slice in its place charges for them, before the first is finished."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.let_in(second)
        cluster.pods("a", "b", "c", "d")
        assert cluster.stop_surplus(first) == []
        assert cluster.stop_surplus(second) == []


class TestEviction:
    """The whole job goes."""

    def test_the_quota_stays_until_the_pods_are_gone(self, cluster: Elastic) -> None:
        """The slice that waits takes over then, in full."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.say(first, "Evicted", reason="Preempted")
        cluster.step()
        cluster.step()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is True
        assert cluster.names == [first, second]
        assert cluster.conditions(cluster.slice(first))["QuotaReserved"]
        cluster.pods()
        cluster.settle()
        assert cluster.names == [second]
        assert cluster.counts() == {second: 4}

    def test_without_growth_the_slice_waits_again(self, cluster: Elastic) -> None:
        """With the numbers that the job has by then."""
        (first,) = cluster.names
        cluster.say(first, "Evicted", reason="Preempted")
        cluster.settle()
        cluster.pods()
        cluster.settle()
        cluster.scale(7)
        assert cluster.counts() == {first: 7}

    def test_it_starts_again_with_the_slice_that_waited(self, cluster: Elastic) -> None:
        """The template names that one."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.say(first, "Evicted", reason="Preempted")
        cluster.settle()
        cluster.pods()
        cluster.settle()
        cluster.let_in(second)
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        assert annotations["kueue.x-k8s.io/workload"] == second
        assert annotations["kueue.x-k8s.io/workload-slice-name"] == first


class TestTheEnd:
    """The job ends, or has no gates."""

    def test_the_slice_that_waited_ends_with_the_job(self, cluster: Elastic) -> None:
        """And takes no quota any more."""
        cluster.scale(4)
        first, second = cluster.names
        cluster.pods()
        ended = [{"type": "Complete", "status": "True", "message": "done"}]
        cluster.patch(Job, "team/train", {"status": {"conditions": ended, "active": 0}})
        cluster.settle()
        assert cluster.conditions(cluster.slice(first))["Finished"] == "Succeeded"
        assert cluster.conditions(cluster.slice(second))["Finished"] == "OutOfSync"

    def test_a_job_without_gates_stops_when_it_grows(self, cluster: Elastic) -> None:
        """Its new pods would run without quota."""
        job = cluster.get(Job, "team/train")
        assert job is not None
        job["spec"]["template"]["spec"].pop("schedulingGates")
        cluster.put(Job, job)
        cluster.patch(Job, "team/train", {"spec": {"parallelism": 5}})
        cluster.step()
        stopped = cluster.get(Job, "team/train")
        assert stopped is not None
        assert stopped["spec"]["suspend"] is True
