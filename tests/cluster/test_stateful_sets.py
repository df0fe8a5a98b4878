"""A StatefulSet with a queue: its pods are admitted together, come one after the other, and go together."""

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, wait_until
from testbed.errors import ApiError
from tests.cluster.scenario import QUEUE, Scenario, resource_groups
from tests.cluster.serving import (
    PRIORITY,
    TIMEOUT,
    path,
    pods,
    stateful_set,
    template,
    wait_no_workload,
    wait_phases,
    workloads,
)
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


def scale(scenario: Scenario, name: str, replicas: int) -> None:
    """Set the number of replicas."""
    scenario.api.patch(path(scenario, name), {"spec": {"replicas": replicas}})


def count(scenario: Scenario) -> int:
    """The number of pods that the Workload of the StatefulSet charges for."""
    (workload,) = [each for each in workloads(scenario) if each["metadata"]["name"].startswith("statefulset-")]
    (pod_set,) = workload["spec"]["podSets"]
    found: int = pod_set["count"]
    return found


def test_it_is_admitted_as_a_whole_on_the_nodes_of_the_flavor(scenario: Scenario, control_plane: ControlPlane) -> None:
    """Three replicas wait for a quota of three; then all run, in order, and deletion leaves nothing."""
    flavor = scenario.flavor("plain", labels={"pool": "db"})
    control_plane.add_node(f"a-{scenario.namespace}", labels={"pool": "db"})
    scenario.queue("team", {flavor: {"cpu": 3}})
    scenario.job("before", queue="team", cpu="1")
    scenario.wait_started("before", timeout=TIMEOUT)
    stateful_set(scenario, "db", replicas=3)
    wait_phases(scenario, "db", running=0, held=1)
    scenario.delete_job("before")
    wait_phases(scenario, "db", running=3, held=0)
    assert {pod["spec"]["nodeSelector"]["pool"] for pod in pods(scenario, "db")} == {"db"}
    scenario.api.delete(path(scenario, "db"))
    wait_phases(scenario, "db", running=0, held=0)
    wait_no_workload(scenario)


def test_a_preempted_one_stops_as_a_whole(scenario: Scenario) -> None:
    """A Job of a higher priority takes the quota; the StatefulSet waits with a held pod until that Job is gone."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    stateful_set(scenario, "db", replicas=2, labels={PRIORITY: low})
    wait_phases(scenario, "db", running=2, held=0)
    scenario.job("urgent", queue="team", labels={PRIORITY: high})
    scenario.wait_started("urgent", timeout=TIMEOUT)
    wait_phases(scenario, "db", running=0, held=1)
    scenario.delete_job("urgent")
    wait_phases(scenario, "db", running=2, held=0)


def test_it_is_scaled_to_zero_and_to_another_number(scenario: Scenario) -> None:
    """Without pods its Workload is on hold without quota; then it waits for the quota of the new number."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
    stateful_set(scenario, "db", replicas=2)
    wait_phases(scenario, "db", running=2, held=0)
    scale(scenario, "db", 0)
    wait_phases(scenario, "db", running=0, held=0)
    wait_until(
        lambda: condition(workloads(scenario)[0], "QuotaReserved").get("reason") == "OnHold",
        timeout=TIMEOUT,
        describe=lambda: f"not on hold: {workloads(scenario)}",
    )
    scenario.job("all", queue="team", cpu="4")
    scenario.wait_started("all", timeout=TIMEOUT)
    scenario.delete_job("all")
    wait_until(lambda: not scenario.pods_of("all"), timeout=TIMEOUT, describe=lambda: "the Job's pod is left")
    scenario.api.wait_for(path(scenario, "db"), lambda found: not found["status"].get("replicas"), describe="no pods")
    scale(scenario, "db", 4)
    wait_phases(scenario, "db", running=4, held=0)
    assert count(scenario) == 4


