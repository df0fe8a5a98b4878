"""serving.kserve.io InferenceService: each pod is gated and queued separately; the service itself is never suspended.

KServe copies labels and annotations of an InferenceService to everything that it makes: the Deployments (Standard
mode) or the revisions (Knative mode) of predictor, transformer and explainer, the workers of a predictor that spans
nodes, and the pod templates of all of them. So a queue label on the InferenceService reaches every pod, and so does the
annotation that gets the pods gated, in each mode, whether or not the webhook of Deployments saw the Deployment. Labels
of a component take precedence over those of the service: a component may name another queue of its namespace.

Causes of later pods are charged pod by pod: a larger `minReplicas`, an autoscaler, a transformer that is added, the
surge pod of a rollout, each worker of a predictor that spans nodes. The pods wait if there is no quota, and those that
run go on: head and workers are not admitted together. `serving.kserve.io/stop` deletes the pods, and with them their
Workloads. Kueue has no such kind: there the label works through that of Deployments.
"""

from typing import ClassVar, Final

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.jobs.bases.pod_parent import MetadataParent
from turnstile.jobs.bases.templated import JobCondition

_COMPONENTS: Final = ("PredictorReady", "TransformerReady", "ExplainerReady")


class _Status(Object):
    conditions: list[JobCondition] = []


class InferenceService(Kind):
    """The fields of an InferenceService that are read."""

    GROUP: ClassVar = "serving.kserve.io"
    VERSION: ClassVar = "v1beta1"
    KIND: ClassVar = "InferenceService"
    PLURAL: ClassVar = "inferenceservices"
    NAMESPACED: ClassVar = True

    status: _Status = msgspec.field(default_factory=_Status)


class InferenceServices(MetadataParent[InferenceService]):
    """`serving.kserve.io/inferenceservice`."""

    kind = InferenceService
    framework = "serving.kserve.io/inferenceservice"
    summary = "each pod held by a scheduling gate and queued by itself"

    def runs(self, job: InferenceService) -> bool:
        """Whether a component is ready."""
        return any(each.type in _COMPONENTS and each.status == "True" for each in job.status.conditions)
