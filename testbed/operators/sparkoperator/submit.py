"""Plays `spark-submit`, which the operator calls and which is not here: makes the pod of an application's driver.

The pod is made as Spark makes it of the settings it is given: pod template, labels, annotations, node selector, cores,
and memory with its overhead. The pod of an executor, which the process inside the driver would make, is written into a
ConfigMap beside the driver, for a test that plays this process.
"""

import copy
import json
import math
import os
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from testbed.client import Json
from testbed.kubeconfig import service_account_client

_MEMORY = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_MEBIBYTES = {"": 1 / 1024**2, "k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}


def settings(arguments: Sequence[str]) -> dict[str, str]:
    """What the operator gave after `--conf`."""
    pairs = [value for option, value in pairwise(arguments) if option == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def pod(role: str, conf: Mapping[str, str], template: Json, application: str) -> Json:
    """The pod of a driver or an executor, without a name."""
    made = {"metadata": {}, "spec": {}, **copy.deepcopy(template), "apiVersion": "v1", "kind": "Pod"}
    meta, spec = made["metadata"], made["spec"]
    meta.pop("creationTimestamp", None)
    meta["namespace"] = conf["spark.kubernetes.namespace"]
    meta["labels"] = {
        **(meta.get("labels") or {}),
        **_below(f"spark.kubernetes.{role}.label.", conf),
        "spark-role": role,
        "spark-app-selector": application,
    }
    meta["annotations"] = {**(meta.get("annotations") or {}), **_below(f"spark.kubernetes.{role}.annotation.", conf)}
    spec["nodeSelector"] = {
        **(spec.get("nodeSelector") or {}),
        **_below("spark.kubernetes.node.selector.", conf),
        **_below(f"spark.kubernetes.{role}.node.selector.", conf),
    }
    spec["restartPolicy"] = "Never"
    wanted = conf[f"spark.kubernetes.{role}.podTemplateContainerName"]
    container = next(container for container in spec["containers"] if container["name"] == wanted)
    if image := conf.get(f"spark.kubernetes.{role}.container.image", conf.get("spark.kubernetes.container.image")):
        container["image"] = image
    memory = f"{_memory(role, conf)}Mi"
    cores = conf.get(f"spark.kubernetes.{role}.request.cores", conf.get(f"spark.{role}.cores", "1"))
    limits = {"memory": memory}
    if limit := conf.get(f"spark.kubernetes.{role}.limit.cores"):
        limits["cpu"] = limit
    container["resources"] = {"requests": {"cpu": cores, "memory": memory}, "limits": limits}
    return made


def _below(prefix: str, conf: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}


def _memory(role: str, conf: Mapping[str, str]) -> int:
    heap = _mebibytes(conf.get(f"spark.{role}.memory", "1g"))
    factor = float(conf.get("spark.kubernetes.memoryOverheadFactor", "0.1"))
    said = conf.get(f"spark.{role}.memoryOverhead")
    return math.ceil(heap + (_mebibytes(said) if said else max(factor * heap, 384)))


def _mebibytes(text: str) -> float:
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an amount of memory")
    return int(found[1]) * _MEBIBYTES[found[2].lower()]


def main() -> None:
    """Make both objects with the rights of the operator, whose kubeconfig is in the environment."""
    api = service_account_client(Path(os.environ["KUBECONFIG"]))
    conf = settings(sys.argv[1:])
    application = f"spark-{uuid.uuid4().hex}"
    driver, executor = (
        pod(role, conf, yaml.safe_load(Path(conf[f"spark.kubernetes.{role}.podTemplateFile"]).read_text()), application)
        for role in ("driver", "executor")
    )
    name = driver["metadata"]["name"] = conf["spark.kubernetes.driver.pod.name"]
    made = api.create_when_known(driver, refusal="failed to get SparkApplication")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"], "controller": True}
    executor["metadata"].setdefault("ownerReferences", []).insert(0, owner)  # beside the application
    meta = {"name": f"{name}-conf-map", "namespace": made["metadata"]["namespace"], "ownerReferences": [owner]}
    data = {"executor": json.dumps(executor), "instances": conf.get("spark.executor.instances", "2")}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


if __name__ == "__main__":
    main()
