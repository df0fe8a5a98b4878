"""Pod parents: kinds that are never suspended and have no Workload; each of their pods is gated and queued separately.

The webhook copies queue and priority class into the pod template, with an annotation that makes the Pod webhook gate
each pod. So a changed label changes the template, which the parent's controller rolls out. Must never change anything
but the template's metadata. Source: Kueue's pkg/controller/jobs/deployment.

Some controllers copy the labels and annotations of their object to all pods of it (`MetadataParent`). For those the
webhook adds label and annotation to the object's own metadata.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, TypeVar

from turnstile.api import names
from turnstile.api.meta import Kind, Object
from turnstile.api.patch import JsonPatch
from turnstile.api.validation.errors import IMMUTABLE, FieldError, invalid
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.integration import Asked, Change, Handling, Integration, Outcome, Stop
from turnstile.jobs.labels import queue_name
from turnstile.jobs.podsets import JobPodSet, PodSetInfo

J = TypeVar("J", bound=Kind)

QUEUE_PATH: Final = f"metadata.labels[{names.QUEUE_LABEL}]"


class TemplateMetadata(Object):
    """The labels and annotations of a pod template."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodParent(Integration[J]):
    """A kind whose pods are queued separately."""

    metadata_path: ClassVar[tuple[str, ...]] = ("spec", "template", "metadata")
    """Where the metadata of the pods is in the object."""
    handling = Handling(watched=False, takes_prebuilt=False, serves=True)
    needs = ("pod",)
    asked = Asked(
        defaulting={"new-or-queued": conditions.NEW_OR_QUEUED},
        defaulting_unless_all=True,
        updates=True,
        validating={"queued-now-or-before": conditions.QUEUED},
    )

    @abstractmethod
    def template_metadata(self, job: J) -> TemplateMetadata | None:
        """Metadata of the pod template; None if the template has none."""

    @abstractmethod
    def runs(self, job: J) -> bool:
        """Whether any pod is ready."""

    def suspended(self, job: J) -> bool:
        """Whether no pod is ready: the queue and the priority class may still change then."""
        return not self.runs(job)

    def held(self, job: J) -> bool:
        """Always False: each write copies the labels again, so that the template follows the parent's labels."""
        return False

    def hold(self, job: J, patch: JsonPatch) -> None:
        """Copy queue and priority class into the pod template, with the annotation that gets its pods gated."""
        metadata, path = self.template_metadata(job), self.metadata_path
        self.annotate(metadata, patch, *path)
        labels = metadata.labels if metadata is not None else {}
        patch.put(labels, *path, "labels", key=names.MANAGED_LABEL, value="true")
        self.label(job, labels, patch, *path)

    def annotate(self, metadata: TemplateMetadata | None, patch: JsonPatch, *path: str) -> None:
        """Add to the metadata at `path` the annotation that gets its pods gated."""
        if metadata is None:
            patch.add(*path, value={})
        annotations = metadata.annotations if metadata is not None else {}
        patch.put(annotations, *path, "annotations", key=names.POD_SUSPENDING_PARENT, value=self.framework)

    def label(self, job: J, labels: Mapping[str, str], patch: JsonPatch, *path: str) -> None:
        """Copy queue and priority class into the metadata at `path`."""
        for key in (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL):
            if value := job.metadata.labels.get(key):
                patch.put(labels, *path, "labels", key=key, value=value)

    def update_errors(self, old: J, new: J) -> list[FieldError]:
        """The queue name must not change while pods are ready, and must never be removed."""
        errors = super().update_errors(old, new)
        before, after = queue_name(old), queue_name(new)
        if before != after and (not after or self.runs(old)):
            errors.append(invalid(QUEUE_PATH, after, IMMUTABLE))
        return errors

    # --- never called by the reconciler, which does not handle these kinds

    def active(self, job: J) -> bool:
        """Always False: each pod has its own Workload."""
        return False

    def finished(self, job: J) -> Outcome | None:
        """Always None."""
        return None

    def pod_sets(self, job: J) -> list[JobPodSet]:
        """Always empty."""
        return []

    def start(self, job: J, infos: Sequence[PodSetInfo]) -> Change | None:
        """Nothing to start."""
        return None

    def stop(self, job: J, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Nothing to stop."""
        return Stop()


class MetadataParent(PodParent[J]):
    """A kind whose controller copies labels and annotations of the object to each of its pods."""

    metadata_path: ClassVar = ("metadata",)

    def template_metadata(self, job: J) -> TemplateMetadata:
        """The metadata of the object itself."""
        return TemplateMetadata(labels=job.metadata.labels, annotations=job.metadata.annotations)