def test_an_elastic_one_grows_and_shrinks_pod_by_pod(scenario: Scenario) -> None:
    """Those that run go on while the next waits for quota, and the quota of a pod is free when it is gone. The
    subresource that an autoscaler writes, of which no webhook is asked, does the same."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}})
    elastic = {"kueue.x-k8s.io/elastic-job": "true"}
    stateful_set(scenario, "db", replicas=2, annotations=elastic)
    wait_phases(scenario, "db", running=2, held=0)
    before = {pod["metadata"]["uid"] for pod in pods(scenario, "db")}
    scale(scenario, "db", 5)
    wait_phases(scenario, "db", running=3, held=1)
    assert before <= {pod["metadata"]["uid"] for pod in pods(scenario, "db")}
    scenario.job("other", queue="team", cpu="2")
    scenario.api.patch(f"{path(scenario, 'db')}/scale", {"spec": {"replicas": 1}})
    scenario.wait_started("other", timeout=TIMEOUT)
    wait_phases(scenario, "db", running=1, held=0)
    wait_until(
        lambda: len([each for each in workloads(scenario) if each["metadata"]["name"].startswith("statefulset-")]) == 1,
        timeout=TIMEOUT,
        describe=lambda: f"Workloads: {[each['metadata']['name'] for each in workloads(scenario)]}",
    )
    with pytest.raises(ApiError, match="field is immutable"):
        scenario.api.patch(path(scenario, "db"), {"metadata": {"annotations": {next(iter(elastic)): None}}})
    scenario.api.patch(f"{path(scenario, 'db')}/scale", {"spec": {"replicas": 2}})
    wait_phases(scenario, "db", running=1, held=1)
    scenario.delete_job("other")
    wait_phases(scenario, "db", running=2, held=0)
    scenario.api.delete(path(scenario, "db"))
    wait_no_workload(scenario)


def test_what_it_was_admitted_for_does_not_change(scenario: Scenario) -> None:
    """More replicas, and larger pods, are refused; another image is rolled out on the same quota."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    stateful_set(scenario, "db", replicas=2)
    wait_phases(scenario, "db", running=2, held=0)
    with pytest.raises(ApiError, match="field is immutable"):
        scale(scenario, "db", 3)
    with pytest.raises(ApiError, match="field is immutable"):
        scenario.api.patch(path(scenario, "db"), {"spec": {"template": template("db", "2")}})
    before = {pod["metadata"]["uid"] for pod in pods(scenario, "db")}
    changed = template("db")
    changed["spec"]["containers"][0]["image"] = "registry.example/web:2"
    scenario.api.patch(path(scenario, "db"), {"spec": {"template": changed}})
    wait_until(
        lambda: not before & {pod["metadata"]["uid"] for pod in pods(scenario, "db")},
        timeout=TIMEOUT,
        describe=lambda: "pods of the old revision are left",
    )
    wait_phases(scenario, "db", running=2, held=0)


def limits_of(workload: Json) -> Json:
    """The limits in the template of a Workload."""
    found: Json = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]
    return found


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
@pytest.mark.parametrize("limit", ["1", "3", "image"])
def test_one_that_waits_may_change_its_template(scenario: Scenario, policy: str, limit: str) -> None:
    """A set that is too large for its quota is made smaller by its limits, which no request repeats: its gated pods of
    the old revision, which the Workload does not charge for any more, give way to pods of the new one. Pods that the
    Workload charges for, and larger limits, change nothing of that."""

    def limited(cpu: str, image: str = "registry.example/web:1") -> Json:
        found = template("db")
        found["spec"]["containers"][0] |= {"image": image, "resources": {"limits": {"cpu": cpu}}}
        return found

    cluster_queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}})
    made = {"template": limited("2"), "podManagementPolicy": policy}
    stateful_set(scenario, "db", replicas=2, **made)
    held = 1 if policy == "OrderedReady" else 2
    wait_phases(scenario, "db", running=0, held=held)
    changed = limited("2", "registry.example/web:2") if limit == "image" else limited(limit)
    scenario.api.patch(path(scenario, "db"), {"spec": {"template": changed}})
    if limit == "3":  # else the set is admitted as it was, if its change is seen after that of the quota
        wait_until(
            lambda: [limits_of(each) for each in workloads(scenario)] == [{"cpu": limit}],
            timeout=TIMEOUT,
            describe=lambda: f"{workloads(scenario)}",
        )
    if limit != "1":
        quota = resource_groups({scenario.named("plain"): {"cpu": 6}})
        scenario.patch_queue(cluster_queue, {"resourceGroups": quota})
    wait_phases(scenario, "db", running=2, held=0)
    wanted = changed["spec"]["containers"][0]
    wait_until(
        lambda: all(
            pod["spec"]["containers"][0]["image"] == wanted["image"]
            and pod["spec"]["containers"][0]["resources"]["limits"] == wanted["resources"]["limits"]
            for pod in pods(scenario, "db")
        ),
        timeout=TIMEOUT,
        describe=lambda: f"{[pod['spec']['containers'] for pod in pods(scenario, 'db')]}",
    )
    wait_phases(scenario, "db", running=2, held=0)


