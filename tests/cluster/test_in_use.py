"""What others refer to cannot vanish: deleted while it is used, it stays until its last user is gone."""

from dataclasses import dataclass

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario

pytestmark = pytest.mark.cluster

IN_USE = "kueue.x-k8s.io/resource-in-use"


@dataclass
class Pair:
    """Something, who uses it, and a ClusterQueue whose status says that the user was seen."""

    used: Json
    user: Json
    queue: Json


def _object(scenario: Scenario, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": scenario.named(name)}, "spec": spec}


def _pair(scenario: Scenario, kind: str) -> Pair:
    name = scenario.named("used")
    if kind == "Topology":
        levels = [{"nodeLabel": "kubernetes.io/hostname"}]
        flavor = _object(scenario, "ResourceFlavor", "user", {"topologyName": name, "nodeLabels": {"pool": "a"}})
        queue = _of_flavor(scenario, flavor["metadata"]["name"])
        return Pair(_object(scenario, kind, "used", {"levels": levels}), flavor, queue)
    if kind == "AdmissionCheck":
        strategy = {"admissionChecks": [{"name": name}]}
        queue = _object(scenario, "ClusterQueue", "queue", {"admissionChecksStrategy": strategy})
        return Pair(_object(scenario, kind, "used", {"controllerName": "example.com/check"}), queue, queue)
    queue = _of_flavor(scenario, name)
    return Pair(_object(scenario, kind, "used", {}), queue, queue)


def _of_flavor(scenario: Scenario, name: str) -> Json:
    quota = [{"name": "cpu", "nominalQuota": 1}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quota}]}]
    return _object(scenario, "ClusterQueue", "queue", {"resourceGroups": groups})


SEEN = {
    "ResourceFlavor": "Ready",
    "AdmissionCheck": "AdmissionCheckInactive",
    "Topology": "Ready",
}
"""Reason of the Active condition of the ClusterQueue."""


@pytest.mark.parametrize("kind", ["ResourceFlavor", "AdmissionCheck", "Topology"])
def test_a_deleted_object_goes_with_its_last_user(scenario: Scenario, kind: str) -> None:
    """It gets the finalizer by itself, keeps it while it is used, and loses it after that."""
    pair = _pair(scenario, kind)
    scenario.create(pair.used)
    scenario.create(pair.user)
    if pair.queue is not pair.user:
        scenario.create(pair.queue)
    active = lambda found: condition(found, "Active").get("reason") == SEEN[kind]  # noqa: E731
    scenario.api.wait_for(scenario.api.path_of(pair.queue), active, describe=SEEN[kind])
    path = scenario.api.path_of(pair.used)
    scenario.api.wait_for(path, lambda found: found["metadata"].get("finalizers") == [IN_USE], describe="finalizer")
    scenario.api.delete(path)
    witness = _object(scenario, kind, "witness", pair.used["spec"])
    scenario.create(witness)
    where = scenario.api.path_of(witness)
    scenario.api.wait_for(where, lambda found: found["metadata"].get("finalizers"), describe="finalizer")
    scenario.api.delete(where)
    scenario.api.wait_gone(where)  # so what happened before has been decided about
    assert scenario.api.get(path)["metadata"]["finalizers"] == [IN_USE]
    for user in (pair.queue, pair.user):
        scenario.api.delete(scenario.api.path_of(user))
    scenario.api.wait_gone(path)


@pytest.mark.parametrize("kind", ["ResourceFlavor", "AdmissionCheck", "Topology"])
def test_an_object_that_kueue_left_can_be_deleted(scenario: Scenario, kind: str) -> None:
    """It carries the finalizer from the start."""
    used = _pair(scenario, kind).used
    used["metadata"]["finalizers"] = [IN_USE]
    scenario.create(used)
    path = scenario.api.path_of(used)
    scenario.api.delete(path)
    scenario.api.wait_gone(path)


def test_a_cluster_queue_stays_while_it_holds_quota(scenario: Scenario) -> None:
    """And goes when its last Job has ended."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    scenario.job("runs", queue="team")
    scenario.wait_started("runs")
    path = scenario.api.path_of({"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": queue}})
    scenario.api.delete(path)
    terminating = lambda found: condition(found, "Active").get("reason") == "Terminating"  # noqa: E731
    scenario.api.wait_for(path, terminating, describe="terminating")
    scenario.delete_job("runs")
    scenario.api.wait_gone(path)


def _everything(scenario: Scenario) -> list[Json]:
    """One of each kind, the used before its user: a Job runs in one ClusterQueue, and a Job waits in another."""
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    topology = _object(scenario, "Topology", "levels", {"levels": levels})
    check = _object(scenario, "AdmissionCheck", "check", {"controllerName": "example.com/check"})
    placed = {"topologyName": scenario.named("levels"), "nodeLabels": {"pool": "a"}}
    for obj in (topology, check, _object(scenario, "ResourceFlavor", "placed", placed)):
        scenario.create(obj)
    scenario.cohort("all")
    scenario.queue("runs", {scenario.flavor("plain"): {"cpu": 1}}, cohort="all")
    checks = {"admissionChecks": [{"name": scenario.named("check")}]}
    scenario.queue("waits", {scenario.named("placed"): {"cpu": 1}}, cohort="all", admissionChecksStrategy=checks)
    for name in ("runs", "waits"):
        scenario.job(name, queue=name)
    scenario.wait_started("runs")
    scenario.wait_pending("waits")
    return scenario.made


@pytest.mark.parametrize("order", ["the used first", "the users first", "the Jobs between"])
def test_everything_goes_whatever_is_deleted_first(scenario: Scenario, order: str) -> None:
    """Each deletion ends once its last user is gone, and leaves no Workload behind."""
    objects = _everything(scenario)
    jobs = [obj for obj in objects if obj["kind"] == "Job"]
    others = [obj for obj in objects if obj["kind"] != "Job"]
    match order:
        case "the used first":
            objects = [*others, *jobs]
        case "the users first":
            objects = [*jobs, *reversed(others)]
        case _:
            objects = [*others[::2], *jobs, *others[1::2]]
    for obj in objects:
        scenario.api.delete(scenario.api.path_of(obj))
    for obj in objects:
        scenario.api.wait_gone(scenario.api.path_of(obj), timeout=30)
    workloads = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    wait_until(lambda: not scenario.api.items(workloads), timeout=15, describe=lambda: "a Workload is left")


@pytest.mark.parametrize("kind", ["Cohort", "LocalQueue"])
def test_a_kind_without_a_finalizer_goes_at_once(scenario: Scenario, kind: str) -> None:
    """As in Kueue: its Workloads keep their quota, and its members their own."""
    scenario.cohort("all")
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}}, cohort="all")
    scenario.job("runs", queue="team")
    scenario.wait_started("runs")
    used = next(obj for obj in scenario.made if obj["kind"] == kind)
    scenario.api.delete(scenario.api.path_of(used))
    scenario.api.wait_gone(scenario.api.path_of(used), timeout=5)
    path = resource_path(GROUP, "clusterqueues", queue)
    holds = lambda found: found["status"].get("admittedWorkloads") == 1  # noqa: E731
    scenario.api.wait_for(path, holds, describe="the Job holds its quota")
    assert not scenario.suspended("runs")
