"""Pods of one group wait, start, stop and end together, and a pod that fails is replaced under the same quota."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, QUEUE, RUN_FOR, Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

ADMISSION_GATE = {"name": "kueue.x-k8s.io/admission"}
STOP_FOR = "testbed.turnstile.dev/stop-for"
EXIT_CODE = "testbed.turnstile.dev/exit-code"


class Group:
    """A leader of 2 CPU and two workers of 1 CPU, unless told otherwise; and what becomes of them."""

    def __init__(self, scenario: Scenario, *, total: int = 3, labels: dict[str, str] | None = None) -> None:
        self.scenario = scenario
        self.api = scenario.api
        self.total = total
        self.labels = labels or {}
        self.workload_path = resource_path(GROUP, "workloads", "ring", namespace=scenario.namespace)

    def create(self, name: str, *, cpu: str = "1", **annotations: str) -> None:
        """A pod of the group, as its user sends it."""
        count = {"kueue.x-k8s.io/pod-group-total-count": str(self.total)}
        self.scenario.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self.scenario.namespace,
                    "labels": {QUEUE: "team", "kueue.x-k8s.io/pod-group-name": "ring", **self.labels},
                    "annotations": {**count, **annotations},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 60,
                    "containers": [
                        {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": cpu}}}
                    ],
                },
            }
        )

    def create_all(self, **annotations: str) -> None:
        """The leader and both workers."""
        self.create("leader", cpu="2", **annotations)
        self.create("worker-0", **annotations)
        self.create("worker-1", **annotations)

    def path(self, name: str) -> str:
        """URL path of a pod."""
        return resource_path("v1", "pods", name, namespace=self.scenario.namespace)

    @property
    def pods(self) -> dict[str, Json]:
        """The pods that are there, by name."""
        found = self.api.items(resource_path("v1", "pods", namespace=self.scenario.namespace))
        return {each["metadata"]["name"]: each for each in found}

    def gated(self) -> list[str]:
        """Names of the pods that are held."""
        return sorted(n for n, each in self.pods.items() if ADMISSION_GATE in each["spec"].get("schedulingGates", ()))

    def may_run(self) -> list[str]:
        """Names of the pods that are scheduled and not over."""
        return sorted(
            name
            for name, each in self.pods.items()
            if each["spec"].get("nodeName") and each["status"].get("phase") not in ("Succeeded", "Failed")
        )

    def wait_running(self, *names: str, timeout: float = 20) -> None:
        """Until exactly these may run."""
        wait_until(lambda: self.may_run() == sorted(names), timeout=timeout, describe=lambda: f"run: {self.may_run()}")

    def wait_workload(self, predicate: Callable[[Json], Any], *, timeout: float = 15) -> Json:
        """Until the Workload of the group is so."""
        return self.api.wait_for(self.workload_path, predicate, timeout=timeout, describe="group")

    def end(self, names: Iterable[str], *, code: str = "0") -> None:
        """Let running pods end."""
        for name in names:
            self.api.patch(self.path(name), {"metadata": {"annotations": {RUN_FOR: "0s", EXIT_CODE: code}}})

    def delete(self, names: Iterable[str]) -> None:
        """Delete pods, without waiting."""
        for name in names:
            self.api.delete(self.path(name))

    def wait_nothing_left(self) -> None:
        """No pod and no Workload; the garbage collector needs its time to learn of a young CRD."""
        wait_until(lambda: not self.pods, timeout=20, describe=lambda: f"pods: {sorted(self.pods)}")
        self.api.wait_gone(self.workload_path, timeout=60)


def holds_until(holds: Callable[[], bool], end: Callable[[], bool], *, describe: Callable[[], str]) -> None:
    """See that something holds, again and again, until the end comes."""

    def over() -> bool:
        held = holds()  # first: what is over may be otherwise
        ended = end()
        assert ended or held
        return ended

    wait_until(over, timeout=20, describe=describe)


ALL = ("leader", "worker-0", "worker-1")


def queue(scenario: Scenario, nodes: dict[str, str], cpu: int = 4, **spec: Any) -> str:
    """A queue `team` for the nodes of one pool; the ClusterQueue's name."""
    flavor = scenario.flavor("plain", labels={"pool": nodes["plain"]})
    return scenario.queue("team", {flavor: {"cpu": cpu}}, **spec)


