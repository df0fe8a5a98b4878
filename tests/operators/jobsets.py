"""Words about JobSets: to make them, and to ask what became of them."""

from typing import Any

from testbed import resource_path
from testbed.client import Json
from tests.cluster.scenario import QUEUE

VERSION = "jobset.x-k8s.io/v1alpha2"
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
"""Labels of Jobs and pods."""


def jobset_path(namespace: str, name: str) -> str:
    """URL path of a JobSet."""
    return resource_path(VERSION, "jobsets", name, namespace=namespace)


def replicated_job(name: str, *, replicas: int = 1, pods: int = 1, cpu: str = "1", **pod_spec: Any) -> Json:
    """`replicas` Jobs of `pods` pods of `cpu` each."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "name": name,
        "replicas": replicas,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container], **pod_spec}},
            }
        },
    }


def jobset(name: str, *jobs: Json, namespace: str, queue: str | None = None, **spec: Any) -> Json:
    """A JobSet of these replicated jobs; its pods run until they are deleted or ended."""
    return {
        "apiVersion": VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {QUEUE: queue} if queue else {}},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }
