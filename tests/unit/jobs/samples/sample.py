"""The sample of a job kind: one rich object, and what is known of the kind from its documentation.

All tables of tests about kinds read it. It knows nothing of how an integration reads an object.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from turnstile.api import names

Json = dict[str, Any]

LABELS: Final = {names.QUEUE_LABEL: "main", names.MAX_EXEC_TIME_LABEL: "5", names.POD_GROUP_NAME: "g"}
ANNOTATIONS: Final = {
    names.ADMISSION_GATED_BY: "acme.io/a",
    names.JOB_MIN_PARALLELISM: "1",
    names.POD_GROUP_TOTAL_COUNT: "2",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": '[{"topology":"a/b","size":1}]',
}
POD_TEMPLATE: Final[Json] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
}
"""A template for the object of a sample."""
NAMED_TEMPLATE: Final[dict[str, Json]] = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
"""A template for moments."""
CONDITION: Final = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "R",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


class Moment(NamedTuple):
    """A job at one moment, in words, and whether its pods are ready then."""

    words: str
    spec: Json
    status: Json
    ready: bool


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An object of a kind, and what its documentation says of such objects."""

    framework: str
    api_version: str
    kind: str
    spec: Json = field(default_factory=dict)
    status: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    """Metadata beside the labels and annotations of all samples."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations beside those of all samples."""
    pods: Callable[[Json], int] | None = None
    """The most pods that the controller of the kind may still have at a time, by the object; None of a kind whose jobs
    have no Workload."""
    moments: Sequence[Moment] = ()
    """Moments of a job, ready and not: each status is what the kind's controller writes then, by its source."""
    gone: Json = field(default_factory=dict)
    """Status once the pods of a stopped job have ended, of a kind of which an empty one means that they run."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts that fields of the kind may have, by the name of the field."""

    def manifest(self) -> Json:
        """The whole object; a copy of its own."""
        meta = {"name": "x", "labels": LABELS, "annotations": {**ANNOTATIONS, **self.annotations}, **self.metadata}
        body: Json = {"apiVersion": self.api_version, "kind": self.kind, "metadata": meta}
        body |= {name: part for name, part in (("spec", self.spec), ("status", self.status)) if part}
        return copy.deepcopy(body)


def moments(spec: Json, *found: tuple[str, Json, bool]) -> list[Moment]:
    """Several moments of one job."""
    return [Moment(words, spec, status, ready) for words, status, ready in found]


def true(*types: str, **reasons: str) -> Json:
    """A status with these conditions."""
    given = {**dict.fromkeys(types, "True"), **reasons}
    return {"conditions": [{"type": each, "status": status} for each, status in given.items()]}


def pods_at_a_time(spec: Json) -> int:
    """The pods of a batch Job, or of a Job that another object describes."""
    pods: int = min(spec.get("parallelism", 1), spec.get("completions", 2**31))
    return pods
