"""A Job that changes its parallelism while it runs, on a real control plane: slices, gates, quota that follows pods."""

from collections.abc import Iterator

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario, job, job_path

pytestmark = pytest.mark.cluster

ELASTIC = "kueue.x-k8s.io/elastic-job"
PRIORITY = "kueue.x-k8s.io/priority-class"
FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
"""


def elastic(scenario: Scenario, name: str = "grows", *, pods: int = 1, **more: str) -> None:
    """Create an elastic Job with pods of one CPU that run until they are deleted."""
    body = job(name, namespace=scenario.namespace, queue="team", pods=pods, labels=more)
    body["metadata"]["annotations"] = {ELASTIC: "true"}
    body["spec"] |= {"completions": 100, "backoffLimit": 9}
    scenario.create(body)


def scale(scenario: Scenario, parallelism: int, name: str = "grows") -> None:
    """Change the parallelism of a Job."""
    scenario.api.patch(job_path(scenario.namespace, name), {"spec": {"parallelism": parallelism}})


def slices(scenario: Scenario, name: str = "grows") -> list[Json]:
    """The unfinished Workloads of a Job, the first first."""
    path = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    owned = [
        each
        for each in scenario.api.items(path)
        if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", ()))
        and condition(each, "Finished").get("status") != "True"
    ]
    return sorted(owned, key=lambda each: int(each["metadata"]["resourceVersion"]))


def sizes(scenario: Scenario, name: str = "grows") -> list[tuple[int, bool]]:
    """Pods of each unfinished slice, and whether it is admitted; sorted."""
    return sorted(
        (each["spec"]["podSets"][0]["count"], condition(each, "Admitted").get("status") == "True")
        for each in slices(scenario, name)
    )


def bound(scenario: Scenario, name: str = "grows") -> int:
    """How many pods of a Job have a node and are not being deleted."""
    return sum(
        bool(each["spec"].get("nodeName")) and not each["metadata"].get("deletionTimestamp")
        for each in scenario.pods_of(name)
    )


def used(scenario: Scenario, queue: str) -> str:
    """CPUs that are reserved in a ClusterQueue, as its status says."""
    found = scenario.api.get(resource_path(GROUP, "clusterqueues", queue))
    (flavor,) = found["status"]["flavorsReservation"]
    total: str = flavor["resources"][0]["total"]
    return total


def wait_for(scenario: Scenario, pods: int, wanted: list[tuple[int, bool]], name: str = "grows") -> None:
    """Wait until so many pods of a Job run, and its slices are these."""
    wait_until(
        lambda: (bound(scenario, name), sizes(scenario, name)) == (pods, wanted),
        timeout=30,
        describe=lambda: f"{bound(scenario, name)} pods run, slices are {sizes(scenario, name)}, not {pods}, {wanted}",
    )


def test_it_grows_when_there_is_quota(scenario: Scenario) -> None:
    """The second slice takes the place of the first, and the new pods run."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
    elastic(scenario)
    wait_for(scenario, 1, [(1, True)])
    scale(scenario, 3)
    wait_for(scenario, 3, [(3, True)])
    scale(scenario, 4)
    wait_for(scenario, 4, [(4, True)])
    wait_until(lambda: used(scenario, queue) == "4", timeout=10, describe=lambda: used(scenario, queue))
    path = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    ended = [condition(each, "Finished").get("reason") for each in scenario.api.items(path)]
    assert ended.count("WorkloadSliceReplaced") == 2


def test_growth_waits_while_the_job_runs_on(scenario: Scenario) -> None:
    """Its new pods are gated, the Job says why, and they run when there is quota."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    elastic(scenario, pods=2)
    wait_for(scenario, 2, [(2, True)])
    scale(scenario, 3)
    wait_for(scenario, 2, [(2, True), (3, False)])
    wait_until(lambda: len(scenario.pods_of("grows")) == 3, timeout=10, describe=lambda: "no third pod is made")
    flavor = f"{scenario.named('plain')}"
    scenario.api.patch(
        resource_path(GROUP, "clusterqueues", queue),
        {
            "spec": {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": 3}]}],
                    }
                ]
            }
        },
    )
    wait_for(scenario, 3, [(3, True)])


def test_it_gives_quota_back_when_its_pods_have_gone(scenario: Scenario) -> None:
    """Another Job starts then, and not while they still run."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}})
    body = job("grows", namespace=scenario.namespace, queue="team", pods=3)
    body["metadata"]["annotations"] = {ELASTIC: "true"}
    body["spec"] |= {"completions": 100, "backoffLimit": 9}
    body["spec"]["template"]["metadata"]["annotations"] |= {STOP_FOR: "4s"}
    scenario.create(body)
    wait_for(scenario, 3, [(3, True)])
    scale(scenario, 1)
    scenario.job("next", queue="team", cpu="2")
    wait_until(lambda: bound(scenario) == 1, timeout=20, describe=lambda: "no pod is deleted")
    assert scenario.suspended("next")
    scenario.wait_started("next", timeout=30)
    assert len([each for each in scenario.pods_of("grows") if each["status"].get("phase") == "Running"]) == 1
    assert sizes(scenario) == [(1, True)]


def test_an_evicted_job_starts_again_with_all_its_pods(scenario: Scenario) -> None:
    """The whole chain goes, and comes back as one Workload."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 1), scenario.priority_class("high", 9)
    elastic(scenario, pods=2, **{PRIORITY: low})
    wait_for(scenario, 2, [(2, True)])
    scale(scenario, 4)
    wait_for(scenario, 4, [(4, True)])
    scale(scenario, 5)
    wait_until(lambda: len(slices(scenario)) == 2, timeout=10, describe=lambda: f"{sizes(scenario)}")
    scenario.job("urgent", queue="team", cpu="4", labels={PRIORITY: high})
    scenario.wait_started("urgent", timeout=30)
    wait_until(lambda: bound(scenario) == 0, timeout=20, describe=lambda: "its pods stay")
    scale(scenario, 3)
    scenario.delete_job("urgent")
    wait_for(scenario, 3, [(3, True)])


@pytest.fixture(scope="module")
def kept(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile that is killed and started anew."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        yield found


class TestAControllerThatIsKilled:
    """At any moment of the growth."""

    def test_the_next_one_goes_on(self, kept: Configured) -> None:
        """No slice is left over, no pod stays gated, and no quota is counted twice."""
        process = kept.start()
        with kept.team() as scenario:
            queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 6}})
            elastic(scenario)
            wait_for(scenario, 1, [(1, True)])
            for parallelism, told in ((3, "made"), (5, "admitted"), (6, "replaced")):
                scale(scenario, parallelism)
                _wait_until_it_has_come_to(scenario, told)
                process.kill()
                process = kept.start()
                wait_for(scenario, parallelism, [(parallelism, True)])
            wait_until(lambda: used(scenario, queue) == "6", timeout=10, describe=lambda: used(scenario, queue))


def _wait_until_it_has_come_to(scenario: Scenario, told: str) -> None:
    wait_until(lambda: _has_come_to(scenario, told), timeout=20, describe=lambda: f"{told}: {sizes(scenario)}")


def _has_come_to(scenario: Scenario, told: str) -> bool:
    found = slices(scenario)
    if told == "made":
        return len(found) == 2
    if told == "admitted":
        return any(condition(each, "Admitted").get("status") == "True" for each in found[-1:])
    return len(found) == 1
