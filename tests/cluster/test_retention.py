"""`objectRetentionPolicies` and UnadmittedWorkloadsExplicitStatus, under the rights that the chart gives for them."""

import time
from collections.abc import Iterator

import pytest

from testbed.client import condition, resource_path, wait_until
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario, job_path
from tests.cluster.serving import pods, stateful_set
from tests.cluster.test_admission_checks import answer, check

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, pod, statefulset]}
managedJobsNamespaceSelector: {matchLabels: {kueue-managed: "true"}}
objectRetentionPolicies:
  workloads: {afterFinished: 1s, afterDeactivatedByKueue: 1s}
featureGates: {UnadmittedWorkloadsExplicitStatus: true}
"""


@pytest.fixture(scope="module")
def installed(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """Turnstile runs with this file; the chart is installed with its policies, and as before in the end."""
    policies = "config.objectRetentionPolicies.workloads"
    idle_installation.install(
        "config.integrations.frameworks={batch/job,pod,statefulset}",
        f"{policies}.afterFinished=1s",
        f"{policies}.afterDeactivatedByKueue=1s",
    )
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        found.start()
        yield found
    idle_installation.install()


@pytest.fixture
def world(installed: Configured) -> Iterator[Scenario]:
    """A managed namespace with a queue for one CPU."""
    installed.started[-1].require_running()
    with installed.team() as world:
        world.queue("main", {world.flavor("plain"): {"cpu": "1"}})
        yield world


def workloads(world: Scenario) -> list[str]:
    """Names of the Workloads of a namespace."""
    found = world.api.items(resource_path(GROUP, "workloads", namespace=world.namespace))
    return [each["metadata"]["name"] for each in found]


def wait_none(world: Scenario) -> None:
    """Wait until the namespace has no Workload."""
    wait_until(lambda: not workloads(world), timeout=30, describe=lambda: f"Workloads left: {workloads(world)}")


def test_the_workload_of_a_finished_job_goes_and_does_not_come_back(world: Scenario) -> None:
    """The Job stays."""
    world.job("short", queue="main", run_for="100ms")
    world.wait_started("short")
    wait_none(world)
    world.job("next", queue="main")
    world.wait_started("next")  # so the finished Job has been reconciled again since
    (only,) = workloads(world)
    assert only == world.workload_of("next")["metadata"]["name"]
    assert condition(world.api.get(job_path(world.namespace, "short")), "Complete")["status"] == "True"


def test_the_workload_of_a_job_that_was_deleted_without_it_goes(world: Scenario) -> None:
    """`kubectl delete job --cascade=orphan`: the Workload has no owner any more, ends, and is kept no longer than any
    other."""
    world.job("left", queue="main")
    world.wait_started("left")
    world.api.delete(job_path(world.namespace, "left"), propagation="Orphan")
    pods_path = resource_path("v1", "pods", namespace=world.namespace)
    wait_until(lambda: workloads(world), timeout=10, describe=lambda: "the Workload went with its job")
    world.api.wait_gone(job_path(world.namespace, "left"), timeout=20)
    for pod in world.api.items(pods_path):
        world.api.delete(resource_path("v1", "pods", pod["metadata"]["name"], namespace=world.namespace))
    wait_none(world)


def test_a_job_over_its_time_limit_is_deleted(world: Scenario) -> None:
    """With its pods and its Workload."""
    world.job("long", queue="main", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    world.wait_started("long")
    world.api.wait_gone(job_path(world.namespace, "long"), timeout=40)
    wait_none(world)


def test_a_job_that_its_user_deactivated_stays(world: Scenario) -> None:
    """Another Job that Turnstile deactivated meanwhile is deleted."""
    world.job("mine", queue="main")
    world.wait_started("mine")
    name = world.workload_of("mine")["metadata"]["name"]
    world.api.patch(resource_path(GROUP, "workloads", name, namespace=world.namespace), {"spec": {"active": False}})
    world.job("long", queue="main", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    world.wait_started("long")
    world.api.wait_gone(job_path(world.namespace, "long"), timeout=40)
    assert world.api.get(job_path(world.namespace, "mine"))["spec"]["suspend"] is True


def test_the_pods_of_a_deactivated_set_are_left_to_it(world: Scenario) -> None:
    """Pods that were deleted would be created again at once, and deleted again. The next Job finds the quota free."""
    full = check(world, "budget")
    strategy = {"admissionChecks": [{"name": full}]}
    queue = world.cluster_queue("checked", {world.flavor("other"): {"cpu": "1"}}, admissionChecksStrategy=strategy)
    world.local_queue("checked", queue)
    stateful_set(world, "db", replicas=1, queue="checked")
    wait_until(lambda: workloads(world), timeout=20, describe=lambda: "no Workload")
    name = workloads(world)[0].removeprefix("statefulset-")
    answer(world, "db", full, "Rejected", kind="StatefulSet")
    path = resource_path(GROUP, "workloads", f"statefulset-{name}", namespace=world.namespace)
    world.api.wait_for(path, lambda seen: condition(seen, "Evicted").get("status") == "True", describe="Evicted")
    created: set[str] = set()
    end = time.monotonic() + 6

    def over() -> bool:
        created.update(each["metadata"]["uid"] for each in pods(world, "db"))
        return time.monotonic() > end

    wait_until(over, timeout=20, describe=str)
    assert len(created) <= 2  # the one that was stopped, if it was bound, and the one that waits


def test_a_workload_says_from_the_start_that_it_waits(world: Scenario) -> None:
    """Also if no decision was made about it, because its queue is held."""
    queue = world.cluster_queue("held", {world.flavor("other"): {"cpu": "1"}}, stopPolicy="Hold")
    world.local_queue("held", queue)
    world.job("waiting", queue="held")
    found = world.workload_of("waiting")["metadata"]["name"]
    path = resource_path(GROUP, "workloads", found, namespace=world.namespace)
    world.api.wait_for(path, lambda seen: condition(seen, "Admitted").get("status") == "False", describe="Admitted")
