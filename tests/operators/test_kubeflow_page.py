"""The page about Kubeflow, read from top to bottom with the operators that it is about."""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import resource_path, wait_until
from tests.cluster.reader import Reader, queues, team_a
from tests.cluster.scenario import Scenario

__all__ = ["queues", "team_a"]

JOBS = (
    ("kubeflow.org/v1", "pytorchjobs", "finetune"),
    ("kubeflow.org/v2beta1", "mpijobs", "simulate"),
    ("trainer.kubeflow.org/v1alpha1", "trainjobs", "train"),
)


@pytest.fixture
def emptied(team_a: Scenario) -> Iterator[Scenario]:
    """The namespace, without the jobs of the page afterwards."""
    yield team_a
    for version, plural, name in JOBS:
        team_a.api.delete(resource_path(version, plural, name, namespace="team-a"))


@pytest.mark.operator("trainingoperator")
@pytest.mark.operator("mpioperator")
@pytest.mark.operator("trainer", "jobset")
def test_kubeflow(control_plane: ControlPlane, emptied: Scenario) -> None:
    """Each job is admitted with the pod sets that the page names; a larger PyTorchJob is queued again."""
    page = Reader("kubeflow.md", control_plane)
    page.do()
    admission = emptied.wait_admitted("finetune", kind="PyTorchJob")
    assert [each["name"] for each in admission["podSetAssignments"]] == ["master", "worker"]
    page.see(r"finetune +Running(.|\n)*pytorchjob-finetune-\S+ +default +team-a +True")
    page.do()
    path = resource_path("v1", "pods", namespace="team-a")
    workers = "training.kubeflow.org/job-name=finetune,training.kubeflow.org/replica-type=worker"
    wait_until(
        lambda: len(emptied.api.items(path, labels=workers)) == 3,
        timeout=60,
        describe=lambda: f"{len(emptied.api.items(path, labels=workers))} workers, not 3",
    )
    page.do()
    admission = emptied.wait_admitted("simulate", kind="MPIJob")
    assert [each["name"] for each in admission["podSetAssignments"]] == ["launcher", "worker"]
    page.see(r"simulate-launcher-\S+ .*Running(.|\n)*simulate-worker-0 .*Running(.|\n)*simulate-worker-1 .*Running")
    page.do()
    admission = emptied.wait_admitted("train", kind="TrainJob")
    assert [(each["name"], each["count"]) for each in admission["podSetAssignments"]] == [("node", 2)]
    page.see("train (.|\\n)*false")
    page.end()