def test_a_killed_controller_changes_nothing_of_it(scenario: Scenario, turnstile: Turnstile) -> None:
    """Deleted while Turnstile is down, its pods and its Workload go. A leader that is killed while the set is queued:
    `tests/operators/test_kinds.py`."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    stateful_set(scenario, "db", replicas=2)
    wait_phases(scenario, "db", running=2, held=0)
    turnstile.crash()
    scenario.api.delete(path(scenario, "db"))
    turnstile.start()
    wait_phases(scenario, "db", running=0, held=0)
    wait_no_workload(scenario)


def test_orphaned_pods_keep_their_quota(scenario: Scenario) -> None:
    """Deleted with orphan, its pods run on and are charged for until they are deleted."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    stateful_set(scenario, "db", replicas=2)
    wait_phases(scenario, "db", running=2, held=0)
    scenario.api.delete(path(scenario, "db"), propagation="Orphan")
    scenario.api.wait_gone(path(scenario, "db"))
    scenario.job("next", queue="team", cpu="1")
    scenario.wait_pending("next", timeout=TIMEOUT)
    for pod in pods(scenario, "db"):
        scenario.api.delete(path(scenario, pod["metadata"]["name"], "pods", "v1"))
    scenario.wait_started("next", timeout=TIMEOUT)


def test_one_without_a_queue_is_left_alone(scenario: Scenario) -> None:
    """Neither its template nor its pods are changed."""
    made = stateful_set(scenario, "db", replicas=1, queue=None)
    assert "annotations" not in made["spec"]["template"]["metadata"]
    wait_phases(scenario, "db", running=1, held=0)
    assert QUEUE not in pods(scenario, "db")[0]["metadata"]["labels"]


def test_one_that_is_moved_at_zero_is_charged_to_its_new_queue(scenario: Scenario) -> None:
    """At zero its Workload names the new queue, and when it is scaled up, in the same second or later, the new queue is
    charged; five sets, because no write of the old queue may win a race."""
    flavor = scenario.flavor("plain")
    scenario.queue("old", {flavor: {"cpu": 9}})
    new = scenario.queue("new", {flavor: {"cpu": 9}})
    sets = [f"db-{number}" for number in range(5)]
    for name in sets:
        stateful_set(scenario, name, replicas=1, queue="old")
    for name in sets:
        wait_phases(scenario, name, running=1, held=0)
        scale(scenario, name, 0)
    for name in sets:
        wait_phases(scenario, name, running=0, held=0)
        scenario.api.patch(path(scenario, name), {"metadata": {"labels": {QUEUE: "new"}}})
        scale(scenario, name, 1)
    for name in sets:
        wait_phases(scenario, name, running=1, held=0)
    held_in = [each["status"]["admission"]["clusterQueue"] for each in workloads(scenario)]
    assert held_in == [new] * len(sets)
