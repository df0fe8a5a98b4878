"""The page about Argo Workflows, read from top to bottom with Argo's controller."""

import pytest

from testbed import ControlPlane
from testbed.client import Json, resource_path
from tests.cluster.reader import TASKS, Reader
from tests.documents import blocks
from tests.submitters.desk import Queue, named

pytestmark = [pytest.mark.cluster, pytest.mark.operator("argo")]

GROUP = "argoproj.io/v1alpha1"
WORKFLOW = resource_path(GROUP, "workflows", "train", namespace="team-a")
STEPS = "workflows.argoproj.io/workflow=train"
RUNNING = f"{STEPS},workflows.argoproj.io/completed=false"


def test_argo_workflows(control_plane: ControlPlane, full_queue: Queue) -> None:
    """The pod of each step waits for quota, the second after the first has ended; then the Workflow succeeds."""
    page = Reader("argo-workflows.md", control_plane)
    page.run("kubectl apply -f -", named(blocks(TASKS / "argo-workflows.md", "yaml")[0]))
    page.skip("yaml")
    full_queue.wait_gated(RUNNING)
    page.see(r"train-step-\d+ .*SchedulingGated", r"pod-train-step-\S+ +by-label +False")
    page.end()
    full_queue.open()
    (first,) = full_queue.wait_runs(RUNNING)
    full_queue.fill_next()
    end(full_queue, first)
    full_queue.wait_gated(RUNNING)
    full_queue.open()
    (second,) = full_queue.wait_runs(RUNNING)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    end(full_queue, second)
    full_queue.api.wait_for(
        WORKFLOW, lambda workflow: workflow["status"].get("phase") == "Succeeded", timeout=60, describe="succeeded"
    )


def end(queue: Queue, pod: Json) -> None:
    """Let a step end: its containers, and what its executor would report in a WorkflowTaskResult before that."""
    metadata = pod["metadata"]
    queue.api.create(
        {
            "apiVersion": GROUP,
            "kind": "WorkflowTaskResult",
            "metadata": {
                "namespace": metadata["namespace"],
                "name": metadata["annotations"]["workflows.argoproj.io/node-id"],
                "labels": {
                    "workflows.argoproj.io/workflow": "train",
                    "workflows.argoproj.io/report-outputs-completed": "true",
                },
            },
        }
    )
    queue.end(RUNNING)
