"""Jobs that compete for several flavors at once, on a real control plane: variants, migration, the end."""

from collections.abc import Iterator

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario, resource_groups

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {ConcurrentAdmission: true}
"""
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"
PARENT = "kueue.x-k8s.io/concurrent-admission-parent"


@pytest.fixture(scope="module")
def running(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile with the gate."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        found.start()
        yield found


def workloads(scenario: Scenario) -> list[Json]:
    """All Workloads of the namespace."""
    return scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))


def used(scenario: Scenario, queue: str) -> dict[str, str]:
    """CPUs that are reserved of each flavor."""
    found = scenario.api.get(resource_path(GROUP, "clusterqueues", queue))
    flavors = found.get("status", {}).get("flavorsReservation", ())
    return {each["name"]: each["resources"][0]["total"] for each in flavors}


def is_true(workload: Json, kind: str) -> bool:
    """Whether a condition of a Workload is True."""
    return condition(workload, kind).get("status") == "True"


def described(scenario: Scenario) -> str:
    """The Workloads, for a test that fails."""
    return "; ".join(
        f"{each['metadata']['name']} {each['spec'].get('active', True)} "
        f"{[(c['type'], c['status'], c['reason']) for c in each.get('status', {}).get('conditions', ())]}"
        for each in workloads(scenario)
    )


def test_a_job_moves_to_the_better_flavor_when_it_is_free(running: Configured) -> None:
    """It starts in the flavor that is free, is charged once, moves when there is quota in a better one, and leaves
    nothing behind."""
    with running.team() as scenario:
        better, spot = scenario.flavor("better"), scenario.flavor("spot")
        policy = {"migration": {"mode": "TryPreferredFlavors"}}
        queue = scenario.queue("team", {better: {"cpu": 0}, spot: {"cpu": 4}}, concurrentAdmissionPolicy=policy)
        scenario.job("train", queue="team", cpu="2")
        scenario.wait_started("train", timeout=60)
        wait_until(
            lambda: used(scenario, queue) == {better: "0", spot: "2"},
            timeout=30,
            describe=lambda: f"{used(scenario, queue)}: {described(scenario)}",
        )
        (parent,) = [each for each in workloads(scenario) if each["metadata"].get("labels", {}).get(PARENT)]
        assert is_true(parent, "Admitted")
        flavors = {each["metadata"].get("annotations", {}).get(ALLOWED) for each in workloads(scenario)}
        assert flavors == {None, better, spot}
        first = {each["metadata"]["uid"] for each in scenario.pods_of("train")}
        scenario.patch_queue(queue, {"resourceGroups": resource_groups({better: {"cpu": 2}, spot: {"cpu": 4}})})
        wait_until(
            lambda: used(scenario, queue) == {better: "2", spot: "0"} and not scenario.suspended("train"),
            timeout=60,
            describe=lambda: f"{used(scenario, queue)}: {described(scenario)}",
        )
        wait_until(
            lambda: bool({each["metadata"]["uid"] for each in scenario.pods_of("train")} - first),
            timeout=30,
            describe=lambda: described(scenario),
        )
        scenario.delete_job("train")
        wait_until(
            lambda: not workloads(scenario) and used(scenario, queue) == {better: "0", spot: "0"},
            timeout=60,
            describe=lambda: f"{used(scenario, queue)}: {described(scenario)}",
        )
