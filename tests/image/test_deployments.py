"""The chart's Deployments run from the image: their own command lines, users and variables, on a read-only root."""

from collections.abc import Iterator

import pytest

from testbed.client import condition
from testbed.installation import MANAGED
from tests.cluster.deployed import Deployed
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster


@pytest.fixture
def scenario(deployed: Deployed) -> Iterator[Scenario]:
    """A managed namespace on the control plane of the deployment."""
    made = Scenario(deployed.cp.api, deployed.cp.namespace(labels=MANAGED))
    yield made
    made.remove()


def test_probes_succeed(deployed: Deployed) -> None:
    """All probes of both Deployments are answered."""
    for replica in deployed.replicas:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert replica.probe(probe) == "", probe


def test_a_job_is_suspended_and_admitted(deployed: Deployed, scenario: Scenario) -> None:
    """The webhook suspends each Job; the controller admits the first; the second waits; nothing was forbidden."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    assert scenario.job("first", queue="team")["spec"]["suspend"] is True
    scenario.wait_started("first")
    scenario.job("second", queue="team")
    assert condition(scenario.wait_workload("second", bool), "Admitted") == {}
    scenario.wait_pending("second")
    assert scenario.suspended("second")
    assert deployed.forbidden() == set()
