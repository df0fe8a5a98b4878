"""The pods of a PipelineRun share what the run has reserved: started oldest first, deleted beyond it."""

from typing import Any

import msgspec
import pytest

from tests.unit.controllers.job_cluster import Body, Cluster
from turnstile.api.core import LimitRange, Pod
from turnstile.api.meta import to_plain
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import Domain, encode
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Create, Delete, Patch
from turnstile.jobs.kinds.pipelinerun.run import PipelineRun

RUN = "tekton.dev/pipelinerun:team/build"
GATE = {"name": "kueue.x-k8s.io/admission"}
TOPOLOGY_GATE = {"name": "kueue.x-k8s.io/topology"}


def task(name: str, cpu: str, **more: Any) -> Body:
    """An embedded task of one step."""
    return {"name": name, "taskSpec": {"steps": [{"computeResources": {"requests": {"cpu": cpu}}}]}, **more}


def place(node: str, pods: int) -> Body:
    """The topology assignment of a pod set on a node, if there is one."""
    return {"topologyAssignment": to_plain(encode([HOSTNAME], [Domain((node,), pods)]))} if node else {}


class Runs(Cluster):
    """A namespace with the run `build`, and what Tekton makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.flavor(nodeLabels={"pool": "a"})

    def run(self, *tasks: Body, annotations: Body | None = None, **spec: Any) -> None:
        """A run as the webhook leaves it."""
        meta = {
            "name": "build",
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "tekton.dev/pipelinerun", **(annotations or {})},
        }
        body = {"status": "PipelineRunPending", "pipelineSpec": {"tasks": list(tasks)}, **spec}
        self.put(PipelineRun, {"metadata": meta, "spec": body})

    def admitted(self, *tasks: Body, node: str = "", **more: Any) -> None:
        """A run that was admitted, on a node where the flavor has a topology, and that Tekton has begun."""
        self.run(*tasks, **more)
        self.settle(RUN)
        self.admit_all(node=node)
        self.settle(RUN)
        self.patch(PipelineRun, "team/build", {"status": {"startTime": "2026-01-02T03:04:05Z"}})

    def admit_all(self, *, counted: bool = False, node: str = "") -> None:
        """The scheduler's write for all pod sets; `counted`: pods have a quota too. In a topology all get one node."""
        flavors = {"cpu": "default", **({"pods": "default"} if counted else {})}
        sets = self.workload["spec"]["podSets"]
        assignments = [
            {
                "name": each["name"],
                "flavors": flavors,
                "count": each["count"],
                **(place(node, each["count"]) if node else {}),
            }
            for each in sets
        ]
        admission = {"clusterQueue": "cq", "podSetAssignments": assignments}
        self.patch(Workload, self.workload_key, {"status": {"admission": admission}})
        for kind in ("QuotaReserved", "Admitted"):
            self.set_condition(kind)

    def task_pod(self, name: str, cpu: str, *, gated: bool = True, run: str = "build", **spec: Any) -> None:
        """The pod of a TaskRun, with the labels and annotations of its run, as the webhook leaves it."""
        meta = {
            "name": name,
            "namespace": "team",
            "creationTimestamp": f"2026-01-02T03:00:{len(self.pods):02}Z",
            "labels": {"kueue.x-k8s.io/queue-name": "main", "tekton.dev/pipelineRun": run},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "tekton.dev/pipelinerun"},
        }
        container = {"name": "step", "resources": {"requests": {"cpu": cpu}}}
        gates = [GATE, TOPOLOGY_GATE] if gated else []
        self.put(Pod, {"metadata": meta, "spec": {"containers": [container], "schedulingGates": gates, **spec}})

    @property
    def pods(self) -> list[str]:
        """Names of the pods that are not being deleted."""
        return [key.partition("/")[2] for kind, key in self._bodies if kind is Pod]

    def held(self) -> list[str]:
        """Names of gated pods."""
        return [name for name in self.pods if self.pod_of(name)["spec"].get("schedulingGates")]

    def pod_of(self, name: str) -> Body:
        """A pod."""
        found = self.get(Pod, f"team/{name}")
        assert found is not None
        return found

    @property
    def run_status(self) -> str:
        """`spec.status` of the run."""
        found = self.get(PipelineRun, "team/build")
        assert found is not None
        return str(found["spec"].get("status", ""))


