"""The page about JobSet and LeaderWorkerSet, read from top to bottom with their operators."""

import pytest

from testbed import ControlPlane
from tests.cluster.reader import Reader, queues, team_a
from tests.cluster.scenario import Scenario

__all__ = ["queues", "team_a"]


@pytest.mark.operator("jobset")
@pytest.mark.operator("lws")
def test_jobset_and_leaderworkerset(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A JobSet is admitted as a whole; a LeaderWorkerSet group by group, and scaled down."""
    page = Reader("jobset-and-leaderworkerset.md", control_plane)
    page.do()
    page.see(r"jobset-training-\w+ +default +team-a +True", r"training-driver-0-0-\w+ .*Running")
    page.do()
    page.see(r"leaderworkerset-model-0-\w+ +2", r"leaderworkerset-model-1-\w+ +2")
    page.do()
    page.do()
    page.end()
