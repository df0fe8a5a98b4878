"""Kubernetes has kinds of its own that are called Workload and PodGroup (`scheduling.k8s.io`, alpha in 1.36). Turnstile
leaves them alone, and they do not disturb it, with kube-scheduler and the Job controller using them."""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from testbed.installation import MANAGED, Installation
from tests.cluster.scenario import QUEUE, Scenario
from tests.cluster.versions import wait_served

NATIVE = "scheduling.k8s.io/v1alpha2"


@pytest.fixture(scope="module")
def gang_scheduling() -> Iterator[ControlPlane]:
    """A control plane that serves both kinds, makes them for Jobs and schedules by them; Turnstile runs there."""
    with ControlPlane(
        feature_gates=dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadWithJob"), True),
        extra_arguments={"kube-apiserver": [f"--runtime-config={NATIVE}=true"]},
    ) as cp:
        installation = Installation(cp)
        installation.install()
        cp.add_node("plain", cpu=64, memory="256Gi")
        process = installation.start()
        installation.wait_ready(process)
        wait_served(cp.api)
        yield cp
        process.terminate()


@pytest.fixture
def team(gang_scheduling: ControlPlane) -> Iterator[Scenario]:
    """An empty managed namespace with a queue of two CPUs."""
    scenario = Scenario(gang_scheduling.api, gang_scheduling.namespace("team", labels=MANAGED))
    scenario.queue("q", {scenario.flavor("any"): {"cpu": "2"}})
    yield scenario
    scenario.remove()


def native(team: Scenario, kind: str, name: str, spec: Json) -> Json:
    """Make an object of one of Kubernetes' kinds."""
    metadata = {"name": name, "namespace": team.namespace, "labels": {QUEUE: "q"}}
    return team.create({"apiVersion": NATIVE, "kind": kind, "metadata": metadata, "spec": spec})


def wait_running(team: Scenario, job: str, *, pods: int) -> None:
    """Until so many pods of a Job run."""
    wait_until(
        lambda: [pod["status"].get("phase") for pod in team.pods_of(job)] == ["Running"] * pods,
        timeout=30,
        describe=lambda: f"not {pods} running pods: {team.pods_of(job)}",
    )


def gang(count: int) -> Json:
    """All of so many pods, or none."""
    return {"gang": {"minCount": count}}


def test_a_workload_of_the_same_name_is_left_alone(team: Scenario) -> None:
    """A Job waits, runs and ends beside a native Workload and PodGroup with the name of the Job's own Workload and with
    a queue's name: nothing is written to these, and what they ask for takes no quota."""
    team.job("first", queue="q", cpu="2")
    team.wait_started("first")  # only then is it certain that the other one waits
    team.job("second", queue="q", cpu="2")
    name = team.workload_of("second")["metadata"]["name"]
    beside = [
        native(team, "Workload", name, {"podGroupTemplates": [{"name": "all", "schedulingPolicy": gang(4)}]}),
        native(team, "PodGroup", name, {"schedulingPolicy": gang(4)}),
    ]
    assert team.suspended("second")
    wait_running(team, "first", pods=1)
    team.finish("first")
    team.wait_admitted("second", timeout=30)
    team.wait_started("second")
    wait_running(team, "second", pods=1)
    team.finish("second")
    team.wait_workload(
        "second", lambda workload: condition(workload, "Finished").get("reason") == "Succeeded", timeout=30
    )
    for obj in beside:
        found = team.api.get(team.api.path_of(obj))
        assert found["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]


def test_a_native_workload_that_is_deleted_takes_nothing_along(team: Scenario) -> None:
    """The Workload of a running Job stays, and the Job runs on, when the native one of the same name goes."""
    team.job("train", queue="q")
    team.wait_started("train")
    ours = team.workload_of("train")
    name = ours["metadata"]["name"]
    path = team.api.path_of(
        native(team, "Workload", name, {"podGroupTemplates": [{"name": "all", "schedulingPolicy": gang(1)}]})
    )
    team.api.delete(path)
    team.api.wait_gone(path)
    assert team.workload_of("train")["metadata"]["uid"] == ours["metadata"]["uid"]
    assert not team.suspended("train")


def test_pods_of_a_gang_wait_for_quota_first(team: Scenario) -> None:
    """Plain pods of a native PodGroup, with a queue's name, are gated until they have quota; then kube-scheduler places
    the gang."""
    native(team, "PodGroup", "gang", {"schedulingPolicy": gang(2)})
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    for number in range(2):
        spec = {"schedulingGroup": {"podGroupName": "gang"}, "containers": [container], "restartPolicy": "Never"}
        meta = {"name": f"member-{number}", "namespace": team.namespace, "labels": {QUEUE: "q"}}
        made = team.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        assert made["spec"]["schedulingGates"] == [
            {"name": "kueue.x-k8s.io/admission"},
            {"name": "kueue.x-k8s.io/topology"},
        ]
    for number in range(2):
        path = resource_path("v1", "pods", f"member-{number}", namespace=team.namespace)
        team.api.wait_for(path, lambda pod: pod["status"].get("phase") == "Running", timeout=30)


def test_a_job_that_kubernetes_makes_a_workload_for_is_queued(team: Scenario) -> None:
    """An indexed Job with a queue's name waits and runs as any other, whatever the Job controller makes for it; one
    without a queue gets its native Workload."""
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimit": 0}
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    spec["template"] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    for name, labels in (("queued", {QUEUE: "q"}), ("free", {})):
        meta = {"name": name, "namespace": team.namespace, "labels": labels}
        team.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    team.wait_admitted("queued")
    for name in ("queued", "free"):
        wait_running(team, name, pods=2)
    made = team.api.items(resource_path(NATIVE, "workloads", namespace=team.namespace))
    assert "free" in [workload["spec"]["controllerRef"]["name"] for workload in made]
