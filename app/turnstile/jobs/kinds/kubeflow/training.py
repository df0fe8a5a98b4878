"""Jobs of the Kubeflow training operator (kubeflow.org/v1): PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob.

A PyTorchJob with `elasticPolicy.metrics` gets a HorizontalPodAutoscaler from the operator, which changes the number of
workers up to `maxReplicas` while the job runs. Such a job is charged for as many workers as it may get, so that it can
be scaled without being stopped, unless it is elastic: then gates hold the workers that are not charged for, and its
slices follow the autoscaler. Kueue charges for the workers of the moment, and stops the job when their number changes.
Source: Kueue's pkg/controller/jobs/kubeflow/jobs.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from turnstile.api.meta import Object
from turnstile.jobs.bases.templated import holds_growth
from turnstile.jobs.kinds.kubeflow.replicas import ReplicaJob, ReplicaJobs, ReplicaSpec, ReplicaSpecs, replica_job

_MASTER_WORKER: Final = ("Master", "Worker")


class _Metric(Object):
    """A metric of the autoscaler; that there is one is all that is read."""


class _ElasticPolicy(Object):
    min_replicas: int | None = None
    max_replicas: int | None = None
    metrics: list[_Metric] | None = None


class _PyTorchSpec(ReplicaSpecs):
    elastic_policy: _ElasticPolicy | None = None


class _PyTorchJob(ReplicaJob):
    spec: _PyTorchSpec = msgspec.field(default_factory=_PyTorchSpec)


class PyTorchJobs(ReplicaJobs[_PyTorchJob]):
    """Kueue's `kubeflow.org/pytorchjob`."""

    summary = (
        "suspended; a pod set for each replica type; autoscaled, but not elastic, it is charged for its largest size"
    )

    def count(self, job: _PyTorchJob, replica_type: str, spec: ReplicaSpec) -> int:
        """The replicas; of workers that the operator has autoscaled and that no gate holds, the most there may be."""
        policy = job.spec.elastic_policy
        if policy is None or policy.metrics is None or replica_type.lower() != "worker":
            return spec.count
        if holds_growth(bytes(spec.template)):
            return spec.count
        return max(spec.count, policy.min_replicas or 0, policy.max_replicas or 0)

    def needed(self, job: _PyTorchJob, replica_type: str, spec: ReplicaSpec) -> int:
        """The replicas; of the workers of an elastic job, the fewest with which it trains."""
        policy = job.spec.elastic_policy
        if policy is None or policy.min_replicas is None or replica_type.lower() != "worker":
            return spec.count
        return min(spec.count, policy.min_replicas)


def _training_jobs(kind: str, map_name: str, order: Sequence[str], *, takes_prebuilt: bool = True) -> ReplicaJobs[Any]:
    struct = replica_job(kind, map_name, base=ReplicaJob)
    return ReplicaJobs(struct, order, takes_prebuilt=takes_prebuilt)


PYTORCH_JOBS: Final = PyTorchJobs(
    replica_job("PyTorchJob", "pytorchReplicaSpecs", base=_PyTorchJob, spec=_PyTorchSpec), _MASTER_WORKER
)
TF_JOBS: Final = _training_jobs("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"))
XGBOOST_JOBS: Final = _training_jobs("XGBoostJob", "xgbReplicaSpecs", _MASTER_WORKER)
PADDLE_JOBS: Final = _training_jobs("PaddleJob", "paddleReplicaSpecs", _MASTER_WORKER)
JAX_JOBS: Final = _training_jobs("JAXJob", "jaxReplicaSpecs", ("Worker",), takes_prebuilt=False)
