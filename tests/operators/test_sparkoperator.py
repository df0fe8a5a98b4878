"""The real Spark operator does on the bed what it does on a cluster, with `spark-submit` played by the bed and the
process inside the driver by the test; nothing of ours runs in these namespaces."""

from typing import Any

import pytest

from testbed import Api, ApiError, ControlPlane
from testbed.client import Json, resource_path, wait_until
from testbed.operators.sparkoperator.submit import pod, settings
from tests.operators.pods import wait_no_pods, wait_running
from tests.operators.spark import ROLE_LABEL, application, application_path, end_executors_without_driver, play_driver

operated = pytest.mark.operator("sparkoperator")


def in_state(state: str) -> Any:
    """Holds when the application is in that state."""
    return lambda app: app.get("status", {}).get("applicationState", {}).get("state") == state


def wait_all_running(api: Api, namespace: str, name: str) -> None:
    """Until its driver and two executors run, which the driver makes."""

    def look() -> bool:
        play_driver(api, namespace, name)
        return in_state("RUNNING")(api.get(application_path(namespace, name)))

    wait_until(look, timeout=30, describe=lambda: f"{name} does not run: {api.get(application_path(namespace, name))}")
    wait_running(api, namespace, {"driver": 1, "executor": 2}, by=ROLE_LABEL)


@operated
def test_an_application_runs_is_suspended_is_resumed_and_completes(
    control_plane: ControlPlane, api: Api, namespace: str
) -> None:
    """Driver and executors run; suspended, they go; resumed, they run again; when the driver ends it is COMPLETED."""
    path = api.path_of(api.create(application("pi", namespace=namespace, executors=2)))
    wait_all_running(api, namespace, "pi")
    api.patch(path, {"spec": {"suspend": True}})
    api.wait_for(path, in_state("SUSPENDED"), timeout=30)
    api.wait_gone(resource_path("v1", "pods", "pi-driver", namespace=namespace), timeout=30)
    end_executors_without_driver(api, namespace, "pi")
    wait_no_pods(api, namespace)
    api.patch(path, {"spec": {"suspend": False}})
    wait_all_running(api, namespace, "pi")
    control_plane.end_pods(namespace, labels=ROLE_LABEL)
    api.wait_for(path, in_state("COMPLETED"), timeout=30)


@operated
def test_its_webhooks_are_called(api: Api, namespace: str) -> None:
    """An application gets its defaults, and one that selects nodes twice is refused by the operator's own code."""
    made = api.create(application("pi", namespace=namespace, executors=2, suspend=True))
    assert made["spec"]["restartPolicy"]["type"] == "Never"
    twice = application("twice", namespace=namespace, executors=2, nodeSelector={"pool": "a"})
    twice["spec"]["driver"]["nodeSelector"] = {"pool": "b"}
    with pytest.raises(ApiError, match=r"validate-sparkapplication\.sparkoperator\.k8s\.io"):
        api.create(twice)


def test_what_is_submitted_becomes_the_pods_settings() -> None:
    """Memory has its overhead, a role's own node selector is added to that of both, the pod template is kept."""
    conf = settings(
        [
            *("--master", "k8s://https://kubernetes.default.svc:443", "--conf", "spark.kubernetes.namespace=team"),
            *("--conf", "spark.kubernetes.executor.podTemplateContainerName=executor"),
            *("--conf", "spark.kubernetes.container.image=registry.example/spark:4.0"),
            *("--conf", "spark.kubernetes.node.selector.zone=a", "--conf", "spark.executor.memory=8g"),
            *("--conf", "spark.kubernetes.executor.node.selector.pool=gpu", "--conf", "spark.executor.cores=3"),
            *("--conf", "spark.kubernetes.executor.label.team=red", "--conf", "spark.driver.memory=512m"),
            *("--conf", "spark.kubernetes.executor.limit.cores=4", "local:///main.jar", "argument"),
        ]
    )
    gates = [{"name": "example.com/gate"}]
    template: Json = {"spec": {"schedulingGates": gates, "containers": [{"name": "executor"}]}}
    made = pod("executor", conf, template, "spark-1")
    assert made["metadata"]["labels"] == {"team": "red", "spark-role": "executor", "spark-app-selector": "spark-1"}
    assert made["spec"]["nodeSelector"] == {"zone": "a", "pool": "gpu"}
    assert made["spec"]["schedulingGates"] == gates
    (container,) = made["spec"]["containers"]
    assert container["image"] == "registry.example/spark:4.0"
    assert container["resources"] == {
        "requests": {"cpu": "3", "memory": "9012Mi"},
        "limits": {"cpu": "4", "memory": "9012Mi"},
    }
