"""Quota that is held and not used, for a shorter time than the chart's half an hour."""

from collections.abc import Iterator

import pytest

from testbed.client import condition
from testbed.installation import Installation
from tests.cluster.configured import configured
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
"""


@pytest.fixture(scope="module")
def world(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    """A managed namespace of a Turnstile that takes quota back after four seconds without a running pod."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE, "--unused-after", "4") as found:
        found.start()
        with found.team() as scenario:
            yield scenario


def test_a_job_whose_pods_find_no_node_gives_way(world: Scenario) -> None:
    """It waits again after a back-off; the next Job runs, and stays: nothing is written about it."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    world.job("stuck", queue="team", cpu="2", template={"nodeSelector": {"there-is": "none"}})
    world.wait_started("stuck")
    world.job("next", queue="team", cpu="2")
    evicted = world.wait_workload("stuck", lambda w: condition(w, "Evicted").get("status") == "True", timeout=20)
    assert condition(evicted, "Evicted")["message"] == "None of its pods has run for 4s"
    assert evicted["status"]["requeueState"]["requeueAt"]
    world.wait_started("next", timeout=20)
    version = world.workload_of("next")["metadata"]["resourceVersion"]
    world.job("third", queue="team", cpu="2", template={"nodeSelector": {"there-is": "none"}})
    world.wait_pending("third")
    world.queue("beside", {world.flavor("other"): {"cpu": 2}})
    world.job("stuck-later", queue="beside", cpu="2", template={"nodeSelector": {"there-is": "none"}})
    world.wait_workload("stuck-later", lambda w: condition(w, "Evicted").get("status") == "True", timeout=20)
    assert world.workload_of("next")["metadata"]["resourceVersion"] == version
