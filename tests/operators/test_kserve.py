"""KServe's real controller does on the bed what it does on a cluster; nothing of ours runs in these namespaces."""

import pytest

from testbed import Api, ApiError, resource_path
from testbed.client import Json, condition
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("kserve")

SERVICE_LABEL = "serving.kserve.io/inferenceservice"


@pytest.fixture
def serving(namespace: str) -> Json:
    """Two replicas of a container."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "model", "namespace": namespace},
        "spec": {"predictor": {"minReplicas": 2, "maxReplicas": 3, "containers": [container]}},
    }


def test_an_inferenceservice_runs_and_is_stopped(api: Api, namespace: str, serving: Json) -> None:
    """Its Deployment runs the least number of replicas and it is ready; stopped by its annotation, its pods go."""
    path = api.path_of(api.create(serving))
    wait_running(api, namespace, {"model": 2}, by=SERVICE_LABEL)
    api.wait_for(path, lambda isvc: condition(isvc, "PredictorReady").get("status") == "True", timeout=30)
    api.patch(path, {"metadata": {"annotations": {"serving.kserve.io/stop": "true"}}})
    wait_no_pods(api, namespace)
    api.patch(path, {"metadata": {"annotations": {"serving.kserve.io/stop": None}}})
    wait_running(api, namespace, {"model": 2}, by=SERVICE_LABEL)


def test_its_labels_are_those_of_its_deployment_and_pods(api: Api, namespace: str, serving: Json) -> None:
    """A label of the InferenceService is on the Deployment and on the pods, so a queue may be said there."""
    serving["metadata"]["labels"] = {"example.com/team": "red"}
    api.create(serving)
    wait_running(api, namespace, {"red": 2}, by="example.com/team")
    (deployment,) = api.items(resource_path("apps/v1", "deployments", namespace=namespace))
    assert deployment["metadata"]["labels"]["example.com/team"] == "red"


def test_its_webhooks_are_called(api: Api, serving: Json) -> None:
    """An InferenceService gets its deployment mode, and one of fewer replicas than none is refused."""
    made = api.create(serving)
    assert made["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] == "Standard"
    serving["metadata"]["name"] = "negative"
    serving["spec"]["predictor"]["minReplicas"] = -1
    with pytest.raises(ApiError, match=r"inferenceservice\.kserve-webhook-server\.validator"):
        api.create(serving)
