"""Kinds that distributions list beside Kueue's: Notebooks, InferenceServices, PipelineRuns."""

from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import QUEUE, Scenario
from tests.operators.rows.row import Attack, Row, end_pods, labelled, metadata, pod_spec

APPS = "apps/v1"
TEKTON = "tekton.dev/v1"
KSERVE = "serving.kserve.io/v1beta1"
KUBEFLOW = "kubeflow.org/v1"
OF_NOTEBOOK = "notebook-name"
OF_SERVICE = "serving.kserve.io/inferenceservice"
OF_RUN = "tekton.dev/pipelineRun"
STOPPED = "kubeflow-resource-stopped"
REQUESTS = "kueue.konflux-ci.dev/requests-cpu"
GATE_PARENT = "kueue.x-k8s.io/pod-suspending-parent"


def _containers(cpu: str) -> list[Json]:
    found: list[Json] = pod_spec(cpu)["containers"]
    return found


# ------------------------------------------------------------------------------------------------------------ Notebook


def _notebook(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    spec = {"template": {"spec": {"containers": _containers(cpu)}}}
    return {"apiVersion": KUBEFLOW, "kind": "Notebook", "metadata": metadata(scenario, name, queue), "spec": spec}


def _notebook_path(scenario: Scenario, name: str) -> str:
    return resource_path(KUBEFLOW, "notebooks", name, namespace=scenario.namespace)


def _set_path(scenario: Scenario, name: str) -> str:
    return resource_path(APPS, "statefulsets", name, namespace=scenario.namespace)


def _started_behind_the_queue(scenario: Scenario, name: str) -> None:
    """Another Notebook is made while this one is stopped; then this one is started again."""
    path = _notebook_path(scenario, name)
    scenario.api.patch(path, {"metadata": {"annotations": {STOPPED: "2026-01-02T03:04:05Z"}}})
    scenario.create(_notebook(scenario, "other", "main", "1"))
    scenario.api.patch(path, {"metadata": {"annotations": {STOPPED: None}}})


def _marks_removed(scenario: Scenario, name: str) -> None:
    """What gets its pod gated is taken off the Notebook, and its pod deleted."""
    path = _notebook_path(scenario, name)
    scenario.api.patch(path, {"metadata": {"annotations": {GATE_PARENT: None}}})
    scenario.api.delete(resource_path("v1", "pods", f"{name}-0", namespace=scenario.namespace))


def _notebook_out_of_the_queue(scenario: Scenario, name: str) -> None:
    scenario.api.patch(_notebook_path(scenario, name), {"metadata": {"labels": {QUEUE: None}}})


def _set_scaled(scenario: Scenario, name: str) -> None:
    """The notebook controller scales it down again."""
    scenario.api.patch(f"{_set_path(scenario, name)}/scale", {"spec": {"replicas": 3}})


def _set_of_other_marks(scenario: Scenario, name: str) -> None:
    """The StatefulSet's template loses what gets its pods queued, and the StatefulSet is scaled up."""
    found = scenario.api.get(_set_path(scenario, name))["spec"]["template"]["metadata"]
    gone = {
        kind: {key: None for key in found.get(kind) or {} if key.startswith("kueue.x-k8s.io/")}
        for kind in ("labels", "annotations")
    }
    spec = {"replicas": 3, "template": {"metadata": gone}}
    scenario.api.patch(_set_path(scenario, name), {"spec": spec})


# ---------------------------------------------------------------------------------------------------- InferenceService


def _service(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    predictor = {"minReplicas": 2, "maxReplicas": 9, "containers": _containers(cpu)}
    meta = metadata(scenario, name, queue, annotations={"serving.kserve.io/autoscalerClass": "none"})
    return {"apiVersion": KSERVE, "kind": "InferenceService", "metadata": meta, "spec": {"predictor": predictor}}


def _change_service(scenario: Scenario, name: str, patch: Json) -> None:
    scenario.api.patch(resource_path(KSERVE, "inferenceservices", name, namespace=scenario.namespace), patch)


def _more_replicas(scenario: Scenario, name: str) -> None:
    _change_service(scenario, name, {"spec": {"predictor": {"minReplicas": 9}}})


def _transformer(scenario: Scenario, name: str) -> None:
    transformer = {"minReplicas": 2, "containers": _containers("1")}
    _change_service(scenario, name, {"spec": {"transformer": transformer}})


def _service_out_of_the_queue(scenario: Scenario, name: str) -> None:
    _change_service(scenario, name, {"metadata": {"labels": {QUEUE: None}}})


def _component_out_of_the_queue(scenario: Scenario, name: str) -> None:
    """The labels of a component take precedence over those of its InferenceService."""
    predictor = {"minReplicas": 4, "labels": {QUEUE: ""}}
    _change_service(scenario, name, {"spec": {"predictor": predictor}})


# --------------------------------------------------------------------------------------------------------- PipelineRun


def _task(name: str, cpu: str) -> Json:
    step = {"name": "main", "image": "registry.example/main:1", "command": ["main"]}
    return {
        "name": name,
        "taskSpec": {"steps": [{**step, "computeResources": {"requests": {"cpu": cpu}}}]},
    }


def _run(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    spec = {"pipelineSpec": {"tasks": [_task("lint", cpu), _task("unit", cpu)]}}
    return {"apiVersion": TEKTON, "kind": "PipelineRun", "metadata": metadata(scenario, name, queue), "spec": spec}


def _run_path(scenario: Scenario, name: str) -> str:
    return resource_path(TEKTON, "pipelineruns", name, namespace=scenario.namespace)


def _begun_behind_the_queue(scenario: Scenario, name: str) -> None:
    """Of a second run, which waits for quota, after Tekton has seen it."""
    scenario.create(_run(scenario, "second", "main", "1"))
    scenario.api.patch(_run_path(scenario, "second"), {"spec": {"status": None}})


def _task_by_hand(scenario: Scenario, name: str) -> None:
    """A TaskRun with labels and annotations of a task of the run."""
    runs = resource_path(TEKTON, "taskruns", namespace=scenario.namespace)
    made = next(each for each in scenario.api.items(runs) if each["metadata"]["labels"].get(OF_RUN) == name)
    meta = {
        "name": f"{name}-by-hand",
        "namespace": scenario.namespace,
        "labels": made["metadata"]["labels"],
        "annotations": made["metadata"]["annotations"],
        "ownerReferences": made["metadata"]["ownerReferences"],
    }
    spec = {"taskSpec": _task("main", "1")["taskSpec"]}
    scenario.create({"apiVersion": TEKTON, "kind": "TaskRun", "metadata": meta, "spec": spec})


def _task_by_hand_without_gate(scenario: Scenario, name: str) -> None:
    """And the gate of its pod is lifted."""
    _task_by_hand(scenario, name)
    path = resource_path("v1", "pods", f"{name}-by-hand-pod", namespace=scenario.namespace)
    wait_until(lambda: scenario.api.find(path), timeout=20, describe=lambda: "Tekton has made no pod")
    scenario.api.patch(path, {"spec": {"schedulingGates": None}})


def _more_tasks(scenario: Scenario, name: str) -> None:
    tasks = [_task(each, "1") for each in ("lint", "unit", "more")]
    scenario.api.patch(_run_path(scenario, name), {"spec": {"pipelineSpec": {"tasks": tasks}}})


def _more_requests(scenario: Scenario, name: str) -> None:
    scenario.api.patch(_run_path(scenario, name), {"metadata": {"annotations": {REQUESTS: "9"}}})


def _run_out_of_the_queue(scenario: Scenario, name: str) -> None:
    meta = {"labels": {QUEUE: None}, "annotations": {GATE_PARENT: None}}
    scenario.api.patch(_run_path(scenario, name), {"metadata": meta})


def _fan_out(scenario: Scenario, name: str) -> None:
    """A run says that it needs little, and makes many pods by a matrix."""
    run = _run(scenario, "fan", "main", "1")
    run["metadata"]["annotations"] = {REQUESTS: "1"}
    matrix = {"params": [{"name": "x", "value": [str(number) for number in range(6)]}]}
    run["spec"]["pipelineSpec"]["tasks"] = [{**_task("all", "1"), "matrix": matrix}]
    run["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["params"] = [{"name": "x", "type": "string"}]
    scenario.create(run)
    scenario.api.patch(_run_path(scenario, name), {"spec": {"status": "Cancelled"}})


ROWS = (
    Row(
        name="notebook",
        api_version=KUBEFLOW,
        kind="Notebook",
        plural="notebooks",
        framework="kubeflow.org/notebook",
        operators=("notebook",),
        make=_notebook,
        pods=1,
        select=labelled(OF_NOTEBOOK),
        end=None,
        owner_kind="Pod",
        replaces_pods=True,
        queued_by_pod=True,
        stand_in="A stand-in makes the StatefulSet that the notebook controller would make.",
        attacks=(
            Attack(
                "Start a Notebook that was stopped while another one took its quota.",
                _started_behind_the_queue,
                "charged",
            ),
            Attack("Take what gets its pod gated off a Notebook, and delete the pod.", _marks_removed, "charged"),
            Attack("Take a running Notebook out of its queue.", _notebook_out_of_the_queue, "refused"),
            Attack("Scale the StatefulSet of a Notebook up.", _set_scaled, "charged"),
            Attack(
                "Take what queues its pods out of the StatefulSet of a Notebook, and scale it.",
                _set_of_other_marks,
                "refused",
            ),
        ),
    ),
    Row(
        name="inferenceservice",
        api_version=KSERVE,
        kind="InferenceService",
        plural="inferenceservices",
        framework="serving.kserve.io/inferenceservice",
        operators=("kserve",),
        beside=(("memory", "1Ti"),),  # KServe gives each container that requests none 2Gi
        make=_service,
        pods=2,
        select=labelled(OF_SERVICE),
        end=None,
        workloads=2,
        owner_kind="Pod",
        replaces_pods=True,
        queued_by_pod=True,
        attacks=(
            Attack("Raise the least number of replicas of an InferenceService.", _more_replicas, "charged"),
            Attack("Add a transformer to an InferenceService that runs.", _transformer, "charged"),
            Attack("Take a running InferenceService out of its queue.", _service_out_of_the_queue, "refused"),
            Attack(
                "Let the predictor name no queue by labels of its own, and scale it.",
                _component_out_of_the_queue,
                "charged",
            ),
        ),
    ),
    Row(
        name="pipelinerun",
        api_version=TEKTON,
        kind="PipelineRun",
        plural="pipelineruns",
        framework="tekton.dev/pipelinerun",
        operators=("tekton",),
        make=_run,
        pods=2,
        select=labelled(OF_RUN),
        end=end_pods(labelled(OF_RUN)),
        runs_again=False,
        attacks=(
            Attack("Let a PipelineRun that waits for quota begin.", _begun_behind_the_queue, "charged"),
            Attack("Create a TaskRun with the labels of a PipelineRun.", _task_by_hand, "charged"),
            Attack("And lift the gate of its pod.", _task_by_hand_without_gate, "refused"),
            Attack("Add a task to a PipelineRun that runs.", _more_tasks, "refused"),
            Attack("Say that a PipelineRun that runs needs more.", _more_requests, "refused"),
            Attack("Take a PipelineRun that runs out of its queue.", _run_out_of_the_queue, "refused"),
            Attack("Let a PipelineRun make more pods by a matrix than it says it needs.", _fan_out, "charged"),
        ),
    ),
)
