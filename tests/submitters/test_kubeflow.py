"""The page about Kubeflow's SDK, read from top to bottom with the SDK, Trainer and JobSet."""

from collections.abc import Callable

import pytest

from testbed.client import resource_path
from tests.submitters.desk import Desk, Queue

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.submitter("kubeflow"),
    pytest.mark.operator("jobset", "trainer"),
]

TRAINJOBS = resource_path("trainer.kubeflow.org/v1alpha1", "trainjobs", namespace="team-a")


def test_kubeflow(full_queue: Queue, desk: Callable[..., Desk]) -> None:
    """The TrainJob waits for quota and the script for the TrainJob; its nodes run together, and both end."""
    page = desk("kubeflow-from-python.md")
    run = full_queue.submitter = page.begin()
    [made] = full_queue.wait(lambda: full_queue.api.items(TRAINJOBS), describe=lambda: run.printed)
    name = made["metadata"]["name"]
    full_queue.team.wait_pending(name, kind="TrainJob")
    page.see(rf"{name} +true", rf"trainjob-{name}-\w+ +by-label +False")
    page.end()
    nodes = f"jobset.sigs.k8s.io/jobset-name={name}"
    assert full_queue.pods(nodes) == []
    full_queue.open()
    full_queue.wait_runs(nodes, 2)
    full_queue.end(nodes)
    assert "Complete" in run.end()
    full_queue.wait_finished(name, kind="TrainJob")
