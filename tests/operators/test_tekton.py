"""Tekton's real controller does on the bed what it does on a cluster; nothing of ours runs in these namespaces."""

import pytest

from testbed import Api, ApiError, ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from testbed.operators import RunningOperator
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("tekton")

TASK_LABEL = "tekton.dev/pipelineTask"


@pytest.fixture
def pipeline(namespace: str) -> Json:
    """Two tasks side by side, and one after both."""

    def task(name: str, *after: str) -> Json:
        step = {"name": "main", "image": "registry.example/main:1", "command": ["main"]}
        step["computeResources"] = {"requests": {"cpu": "1"}}
        return {"name": name, "taskSpec": {"steps": [step]}, "runAfter": list(after)}

    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "build", "namespace": namespace},
        "spec": {"pipelineSpec": {"tasks": [task("lint"), task("test"), task("ship", "lint", "test")]}},
    }


def test_a_pipelinerun_runs_its_tasks_in_order_and_succeeds(
    control_plane: ControlPlane, api: Api, namespace: str, pipeline: Json
) -> None:
    """The pods of the first two tasks run; when they end that of the last runs; when it ends the run has Succeeded."""
    path = api.path_of(api.create(pipeline))
    wait_running(api, namespace, {"lint": 1, "test": 1}, by=TASK_LABEL)
    control_plane.end_pods(namespace, labels=TASK_LABEL)
    wait_running(api, namespace, {"ship": 1}, by=TASK_LABEL)
    control_plane.end_pods(namespace, labels=f"{TASK_LABEL}=ship")
    api.wait_for(path, lambda run: condition(run, "Succeeded").get("status") == "True", timeout=30)


def test_a_pending_pipelinerun_makes_no_pods_until_it_is_let_go(api: Api, namespace: str, pipeline: Json) -> None:
    """It says that it is pending; let go, the pods of its first tasks run; cancelled, they go."""
    pipeline["spec"]["status"] = "PipelineRunPending"
    path = api.path_of(api.create(pipeline))
    api.wait_for(path, lambda run: condition(run, "Succeeded").get("reason") == "PipelineRunPending", timeout=30)
    task_runs = resource_path("tekton.dev/v1", "taskruns", namespace=namespace)
    assert api.items(task_runs) == []
    api.patch(path, {"spec": {"status": None}})
    wait_running(api, namespace, {"lint": 1, "test": 1}, by=TASK_LABEL)
    # Tekton deletes the pod of a cancelled TaskRun only if the status of the TaskRun names the pod already.
    wait_until(
        lambda: all(each.get("status", {}).get("podName") for each in api.items(task_runs)),
        timeout=30,
        describe=lambda: "no name of a pod in the status of a TaskRun",
    )
    api.patch(path, {"spec": {"status": "Cancelled"}})
    wait_no_pods(api, namespace)
    api.wait_for(path, lambda run: condition(run, "Succeeded").get("reason") == "Cancelled", timeout=30)


def test_its_webhooks_are_called(api: Api, namespace: str, pipeline: Json) -> None:
    """A run gets its defaults and can be read in another version; a task after one that is not there is refused."""
    made = api.create(pipeline)
    assert made["spec"]["timeouts"]["pipeline"]
    other = resource_path("tekton.dev/v1beta1", "pipelineruns", "build", namespace=namespace)
    assert api.get(other)["spec"]["timeouts"] == made["spec"]["timeouts"]
    pipeline["metadata"]["name"] = "astray"
    pipeline["spec"]["pipelineSpec"]["tasks"][2]["runAfter"] = ["no-such-task"]
    with pytest.raises(ApiError, match=r"validation\.webhook\.pipeline\.tekton\.dev"):
        api.create(pipeline)


def test_both_its_processes_can_be_killed_and_started_again(
    api: Api, namespace: str, pipeline: Json, operators: dict[str, RunningOperator]
) -> None:
    """While nobody answers its webhooks no run can be made; with the next processes one can, and runs."""
    operators["tekton"].kill()
    with pytest.raises(ApiError, match="failed calling webhook"):
        api.create(pipeline)
    operators["tekton"].start()
    api.create(pipeline)
    wait_running(api, namespace, {"lint": 1, "test": 1}, by=TASK_LABEL)
