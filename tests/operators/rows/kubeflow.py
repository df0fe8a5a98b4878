"""Jobs of Kubeflow: those of the training operator, MPIJob under the MPI operator, TrainJob under Trainer.

No process runs in the pods, so nobody trains, and an MPI launcher ends when its test ends its pod; the operators read
nothing else of them than their phases.
"""

from collections.abc import Callable
from functools import partial

from testbed.client import Json, resource_path
from tests.cluster.scenario import Scenario
from tests.operators.jobsets import NAME_LABEL, jobset, jobset_path, replicated_job
from tests.operators.rows.row import Attack, Row, end_pods, labelled, metadata, pod_spec, spec_without_suspend

JOB_NAME = "training.kubeflow.org/job-name"
ROLE = "training.kubeflow.org/job-role"
PODSET = "kueue.x-k8s.io/podset"
TRAINER = "trainer.kubeflow.org/v1alpha1"
NOTHING_TRAINS = "No process runs in the pods; the operator reads their phases, which kwok plays."


# ---------------------------------------------------------------------------------------------- the training operator


def _replica(container: str, cpu: str, replicas: int) -> Json:
    spec = pod_spec(cpu)
    spec["containers"][0]["name"] = container
    return {"replicas": replicas, "restartPolicy": "Never", "template": {"spec": spec}}


def _training(
    kind: str, field: str, container: str, replicas: dict[str, int], scenario: Scenario, name: str, queue: str, cpu: str
) -> Json:
    specs = {replica_type: _replica(container, cpu, count) for replica_type, count in replicas.items()}
    meta = metadata(scenario, name, queue)
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": meta, "spec": {field: specs}}


def _patch(plural: str, spec: Json, scenario: Scenario, name: str) -> None:
    version = "kubeflow.org/v2beta1" if plural == "mpijobs" else "kubeflow.org/v1"
    scenario.api.patch(resource_path(version, plural, name, namespace=scenario.namespace), {"spec": spec})


def _add_type(plural: str, field: str, container: str, replica_type: str, scenario: Scenario, name: str) -> None:
    _patch(plural, {field: {replica_type: _replica(container, "9", 1)}}, scenario, name)


def _scale(scenario: Scenario, name: str) -> None:
    path = resource_path("kubeflow.org/v1", "pytorchjobs", name, namespace=scenario.namespace)
    scenario.api.patch(f"{path}/scale", {"spec": {"replicas": 9}})


def _resume(scenario: Scenario, name: str) -> None:
    """Of a second job, which waits for quota."""
    made = _training("PyTorchJob", "pytorchReplicaSpecs", "pytorch", {"Worker": 9}, scenario, "second", "main", "1")
    scenario.create(made)
    _patch("pytorchjobs", {"runPolicy": {"suspend": False}}, scenario, "second")


def _autoscale(scenario: Scenario, name: str) -> None:
    utilization = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    policy = {"minReplicas": 9, "maxReplicas": 9, "metrics": [{"type": "Resource", "resource": utilization}]}
    _patch("pytorchjobs", {"elasticPolicy": policy}, scenario, name)


def _forged_pod(scenario: Scenario, name: str) -> None:
    """With the labels by which the operator adopts pods and Turnstile counts them."""
    path = resource_path("kubeflow.org/v1", "pytorchjobs", name, namespace=scenario.namespace)
    job = scenario.api.get(path)
    reference = {key: job[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": job["metadata"]["uid"]}
    meta = {
        "name": f"{name}-worker-9",
        "namespace": scenario.namespace,
        "labels": {PODSET: "worker", "kueue.x-k8s.io/queue-name": "main"},
        "ownerReferences": [{**reference, "controller": True}],
    }
    scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec("9")})


_PYTORCH = (
    Attack("Scale a running PyTorchJob through its subresource.", _scale, "stopped"),
    Attack(
        "Add a HorizontalPodAutoscaler to a running PyTorchJob by an elastic policy; it is charged for all workers.",
        _autoscale,
        "stopped",
    ),
    Attack("Resume a PyTorchJob that waits for quota.", _resume, "refused"),
    Attack("Create a large Pod that says that a running PyTorchJob controls it.", _forged_pod, "refused"),
)


