"""Which records are shown to one reader. A value; must never find out rights itself (`turnstile.web.sight` does)."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from turnstile.engine.instants import Instant


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the records that one reader is shown."""

    namespaces: Mapping[str, Instant] | None = None
    """Namespaces whose Workloads are shown, each with the instant at which it was created: the Workloads of a deleted
    namespace of the same name belonged to others. None for all Workloads."""
    quotas: bool = True
    """Whether quotas are shown, and what follows from them: how much was available, and how much was borrowed."""

    @property
    def whole(self) -> bool:
        """Whether everything is shown."""
        return self.namespaces is None and self.quotas

    @property
    def key(self) -> Hashable:
        """A key that is equal for scopes that show the same."""
        return self.quotas, None if self.namespaces is None else frozenset(self.namespaces.items())

    def includes(self, namespace: str) -> bool:
        """Whether Workloads of a namespace are shown."""
        return self.namespaces is None or namespace in self.namespaces

    def shows(self, namespace: str, at: Instant) -> bool:
        """Whether a Workload is shown that a namespace had at an instant."""
        return self.namespaces is None or (namespace in self.namespaces and at >= self.namespaces[namespace])

    def within(self, namespace: str) -> "Scope":
        """The part of this scope in one namespace."""
        known = {namespace: 0.0} if self.namespaces is None else self.namespaces
        return Scope({each: at for each, at in known.items() if each == namespace}, self.quotas)


EVERYTHING: Final = Scope()
"""For who may read the store itself."""
