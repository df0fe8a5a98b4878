"""Pod parents: nothing is suspended and there is no Workload of their own; their pods are held and queued one by one.

The webhook hands queue and priority class down to the pod template, with an annotation that has each pod held. So a
change of the label changes the template, which the parent's controller rolls out. Must never touch what is not in the
template's metadata. Source: Kueue's pkg/controller/jobs/deployment.
"""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeVar

from app.api import names
from app.api.meta import Kind, Object
from app.api.patch import JsonPatch
from app.api.validation.errors import IMMUTABLE, FieldError, invalid
from app.api.workload import PodSet
from app.jobs.integration import Change, Integration, Outcome, Stop
from app.jobs.labels import queue_name
from app.jobs.podsets import JobPodSet, PodSetInfo

J = TypeVar("J", bound=Kind)

QUEUE_PATH: Final = f"metadata.labels[{names.QUEUE_LABEL}]"


class TemplateMetadata(Object):
    """Metadata of a pod template; None where the template has none."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodParent(Integration[J]):
    """A kind whose pods are queued one by one."""

    watched = False
    needs = ("pod",)
    defaulted_on = frozenset({"CREATE", "UPDATE"})
    takes_prebuilt = False

    @abstractmethod
    def template_metadata(self, job: J) -> TemplateMetadata | None:
        """Metadata of the pod template, if it has any."""

    @abstractmethod
    def runs(self, job: J) -> bool:
        """Whether any pod is ready."""

    def suspended(self, job: J) -> bool:
        """Whether no pod is ready: then queue and class may still change."""
        return not self.runs(job)

    def held(self, job: J) -> bool:
        """Never: the labels are handed down on each write, so that they follow those of the parent."""
        return False

    def hold(self, job: J, patch: JsonPatch) -> None:
        """Hand queue and priority class down to the pods, and have them held."""
        metadata = self.template_metadata(job)
        path = ("spec", "template", "metadata")
        if metadata is None:
            patch.add(*path, value={})
        labels = metadata.labels if metadata is not None else {}
        annotations = metadata.annotations if metadata is not None else {}
        patch.put(annotations, *path, "annotations", key=names.POD_SUSPENDING_PARENT, value=self.framework)
        patch.put(labels, *path, "labels", key=names.MANAGED_LABEL, value="true")
        for key in (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL):
            if value := job.metadata.labels.get(key):
                patch.put(labels, *path, "labels", key=key, value=value)

    def update_errors(self, old: J, new: J) -> list[FieldError]:
        """The queue stays while pods are ready, and is never taken away."""
        errors = super().update_errors(old, new)
        before, after = queue_name(old), queue_name(new)
        if before != after and (not after or self.runs(old)):
            errors.append(invalid(QUEUE_PATH, after, IMMUTABLE))
        return errors

    # --- the reconciler never asks: `watched` is false

    def active(self, job: J) -> bool:
        """Never: the pods are accounted for one by one."""
        return False

    def finished(self, job: J) -> Outcome | None:
        """Never."""
        return None

    def pod_sets(self, job: J) -> list[JobPodSet]:
        """None of its own."""
        return []

    def start(self, job: J, infos: Sequence[PodSetInfo]) -> Change | None:
        """Nothing to start."""
        return None

    def stop(self, job: J, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Nothing to stop."""
        return Stop()
