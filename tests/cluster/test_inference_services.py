"""The pods of an InferenceService are queued one by one; the test plays KServe, which copies labels and annotations to
the Deployment and to its pods. `tests/operators` has the real one."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from testbed import ControlPlane
from testbed.client import Json, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.absent_kinds import definition
from tests.cluster.scenario import QUEUE, Scenario
from tests.cluster.test_deployments import scale, wait_phases
from tests.turnstile import Turnstile
from turnstile.jobs.kinds.inferenceservice import InferenceService

pytestmark = pytest.mark.cluster

VERSION = "serving.kserve.io/v1beta1"


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> Iterator[None]:
    """The API server serves the kind."""
    made = definition(InferenceService, served=("v1beta1",))
    for version in made["spec"]["versions"]:
        version["subresources"] = {"status": {}}
    control_plane.api.create(made)

    def served() -> bool:
        with suppress(ApiError):
            return bool(control_plane.api.get(resource_path(VERSION, "inferenceservices")))
        return False

    wait_until(served, timeout=30, describe=lambda: "the kind is not served")
    yield
    control_plane.api.delete(control_plane.api.path_of(made))


@pytest.fixture
def service(scenario: Scenario, turnstile: Turnstile, defined: None) -> str:
    """The path of an InferenceService on a quota of one CPU, with two replicas of its predictor."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    meta = {"name": "model", "namespace": scenario.namespace, "labels": {QUEUE: "team"}}
    made = scenario.create({"apiVersion": VERSION, "kind": "InferenceService", "metadata": meta, "spec": {}})
    labels, annotations = made["metadata"]["labels"], made["metadata"]["annotations"]
    container = {"name": "main", "image": "registry.example/model:1", "resources": {"requests": {"cpu": "1"}}}
    deployment: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "model",
            "namespace": scenario.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": VERSION,
                    "kind": "InferenceService",
                    "name": "model",
                    "uid": made["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "model"}},
            "template": {
                "metadata": {"labels": {**labels, "app": "model"}, "annotations": annotations},
                "spec": {"containers": [container]},
            },
        },
    }
    scenario.create(deployment)
    return resource_path(VERSION, "inferenceservices", "model", namespace=scenario.namespace)


def test_each_pod_waits_for_quota(scenario: Scenario, service: str) -> None:
    """One of two runs; the other one does when the first is gone."""
    wait_phases(scenario, "model", running=1, held=1)
    scale(scenario, "model", 1)
    wait_phases(scenario, "model", running=1, held=0)


def test_one_that_runs_stays_in_its_queue(scenario: Scenario, service: str) -> None:
    """Neither another queue nor none."""
    status = {"conditions": [{"type": "PredictorReady", "status": "True"}]}
    scenario.api.patch(f"{service}/status", {"status": status})
    for queue in (None, "other"):
        with pytest.raises(ApiError, match="field is immutable"):
            scenario.api.patch(service, {"metadata": {"labels": {QUEUE: queue}}})
