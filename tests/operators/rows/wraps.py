"""AppWrapper under its own controller, and SparkApplication under the Spark operator.

No process runs in the pods: kwok plays their phases. `spark-submit` is played by the test bed, and the process inside
the driver, which makes the executors, by the row.
"""

import copy
import json

from testbed.client import Json, resource_path
from tests.cluster.scenario import Scenario
from tests.operators.rows.row import Attack, Row, end_pods, labelled, metadata, pod_spec
from tests.operators.spark import VERSION as SPARK
from tests.operators.spark import application, application_path, end_executors_without_driver, play_driver

VERSION = "workload.codeflare.dev/v1beta2"
WRAPPED = labelled("workload.codeflare.dev/appwrapper")
PODSET = "kueue.x-k8s.io/podset"


def _component(kind: str, api_version: str, name: str, spec: Json, **more: Json) -> Json:
    return {"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}, **more}


def _job(name: str, cpu: str, pods: int, **meta: Json) -> Json:
    template = {"metadata": meta, "spec": pod_spec(cpu)}
    return _component("Job", "batch/v1", name, {"parallelism": pods, "completions": pods, "template": template})


def _appwrapper(scenario: Scenario, name: str, queue: str, *components: Json) -> Json:
    meta = metadata(scenario, name, queue)
    return {"apiVersion": VERSION, "kind": "AppWrapper", "metadata": meta, "spec": {"components": list(components)}}


def _jobs(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    """A Job of one pod and a Job of two."""
    return _appwrapper(scenario, name, queue, _job(f"{name}-leader", cpu, 1), _job(f"{name}-workers", cpu, 2))


def _service(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    """A Deployment of two pods, and a Pod."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {**pod_spec(cpu), "restartPolicy": "Always"}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return _appwrapper(
        scenario,
        name,
        queue,
        _component("Deployment", "apps/v1", f"{name}-web", spec),
        _component("Pod", "v1", f"{name}-probe", pod_spec(cpu)),
    )


def _path(scenario: Scenario, name: str) -> str:
    return resource_path(VERSION, "appwrappers", name, namespace=scenario.namespace)


def _delete(scenario: Scenario, name: str) -> None:
    """A Deployment runs for ever, and so does an AppWrapper of one."""
    scenario.api.delete(_path(scenario, name))


def _components_as_written(job: Json) -> object:
    """The components without what an admission assigned to them."""
    return [{key: part for key, part in each.items() if key != "podSetInfos"} for each in job["spec"]["components"]]


def _raise_child(scenario: Scenario, name: str) -> None:
    path = resource_path("batch/v1", "jobs", f"{name}-workers", namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"parallelism": 9}})


def _add_component(scenario: Scenario, name: str) -> None:
    more = {"op": "add", "path": "/spec/components/-", "value": _job("more", "1", 9)}
    scenario.api.patch(_path(scenario, name), [more], kind="json")


def _change_assignment(scenario: Scenario, name: str) -> None:
    moved = {"op": "replace", "path": "/spec/components/1/podSetInfos/0/nodeSelector", "value": {"pool": "plain"}}
    scenario.api.patch(_path(scenario, name), [moved], kind="json")


def _declare_less(scenario: Scenario, name: str) -> None:
    """As a second AppWrapper, which would be admitted beside the first one if it were believed."""
    job = {**_job("second", "1", 9), "podSets": [{"path": "template.spec.template", "replicas": 0}]}
    scenario.create(_appwrapper(scenario, "second", "main", job))


def _forge_child(scenario: Scenario, name: str) -> None:
    found = scenario.api.get(_path(scenario, name))
    owner = {"apiVersion": VERSION, "kind": "AppWrapper", "name": name, "uid": found["metadata"]["uid"]}
    made = _job("forged", "1", 9, labels={PODSET: f"{name}-1"})["template"]
    made["metadata"] |= {"namespace": scenario.namespace, "ownerReferences": [{**owner, "controller": True}]}
    scenario.create(made)


def _nest(scenario: Scenario, name: str) -> None:
    inner = _appwrapper(scenario, "inner", "", _job("nested", "1", 9))
    scenario.create(_appwrapper(scenario, "outer", "main", {"template": inner}, _job("small", "0", 1)))


def _resume(scenario: Scenario, name: str) -> None:
    scenario.create(_jobs(scenario, "second", "main", "1"))
    scenario.api.patch(_path(scenario, "second"), {"spec": {"suspend": False}})


def _scale_deployment(scenario: Scenario, name: str) -> None:
    path = resource_path("apps/v1", "deployments", f"{name}-web", namespace=scenario.namespace)
    scenario.api.patch(f"{path}/scale", {"spec": {"replicas": 9}})


# ---------------------------------------------------------------------------------------------- the Spark operator

OF_APPLICATION = labelled("sparkoperator.k8s.io/app-name")


def _application(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return application(name, namespace=scenario.namespace, executors=2, cpu=cpu, queue=queue)


def _play(scenario: Scenario, name: str) -> None:
    """The driver makes the executors; an executor that has lost its driver ends."""
    play_driver(scenario.api, scenario.namespace, name)
    end_executors_without_driver(scenario.api, scenario.namespace, name)


def _change(scenario: Scenario, name: str, spec: Json) -> None:
    scenario.api.patch(application_path(scenario.namespace, name), {"spec": spec})


def _more_executors(scenario: Scenario, name: str) -> None:
    _change(scenario, name, {"executor": {"instances": 9}})


def _larger_driver(scenario: Scenario, name: str) -> None:
    _change(scenario, name, {"driver": {"coreRequest": "9"}})


def _dynamic(scenario: Scenario, name: str) -> None:
    _change(scenario, name, {"dynamicAllocation": {"enabled": True, "maxExecutors": 9}})


def _dynamic_by_property(scenario: Scenario, name: str) -> None:
    _change(scenario, name, {"sparkConf": {"spark.dynamicAllocation.enabled": "true"}})


def _greedy_driver(scenario: Scenario, name: str) -> None:
    """What the program in the driver can do with the rights that it needs anyway."""
    path = resource_path("v1", "configmaps", f"{name}-driver-conf-map", namespace=scenario.namespace)
    template = json.loads(scenario.api.get(path)["data"]["executor"])
    for number in range(3, 10):
        executor = copy.deepcopy(template)
        executor["metadata"]["name"] = f"{name}-driver-exec-{number}"
        scenario.api.create(executor)


def _another_driver(scenario: Scenario, name: str) -> None:
    """A submission that fails is repeated; until then the quota must not be given away."""
    policy = {"type": "Always", "onFailureRetryInterval": 1, "onSubmissionFailureRetryInterval": 1}
    _change(scenario, name, {"restartPolicy": policy})


ROWS = (
    Row(
        name="appwrapper",
        api_version=VERSION,
        kind="AppWrapper",
        plural="appwrappers",
        framework="workload.codeflare.dev/appwrapper",
        operators=("appwrapper",),
        make=_jobs,
        pods=3,
        select=WRAPPED,
        end=end_pods(WRAPPED),
        written=_components_as_written,
        attacks=(
            Attack("Raise the parallelism of a wrapped Job.", _raise_child, "refused"),
            Attack("Add a component to an AppWrapper that runs.", _add_component, "refused"),
            Attack("Move the pods of a running AppWrapper to other nodes.", _change_assignment, "refused"),
            Attack("Declare no pods for a component that has nine.", _declare_less, "refused"),
            Attack("Create a Job that says an AppWrapper wraps it.", _forge_child, "stopped"),
            Attack("Wrap an AppWrapper into an AppWrapper.", _nest, "refused"),
            Attack("Resume an AppWrapper that waits for quota.", _resume, "refused"),
        ),
    ),
    Row(
        name="appwrapper-deployment",
        told="AppWrapper of a Deployment",
        api_version=VERSION,
        kind="AppWrapper",
        plural="appwrappers",
        framework="workload.codeflare.dev/appwrapper",
        operators=("appwrapper",),
        make=_service,
        pods=3,
        select=WRAPPED,
        end=_delete,
        written=_components_as_written,
        attacks=(Attack("Scale a wrapped Deployment through its subresource.", _scale_deployment, "stopped"),),
    ),
    Row(
        name="sparkapplication",
        api_version=SPARK,
        kind="SparkApplication",
        plural="sparkapplications",
        framework="sparkoperator.k8s.io/sparkapplication",
        operators=("sparkoperator",),
        make=_application,
        pods=3,
        select=OF_APPLICATION,
        end=end_pods(OF_APPLICATION),
        play=_play,
        beside=(("memory", "100Gi"),),
        stand_in="There is no Spark: the test bed plays spark-submit, the test the driver, which makes executors.",
        attacks=(
            Attack("Raise the executors of a SparkApplication that runs.", _more_executors, "refused"),
            Attack("Raise the cores of its driver.", _larger_driver, "stopped"),
            Attack("Switch dynamic allocation on.", _dynamic, "refused"),
            Attack("Switch dynamic allocation on in `sparkConf`.", _dynamic_by_property, "refused"),
            Attack("Let the program in the driver make more executors than it should.", _greedy_driver, "stopped"),
            Attack("Have the operator start driver after driver.", _another_driver, "charged"),
        ),
    ),
)