def _training_row(kind: str, field: str, container: str, replicas: dict[str, int], *attacks: Attack) -> Row:
    plural = f"{kind.lower()}s"
    grows = {field: {"Worker": {"replicas": 9}}}
    larger = {field: {"Worker": _replica(container, "9", replicas["Worker"])}}
    return Row(
        name=kind.lower(),
        api_version="kubeflow.org/v1",
        kind=kind,
        plural=plural,
        framework=f"kubeflow.org/{kind.lower()}",
        operators=("trainingoperator",),
        make=partial(_training, kind, field, container, replicas),
        pods=sum(replicas.values()),
        select=labelled(JOB_NAME),
        end=end_pods(labelled(JOB_NAME)),
        stand_in=NOTHING_TRAINS,
        attacks=(
            Attack(f"Raise the workers of a running {kind}.", partial(_patch, plural, grows), "refused"),
            Attack(
                f"Raise the requests of the workers of a running {kind}.", partial(_patch, plural, larger), "stopped"
            ),
            *attacks,
        ),
    )


# --------------------------------------------------------------------------------------------------- the MPI operator


def _mpijob(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    specs = {"Launcher": _replica("mpi", cpu, 1), "Worker": _replica("mpi", cpu, 2)}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": metadata(scenario, name, queue),
        "spec": {"runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": specs},
    }


def _launcher(pod: Json, name: str) -> bool:
    return labelled(JOB_NAME)(pod, name) and pod["metadata"]["labels"].get(ROLE) == "launcher"


def _launcher_job(scenario: Scenario, name: str) -> None:
    path = resource_path("batch/v1", "jobs", f"{name}-launcher", namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"parallelism": 9}})


def _forged_launcher(scenario: Scenario, name: str) -> None:
    """A second launcher, with the label by which the first one is counted."""
    path = resource_path("kubeflow.org/v2beta1", "mpijobs", name, namespace=scenario.namespace)
    owner = scenario.api.get(path)
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": owner["metadata"]["uid"]}
    template = {"metadata": {"labels": {PODSET: "launcher"}}, "spec": pod_spec("1")}
    meta = {
        "name": f"{name}-second",
        "namespace": scenario.namespace,
        "ownerReferences": [{**reference, "controller": True}],
    }
    spec = {"parallelism": 9, "completions": 9, "template": template}
    scenario.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})


_MPI_GROWS: dict[str, Json] = {
    "workers": {"mpiReplicaSpecs": {"Worker": {"replicas": 9}}},
    "launcher": {"mpiReplicaSpecs": {"Launcher": _replica("mpi", "9", 1)}},
    "slots": {"slotsPerWorker": 9},
    "launcher works": {"runLauncherAsWorker": True},
}


def _mpi(what: str) -> Callable[[Scenario, str], None]:
    return partial(_patch, "mpijobs", _MPI_GROWS[what])


# ------------------------------------------------------------------------------------------------------------ Trainer


def _trainjob(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    """Of a runtime of the tenant's own. The amount is a number, as Python programs write it."""
    nodes = replicated_job("node", cpu=cpu)
    nodes["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    nodes["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "node"
    runtime = {
        "apiVersion": TRAINER,
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": scenario.namespace},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [nodes]}}},
    }
    job = {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": metadata(scenario, name, queue),
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": name},
            "trainer": {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": float(cpu)}}},
        },
    }
    return {"kind": "List", "items": [runtime, job]}


def _written(job: Json) -> object:
    """Without the runtime patch of Turnstile, and the times at which others were written."""
    spec = spec_without_suspend(job)
    assert isinstance(spec, dict)
    patches = [each for each in spec.pop("runtimePatches", ()) if each["manager"] != "kueue.x-k8s.io/manager"]
    return {**spec, "runtimePatches": [{**each, "time": ""} for each in patches]}


def _nodes(scenario: Scenario, name: str) -> None:
    path = resource_path(TRAINER, "trainjobs", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"trainer": {"numNodes": 9}}})


