"""`turnstile import`: what runs without a queue is brought under one, and no pod is restarted by it."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.command import turnstile as command
from tests.cluster.open_kinds import open_definition
from tests.cluster.scenario import GROUP, QUEUE, Scenario
from tests.cluster.test_deployments import deployment
from tests.turnstile import Turnstile
from turnstile.api.errors import Forbidden
from turnstile.api.meta import Kind
from turnstile.kube.transport import Transport

pytestmark = pytest.mark.cluster

GATED_BY = "kueue.x-k8s.io/admission-gated-by"


def plain_pod(scenario: Scenario, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """A Pod of one cpu that names no queue."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": name, "namespace": scenario.namespace, "labels": labels or {}}
    return scenario.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}
    )


def pods(scenario: Scenario) -> dict[str, Json]:
    """All pods of the namespace by uid."""
    found = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
    return {each["metadata"]["uid"]: each for each in found}


def wait_running(scenario: Scenario, number: int) -> set[str]:
    """The uids of the pods, as soon as so many run."""

    def look() -> set[str] | None:
        found = pods(scenario)
        runs = {uid for uid, each in found.items() if each["status"].get("phase") == "Running"}
        return runs if len(runs) == len(found) == number else None

    return wait_until(look, timeout=30, describe=lambda: f"{[each['status'] for each in pods(scenario).values()]}")


def workloads(scenario: Scenario) -> list[Json]:
    """The Workloads of the namespace."""
    return scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))


def imported(
    scenario: Scenario, control_plane: ControlPlane, *arguments: str | Path, text: str = ""
) -> tuple[int, Json]:
    """Exit code and report of the command."""
    kubeconfig = str(control_plane.kubeconfig())
    given = ["import", "-n", scenario.namespace, "--kubeconfig", kubeconfig, "-o", "json", *arguments]
    code, out, err = command(*given, text=text)
    assert not err, err
    return code, json.loads(out)


def used(scenario: Scenario, queue: str) -> str:
    """The CPUs that a ClusterQueue says that it has given away."""
    status = scenario.api.get(resource_path(GROUP, "clusterqueues", queue))["status"]
    return str(status["flavorsReservation"][0]["resources"][0]["total"])


def test_what_runs_is_charged_and_goes_on(
    scenario: Scenario, control_plane: ControlPlane, turnstile: Turnstile
) -> None:
    """A Job, a Pod and the pods of a Deployment are imported while the controller is restarted again and again."""
    queue = scenario.queue("team", {scenario.flavor("plain", labels={"pool": "plain"}): {"cpu": 6}})
    scenario.job("train", queue=None, pods=2, template={"nodeSelector": {"pool": "plain"}})
    plain_pod(scenario, "notebook", nodeSelector={"pool": "plain"}, tolerations=[{"operator": "Exists"}])
    deployment(scenario, "web", replicas=2, queue=None)
    before = wait_running(scenario, 5)

    code, dry = imported(scenario, control_plane, "--queue", "team")
    assert (code, dry["applied"], workloads(scenario)) == (0, False, [])
    assert [(each["kind"], each["pods"], each["cluster_queue"]) for each in dry["jobs"]] == [
        ("Job", 2, queue),
        *[("Pod", 1, queue)] * 3,
    ]
    turnstile.crash()
    turnstile.start()

    code, done = imported(scenario, control_plane, "--queue", "team", "--apply")
    assert code == 0
    assert [each["imported"] for each in done["jobs"]] == [True] * 4
    turnstile.crash()
    turnstile.start()
    turnstile.restart()

    wait_until(
        lambda: all(each["metadata"]["labels"].get(QUEUE) == "team" for each in queued(scenario)),
        timeout=30,
        describe=lambda: f"{[each['metadata'] for each in queued(scenario)]}",
    )
    wait_until(lambda: used(scenario, queue) == "5", timeout=30, describe=lambda: used(scenario, queue))
    for each in workloads(scenario):
        assert condition(each, "Admitted")["reason"] == "Imported"
        assert not condition(each, "Evicted")
        assert GATED_BY not in each["metadata"].get("annotations", {})
    assert not scenario.suspended("train")
    assert {*pods(scenario)} == before

    scenario.job("next", queue="team", cpu="2")
    scenario.wait_pending("next")
    assert {*pods(scenario)} == before
    assert imported(scenario, control_plane, "--queue", "team")[1]["queued"] == 4


def queued(scenario: Scenario) -> list[Json]:
    """The Job, and the pods that are queued by themselves."""
    single = [each for each in pods(scenario).values() if "job-name" not in each["metadata"]["labels"]]
    return [scenario.read_job("train"), *single]


