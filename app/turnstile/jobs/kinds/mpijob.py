"""kubeflow.org/v2beta1 MPIJob: suspended by `spec.runPolicy.suspend`; a launcher and workers.

The operator makes the workers as pods and the launcher as a batch Job, which is suspended and resumed with the MPIJob.
The training operator has an MPIJob of version v1, which is not queued, as in Kueue: a policy of the chart refuses a job
of it that names a queue. Source: Kueue's pkg/controller/jobs/mpijob.
"""

from typing import ClassVar

import msgspec

from turnstile.jobs.bases.replicas import ReplicaJob, ReplicaJobs, ReplicaSpec, ReplicaSpecs


class _Spec(ReplicaSpecs):
    mpi_replica_specs: dict[str, ReplicaSpec] = {}


class MPIJob(ReplicaJob):
    """The fields of an MPIJob that are read."""

    VERSION: ClassVar = "v2beta1"
    KIND: ClassVar = "MPIJob"
    PLURAL: ClassVar = "mpijobs"

    spec: _Spec = msgspec.field(default_factory=_Spec)


class MPIJobs(ReplicaJobs[MPIJob]):
    """Kueue's `kubeflow.org/mpijob`."""

    kind = MPIJob
    framework = "kubeflow.org/mpijob"
    summary = "suspended; a pod set for the launcher and one for the workers"
    makes = frozenset({("", "Pod"), ("batch", "Job")})
    groups_pod_sets = True
    operator = "kubeflow.org/mpi-operator"
    map_name = "mpiReplicaSpecs"
    order = ("Launcher", "Worker")
