"""The part of a snapshot that can decide about a Workload: a question about it is answered the same, and much sooner.

Workloads compete only within a tree of Cohorts: the queues of other trees and their Workloads are left out. Must never
leave out anything that changes an answer.
"""

from app.api.clusterqueue import ClusterQueue
from app.api.localqueue import LocalQueue
from app.api.meta import Kind
from app.api.workload import Workload
from app.engine import Options
from app.insight.snapshot import Snapshot

_Part = dict[type[Kind], dict[str, Kind]]


class Near:
    """Parts of one snapshot, `whole`, by tree of Cohorts."""

    def __init__(self, whole: Snapshot, options: Options) -> None:
        self.whole = whole
        self._undivided = options.wait_for_pods_ready.block_admission
        """A Workload anywhere can block the admission of all others."""
        self._trees: dict[str, str] = {}
        self._parts: dict[str, _Part] = {}
        if not self._undivided:
            self._trees = _trees(whole, options)
            self._divide()

    def of(self, workload: Workload) -> Snapshot:
        """What can decide about a Workload, which need not be in the snapshot as it is given."""
        if self._undivided:
            return self.whole
        empty: _Part = {ClusterQueue: {}, LocalQueue: {}, Workload: {}}
        tree = self._tree(_line(workload))
        part = {kind: dict(held) for kind, held in (self._parts.get(tree, empty) if tree else empty).items()}
        part[Workload].setdefault(workload.metadata.key, workload)
        if local := self.whole.get(LocalQueue, _line(workload)):
            part[LocalQueue][local.metadata.key] = local
        return Snapshot({**self.whole.objects, **part}, dict(self.whole.unread))

    def _divide(self) -> None:
        for queue in self.whole.of(ClusterQueue):
            self._put(self._trees.get(queue.metadata.name), queue)
        for local in self.whole.of(LocalQueue):
            self._put(self._tree(local.metadata.key), local)
        for workload in self.whole.of(Workload):
            admission = workload.status.admission
            self._put(self._tree(_line(workload)), workload)
            if admission is not None:
                self._put(self._trees.get(admission.cluster_queue), workload)

    def _put(self, tree: str | None, obj: Kind) -> None:
        if tree is not None:
            part = self._parts.setdefault(tree, {ClusterQueue: {}, LocalQueue: {}, Workload: {}})
            part[type(obj)][obj.metadata.key] = obj

    def _tree(self, line: str) -> str | None:
        local = self.whole.get(LocalQueue, line)
        return self._trees.get(local.spec.cluster_queue or "") if local is not None else None


def _line(workload: Workload) -> str:
    """The key of the LocalQueue of a Workload."""
    return f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"


def _trees(snapshot: Snapshot, options: Options) -> dict[str, str]:
    """By the name of a ClusterQueue that of its tree of Cohorts: the first of its members."""
    state, _ = snapshot.without(Workload).state(options, 0.0)
    trees: dict[str, str] = {}
    for name, queue in state.cluster_queues.items():
        if state.ledger.cyclic(queue.node):
            trees[name] = name
        elif name not in trees:
            trees.update((node.name, name) for node in queue.node.root.walk_queues())
    return trees
