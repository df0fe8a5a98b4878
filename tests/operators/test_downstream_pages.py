"""The pages about pipelines, notebooks and models, read from top to bottom with the operators that they are about."""

import pytest

from testbed import ControlPlane
from testbed.client import resource_path, wait_until
from tests.cluster.reader import Reader, queues, team_a
from tests.cluster.scenario import Scenario

__all__ = ["queues", "team_a"]


def wait_gone(team: Scenario, *labels: str) -> None:
    """Until the namespace has no pod with one of the labels; the garbage collector learns of new kinds late."""
    path = resource_path("v1", "pods", namespace=team.namespace)
    wait_until(
        lambda: not any(team.api.items(path, labels=label) for label in labels),
        timeout=90,
        describe=lambda: f"pods with labels of {labels} are left",
    )


@pytest.mark.operator("tekton")
@pytest.mark.operator("notebook")
def test_pipelines_and_notebooks(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A run is admitted and begins; one of tasks by reference reserves what it says; a Notebook's pod is admitted."""
    page = Reader("pipelines-and-notebooks.md", control_plane)
    page.do()
    admission = team_a.wait_admitted("build", kind="PipelineRun")
    usage = {each["name"]: each["resourceUsage"] for each in admission["podSetAssignments"]}
    assert usage["main"] == {"cpu": "2", "memory": "2Gi"}
    page.see("build", "pipelinerun-build-.* default +team-a +True")
    page.do()
    admission = team_a.wait_admitted("release", kind="PipelineRun")
    assert admission["podSetAssignments"][0]["resourceUsage"] == {"cpu": "2", "memory": "4Gi"}
    page.do()
    page.see("workbench-0 .* Running")
    page.end()
    for version, plural, name in (
        ("tekton.dev/v1", "pipelineruns", "build"),
        ("tekton.dev/v1", "pipelineruns", "release"),
        ("kubeflow.org/v1", "notebooks", "workbench"),
    ):
        team_a.api.delete(resource_path(version, plural, name, namespace="team-a"))
    wait_gone(team_a, "tekton.dev/pipelineRun", "notebook-name")


@pytest.mark.operator("kserve")
def test_inference(control_plane: ControlPlane, team_a: Scenario) -> None:
    """Both pods of the predictor are admitted, each with a Workload of its own."""
    page = Reader("inference.md", control_plane)
    page.do()
    path = resource_path("v1", "pods", namespace="team-a")
    wait_until(  # the second pod is added by the autoscaler, which looks every 15 s
        lambda: len(team_a.api.items(path, labels="serving.kserve.io/inferenceservice=model")) == 2,
        timeout=60,
        describe=lambda: "the predictor has not two pods",
    )
    page.see(
        r"model-predictor-\S+ .*Running(.|\n)*model-predictor-\S+ .*Running",
        r"pod-model-predictor-\S+ +default +team-a +True(.|\n)*pod-model-predictor-\S+ +default +team-a +True",
    )
    page.end()
    team_a.api.delete(resource_path("serving.kserve.io/v1beta1", "inferenceservices", "model", namespace="team-a"))
    wait_gone(team_a, "serving.kserve.io/inferenceservice")
