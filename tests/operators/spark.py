"""Words about SparkApplications: to make them, and to play the process inside the driver."""

import copy
import json
from typing import Any

from testbed import Api, resource_path
from testbed.client import Json
from testbed.errors import ApiError
from tests.cluster.scenario import QUEUE

VERSION = "sparkoperator.k8s.io/v1beta2"
ROLE_LABEL = "spark-role"
APPLICATION_LABEL = "sparkoperator.k8s.io/app-name"


def application_path(namespace: str, name: str) -> str:
    """URL path of a SparkApplication."""
    return resource_path(VERSION, "sparkapplications", name, namespace=namespace)


def application(
    name: str, *, namespace: str, executors: int, cpu: str = "1", queue: str | None = None, **spec: Any
) -> Json:
    """An application of a driver and `executors`, of `cpu` each."""
    role = {"coreRequest": cpu, "memory": "512m", "serviceAccount": "default"}
    return {
        "apiVersion": VERSION,
        "kind": "SparkApplication",
        "metadata": {"name": name, "namespace": namespace, "labels": {QUEUE: queue} if queue else {}},
        "spec": {
            "type": "Scala",
            "mode": "cluster",
            "image": "registry.example/spark:4.0",
            "mainClass": "org.example.Main",
            "mainApplicationFile": "local:///main.jar",
            "sparkVersion": "4.0.0",
            "driver": dict(role),
            "executor": {**role, "instances": executors},
            **spec,
        },
    }


def play_driver(api: Api, namespace: str, name: str) -> None:
    """Make the executors of an application, as the process inside its driver does once the driver's pod runs; may be
    called again and again."""
    driver = f"{name}-driver"
    pods = resource_path("v1", "pods", namespace=namespace)
    found = api.find(f"{pods}/{driver}")
    handed = api.find(resource_path("v1", "configmaps", f"{driver}-conf-map", namespace=namespace))
    if found is None or found["status"].get("phase") != "Running" or handed is None:
        return
    template = json.loads(handed["data"]["executor"])
    if template["metadata"]["ownerReferences"][0]["uid"] != found["metadata"]["uid"]:
        return  # the ConfigMap of an earlier driver
    for number in range(1, int(handed["data"]["instances"]) + 1):
        executor = copy.deepcopy(template)
        executor["metadata"]["name"] = f"{driver}-exec-{number}"
        executor["metadata"]["labels"]["spark-exec-id"] = str(number)
        if api.find(f"{pods}/{executor['metadata']['name']}") is None:
            try:
                api.create(executor)
            except ApiError as error:
                if "is suspended" not in str(error):  # the operator deletes this driver, which goes on until then
                    raise
                return


def end_executors_without_driver(api: Api, namespace: str, name: str) -> None:
    """Delete the executors whose driver is gone, as they end by themselves. The garbage collector leaves them alone,
    because the application owns them too."""
    pods = resource_path("v1", "pods", namespace=namespace)
    driver = api.find(f"{pods}/{name}-driver")
    lives = driver is not None and "deletionTimestamp" not in driver["metadata"]
    uid = driver["metadata"]["uid"] if driver is not None else ""
    for pod in api.items(pods, labels=f"{APPLICATION_LABEL}={name},{ROLE_LABEL}=executor"):
        meta = pod["metadata"]
        if not lives or meta["ownerReferences"][0]["uid"] != uid:
            api.delete(f"{pods}/{meta['name']}")
