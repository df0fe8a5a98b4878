"""A JobSet with a queue, under its real controller: it waits, runs where its flavor says, stops, ends and goes."""

from collections.abc import Callable

import pytest

from testbed import ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from testbed.components import STOP_FOR
from testbed.operators import RunningOperator
from tests.cluster.scenario import GROUP, Scenario
from tests.operators.jobsets import NAME_LABEL, jobset, jobset_path, replicated_job
from tests.turnstile import Turnstile

pytestmark = pytest.mark.operator("jobset")

PRIORITY = "kueue.x-k8s.io/priority-class"
POOL = {"pool": "operators"}
TIMEOUT = 40.0


def training(scenario: Scenario, name: str, *, priority: str = "") -> Json:
    """A JobSet in queue `team` of one leader and two workers of 1 cpu each."""
    made = jobset(
        name,
        replicated_job("leader"),
        replicated_job("workers", replicas=2),
        namespace=scenario.namespace,
        queue="team",
    )
    if priority:
        made["metadata"]["labels"][PRIORITY] = priority
    return scenario.create(made)


def team(scenario: Scenario, *, cpu: int = 3, **spec: object) -> None:
    """A queue for one JobSet at a time, on the nodes of a pool."""
    scenario.queue("team", {scenario.flavor("pool", labels=POOL): {"cpu": cpu}}, **spec)


def pods_of(scenario: Scenario, name: str) -> list[Json]:
    """The pods of a JobSet, in any phase."""
    path = resource_path("v1", "pods", namespace=scenario.namespace)
    return scenario.api.items(path, labels=f"{NAME_LABEL}={name}")


def running(scenario: Scenario, name: str) -> list[Json]:
    """The pods of a JobSet that run."""
    return [pod for pod in pods_of(scenario, name) if pod["status"].get("phase") == "Running"]


def wait_pods(scenario: Scenario, name: str, *, count: int = 3) -> list[Json]:
    """Until so many pods of a JobSet run."""
    wait_until(
        lambda: len(running(scenario, name)) == count,
        timeout=TIMEOUT,
        describe=lambda: f"{len(running(scenario, name))} pods of {name} run, not {count}",
    )
    return running(scenario, name)


def read(scenario: Scenario, name: str) -> Json:
    """The JobSet as it is now."""
    found: Json = scenario.api.get(jobset_path(scenario.namespace, name))
    return found


def templates(found: Json) -> list[Json]:
    """The pod templates of a JobSet."""
    return [job["template"]["spec"]["template"] for job in found["spec"]["replicatedJobs"]]


def usage(scenario: Scenario) -> str:
    """What the ClusterQueue says is reserved."""
    status = scenario.api.get(resource_path(GROUP, "clusterqueues", scenario.named("team"))).get("status", {})
    flavors = status.get("flavorsReservation") or []
    return str(flavors[0]["resources"][0].get("total", "0")) if flavors else "0"


class TestAdmission:
    def test_it_waits_for_quota_and_runs_on_the_nodes_of_its_flavor(self, scenario: Scenario) -> None:
        """The second JobSet is suspended, with no pod, until the first one has ended."""
        team(scenario)
        training(scenario, "first")
        pods = wait_pods(scenario, "first")
        assert {pod["spec"]["nodeSelector"]["pool"] for pod in pods} == {"operators"}
        workload = scenario.workload_of("first", kind="JobSet")
        assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [
            ("leader", 1),
            ("workers", 2),
        ]
        training(scenario, "second")
        scenario.wait_pending("second", kind="JobSet")
        assert read(scenario, "second")["spec"]["suspend"] is True
        assert pods_of(scenario, "second") == []

    def test_the_next_one_runs_when_it_has_ended(self, scenario: Scenario, control_plane: ControlPlane) -> None:
        """Its Workload is finished with the JobSet's own message."""
        team(scenario)
        training(scenario, "first")
        wait_pods(scenario, "first")
        training(scenario, "second")
        scenario.wait_pending("second", kind="JobSet")
        control_plane.end_pods(scenario.namespace, labels=f"{NAME_LABEL}=first")
        wait_pods(scenario, "second")
        ended = scenario.wait_workload("first", lambda w: condition(w, "Finished"), kind="JobSet", timeout=TIMEOUT)
        assert condition(ended, "Finished")["reason"] == "Succeeded"


