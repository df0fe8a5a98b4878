"""How many pods an object of each kind may run: from the documentation of the kind, not from its integration."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Json = dict[str, Any]


def _job_pods(body: Json) -> int:
    spec, status = body["spec"], body["status"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:  # the first success says that no more pods are needed
        done = status.get("succeeded", 0)
        return max(parallelism - done, 0) if spec.get("completionMode") != "Indexed" else parallelism
    if spec.get("completionMode") == "Indexed":
        ended = {index for name in ("completedIndexes", "failedIndexes") for index in _indexes(status.get(name, ""))}
        done = len([index for index in ended if index < completions])
    else:
        done = status.get("succeeded", 0)
    return max(min(parallelism, completions - done), 0)


def _indexes(text: str) -> list[int]:
    """`0-1,3` as numbers."""
    ends = [part.split("-") for part in text.split(",") if part]
    return [index for end in ends for index in range(int(end[0]), int(end[-1]) + 1)]


def _jobset_pods(body: Json) -> int:
    done = {each["name"]: each.get("succeeded", 0) for each in body["status"].get("replicatedJobsStatus", [])}
    policy = body["spec"].get("failurePolicy") or {}
    endless = any(each.get("action") == "RestartJobSetAndIgnoreMaxRestarts" for each in policy.get("rules", []))
    if endless or policy.get("maxRestarts", 0):
        done = {}  # a restart makes all replicas again
    pods = 0
    for each in body["spec"].get("replicatedJobs", []):
        spec = each["template"]["spec"]
        pods += max(each.get("replicas", 1) - done.get(each["name"], 0), 0) * _pods_at_a_time(spec)
    return pods


def _replica_pods(name: str) -> Callable[[Json], int]:
    """The replicas of all entries of a map; of workers that an autoscaler may add, too."""

    def count(body: Json) -> int:
        pods = 0
        for replica_type, entry in body["spec"].get(name, {}).items():
            elastic = body["spec"].get("elasticPolicy", {}) if replica_type == "worker" else {}
            limit = elastic.get("maxReplicas", elastic.get("minReplicas", 0)) if "metrics" in elastic else 0
            pods += max(entry.get("replicas", 1), limit)
        return pods

    return count


def _simulation_pods(body: Json) -> int:
    spec = body["spec"]
    leaders = 1 if "leader" in spec and not body["status"].get("leadersDone") else 0
    return leaders + sum(
        each.get("replicas", 1) * min(each.get("size", 2), each.get("limit", 2**31)) for each in spec["groups"]
    )


def _pipelinerun_pods(body: Json) -> int:
    """At least the tasks that wait for no other task run at once."""
    tasks = body["spec"].get("pipelineSpec", {}).get("tasks", [])
    at_once = [each for each in tasks if not each.get("runAfter") and "params" not in each]
    return sum(len(each["matrix"]["params"][0]["value"]) if "matrix" in each else 1 for each in at_once)


def _appwrapper_pods(body: Json) -> int:
    pods = 0
    for component in body["spec"]["components"]:
        wrapped = component["template"]
        spec = wrapped["spec"]
        match wrapped["kind"]:
            case "Job":
                pods += _pods_at_a_time(spec)
            case "Pod":
                pods += 1
            case "Deployment":
                pods += spec.get("replicas", 1)
            case "JobSet":
                pods += sum(
                    each.get("replicas", 1) * _pods_at_a_time(each["template"]["spec"])
                    for each in spec["replicatedJobs"]
                )
            case "Farm":
                pods += component["podSets"][0].get("replicas", 1)
    return pods


def _pods_at_a_time(spec: Json) -> int:
    return min(spec.get("parallelism", 1), spec.get("completions", 2**31))


def _sparkapplication_pods(body: Json) -> int:
    spec = body["spec"]
    conf, dynamic = spec.get("sparkConf", {}), spec.get("dynamicAllocation") or {}
    executors = spec["executor"].get("instances", int(conf.get("spark.executor.instances", 2)))
    if dynamic.get("enabled") or conf.get("spark.dynamicAllocation.enabled") == "true":
        executors = max(
            executors, dynamic.get("maxExecutors", int(conf.get("spark.dynamicAllocation.maxExecutors", 10)))
        )
    return 1 + executors


def _ray_pods(cluster: Json) -> int:
    """A head and its workers: at least `minReplicas`, with autoscaling up to `maxReplicas`, each of several hosts."""
    pods = 1
    for group in cluster.get("workerGroupSpecs", []):
        replicas = max(group.get("replicas", 0), group.get("minReplicas", 0))
        if cluster.get("enableInTreeAutoscaling"):
            replicas = max(replicas, group.get("maxReplicas", 0))
        pods += replicas * group.get("numOfHosts", 1)
    return pods


def _rayjob_pods(body: Json) -> int:
    spec = body["spec"]
    if spec.get("clusterSelector"):
        return 0
    return _ray_pods(spec["rayClusterSpec"]) + (spec.get("submissionMode") == "K8sJobMode")


CAN_RUN: Final[Mapping[str, Callable[[Json], int]]] = {
    "batch/job": _job_pods,
    "jobset.x-k8s.io/jobset": _jobset_pods,
    "kubeflow.org/jaxjob": _replica_pods("jaxReplicaSpecs"),
    "kubeflow.org/mpijob": _replica_pods("mpiReplicaSpecs"),
    "kubeflow.org/paddlejob": _replica_pods("paddleReplicaSpecs"),
    "kubeflow.org/pytorchjob": _replica_pods("pytorchReplicaSpecs"),
    "kubeflow.org/tfjob": _replica_pods("tfReplicaSpecs"),
    "kubeflow.org/xgboostjob": _replica_pods("xgbReplicaSpecs"),
    "pod": lambda body: 1,
    "ray.io/raycluster": lambda body: _ray_pods(body["spec"]),
    "ray.io/rayjob": _rayjob_pods,
    "ray.io/rayservice": lambda body: _ray_pods(body["spec"]["rayClusterConfig"]),
    "statefulset": lambda body: body["spec"].get("replicas", 1),
    "leaderworkerset.x-k8s.io/leaderworkerset": lambda body: (
        body["spec"].get("replicas", 1) * body["spec"]["leaderWorkerTemplate"].get("size", 1)
    ),
    "trainer.kubeflow.org/trainjob": lambda body: _jobset_pods(body["jobSet"]),
    "example.com/simulation": _simulation_pods,
    "tekton.dev/pipelinerun": _pipelinerun_pods,
    "sparkoperator.k8s.io/sparkapplication": _sparkapplication_pods,
    "workload.codeflare.dev/appwrapper": _appwrapper_pods,
}
"""Pods that the controller of each kind may still have at a time, by the object; a new kind has a line here."""
