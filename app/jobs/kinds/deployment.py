"""apps/v1 Deployment: each pod is gated and queued separately; the Deployment itself is never suspended.

A rollout needs quota for its surge pods; without it the new pods stay gated while the old pods run. Source: Kueue's
pkg/controller/jobs/deployment.
"""

from typing import ClassVar

import msgspec

from app.api.meta import Kind, Object
from app.jobs import conditions
from app.jobs.bases.pod_parent import PodParent, TemplateMetadata
from app.jobs.integration import Asked


class _Template(Object):
    metadata: TemplateMetadata | None = None


class _Spec(Object):
    template: _Template = msgspec.field(default_factory=_Template)


class _Status(Object):
    ready_replicas: int = 0


class Deployment(Kind):
    """The fields of a Deployment that are read."""

    GROUP: ClassVar = "apps"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Deployment"
    PLURAL: ClassVar = "deployments"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class Deployments(PodParent[Deployment]):
    """Kueue's `deployment`."""

    kind = Deployment
    framework = "deployment"
    summary = "each pod held by a scheduling gate and queued by itself"
    built_in = True
    makes = frozenset({("apps", "ReplicaSet")})
    asked = Asked(
        defaulting={"new-or-queued": conditions.NEW_OR_QUEUED},
        defaulting_unless_all=True,
        validating={"queued-now-or-before": conditions.QUEUED},
    )

    def template_metadata(self, job: Deployment) -> TemplateMetadata | None:
        """Metadata of `spec.template`."""
        return job.spec.template.metadata

    def runs(self, job: Deployment) -> bool:
        """Whether `status.readyReplicas` is above zero."""
        return job.status.ready_replicas > 0
