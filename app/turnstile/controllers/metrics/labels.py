"""Which labels and which LocalQueues the metrics have, as the configuration says (`metrics` of the file)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from turnstile.api.meta import ObjectMeta
from turnstile.api.selectors import LabelSelector

Source = Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"]

UNTRACKED: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Value of a custom label whose object has a value that the configuration does not list."""


@dataclass(frozen=True, slots=True)
class CustomLabel:
    """A label `custom_<name>` whose value is a label or annotation of an object. Without `tracked` any value counts."""

    name: str
    source: Source
    key: str
    from_annotation: bool = False
    tracked: frozenset[str] = frozenset()

    def value(self, meta: ObjectMeta | None) -> str:
        """The value of an object; empty without one."""
        if meta is None:
            return ""
        found = (meta.annotations if self.from_annotation else meta.labels).get(self.key, "")
        return found if not found or not self.tracked or found in self.tracked else UNTRACKED


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Measurements that are made only if the configuration asks for them. `selector` selects LocalQueues; None selects
    all."""

    custom: Sequence[CustomLabel] = ()
    local_queues: bool = True
    selector: LabelSelector | None = None
    cohorts: bool = True
    resources: bool = False
    creation_latency: bool = True
    unadmitted: bool = True
    by_source: dict[str, tuple[CustomLabel, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for label in self.custom:
            self.by_source[label.source] = (*self.by_source.get(label.source, ()), label)

    def names(self, *sources: Source) -> tuple[str, ...]:
        """Names of the custom labels of these kinds."""
        return tuple(f"custom_{label.name}" for source in sources for label in self.by_source.get(source, ()))

    def values(self, source: Source, meta: ObjectMeta | None) -> tuple[str, ...]:
        """Values of the custom labels of an object."""
        labels = self.by_source.get(source)
        return tuple(label.value(meta) for label in labels) if labels else ()

    def shows(self, meta: ObjectMeta | None) -> bool:
        """Whether a LocalQueue has metrics; one that does not exist only if all have."""
        if not self.local_queues:
            return False
        return self.selector is None or (meta is not None and self.selector.matches(meta.labels))
