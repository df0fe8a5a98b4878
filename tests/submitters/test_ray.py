"""The page about Ray from Python, read from top to bottom with the CodeFlare SDK and KubeRay."""

from collections.abc import Callable
from typing import Final

import pytest

from testbed.client import resource_path
from tests.submitters.desk import Desk, Queue

pytestmark = [pytest.mark.cluster, pytest.mark.submitter("ray"), pytest.mark.operator("kuberay")]

CLUSTER: Final = resource_path("ray.io/v1", "rayclusters", "train", namespace="team-a")
PODS: Final = "ray.io/cluster=train"


def test_ray(full_queue: Queue, desk: Callable[..., Desk]) -> None:
    """The RayCluster waits for quota and the script for the RayCluster; it gets ready, and its quota is free when it is
    deleted."""
    page = desk("ray-from-python.md")
    run = full_queue.submitter = page.begin()
    full_queue.wait(lambda: full_queue.api.find(CLUSTER), describe=lambda: run.printed)
    full_queue.team.wait_pending("train", kind="RayCluster", timeout=30)
    page.see("true", r"raycluster-train-\w+ +by-label +False")
    assert full_queue.pods(PODS) == []
    full_queue.open()
    full_queue.wait_runs(PODS, 3)
    assert "up and running" in run.end()
    page.do()
    page.end()
    full_queue.wait_workload_gone("RayCluster")
