"""Finds the object that `TYPE[.GROUP]/NAME` means, as `--for` takes it, and the labels that its pods have."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from turnstile.api.errors import InvalidValue
from turnstile.cli.queues.paths import path_of
from turnstile.cli.queues.session import Session

Plain = dict[str, Any]

_DISCOVERY: Final = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)
_KUBEFLOW: Final = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
_CURE: Final = "give TYPE[.GROUP]/NAME, as job/train, jobset.jobset.x-k8s.io/train or pod/worker-0"


async def find_job(at: Session, text: str, *, every_namespace: bool, asked: str = "--for") -> Plain | None:
    """The object, or None if there is none of the name. Raises InvalidValue for a type that the API server lacks, about
    what was `asked`."""
    kind, slash, name = text.partition("/")
    if not (kind and slash and name) or "/" in name:
        raise InvalidValue(asked, text, _CURE)
    version, resource = await _resolve(at, kind.lower(), text, asked)
    namespace = "" if every_namespace or resource.get("scope") == "Cluster" else at.namespace
    path = path_of(version, resource["resource"], namespace=namespace)
    items, _ = await at.list_all(path, {"fieldSelector": f"metadata.name={name}"})
    if not items:
        return None
    return {"apiVersion": version, "kind": resource["responseKind"]["kind"], **items[0]}


async def _resolve(at: Session, word: str, text: str, asked: str) -> tuple[str, Plain]:
    """The API version and resource that a type means: by plural, singular, short name or kind, and group if given."""
    for root in ("/api", "/apis"):
        document = await at.get(root, accept=f"{_DISCOVERY},application/json")
        if "items" not in document:
            raise InvalidValue(asked, text, "the API server does not list its types in one answer: it is too old")
        for group in document["items"]:
            for version, resource in _resources(group):
                if word in _words(resource, group["metadata"].get("name", "")):
                    return version, resource
    raise InvalidValue(asked, text, f"the API server has no such type; {_CURE}")


def _resources(group: Plain) -> Iterator[tuple[str, Plain]]:
    name = group["metadata"].get("name", "")
    for version in group["versions"]:
        for resource in version.get("resources") or ():
            yield f"{name}/{version['version']}" if name else version["version"], resource


def _words(resource: Plain, group: str) -> set[str]:
    """The names of a type."""
    plain = {
        resource["resource"],
        resource.get("singularResource", ""),
        resource["responseKind"]["kind"].lower(),
        *(resource.get("shortNames") or ()),
    } - {""}
    return plain | {f"{word}.{group}" for word in plain}


def _job_name(label: str, **more: str) -> Callable[[Plain], dict[str, str]]:
    """Pods that have the job's name in a label."""
    return lambda job: {label: job["metadata"]["name"]} | more


def _ray_cluster(*path: str) -> Callable[[Plain], dict[str, str]]:
    """Pods of the Ray cluster that the job's status names."""

    def labels(job: Plain) -> dict[str, str]:
        value: Any = job.get("status") or {}
        for step in path:
            value = value.get(step) or {}
        return {"ray.io/cluster": value} if value else {}

    return labels


def _group(pod: Plain) -> dict[str, str]:
    """The pods of a pod's group."""
    label = "kueue.x-k8s.io/pod-group-name"
    value = (pod["metadata"].get("labels") or {}).get(label)
    return {label: value} if value else {}


POD_LABELS: Final[dict[str, Callable[[Plain], dict[str, str]]]] = {
    "Job": _job_name("batch.kubernetes.io/job-name"),
    "JobSet": _job_name("jobset.sigs.k8s.io/jobset-name"),
    "TrainJob": _job_name("jobset.sigs.k8s.io/jobset-name"),
    "RayCluster": _job_name("ray.io/cluster"),
    "RayJob": _ray_cluster("rayClusterName"),
    "RayService": _ray_cluster("activeServiceStatus", "rayClusterName"),
    "LeaderWorkerSet": _job_name("leaderworkerset.sigs.k8s.io/name"),
    "AppWrapper": _job_name("workload.codeflare.dev/appwrapper"),
    "SparkApplication": _job_name("sparkoperator.k8s.io/app-name"),
    "PipelineRun": _job_name("tekton.dev/pipelineRun"),
    "Notebook": _job_name("notebook-name"),
    "InferenceService": _job_name("serving.kserve.io/inferenceservice"),
    "MPIJob": _job_name("training.kubeflow.org/job-name", **{"training.kubeflow.org/operator-name": "mpi-operator"}),
    "Pod": _group,
    **{
        kind: _job_name(
            "training.kubeflow.org/job-name",
            **{"training.kubeflow.org/operator-name": f"{kind.lower()}-controller"},
        )
        for kind in _KUBEFLOW
    },
}
"""The labels of the pods of a job, by its kind. A kind whose jobs have a selector of their own needs none."""


def pod_selectors(job: Plain, *, asked: str = "--for") -> dict[str, str] | None:
    """kubectl's options that choose the pods of a job; None if the job has none yet.

    Raises InvalidValue for a kind whose pods cannot be told from others.
    """
    if (own := (job.get("spec") or {}).get("selector")) and job["kind"] != "Job":
        labels = own.get("matchLabels") or {}
    elif job["kind"] in POD_LABELS:
        labels = POD_LABELS[job["kind"]](job)
    else:
        known = ", ".join(sorted(POD_LABELS))
        raise InvalidValue(asked, job["kind"], f"it is not known which pods are its own; known are {known}")
    if labels:
        return {"--selector": ",".join(f"{name}={value}" for name, value in labels.items())}
    return {"--field-selector": f"metadata.name={job['metadata']['name']}"} if job["kind"] == "Pod" else None
