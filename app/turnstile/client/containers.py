"""Makes the Job of one container. Pure: the manifest can be printed, kept in Git, or submitted."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnstile.api import names

GPU: Final = "nvidia.com/gpu"


def container_job(
    image: str,
    command: Sequence[str] = (),
    *,
    name: str = "",
    queue: str = "",
    priority_class: str = "",
    cpu: str = "1",
    memory: str = "1Gi",
    gpus: int = 0,
    gpu_resource: str = GPU,
    pods: int = 1,
    env: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The manifest of a batch Job that runs one container, in `pods` pods at once.

    Without `name` the API server makes one from the image's. `queue` is a LocalQueue, `priority_class` a
    WorkloadPriorityClass, `annotations` those of the pods. A pod that fails is not started again.
    """
    amounts: dict[str, str] = {"cpu": cpu, "memory": memory}
    if gpus:
        amounts[gpu_resource] = str(gpus)
    limits = {resource: amount for resource, amount in amounts.items() if resource != "cpu"}
    container: dict[str, Any] = {"name": "main", "image": image, "resources": {"requests": amounts, "limits": limits}}
    if command:
        container["command"] = list(command)
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    base = image.rpartition("/")[2].partition("@")[0].partition(":")[0].lower()
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": f"{base[:40].strip('-._') or 'job'}-"}
    labels = {names.QUEUE_LABEL: queue, names.PRIORITY_CLASS_LABEL: priority_class}
    metadata["labels"] = {label: value for label, value in labels.items() if value}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if annotations:
        template["metadata"] = {"annotations": dict(annotations)}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
