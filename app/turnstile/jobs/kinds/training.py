"""Jobs of the Kubeflow training operator (kubeflow.org/v1): PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob.

A PyTorchJob with `elasticPolicy.metrics` gets a HorizontalPodAutoscaler from the operator, which changes the number of
workers up to `maxReplicas` while the job runs. Such a job is charged for as many workers as it may get, so that it can
be scaled without being stopped; Kueue charges for the workers of the moment, and stops the job when their number
changes. Source: Kueue's pkg/controller/jobs/kubeflow/jobs.
"""

from typing import ClassVar, Final

import msgspec

from turnstile.api.meta import Object
from turnstile.jobs.bases.replicas import ReplicaJob, ReplicaJobs, ReplicaSpec, ReplicaSpecs

_MASTER_WORKER: Final = ("Master", "Worker")


class _Metric(Object):
    """A metric of the autoscaler; that there is one is all that is read."""


class _ElasticPolicy(Object):
    min_replicas: int | None = None
    max_replicas: int | None = None
    metrics: list[_Metric] | None = None


class _PyTorchSpec(ReplicaSpecs):
    pytorch_replica_specs: dict[str, ReplicaSpec] = {}
    elastic_policy: _ElasticPolicy | None = None


class PyTorchJob(ReplicaJob):
    """The fields of a PyTorchJob that are read."""

    KIND: ClassVar = "PyTorchJob"
    PLURAL: ClassVar = "pytorchjobs"

    spec: _PyTorchSpec = msgspec.field(default_factory=_PyTorchSpec)


class PyTorchJobs(ReplicaJobs[PyTorchJob]):
    """Kueue's `kubeflow.org/pytorchjob`."""

    kind = PyTorchJob
    framework = "kubeflow.org/pytorchjob"
    summary = "suspended; a pod set for each replica type; an autoscaled job is charged for its largest size"
    map_name = "pytorchReplicaSpecs"
    order = _MASTER_WORKER

    def count(self, job: PyTorchJob, replica_type: str, spec: ReplicaSpec) -> int:
        """The replicas; of workers that the operator has autoscaled, the most there may be."""
        policy = job.spec.elastic_policy
        if policy is None or policy.metrics is None or replica_type.lower() != "worker":
            return spec.count
        return max(spec.count, policy.min_replicas or 0, policy.max_replicas or 0)

    def needed(self, job: PyTorchJob, replica_type: str, spec: ReplicaSpec) -> int:
        """The replicas; of the workers of an elastic job, the fewest with which it trains."""
        policy = job.spec.elastic_policy
        if policy is None or policy.min_replicas is None or replica_type.lower() != "worker":
            return spec.count
        return min(spec.count, policy.min_replicas)


class _TFSpec(ReplicaSpecs):
    tf_replica_specs: dict[str, ReplicaSpec] = {}


class TFJob(ReplicaJob):
    """The fields of a TFJob that are read."""

    KIND: ClassVar = "TFJob"
    PLURAL: ClassVar = "tfjobs"

    spec: _TFSpec = msgspec.field(default_factory=_TFSpec)


class TFJobs(ReplicaJobs[TFJob]):
    """Kueue's `kubeflow.org/tfjob`."""

    kind = TFJob
    framework = "kubeflow.org/tfjob"
    map_name = "tfReplicaSpecs"
    order = ("Chief", "Master", "PS", "Worker", "Evaluator")


class _XGBoostSpec(ReplicaSpecs):
    xgb_replica_specs: dict[str, ReplicaSpec] = {}


class XGBoostJob(ReplicaJob):
    """The fields of an XGBoostJob that are read."""

    KIND: ClassVar = "XGBoostJob"
    PLURAL: ClassVar = "xgboostjobs"

    spec: _XGBoostSpec = msgspec.field(default_factory=_XGBoostSpec)


class XGBoostJobs(ReplicaJobs[XGBoostJob]):
    """Kueue's `kubeflow.org/xgboostjob`."""

    kind = XGBoostJob
    framework = "kubeflow.org/xgboostjob"
    map_name = "xgbReplicaSpecs"
    order = _MASTER_WORKER


class _PaddleSpec(ReplicaSpecs):
    paddle_replica_specs: dict[str, ReplicaSpec] = {}


class PaddleJob(ReplicaJob):
    """The fields of a PaddleJob that are read."""

    KIND: ClassVar = "PaddleJob"
    PLURAL: ClassVar = "paddlejobs"

    spec: _PaddleSpec = msgspec.field(default_factory=_PaddleSpec)


class PaddleJobs(ReplicaJobs[PaddleJob]):
    """Kueue's `kubeflow.org/paddlejob`."""

    kind = PaddleJob
    framework = "kubeflow.org/paddlejob"
    map_name = "paddleReplicaSpecs"
    order = _MASTER_WORKER


class _JAXSpec(ReplicaSpecs):
    jax_replica_specs: dict[str, ReplicaSpec] = {}


class JAXJob(ReplicaJob):
    """The fields of a JAXJob that are read."""

    KIND: ClassVar = "JAXJob"
    PLURAL: ClassVar = "jaxjobs"

    spec: _JAXSpec = msgspec.field(default_factory=_JAXSpec)


class JAXJobs(ReplicaJobs[JAXJob]):
    """Kueue's `kubeflow.org/jaxjob`."""

    kind = JAXJob
    framework = "kubeflow.org/jaxjob"
    map_name = "jaxReplicaSpecs"
    order = ("Worker",)
    takes_prebuilt = False
