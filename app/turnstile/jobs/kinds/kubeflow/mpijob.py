"""kubeflow.org/v2beta1 MPIJob: suspended by `spec.runPolicy.suspend`; a launcher and workers.

The operator makes the workers as pods and the launcher as a batch Job, which is suspended and resumed with the MPIJob.
The training operator has an MPIJob of version v1, which is not queued, as in Kueue: a policy of the chart refuses a job
of it that names a queue. Source: Kueue's pkg/controller/jobs/mpijob.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api.core import Job
from turnstile.api.meta import Kind
from turnstile.api.patch import JsonPatch
from turnstile.jobs.bases.templated import annotations_of
from turnstile.jobs.kinds.kubeflow.replicas import ReplicaJob, ReplicaJobs, ReplicaSpecs, replica_job
from turnstile.jobs.topologyrequest import GROUP_NAME

LAUNCHER: Final = "Launcher"
WORKER: Final = "Worker"


class _Specs(ReplicaSpecs):
    run_launcher_as_worker: bool = False


class MPIJobs(ReplicaJobs[ReplicaJob]):
    """Kueue's `kubeflow.org/mpijob`."""

    summary = "suspended; a pod set for the launcher and one for the workers"
    makes = frozenset({("", "Pod"), ("batch", "Job")})
    operator = "kubeflow.org/mpi-operator"

    def pod_sets_of(self, child: Kind) -> Sequence[str]:
        """The launcher's, for its Job: its template is of the time before the import."""
        return (LAUNCHER.lower(),) if isinstance(child, Job) else ()

    def numbers_leader(self, job: ReplicaJob) -> bool:
        """Whether the launcher works: then it has the number 0, and the workers are numbered from 1 on."""
        specs: Any = job.spec
        return bool(specs.run_launcher_as_worker)

    def place(self, job: ReplicaJob, patch: JsonPatch) -> None:
        """Say that workers are numbered from 1 on where the launcher, as a worker, has the number 0. A pod set group
        does without: its ranks follow from `numbers_leader`, and Kueue takes all groups to be numbered so."""
        specs: Any = job.spec
        launcher, worker = specs.replica_specs.get(LAUNCHER), specs.replica_specs.get(WORKER)
        if not self.numbers_leader(job) or launcher is None or worker is None:
            return
        if GROUP_NAME in annotations_of(launcher.template):
            return
        metadata = orjson.loads(bytes(worker.template)).get("metadata") or {}
        path = ("spec", "mpiReplicaSpecs", WORKER, "template", "metadata")
        if not metadata:
            patch.add(*path, value={})
        patch.put(metadata.get("annotations") or {}, *path, "annotations", key=names.POD_INDEX_OFFSET, value="1")


MPI_JOBS: Final = MPIJobs(
    replica_job("MPIJob", "mpiReplicaSpecs", base=ReplicaJob, spec=_Specs, version="v2beta1"), (LAUNCHER, WORKER)
)