@pytest.fixture
def runs() -> Runs:
    """Nothing runs."""
    return Runs()


def needs(runs: Runs) -> list[tuple[str, int, str]]:
    """Name, count and CPUs of each pod set of the Workload."""
    return [
        (each["name"], each["count"], each["template"]["spec"]["containers"][0]["resources"]["requests"].get("cpu", ""))
        for each in runs.workload["spec"]["podSets"]
    ]


def test_one_workload_for_what_the_tasks_need_at_a_time(runs: Runs) -> None:
    """Tasks in a row need as much as the largest level of them."""
    runs.run(task("fetch", "1"), task("unit", "2", runAfter=["fetch"]), task("lint", "500m", runAfter=["fetch"]))
    runs.settle(RUN)
    assert needs(runs) == [("main", 1, "2500m"), ("parallel", 1, "0")]
    assert runs.run_status == "PipelineRunPending"


def test_annotations_say_what_is_needed(runs: Runs) -> None:
    """As for tekton-kueue, in place of what the tasks request."""
    prefix = "kueue.konflux-ci.dev/requests-"
    runs.run(task("a", "1"), annotations={f"{prefix}cpu": "4", f"{prefix}pods": "3"})
    runs.settle(RUN)
    assert needs(runs) == [("main", 1, "4"), ("parallel", 2, "0")]


def test_admitted_the_run_begins(runs: Runs) -> None:
    """Nothing of its spec changes but that it is pending no more."""
    runs.run(task("a", "1"))
    runs.settle(RUN)
    runs.writes.clear()
    runs.admit_all()
    runs.settle(RUN)
    assert (runs.writes, runs.run_status) == (["patch PipelineRun"], "")


