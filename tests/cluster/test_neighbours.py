"""A flood of Jobs in one namespace does not hold up the Job of another."""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import resource_path, wait_until
from testbed.installation import MANAGED
from tests.cluster.scenario import GROUP, Scenario, job
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

FLOOD = 250
FIRST = 20
"""Jobs of the flood that are queued before the neighbour's Job is created: by then all of them are known."""


@pytest.fixture
def flooded(control_plane: ControlPlane, turnstile: Turnstile, nodes: dict[str, str]) -> Iterator[Scenario]:
    """A namespace with many suspended Jobs, which is not managed yet."""
    scenario = Scenario(control_plane.api, control_plane.namespace("flooded"))
    scenario.queue("main", {scenario.flavor("plain"): {"cpu": "1"}})
    for number in range(FLOOD):
        made = job(f"flood-{number:03}", namespace=scenario.namespace, queue="main")
        made["spec"]["suspend"] = True
        scenario.api.create(made)
    yield scenario
    scenario.remove()


def test_a_job_starts_before_the_flood_of_another_namespace_is_worked_off(
    flooded: Scenario, scenario: Scenario
) -> None:
    """All Jobs of the flood are to be queued at once when their namespace becomes managed; the neighbour's Job is
    created when the first of them are queued, and starts before the last of them is."""
    workloads = resource_path(GROUP, "workloads", namespace=flooded.namespace)
    scenario.queue("main", {scenario.flavor("plain"): {"cpu": "1"}})

    def queued() -> int:
        return len(flooded.api.items(workloads))

    flooded.api.patch(resource_path("v1", "namespaces", flooded.namespace), {"metadata": {"labels": MANAGED}})
    wait_until(lambda: queued() >= FIRST, timeout=60, describe=lambda: f"{queued()} Jobs of the flood are queued")
    scenario.job("one", queue="main")
    scenario.wait_started("one", timeout=60)
    assert queued() < FLOOD
    # Each look reads all Workloads of the flood.
    wait_until(
        lambda: queued() == FLOOD, timeout=120, describe=lambda: f"{queued()} Jobs of the flood are queued", every=1
    )
