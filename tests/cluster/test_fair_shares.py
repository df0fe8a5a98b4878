"""Shares in the status of ClusterQueues and Cohorts, while a configuration switches fair sharing on."""

from collections.abc import Iterator

import pytest

from testbed.client import resource_path
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
"""
FAIR = """
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare]
"""
MAX_INT64 = 2**63 - 1


@pytest.fixture(scope="module")
def installed(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """Turnstile's objects, and the configuration file to start it with."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE + FAIR) as found:
        yield found


@pytest.fixture
def world(installed: Configured) -> Iterator[Scenario]:
    """An empty managed namespace."""
    with installed.team() as scenario:
        yield scenario


def wait_share(world: Scenario, kind: str, name: str, share: int | None) -> None:
    """Wait until the status has that share; None for none."""
    world.api.wait_for(
        resource_path(GROUP, kind, name),
        lambda found: (found.get("status", {}).get("fairSharing") or {}).get("weightedShare") == share,
        timeout=10,
        describe=f"a share of {share}",
    )


def test_shares_follow_what_is_borrowed(installed: Configured, world: Scenario) -> None:
    """Zero at first; a Job that borrows raises those on its way up, more quota of another queue lowers them, and a
    weight of 0 makes what borrows the largest of all. Nothing of it is left once fair sharing is switched off."""
    process = installed.start()
    flavor = world.flavor("plain")
    near, far = world.cohort("near", parent=world.cohort("far")), world.named("far")
    borrower = world.queue("borrower", {flavor: {"cpu": 1}}, cohort="near")
    lender = world.queue("lender", {flavor: {"cpu": 4}}, cohort="far")
    for kind, name in (("clusterqueues", borrower), ("clusterqueues", lender), ("cohorts", near), ("cohorts", far)):
        wait_share(world, kind, name, 0)
    world.job("wide", queue="borrower", cpu="3")
    world.wait_started("wide")
    wait_share(world, "clusterqueues", borrower, 400)
    wait_share(world, "cohorts", near, 400)
    wait_share(world, "cohorts", far, 0)
    world.patch_queue(lender, {"resourceGroups": _cpu(flavor, 7)})
    wait_share(world, "clusterqueues", borrower, 250)
    wait_share(world, "cohorts", near, 250)
    world.patch_queue(borrower, {"fairSharing": {"weight": "0"}})
    wait_share(world, "clusterqueues", borrower, MAX_INT64)
    wait_share(world, "cohorts", near, 250)
    process.terminate()
    installed.file.write_text(FILE)
    process = installed.start()
    for kind, name in (("clusterqueues", borrower), ("cohorts", near), ("cohorts", far)):
        wait_share(world, kind, name, None)
    process.terminate()


def _cpu(flavor: str, quota: int) -> list[dict[str, object]]:
    resources = [{"name": "cpu", "nominalQuota": quota}]
    return [{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": resources}]}]
