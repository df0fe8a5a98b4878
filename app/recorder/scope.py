"""Which records are shown to one reader. A value; must never find out rights itself (`app.web.sight` does)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.engine.instants import Instant


@dataclass(frozen=True, slots=True)
class Scope:
    """What one reader is shown of the records."""

    namespaces: Mapping[str, Instant] | None = None
    """Namespaces whose Workloads are shown, each with the instant at which it was created: the Workloads of a deleted
    namespace of the same name belonged to others. None for all Workloads."""
    quotas: bool = True
    """Whether quotas are shown, and what follows from them: how much was available, and how much was borrowed."""

    @property
    def whole(self) -> bool:
        """Whether everything is shown."""
        return self.namespaces is None and self.quotas

    def shows(self, namespace: str, at: Instant) -> bool:
        """Whether a Workload is shown that a namespace had at an instant."""
        return self.namespaces is None or at >= self.namespaces.get(namespace, float("inf"))


EVERYTHING: Final = Scope()
"""For who may read the store itself."""
