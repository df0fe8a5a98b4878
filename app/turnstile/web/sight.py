"""The part of the cluster that a reader may see: the rule by which every page, event and answer leaves things out.

Queues are seen by a reader who may list all ClusterQueues and Cohorts, Workloads and LocalQueues by namespace. The same
holds for what is recorded of Workloads that are gone, as long as their namespace exists. A value that never changes:
rights that changed make another one. Must never ask the API server (`turnstile.web.rights` does).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Node
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.engine.instants import Instant
from turnstile.recorder.scope import Scope

TREE: Final[tuple[type[Kind], ...]] = (ClusterQueue, Cohort)
"""Kinds without whose objects no quota is shown."""
NAMESPACED: Final[tuple[type[Kind], ...]] = (Workload, LocalQueue)
"""Kinds that are shown by namespace."""
NOT_LISTED: Final = "you may not list and watch them"


@dataclass(frozen=True, slots=True)
class Sight:
    """The part of the cluster that one reader sees."""

    unlisted: frozenset[type[Kind]] = frozenset()
    """Kinds that the reader may not list in all namespaces."""
    namespaces: frozenset[str] | None = None
    """Namespaces whose Workloads and LocalQueues the reader may list; None for all."""
    too_many: int = 0
    """Namespaces about which was not asked, because there are so many: the reader has to name one."""

    def sees(self, namespace: str) -> bool:
        """Whether the reader may see the Workloads and LocalQueues of a namespace."""
        return self.namespaces is None or namespace in self.namespaces

    def shows(self, key: str) -> bool:
        """Whether the reader may see a Workload or LocalQueue, by its key."""
        return self.sees(key.partition("/")[0])

    @property
    def tree(self) -> bool:
        """Whether the reader may see ClusterQueues and Cohorts."""
        return self.unlisted.isdisjoint(TREE)

    @property
    def nodes(self) -> bool:
        """Whether the reader may see nodes."""
        return Node not in self.unlisted

    @property
    def whole(self) -> bool:
        """Whether the reader may see all queues and Workloads."""
        return self.tree and self.namespaces is None

    def unread(self) -> dict[type[Kind], str]:
        """Kinds of which the reader may not see all objects, with the reason."""
        found = {kind: NOT_LISTED for kind in TREE if kind in self.unlisted}
        if self.namespaces is not None:
            found |= dict.fromkeys(NAMESPACED, self._some())
        return found

    def _some(self) -> str:
        if self.too_many:
            return f"you may not list them in all {self.too_many} namespaces: look for one by its name"
        if not self.namespaces:
            return NOT_LISTED
        shown = sorted(self.namespaces)[:5]
        more = len(self.namespaces or ()) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "")
        return f"you may list them in namespace{'s' if len(shown) > 1 else ''} {names} only"

    def past(self, created: Callable[[str], Instant | None]) -> Scope:
        """The part of the recorder's records that the reader is shown. `created` tells since when a namespace exists;
        a reader of some namespaces is shown nothing of one that is gone, nor of one that had its name before."""
        if self.namespaces is None:
            return Scope(quotas=self.tree)
        known = {each: created(each) for each in self.namespaces}
        return Scope({each: at for each, at in known.items() if at is not None}, quotas=self.tree)


EVERYTHING: Final = Sight()
"""The sight of a reader whose own rights the objects were read with."""
