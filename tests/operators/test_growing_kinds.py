"""Jobs of operators that grow and shrink while they run: as many pods run as are charged for, and no more."""

from collections.abc import Callable

import pytest

from testbed import Api, ApiError, ControlPlane, resource_path
from testbed.client import Json, wait_until
from tests.cluster.scenario import Scenario
from tests.operators.jobsets import NAME_LABEL, jobset, jobset_path, replicated_job
from tests.operators.test_trainingoperator import VERSION, training_job
from turnstile.api import names

pytestmark = pytest.mark.usefixtures("nodes", "turnstile")

ELASTIC = {names.ELASTIC_JOB: "true"}
PODS = {"train-set": f"{NAME_LABEL}=train-set", "train": "training.kubeflow.org/job-name=train"}


def elastic(job: Json) -> Json:
    """The job in queue `team`, with the annotation."""
    meta = job["metadata"]
    meta["labels"] = {names.QUEUE_LABEL: "team", **meta.get("labels", {})}
    meta["annotations"] = {**ELASTIC, **meta.get("annotations", {})}
    return job


def pods(api: Api, namespace: str, name: str) -> tuple[int, int]:
    """How many pods of a job run, and how many are gated."""
    found = api.items(resource_path("v1", "pods", namespace=namespace), labels=PODS[name])
    running = sum(each["status"].get("phase") == "Running" for each in found)
    return running, sum(bool(each["spec"].get("schedulingGates")) for each in found)


def grow_and_shrink(scenario: Scenario, name: str, scale: Callable[[int], None]) -> None:
    """From one pod to three, to more than the quota, and back to one, which lets another Job start."""

    def wait(running: int, gated: int) -> None:
        wait_until(
            lambda: pods(scenario.api, scenario.namespace, name) == (running, gated),
            timeout=90,
            describe=lambda: f"{pods(scenario.api, scenario.namespace, name)}, not {(running, gated)}",
        )

    wait(1, 0)
    scale(3)
    wait(3, 0)
    scale(5)
    wait(3, 2)
    scenario.wait_event(name, reason="GrowthPending", timeout=60)
    scenario.job("waits", queue="team", cpu="2")
    scenario.wait_pending("waits", timeout=60)
    scale(1)
    wait(1, 0)
    scenario.wait_started("waits", timeout=60)


def editor(control_plane: ControlPlane, scenario: Scenario, path: str) -> Api:
    """A user who may change PyTorchJobs, and whom no policy exempts."""
    group, user = "rbac.authorization.k8s.io", "eve"
    meta = {"name": user, "namespace": scenario.namespace}
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get", "patch"]}]
    scenario.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    bound = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    scenario.create({"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, **bound})
    tenant = control_plane.api_as(user)

    def may() -> bool:
        try:
            tenant.get(path)
        except ApiError as error:
            if error.code != 403:
                raise
            return False
        return True

    wait_until(may, timeout=60, describe=lambda: "the tenant has no rights")
    return tenant


@pytest.mark.operator("trainingoperator")
def test_a_pytorchjob_is_charged_for_the_workers_that_it_has(control_plane: ControlPlane, scenario: Scenario) -> None:
    """Though its elastic policy lets an autoscaler make nine of them; here the autoscaler's write is played. Its user
    may write the number too, but not take the gate out of the template with that."""
    scenario.queue("team", {scenario.flavor("pool", labels={"pool": "operators"}): {"cpu": 3}})
    job = elastic(training_job("PyTorchJob", scenario.namespace))
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 9, "metrics": [metric]}
    scenario.create(job)
    path = resource_path(VERSION, "pytorchjobs", "train", namespace=scenario.namespace)

    tenant = editor(control_plane, scenario, path)

    def write(workers: int) -> None:
        tenant.patch(path, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}})

    def scale(workers: int) -> None:
        scenario.api.patch(path + "/scale", {"spec": {"replicas": workers}})

    grow_and_shrink(scenario, "train", lambda workers: (write if workers == 3 else scale)(workers))
    ungated = {"template": {"spec": {"schedulingGates": None}}, "replicas": 3}
    with pytest.raises(ApiError, match="more pods need more quota"):
        tenant.patch(path, {"spec": {"pytorchReplicaSpecs": {"Worker": ungated}}})


@pytest.mark.operator("jobset")
def test_a_jobset_grows_with_its_indexed_job(scenario: Scenario) -> None:
    """The JobSet controller, whose gate ElasticJobSet is on, changes the child Job."""
    scenario.queue("team", {scenario.flavor("pool", labels={"pool": "operators"}): {"cpu": 3}})
    workers = replicated_job("workers")
    workers["template"]["spec"]["completionMode"] = "Indexed"
    scenario.create(elastic(jobset("train-set", workers, namespace=scenario.namespace, queue="team")))
    path = jobset_path(scenario.namespace, "train-set")

    def scale(count: int) -> None:
        at = "/spec/replicatedJobs/0/template/spec"
        changes = [
            {"op": "replace", "path": f"{at}/{field}", "value": count} for field in ("parallelism", "completions")
        ]
        scenario.api.patch(path, changes, kind="json")

    grow_and_shrink(scenario, "train-set", scale)
