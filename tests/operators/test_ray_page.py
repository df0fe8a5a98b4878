"""The page about Ray, read from top to bottom with KubeRay."""

import pytest

from testbed import ControlPlane
from testbed.client import resource_path
from tests.cluster.reader import Reader, queues, team_a, use_up
from tests.cluster.scenario import Scenario

__all__ = ["queues", "team_a"]


@pytest.mark.operator("kuberay")
def test_ray(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A RayJob waits for quota for its whole cluster, which KubeRay makes when there is quota."""
    use_up(team_a, 40, 20)
    page = Reader("ray.md", control_plane)
    page.do()
    page.see("true", "head workers")
    team_a.delete_job("large-0")
    team_a.delete_job("large-1")
    page.see(r"train-\w+")
    page.end()
    team_a.api.delete(resource_path("ray.io/v1", "rayjobs", "train", namespace="team-a"))