class TestStop:
    def test_a_preempted_jobset_frees_its_quota_when_its_pods_are_gone(self, scenario: Scenario) -> None:
        """Never more pods than quota; the victim's templates are what its owner wrote, and it runs again later."""
        team(scenario, preemption={"withinClusterQueue": "LowerPriority"})
        low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
        created = training(scenario, "victim", priority=low)
        wait_pods(scenario, "victim")
        training(scenario, "urgent", priority=high)
        most = 0

        def urgent_runs() -> bool:
            nonlocal most
            most = max(most, len(running(scenario, "victim")) + len(running(scenario, "urgent")))
            return len(running(scenario, "urgent")) == 3

        wait_until(urgent_runs, timeout=TIMEOUT, describe=lambda: "the preemptor does not run")
        assert most <= 3
        stopped = read(scenario, "victim")
        assert stopped["spec"]["suspend"] is True
        assert templates(stopped) == templates(created)
        scenario.api.delete(jobset_path(scenario.namespace, "urgent"))
        wait_pods(scenario, "victim")

    def test_a_deactivated_jobset_stops_and_frees_its_quota(self, scenario: Scenario) -> None:
        """Its pods go, the templates are restored, and nothing is reserved any more."""
        team(scenario)
        created = training(scenario, "first")
        wait_pods(scenario, "first")
        name = scenario.workload_of("first", kind="JobSet")["metadata"]["name"]
        path = resource_path(GROUP, "workloads", name, namespace=scenario.namespace)
        scenario.api.patch(path, {"spec": {"active": False}})
        wait_until(
            lambda: not pods_of(scenario, "first") and usage(scenario) == "0",
            timeout=TIMEOUT,
            describe=lambda: f"{len(pods_of(scenario, 'first'))} pods, {usage(scenario)} cpu reserved",
        )
        stopped = read(scenario, "first")
        assert stopped["spec"]["suspend"] is True
        assert templates(stopped) == templates(created)

    def test_a_killed_controller_goes_on_where_it_was(self, scenario: Scenario, turnstile: Turnstile) -> None:
        """Killed before a JobSet is admitted, while the JobSet runs and while it stops, Turnstile ends up the same."""
        team(scenario)
        turnstile.kill()
        turnstile.start()
        training(scenario, "first")
        turnstile.kill()
        turnstile.start()
        wait_pods(scenario, "first")
        name = scenario.workload_of("first", kind="JobSet")["metadata"]["name"]
        path = resource_path(GROUP, "workloads", name, namespace=scenario.namespace)
        scenario.api.patch(path, {"spec": {"active": False}})
        turnstile.kill()
        turnstile.start()
        wait_until(
            lambda: not pods_of(scenario, "first") and usage(scenario) == "0",
            timeout=TIMEOUT,
            describe=lambda: f"{len(pods_of(scenario, 'first'))} pods, {usage(scenario)} cpu reserved",
        )
        scenario.api.patch(path, {"spec": {"active": True}})
        wait_pods(scenario, "first")
        wait_until(
            lambda: usage(scenario) == "3",
            timeout=TIMEOUT,
            describe=lambda: f"{usage(scenario)} cpu reserved, not 3",
        )

    def test_a_deleted_jobset_leaves_nothing(self, scenario: Scenario) -> None:
        """No pod, no Workload, no quota."""
        team(scenario)
        training(scenario, "first")
        wait_pods(scenario, "first")
        scenario.api.delete(jobset_path(scenario.namespace, "first"))
        workloads = resource_path(GROUP, "workloads", namespace=scenario.namespace)
        wait_until(
            lambda: not pods_of(scenario, "first") and not scenario.api.items(workloads) and usage(scenario) == "0",
            timeout=90,
            describe=lambda: f"{scenario.api.items(workloads)}, {usage(scenario)} cpu reserved",
        )


class TestReplacement:
    def test_pods_that_stop_slowly_are_not_replaced_beside_themselves(self, scenario: Scenario) -> None:
        """The pods of Jobs of one pod are deleted, and take longer to stop than the Job controller waits."""
        team(scenario)
        made = jobset("slow", replicated_job("workers", replicas=3), namespace=scenario.namespace, queue="team")
        spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
        spec["backoffLimit"] = 6
        spec["template"]["metadata"] = {"annotations": {STOP_FOR: "13s"}}
        scenario.create(made)
        first = wait_pods(scenario, "slow")
        for pod in first:
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=scenario.namespace)
            scenario.api.delete(path)
        names = {pod["metadata"]["name"] for pod in first}
        most = 0

        def ended() -> bool:
            nonlocal most
            seen = {pod["metadata"]["name"] for pod in running(scenario, "slow")}
            most = max(most, len(seen))
            return not seen & names

        wait_until(ended, timeout=60, describe=lambda: f"{len(running(scenario, 'slow'))} pods run")
        assert most == 3


class TestDefinition:
    def test_turnstile_follows_the_crd_as_it_goes_and_comes(
        self, scenario: Scenario, without_definitions: Callable[[str], RunningOperator]
    ) -> None:
        """With JobSets the kind is queued, without its CRD other kinds are, and with the CRD again JobSets are."""
        team(scenario, cpu=4)
        training(scenario, "before")
        wait_pods(scenario, "before")
        operator = without_definitions("jobset")
        scenario.job("plain", queue="team")
        scenario.wait_started("plain", timeout=TIMEOUT)
        operator.install_definitions()
        wait_until(
            lambda: usage(scenario) == "1",
            timeout=90,
            describe=lambda: f"{usage(scenario)} cpu reserved, not 1: the JobSet is gone",
        )
        training(scenario, "after")
        wait_pods(scenario, "after")