def used(scenario: Scenario, cluster_queue: str) -> str:
    """CPU in use as the ClusterQueue says."""
    status = scenario.api.get(resource_path(GROUP, "clusterqueues", cluster_queue))["status"]
    found: str = status["flavorsUsage"][0]["resources"][0]["total"]
    return found


class TestLife:
    def test_a_group_waits_and_starts_as_a_whole(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """Nobody starts before all are there and fit; then each runs on a node of the flavor."""
        queue(scenario, nodes)
        scenario.job("before", queue="team", cpu="1")
        scenario.wait_started("before")
        group = Group(scenario)
        group.create("leader", cpu="2")
        group.create("worker-0")
        scenario.wait_event("leader", reason="ErrWorkloadCompose")
        assert group.api.find(group.workload_path) is None
        group.create("worker-1")
        waiting = group.wait_workload(lambda w: condition(w, "QuotaReserved").get("status") == "False")
        assert sorted(each["count"] for each in waiting["spec"]["podSets"]) == [1, 2]
        assert waiting["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"] == "true"
        assert group.gated() == sorted(ALL)
        scenario.delete_job("before")
        group.wait_running(*ALL)
        owners = group.wait_workload(lambda w: condition(w, "Admitted"))["metadata"]["ownerReferences"]
        assert sorted(each["name"] for each in owners) == sorted(ALL)
        assert not any(each.get("controller") for each in owners)
        assert {each["spec"]["nodeSelector"]["pool"] for each in group.pods.values()} == {nodes["plain"]}

    def test_a_group_that_ends_frees_its_quota_and_its_pods(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """Pods that are done free theirs before; after the last one nothing is held, and deletion leaves nothing."""
        cluster_queue = queue(scenario, nodes)
        group = Group(scenario)
        group.create_all()
        group.wait_running(*ALL)
        group.end(["leader"])
        group.wait_workload(lambda w: [each["count"] for each in w["status"].get("reclaimablePods", ())] == [1])
        group.end(["worker-0", "worker-1"])
        ended = group.wait_workload(lambda w: condition(w, "Finished"))
        assert condition(ended, "Finished")["message"] == "Pods succeeded: 3/3."
        wait_until(
            lambda: not any(each["metadata"].get("finalizers") for each in group.pods.values()),
            timeout=10,
            describe=lambda: f"{group.pods}",
        )
        wait_until(lambda: used(scenario, cluster_queue) == "0", timeout=10, describe=lambda: "quota is still used")
        group.delete(ALL)
        group.wait_nothing_left()

    @pytest.mark.parametrize("completed_by", ["limits", "LimitRange", "RuntimeClass"])
    def test_a_workload_that_was_made_before_its_pods_starts_them(
        self, scenario: Scenario, nodes: dict[str, str], completed_by: str
    ) -> None:
        """A prebuilt Workload waits for its pods, and charges for what the API server makes of its template."""
        queue(scenario, nodes)
        resources: Json = {"requests": {"cpu": "1"}}
        spec: Json = {}
        if completed_by == "limits":
            resources = {"limits": {"cpu": "1"}}
        elif completed_by == "LimitRange":
            resources = {}
            limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}
            meta = {"name": "defaults", "namespace": scenario.namespace}
            scenario.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": limits})
        else:
            spec = {"runtimeClassName": scenario.named("kata")}
            overhead = {"podFixed": {"cpu": "500m"}}
            meta = {"name": scenario.named("kata")}
            body = {"metadata": meta, "handler": "kata", "overhead": overhead}
            scenario.create({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **body})
        container = {"name": "main", "image": "registry.example/main:1", "resources": resources}
        spec = {"restartPolicy": "Never", "containers": [container], **spec}
        marks = {"kueue.x-k8s.io/is-group-workload": "true"}
        meta = {"name": "ring", "namespace": scenario.namespace, "annotations": marks}
        sets = [{"name": "role-a", "count": 2, "template": {"spec": spec}}]
        body = {"metadata": meta, "spec": {"queueName": "team", "podSets": sets}}
        scenario.create({"apiVersion": GROUP, "kind": "Workload", **body})
        group = Group(scenario)
        group.wait_workload(lambda w: condition(w, "Admitted"))
        for name in ("a", "b"):
            marks = {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": "role-a"}
            labels = {QUEUE: "team", "kueue.x-k8s.io/pod-group-name": "ring"}
            labels["kueue.x-k8s.io/prebuilt-workload-name"] = "ring"
            meta = {"name": name, "namespace": scenario.namespace, "labels": labels, "annotations": marks}
            scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        group.wait_running("a", "b")
        assert not condition(group.wait_workload(lambda w: w), "Finished")

    @pytest.mark.parametrize("state", ["incomplete", "waiting", "running"])
    def test_a_deleted_group_leaves_nothing(self, scenario: Scenario, nodes: dict[str, str], state: str) -> None:
        """No pod, no Workload, no quota."""
        cluster_queue = queue(scenario, nodes, cpu=3 if state == "waiting" else 4)
        group = Group(scenario)
        if state == "incomplete":
            group.create("leader", cpu="2")
            group.create("worker-0")
            scenario.wait_event("leader", reason="ErrWorkloadCompose")
        else:
            group.create_all()
        if state == "running":
            group.wait_running(*ALL)
        if state == "waiting":
            group.wait_workload(lambda w: condition(w, "QuotaReserved").get("status") == "False")
        group.delete(sorted(group.pods))
        group.wait_nothing_left()
        wait_until(lambda: used(scenario, cluster_queue) == "0", timeout=10, describe=lambda: "quota is still used")

    def test_a_deactivated_group_is_stopped_and_goes_with_its_workload(
        self, scenario: Scenario, nodes: dict[str, str]
    ) -> None:
        """Its pods are deleted and kept in sight until their Workload is deleted too."""
        queue(scenario, nodes)
        group = Group(scenario)
        group.create_all()
        group.wait_running(*ALL)
        group.api.patch(group.workload_path, {"spec": {"active": False}})
        stopped = group.wait_workload(
            lambda w: (
                condition(w, "QuotaReserved").get("status") == "False"
                and condition(w, "WaitingForReplacementPods").get("status") == "True"
            )
        )
        assert condition(stopped, "WaitingForReplacementPods")["reason"] == "Deactivated"
        assert group.may_run() == []
        group.api.delete(group.workload_path)
        group.wait_nothing_left()


class TestPreemption:
    def test_quota_of_a_preempted_group_is_free_when_its_pods_are_gone(
        self, scenario: Scenario, nodes: dict[str, str]
    ) -> None:
        """The preemptor waits as long as a single pod of the group takes to stop."""
        queue(scenario, nodes, preemption={"withinClusterQueue": "LowerPriority"})
        group = Group(scenario)
        group.create("leader", cpu="2", **{STOP_FOR: "3s"})
        group.create("worker-0")
        group.create("worker-1")
        group.wait_running(*ALL)
        urgent = scenario.priority_class("urgent", 100)
        scenario.job("urgent", queue="team", cpu="3", labels={"kueue.x-k8s.io/priority-class": urgent})
        group.wait_running("leader")
        assert scenario.suspended("urgent")
        target = condition(group.pods["leader"], "TerminationTarget")
        assert target["reason"] == "WorkloadEvictedDueToPreempted"
        holds_until(
            lambda: scenario.suspended("urgent"),
            lambda: not group.may_run(),
            describe=lambda: f"run: {group.may_run()}",
        )
        scenario.wait_started("urgent")
        again = group.wait_workload(lambda w: condition(w, "WaitingForReplacementPods").get("status") == "True")
        assert condition(again, "WaitingForReplacementPods")["reason"] == "Preempted"

    def test_a_preempted_group_starts_again_with_replacements(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """They take over its place in the queue; the pods of the first run go."""
        queue(scenario, nodes, preemption={"withinClusterQueue": "LowerPriority"})
        group = Group(scenario)
        group.create_all()
        group.wait_running(*ALL)
        urgent = scenario.priority_class("urgent", 100)
        scenario.job("urgent", queue="team", cpu="3", labels={"kueue.x-k8s.io/priority-class": urgent})
        scenario.wait_started("urgent")
        group.create("leader-again", cpu="2")
        group.create("worker-2")
        group.create("worker-3")
        again = ["leader-again", "worker-2", "worker-3"]
        wait_until(
            lambda: [name for name in group.pods if name in (*ALL, *again)] == again,
            timeout=15,
            describe=lambda: f"pods: {sorted(group.pods)}",
        )
        assert group.gated() == again
        scenario.delete_job("urgent")
        group.wait_running(*again)


class TestReplacement:
    def test_a_failed_pod_is_replaced_under_the_same_quota(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """It stays in sight until another one takes its place, and the Workload says so."""
        queue(scenario, nodes)
        group = Group(scenario)
        group.create_all()
        group.wait_running(*ALL)
        group.end(["worker-0"], code="1")
        waiting = group.wait_workload(lambda w: condition(w, "WaitingForReplacementPods").get("status") == "True")
        assert condition(waiting, "WaitingForReplacementPods")["message"] == "Some Failed pods need replacement"
        group.delete(["worker-0"])
        assert group.pods["worker-0"]["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
        group.create("worker-2")
        group.wait_running("leader", "worker-1", "worker-2")
        group.api.wait_gone(group.path("worker-0"))
        group.wait_workload(lambda w: condition(w, "WaitingForReplacementPods").get("status") == "False")

    def test_a_replacement_waits_for_the_pod_that_it_replaces(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """While a deleted pod still runs there is no quota for another one."""
        queue(scenario, nodes)
        group = Group(scenario)
        group.create("leader", cpu="2")
        group.create("worker-0", **{STOP_FOR: "3s"})
        group.create("worker-1")
        group.wait_running(*ALL)
        group.delete(["worker-0"])
        group.create("worker-2")
        holds_until(
            lambda: "worker-2" not in group.may_run(),
            lambda: "worker-0" not in group.may_run(),
            describe=lambda: f"run: {group.may_run()}",
        )
        group.wait_running("leader", "worker-1", "worker-2")

    def test_a_pod_too_many_is_deleted(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """The youngest one goes, also if it claims the role of a smaller pod."""
        queue(scenario, nodes, cpu=16)
        group = Group(scenario)
        group.create_all()
        group.wait_running(*ALL)
        role = group.pods["worker-0"]["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"]
        group.create("extra")
        group.create("forged", cpu="8", **{"kueue.x-k8s.io/role-hash": role})
        for name in ("extra", "forged"):
            group.api.wait_gone(group.path(name))
            scenario.wait_event(name, reason="ExcessPodDeleted")
        assert group.may_run() == sorted(ALL)


def test_a_killed_controller_changes_nothing_of_it(
    scenario: Scenario, nodes: dict[str, str], turnstile: Turnstile
) -> None:
    """At each turn of a group's life it is killed without warning, and goes on when it is back."""

    def turn() -> None:
        turnstile.crash()
        turnstile.start()

    queue(scenario, nodes)
    scenario.job("before", queue="team", cpu="1")
    scenario.wait_started("before")
    group = Group(scenario)
    group.create_all()
    turn()
    group.wait_workload(lambda w: condition(w, "QuotaReserved").get("status") == "False", timeout=30)
    scenario.delete_job("before")
    turn()
    group.wait_running(*ALL, timeout=40)
    group.end(["worker-0"], code="1")
    turn()
    group.wait_workload(lambda w: condition(w, "WaitingForReplacementPods").get("status") == "True", timeout=30)
    group.create("worker-2")
    group.wait_running("leader", "worker-1", "worker-2", timeout=40)
    group.api.patch(group.workload_path, {"spec": {"active": False}})
    turn()
    group.wait_workload(lambda w: condition(w, "QuotaReserved").get("status") == "False", timeout=30)
    assert group.may_run() == []
    group.api.patch(group.workload_path, {"spec": {"active": True}})
    group.create("leader-2", cpu="2")
    group.create("worker-3")
    group.create("worker-4")
    group.wait_running("leader-2", "worker-3", "worker-4", timeout=40)
    group.end(["leader-2", "worker-3", "worker-4"])
    turn()
    ended = group.wait_workload(lambda w: condition(w, "Finished"), timeout=30)
    assert condition(ended, "Finished")["message"] == "Pods succeeded: 3/3."
    group.delete(sorted(group.pods))
    group.wait_nothing_left()