def test_an_imported_job_is_stopped_and_started_like_any_other(scenario: Scenario, control_plane: ControlPlane) -> None:
    """Evicted, its pods go and its quota with them; admitted again, it starts on the nodes of its flavor."""
    queue = scenario.queue("team", {scenario.flavor("plain", labels={"pool": "plain"}): {"cpu": 2}})
    scenario.job("train", queue=None, pods=2)
    wait_running(scenario, 2)
    assert imported(scenario, control_plane, "--queue", "team", "--apply")[0] == 0
    name = scenario.workload_of("train")["metadata"]["name"]
    path = resource_path(GROUP, "workloads", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"active": False}})
    scenario.wait_suspended("train", timeout=30)
    scenario.api.wait_for(path, lambda seen: "admission" not in seen["status"], timeout=60, describe="has no quota")
    assert not [each for each in pods(scenario).values() if each["status"].get("phase") == "Running"]
    scenario.api.patch(path, {"spec": {"active": True}})
    started = scenario.wait_started("train", timeout=30)
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "plain"}
    assert condition(scenario.workload_of("train"), "QuotaReserved")["reason"] == "QuotaReserved"
    wait_until(lambda: used(scenario, queue) == "2", timeout=30, describe=lambda: used(scenario, queue))


def test_an_imported_pod_ends_and_gives_its_quota_back(scenario: Scenario, control_plane: ControlPlane) -> None:
    """Deleted by its user it is gone, with the finalizer that it got."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    plain_pod(scenario, "notebook", labels={"app": "notebook"})
    wait_running(scenario, 1)
    assert imported(scenario, control_plane, "--queue", "team", "--apply")[0] == 0
    path = resource_path("v1", "pods", "notebook", namespace=scenario.namespace)
    marked = scenario.api.wait_for(path, lambda seen: seen["metadata"].get("finalizers"), describe="is marked")
    assert marked["metadata"]["labels"] == {"app": "notebook", QUEUE: "team", "kueue.x-k8s.io/managed": "true"}
    scenario.job("next", queue="team")
    scenario.wait_pending("next")
    scenario.api.delete(path)
    scenario.api.wait_gone(path, timeout=30)
    scenario.wait_started("next", timeout=30)
    wait_until(lambda: used(scenario, queue) == "1", timeout=30, describe=lambda: used(scenario, queue))


def test_each_that_cannot_be_imported_says_why(scenario: Scenario, control_plane: ControlPlane) -> None:
    """By the rules of a file: jobs that no rule maps, whose queue is missing, or whose nodes are of no flavor."""
    scenario.queue("team", {scenario.flavor("spot", labels={"pool": "spot"}): {"cpu": 9}})
    scenario.queue("small", {scenario.flavor("any"): {"cpu": 1}})
    plain_pod(scenario, "stray")
    plain_pod(scenario, "lost", labels={"to": "nowhere"})
    plain_pod(scenario, "elsewhere", labels={"to": "team"}, nodeSelector={"pool": "plain"})
    plain_pod(scenario, "left", labels={"to": "none"})
    scenario.job("train", queue=None, pods=3, labels={"to": "small"})
    before = wait_running(scenario, 7)
    rules = """
- match: {labels: {to: none}}
  skip: true
- match: {labels: {to: nowhere}, resources: [cpu]}
  toLocalQueue: nowhere
- match: {labels: {to: team}}
  toLocalQueue: team
- match: {labels: {to: small}}
  toLocalQueue: small
