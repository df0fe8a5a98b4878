"""apps/v1 Deployment: each pod is gated and queued separately; the Deployment itself is never suspended.

A rollout needs quota for its surge pods. While there is none, a rollout that may make pods unavailable goes on without;
in one that may not (`maxUnavailable: 0`, or 25 % of up to three pods) a new pod takes the quota of an old one.
In Kueue such a rollout waits until quota is free. In no case does a pod of a rollout preempt others: the old revision
is about to free its quota. So the webhook counts the revisions in an annotation of the template. Source: Kueue's
pkg/controller/jobs/deployment.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec
import orjson

from turnstile.api import names, rollout
from turnstile.api.meta import Kind, Object
from turnstile.api.numbers import clamped
from turnstile.api.patch import JsonPatch
from turnstile.jobs.bases.pod_parent import PodParent, TemplateMetadata
from turnstile.jobs.capabilities import Additions


class _Template(Object):
    metadata: TemplateMetadata | None = None


_decode: Final[Callable[[msgspec.Raw], _Template]] = msgspec.json.Decoder(_Template).decode
_WRITTEN_HERE: Final = {
    "labels": (names.MANAGED_LABEL, names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL),
    "annotations": (names.POD_SUSPENDING_PARENT, rollout.TEMPLATE),
}


class _RollingUpdate(Object):
    max_unavailable: int | str = "25%"


class _Strategy(Object):
    type: str = "RollingUpdate"
    rolling_update: _RollingUpdate | None = None


class _Spec(Object):
    replicas: int | None = None
    strategy: _Strategy = msgspec.field(default_factory=_Strategy)
    template: msgspec.Raw = msgspec.Raw(b"{}")


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


class Deployments(PodParent[Deployment], Additions[Deployment]):
    """Kueue's `deployment`."""

    kind = Deployment
    framework = "deployment"
    summary = "each pod held by a scheduling gate and queued by itself"
    makes = frozenset({("apps", "ReplicaSet")})

    def template_metadata(self, job: Deployment) -> TemplateMetadata | None:
        """Metadata of `spec.template`."""
        return _decode(job.spec.template).metadata

    def roll_out(self, old: Deployment, new: Deployment, patch: JsonPatch) -> None:
        """Count the revision up in the template if its user has changed the template."""
        metadata = self.template_metadata(new)
        annotations = metadata.annotations if metadata is not None else {}
        was = self.template_metadata(old)
        stamp = (was.annotations if was is not None else {}).get(rollout.TEMPLATE, "")
        if _written(old.spec.template) != _written(new.spec.template):
            number = rollout.of_template("", stamp).revision + 1
            stamp = rollout.Rollout("", number, replaces=not _may_be_unavailable(new.spec)).stamp
        if stamp:
            patch.put(annotations, *self.metadata_path, "annotations", key=rollout.TEMPLATE, value=stamp)

    def runs(self, job: Deployment) -> bool:
        """Whether `status.readyReplicas` is above zero."""
        return job.status.ready_replicas > 0


def _written(template: msgspec.Raw) -> Any:
    """A template without what Turnstile's webhook writes, and without empty maps."""
    plain = orjson.loads(bytes(template))
    metadata = dict(plain.get("metadata") or {})
    for part, keys in _WRITTEN_HERE.items():
        metadata[part] = {key: value for key, value in (metadata.get(part) or {}).items() if key not in keys}
    return {**plain, "metadata": {name: part for name, part in metadata.items() if part}}


def _may_be_unavailable(spec: _Spec) -> bool:
    """Whether a rollout may stop a pod before a new one is ready."""
    if spec.strategy.type != "RollingUpdate":
        return True
    update = spec.strategy.rolling_update or _RollingUpdate()
    most = update.max_unavailable
    if isinstance(most, int):
        return most > 0
    percent = clamped(most.removesuffix("%"))
    return percent is None or percent * (1 if spec.replicas is None else spec.replicas) >= 100