def _larger_runtime(scenario: Scenario, name: str) -> None:
    """Let Trainer render the JobSet anew: without it, and without the copy of the runtime that Trainer keeps."""
    namespace = scenario.namespace
    path = resource_path(TRAINER, "trainingruntimes", name, namespace=namespace)
    containers = "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0"
    larger = [{"op": "replace", "path": f"{containers}/resources/requests/cpu", "value": "9"}]
    scenario.api.patch(path, larger, kind="json")
    scenario.api.delete(resource_path("v1", "configmaps", f"{name}-runtime-snapshot", namespace=namespace))
    scenario.api.delete(jobset_path(namespace, name))


def _job_set(scenario: Scenario, name: str) -> None:
    patch = [{"op": "replace", "path": "/spec/replicatedJobs/0/template/spec/parallelism", "value": 9}]
    scenario.api.patch(jobset_path(scenario.namespace, name), patch, kind="json")


def _forged_job_set(scenario: Scenario, name: str) -> None:
    """Larger than what is admitted, with the label by which Trainer's is counted."""
    path = resource_path(TRAINER, "trainjobs", name, namespace=scenario.namespace)
    owner = scenario.api.get(path)
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": owner["metadata"]["uid"]}
    nodes = replicated_job("node", replicas=9)
    nodes["template"]["spec"]["template"]["metadata"] = {"labels": {PODSET: "node"}}
    made = jobset(f"{name}-second", nodes, namespace=scenario.namespace)
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    scenario.create(made)


def _runtime_patch(scenario: Scenario, name: str) -> None:
    path = resource_path(TRAINER, "trainjobs", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"runtimePatches": None}})


ROWS = (
    _training_row("PyTorchJob", "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}, *_PYTORCH),
    _training_row(
        "TFJob",
        "tfReplicaSpecs",
        "tensorflow",
        {"Chief": 1, "PS": 1, "Worker": 1},
        Attack(
            "Add a replica type to a running TFJob.",
            partial(_add_type, "tfjobs", "tfReplicaSpecs", "tensorflow", "Evaluator"),
            "stopped",
        ),
    ),
    _training_row("XGBoostJob", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    _training_row("PaddleJob", "paddleReplicaSpecs", "paddle", {"Master": 1, "Worker": 2}),
    _training_row("JAXJob", "jaxReplicaSpecs", "jax", {"Worker": 3}),
    Row(
        name="mpijob",
        api_version="kubeflow.org/v2beta1",
        kind="MPIJob",
        plural="mpijobs",
        framework="kubeflow.org/mpijob",
        operators=("mpioperator",),
        make=_mpijob,
        pods=3,
        select=labelled(JOB_NAME),
        end=end_pods(_launcher),
        stand_in="No launcher reaches a worker; it ends when the test ends its pod.",
        attacks=(
            Attack("Raise the workers of a running MPIJob.", _mpi("workers"), "refused"),
            Attack("Raise the requests of the launcher of a running MPIJob.", _mpi("launcher"), "stopped"),
            Attack("Raise the slots of each worker of a running MPIJob.", _mpi("slots"), "charged"),
            Attack("Have the launcher of a running MPIJob work too.", _mpi("launcher works"), "charged"),
            Attack("Raise the parallelism of the launcher's Job.", _launcher_job, "refused"),
            Attack("Create a Job that says that a running MPIJob controls it.", _forged_launcher, "stopped"),
        ),
    ),
    Row(
        name="trainjob",
        api_version=TRAINER,
        kind="TrainJob",
        plural="trainjobs",
        framework="trainer.kubeflow.org/trainjob",
        operators=("trainer", "jobset"),
        make=_trainjob,
        pods=3,
        select=labelled(NAME_LABEL),
        end=end_pods(labelled(NAME_LABEL)),
        written=_written,
        stand_in=NOTHING_TRAINS,
        attacks=(
            Attack("Raise the nodes of a running TrainJob.", _nodes, "refused"),
            Attack("Take the runtime patches off a running TrainJob.", _runtime_patch, "refused"),
            Attack("Change the runtime of a running TrainJob, and delete its JobSet.", _larger_runtime, "stopped"),
            Attack("Raise the parallelism in the JobSet of a running TrainJob.", _job_set, "refused"),
            Attack("Create a JobSet that says that a running TrainJob controls it.", _forged_job_set, "stopped"),
        ),
    ),
)