"""
    code, report = imported(scenario, control_plane, "--queuemapping-file", "-", "--apply", text=rules)
    says = {each["check"]: each["says"] for each in report["findings"]}
    assert code == 1
    assert says["mapping"] == f"Pod {scenario.namespace}/stray: no rule maps it to a LocalQueue"
    assert says["queue"].endswith(f"there is no LocalQueue nowhere in namespace {scenario.namespace}")
    assert "is for nodes with pool=spot, and a pod runs on plain-" in says["flavor"]
    assert "then uses 3 cpu of flavor" in says["quota"]
    assert "2 more than it may have" in says["quota"]
    assert (report["skipped"], [each["name"] for each in report["jobs"]]) == (1, ["train"])
    scenario.wait_admitted("train")
    wait_until(
        lambda: scenario.read_job("train")["metadata"]["labels"].get(QUEUE) == "small",
        timeout=30,
        describe=lambda: f"{scenario.read_job('train')}",
    )
    assert {*pods(scenario)} == before
    with pytest.raises(ApiError, match="immutable"):
        scenario.api.patch(
            resource_path("batch/v1", "jobs", "train", namespace=scenario.namespace),
            {"metadata": {"labels": {QUEUE: "team"}}},
        )


def test_an_import_that_is_cut_short_stops_nothing_and_is_finished_by_the_next(
    scenario: Scenario, control_plane: ControlPlane, turnstile: Turnstile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut after each of its writes, with a controller that starts anew: the Job runs on, and is charged once."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
    scenario.job("train", queue=None, pods=2)
    before = wait_running(scenario, 2)
    write, allowed = Transport.patch, 0

    async def cut(self: Transport, kind: type[Kind], *arguments: Any, **options: Any) -> Kind:
        nonlocal allowed
        if allowed <= 0:
            raise Forbidden(403, "Forbidden", "cut off by a test")
        allowed -= 1
        return await write(self, kind, *arguments, **options)

    monkeypatch.setattr(Transport, "patch", cut)
    for number in range(2):
        allowed = number
        code, report = imported(scenario, control_plane, "--queue", "team", "--apply")
        assert (code, [each["check"] for each in report["findings"]]) == (1, ["write"])
        assert [each["imported"] for each in report["jobs"]] == [False]
        [workload] = workloads(scenario)
        assert not workload["metadata"].get("ownerReferences")
        turnstile.crash()
        turnstile.start()
    monkeypatch.undo()
    assert imported(scenario, control_plane, "--queue", "team", "--apply")[0] == 0
    wait_until(lambda: used(scenario, queue) == "2", timeout=30, describe=lambda: used(scenario, queue))
    assert condition(scenario.workload_of("train"), "Admitted")["reason"] == "Imported"
    assert not scenario.suspended("train")
    assert {*pods(scenario)} == before


@pytest.fixture
def training(scenario: Scenario) -> None:
    """PyTorchJobs, without their operator."""
    definition = open_definition("kubeflow.org", "pytorchjobs", "PyTorchJob")
    scenario.create(definition)
    path = f"{scenario.api.path_of(definition)}"
    scenario.api.wait_for(path, lambda seen: condition(seen, "Established").get("status") == "True", describe="served")


def test_the_pods_of_a_training_job_go_on_and_so_do_those_that_replace_them(
    scenario: Scenario, control_plane: ControlPlane, training: None
) -> None:
    """A PyTorchJob of two workers, whose operator is played: its next pod has the marks, and runs."""
    queue = scenario.queue("team", {scenario.flavor("plain", labels={"pool": "plain"}): {"cpu": 3}})
    container = {"name": "pytorch", "image": "registry.example/t:1", "resources": {"requests": {"cpu": "1"}}}
    template: Json = {"spec": {"containers": [container]}}
    job = scenario.create(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "train", "namespace": scenario.namespace},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
        }
    )
    path = scenario.api.path_of(job)

    def make(number: int, template: Json) -> Json:
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "controller": True}
        owners = [{**owner, "uid": job["metadata"]["uid"]}]
        meta = {"name": f"train-worker-{number}", "namespace": scenario.namespace, "ownerReferences": owners}
        return scenario.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {**template.get("metadata", {}), **meta}, **spec(template)}
        )

    def spec(template: Json) -> Json:
        return {"spec": template["spec"]}

    for number in range(2):
        make(number, template)
    before = wait_running(scenario, 2)
    code, report = imported(scenario, control_plane, "--queue", "team", "--apply")
    assert (code, [(each["kind"], each["pods"]) for each in report["jobs"]]) == (0, [("PyTorchJob", 2)])
    marked = scenario.api.wait_for(path, lambda seen: seen["metadata"].get("labels"), timeout=30, describe="is queued")
    assert marked["metadata"]["labels"] == {QUEUE: "team"}
    wait_until(lambda: used(scenario, queue) == "2", timeout=30, describe=lambda: used(scenario, queue))
    assert {*pods(scenario)} == before
    scenario.api.delete(resource_path("v1", "pods", "train-worker-1", namespace=scenario.namespace))
    scenario.api.wait_gone(resource_path("v1", "pods", "train-worker-1", namespace=scenario.namespace), timeout=30)
    make(1, marked["spec"]["pytorchReplicaSpecs"]["Worker"]["template"])
    wait_running(scenario, 2)
    assert not scenario.api.get(path)["spec"].get("runPolicy", {}).get("suspend")
    wait_until(lambda: used(scenario, queue) == "2", timeout=30, describe=lambda: used(scenario, queue))
