"""kubeflow.org/v2beta1 MPIJob: suspended by `spec.runPolicy.suspend`; a launcher and workers.

The operator makes the workers as pods and the launcher as a batch Job, which is suspended and resumed with the MPIJob.
The training operator has an MPIJob of version v1, which is not queued, as in Kueue: a policy of the chart refuses a job
of it that names a queue. Source: Kueue's pkg/controller/jobs/mpijob.
"""

from typing import Final

from turnstile.jobs.kinds.kubeflow.replicas import ReplicaJob, ReplicaJobs, replica_job


class MPIJobs(ReplicaJobs[ReplicaJob]):
    """Kueue's `kubeflow.org/mpijob`."""

    summary = "suspended; a pod set for the launcher and one for the workers"
    makes = frozenset({("", "Pod"), ("batch", "Job")})
    groups_pod_sets = True
    operator = "kubeflow.org/mpi-operator"


MPI_JOBS: Final = MPIJobs(
    replica_job("MPIJob", "mpiReplicaSpecs", base=ReplicaJob, version="v2beta1"), ("Launcher", "Worker")
)