def test_pods_start_on_nodes_of_the_flavor_within_what_is_reserved(runs: Runs) -> None:
    """The oldest first; what does not fit waits until another pod has ended."""
    runs.admitted(task("a", "1"), task("b", "1"))
    for name in ("a", "b", "more"):
        runs.task_pod(name, "1")
        runs.decide(f"pod:team/{name}")
    runs.settle(RUN)
    assert runs.held() == ["more"]
    assert runs.pod_of("a")["spec"]["nodeSelector"] == {"pool": "a"}
    assert runs.pod_of("a")["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == runs.workload["metadata"]["name"]
    runs.patch(Pod, "team/a", {"status": {"phase": "Succeeded"}})
    runs.settle(RUN)
    assert runs.held() == []


def test_in_a_topology_its_pods_share_the_place_of_the_run(runs: Runs) -> None:
    """All of them run on the node of the pod set that has all requests: no gate holds the second."""
    runs.admitted(task("lint", "1"), task("unit", "1"), node="n1")
    for name in ("lint", "unit"):
        runs.task_pod(name, "1")
    runs.settle(RUN)
    assert runs.held() == []
    for name in ("lint", "unit"):
        assert runs.pod_of(name)["spec"]["nodeSelector"] == {"pool": "a", HOSTNAME: "n1"}


def test_on_a_failed_node_its_pods_wait_for_another_one(runs: Runs) -> None:
    """The Workload names the node that failed until it has another one."""
    runs.admitted(task("lint", "1"), task("unit", "1"), node="n1")
    runs.task_pod("lint", "1")
    runs.patch(Workload, runs.workload_key, {"status": {"unhealthyNodes": [{"name": "n1"}]}})
    runs.settle(RUN)
    assert runs.held() == ["lint"]
    runs.admit_all(node="n2")
    runs.patch(Workload, runs.workload_key, {"status": {"unhealthyNodes": None}})
    runs.settle(RUN)
    assert runs.pod_of("lint")["spec"]["nodeSelector"] == {"pool": "a", HOSTNAME: "n2"}


def test_no_pod_of_the_run_gets_a_workload(runs: Runs) -> None:
    """One Workload a run."""
    runs.admitted(task("a", "1"))
    for name in ("a", "b"):
        runs.task_pod(name, "1")
        runs.settle(f"pod:team/{name}")
    assert len(runs.workloads) == 1


def test_a_pod_larger_than_the_run_is_queued_by_itself(runs: Runs) -> None:
    """The pod of a task that is only referred to, say; the run's own pods go on."""
    runs.admitted(task("a", "1"), {"name": "deploy", "taskRef": {"name": "deploy"}})
    runs.task_pod("deploy", "2")
    runs.task_pod("a", "1")
    runs.settle(RUN)
    runs.settle("pod:team/deploy")
    assert runs.held() == ["deploy"]
    assert sorted(each["metadata"]["ownerReferences"][0]["kind"] for each in runs.workloads) == ["PipelineRun", "Pod"]


def test_pods_are_counted_where_they_have_a_quota(runs: Runs) -> None:
    """A pod that requests nothing is a pod all the same."""
    runs.run(task("a", "1"), task("b", "1"))
    runs.settle(RUN)
    runs.admit_all(counted=True)
    runs.settle(RUN)
    for name in ("a", "b", "c"):
        runs.task_pod(name, "0")
    runs.settle(RUN)
    assert runs.held() == ["c"]


@pytest.mark.parametrize("name", ["z", "0"])
@pytest.mark.parametrize("others", [1, 2])
def test_a_pod_whose_gate_was_lifted_is_deleted(runs: Runs, name: str, others: int) -> None:
    """Whether it fits or not, and whatever its name and age are; the others run on."""
    runs.admitted(task("a", "1"), task("b", "1"))
    runs.task_pod(name, "1", gated=False)
    for each in ("a", "b")[:others]:
        runs.task_pod(each, "1")
    decision = runs.step(RUN)
    assert [each.name for each in decision.actions if isinstance(each, Delete)] == [name]
    assert ("Stopped", "The Workload of PipelineRun build does not charge for it") in runs.events
    runs.settle(RUN)
    assert runs.held() == []


def test_the_youngest_pods_are_deleted_beyond_what_is_reserved(runs: Runs) -> None:
    """A tenant has said of a pod that it was started."""
    runs.admitted(task("a", "1"))
    runs.task_pod("a", "1")
    runs.settle(RUN)
    runs.task_pod("b", "1", gated=False)
    charged = {"kueue.x-k8s.io/workload": runs.workload["metadata"]["name"]}
    runs.patch(Pod, "team/b", {"metadata": {"annotations": charged}})
    decision = runs.step(RUN)
    assert [each.name for each in decision.actions if isinstance(each, Delete)] == ["b"]


def test_a_pod_that_lost_the_name_of_its_run_still_counts(runs: Runs) -> None:
    """By the Workload that it was started for."""
    runs.admitted(task("a", "1"))
    runs.task_pod("a", "1")
    runs.settle(RUN)
    runs.patch(Pod, "team/a", {"metadata": {"labels": {"tekton.dev/pipelineRun": None}}})
    runs.task_pod("b", "1")
    runs.settle(RUN)
    assert runs.held() == ["b"]


def test_a_run_that_was_not_admitted_is_cancelled_and_runs_no_pod(runs: Runs) -> None:
    """Its tenant has removed that it is pending, and lifted a gate."""
    runs.run(task("a", "1"))
    runs.settle(RUN)
    runs.patch(PipelineRun, "team/build", {"spec": {"status": None}})
    runs.task_pod("a", "1")
    runs.task_pod("b", "1", gated=False)
    decision = runs.step(RUN)
    assert [each.name for each in decision.actions if isinstance(each, Delete)] == ["b"]
    assert runs.run_status == "CancelledRunFinally"
    assert runs.held() == ["a"]


def test_a_preempted_run_is_cancelled_and_its_finally_tasks_run(runs: Runs) -> None:
    """It keeps its quota until it has ended; then its Workload has failed, and is not queued again."""
    runs.admitted(task("a", "1"))
    runs.task_pod("a", "1")
    runs.settle(RUN)
    runs.evict()
    runs.settle(RUN)
    assert runs.run_status == "CancelledRunFinally"
    runs.patch(Pod, "team/a", {"status": {"phase": "Failed"}})
    runs.task_pod("last", "1")
    runs.settle(RUN)
    assert runs.held() == []
    assert runs.condition("QuotaReserved") == ("True", "ByTest", "")
    runs.patch(Pod, "team/last", {"spec": {"nodeName": "node"}, "metadata": {"finalizers": ["example.com/stops"]}})
    ended = {"type": "Succeeded", "status": "False", "reason": "Cancelled", "message": "cancelled"}
    runs.patch(PipelineRun, "team/build", {"status": {"conditions": [ended]}})
    runs.settle(RUN)
    assert runs.condition("Finished") is None
    last = runs.get(Pod, "team/last")
    assert last is not None
    assert "deletionTimestamp" in last["metadata"]
    runs.patch(Pod, "team/last", {"status": {"phase": "Succeeded"}})
    runs.settle(RUN)
    finished = runs.condition("Finished")
    assert finished is not None
    assert finished[1:] == ("Failed", "cancelled")


def test_pods_of_a_run_that_has_ended_are_queued_by_themselves(runs: Runs) -> None:
    """And so are those that name a run that does not exist."""
    runs.admitted(task("a", "1"))
    ended = {"type": "Succeeded", "status": "True"}
    runs.patch(PipelineRun, "team/build", {"status": {"conditions": [ended]}})
    runs.settle(RUN)
    runs.task_pod("late", "1")
    runs.task_pod("stray", "1", run="none")
    for name in ("late", "stray"):
        assert any(isinstance(each, Create) for each in runs.decide(f"pod:team/{name}").actions)


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "succeeded"])
def test_a_pod_without_a_controller_ends_with_the_run(runs: Runs, deleted: bool) -> None:
    """A tenant gives it all marks of a pod of the run. Tekton ends the others; it would hold the quota for ever."""
    runs.admitted(task("one", "1"))
    runs.task_pod("of-the-run", "1")
    runs.settle(RUN)
    marks = {name: runs.pod_of("of-the-run")["metadata"][name] for name in ("labels", "annotations")}
    owner = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "one", "uid": "uid-one", "controller": True}
    runs.patch(Pod, "team/of-the-run", {"metadata": {"ownerReferences": [owner]}, "spec": {"nodeName": "node"}})
    runs.put(Pod, {"metadata": {"name": "stranger", "namespace": "team", **marks}, "spec": {"nodeName": "node"}})
    if deleted:
        runs.delete(PipelineRun, "team/build")
    else:
        ended = {"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": ""}
        runs.patch(PipelineRun, "team/build", {"status": {"conditions": [ended]}})
    runs.settle(RUN)
    assert runs.pods == ["of-the-run"]


def test_a_pod_that_contradicts_the_flavor_waits_with_a_warning(runs: Runs) -> None:
    """The others start."""
    runs.admitted(task("a", "1"), task("b", "1"))
    runs.task_pod("a", "1", nodeSelector={"pool": "b"})
    runs.task_pod("b", "1")
    decision = runs.decide(RUN)
    assert [each.name for each in decision.actions if isinstance(each, Patch)] == ["b"]
    runs.step(RUN)
    assert any(reason == "CannotStart" for reason, _ in runs.events)


def test_a_pod_that_exists_requests_what_it_states(runs: Runs) -> None:
    """A LimitRange that came after the pods adds nothing to them: the API server completes a pod when it is created."""
    runs.admitted(task("all", "1"))
    for name in "abc":
        runs.task_pod(name, "300m")
    spec = {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}]}
    late = {"metadata": {"name": "late", "namespace": "team", "resourceVersion": "1"}, "spec": spec}
    runs.world.limit_ranges.observe(msgspec.convert(late, LimitRange))
    runs.settle(RUN)
    assert runs.held() == []
