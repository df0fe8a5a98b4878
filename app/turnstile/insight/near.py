"""The part of a snapshot that can decide about a Workload: a question about it is answered the same, and much sooner.

Workloads compete only within a tree of Cohorts: the queues of other trees and their Workloads are left out. Must never
leave out anything that changes an answer.
"""

from collections.abc import Mapping
from typing import Final

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight.snapshot import Snapshot

_DIVIDED: Final[tuple[type[Kind], ...]] = (ClusterQueue, LocalQueue, Workload)


class Near:
    """Parts of one snapshot, `whole`, by tree of Cohorts."""

    def __init__(self, whole: Snapshot, options: Options) -> None:
        self.whole = whole
        self._undivided = options.wait_for_pods_ready.block_admission or whole.needs_nodes(
            wait_for_room=options.wait_for_room
        )
        """A Workload anywhere can block the admission of all others, or hold the nodes that another one needs."""
        parents = {each.metadata.name: each.spec.parent_name or "" for each in whole.of(Cohort)}
        self._roots = {each.metadata.name: _root(each, parents) for each in whole.of(ClusterQueue)}
        self._parts: dict[str, dict[type[Kind], dict[str, Kind]]] = {
            root: {kind: {} for kind in _DIVIDED} for root in self._roots.values()
        }
        if not self._undivided:
            self._divide()

    def of(self, *workloads: Workload) -> Snapshot:
        """The objects that can decide about Workloads, which need not be in the snapshot as they are given."""
        if self._undivided:
            return self.whole
        roots = sorted({root for each in workloads if (root := self._root_of_line(_line(each))) is not None})
        found: dict[type[Kind], dict[str, Kind]] = {kind: {} for kind in _DIVIDED}
        for root in roots:
            for kind, held in self._parts[root].items():
                found[kind] |= held
        for each in workloads:
            found[Workload].setdefault(each.metadata.key, each)
            if local := self.whole.get(LocalQueue, _line(each)):
                found[LocalQueue][local.metadata.key] = local
        return self.whole.holding({**self.whole.objects, **found})

    def _divide(self) -> None:
        for queue in self.whole.of(ClusterQueue):
            self._put(self._roots[queue.metadata.name], queue)
        for local in self.whole.of(LocalQueue):
            self._put(self._root_of_line(local.metadata.key), local)
        for workload in self.whole.of(Workload):
            self._put(self._root_of_line(_line(workload)), workload)
            if workload.status.admission is not None:
                self._put(self._roots.get(workload.status.admission.cluster_queue), workload)

    def _put(self, root: str | None, obj: Kind) -> None:
        if root is not None:
            self._parts[root][type(obj)][obj.metadata.key] = obj

    def _root_of_line(self, line: str) -> str | None:
        local = self.whole.get(LocalQueue, line)
        return self._roots.get(local.spec.cluster_queue or "") if local is not None else None


def _line(workload: Workload) -> str:
    """The key of the LocalQueue of a Workload."""
    return f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"


def _root(queue: ClusterQueue, parents: Mapping[str, str]) -> str:
    """The topmost Cohort above a ClusterQueue, of Cohorts in a cycle the first by name; itself, if it has none."""
    name = queue.spec.cohort_name or ""
    if not name:
        return f"ClusterQueue {queue.metadata.name}"
    above: list[str] = []
    while name and name not in above:
        above.append(name)
        name = parents.get(name, "")
    return min(above[above.index(name) :]) if name else above[-1]
