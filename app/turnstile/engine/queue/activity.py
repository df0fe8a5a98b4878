"""Whether a ClusterQueue admits: what it references must exist and be ready (Kueue: inactiveReason).

An event may concern thousands of ClusterQueues, so it marks them only. Each is judged when its problems are read, and
those that nobody reads are judged in slices of the next cycle. Must never look at usage.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from turnstile.api import names
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.queue.references import References
from turnstile.engine.quota.clusterqueue import ClusterQueue


class Check(NamedTuple):
    """An AdmissionCheck: whether it is ready, and the name of the controller that answers it."""

    active: bool
    controller: str


Queue = TypeVar("Queue", bound=ClusterQueue)

JUDGING: Final = 6.0
"""Work to judge a ClusterQueue, beside that for each flavor it names."""


class ActivityJudge(Generic[Queue]):
    """Judges ClusterQueues by the objects that exist. `cluster_queues`, `flavors`, `checks` and `topologies` are those
    of the state; topologies are not looked for if they are None. `judged` is called with each ClusterQueue that was
    judged, and whether it admits again."""

    __slots__ = ("_checks", "_cluster_queues", "_flavors", "_judged", "_topologies", "marked", "references")

    def __init__(
        self,
        cluster_queues: Mapping[str, Queue],
        *,
        flavors: Mapping[str, ResourceFlavor],
        checks: Mapping[str, Check],
        topologies: Mapping[str, tuple[str, ...] | None] | None,
        judged: Callable[[Queue, bool], None],
    ) -> None:
        self._cluster_queues = cluster_queues
        self._flavors = flavors
        self._checks = checks
        self._topologies = topologies
        self._judged = judged
        self.references = References()
        self.marked: dict[str, None] = {}

    def put(self, queue: Queue) -> None:
        """A ClusterQueue exists or changed."""
        queue.judged_by = self
        self.references.put(queue)
        self.judge(queue)

    def drop(self, name: str) -> None:
        """A ClusterQueue is gone."""
        self.references.drop(name)
        self.marked.pop(name, None)

    def mark(self, names: Mapping[str, None]) -> None:
        """Objects that ClusterQueues of these names reference changed."""
        self.marked.update(names)

    def judge(self, queue: Queue) -> None:
        """Judge a ClusterQueue now."""
        self.marked.pop(queue.name, None)
        before = queue.problems
        queue.problems = found = list(
            problems(queue, flavors=self._flavors, checks=self._checks, topologies=self._topologies)
        )
        self._judged(queue, not found and bool(before))

    def judging(self, pace: Pace) -> Sliced[None]:
        """Judge all that are marked. If it is left early, the others are still marked."""
        while self.marked:
            queue = self._cluster_queues[self.marked.popitem()[0]]
            self.judge(queue)
            pace.left -= JUDGING + sum(len(group.flavors) for group in queue.groups) / 2
            if pace.left <= 0:
                yield
                pace.renew()


def problems(
    queue: ClusterQueue,
    *,
    flavors: Mapping[str, ResourceFlavor],
    checks: Mapping[str, Check],
    topologies: Mapping[str, tuple[str, ...] | None] | None,
) -> Iterator[tuple[str, str]]:
    """Reasons why it admits nothing, in the order they are reported, with their words. `flavors`, `checks` and
    `topologies` are those that exist; topologies are not looked for if they are None. One without levels exists, and no
    pod can be placed by it."""
    if queue.api.spec.stop_policy != "None":
        yield "Stopped", "is stopped"
    missing = [flavor for flavor in queue.flavors() if flavor not in flavors]
    if missing:
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"
    named = sorted({check.name for check in queue.checks})
    unknown = [name for name in named if name not in checks]
    if unknown:
        yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(unknown)}"
    found = {name: checks[name] for name in named if name in checks}
    inactive = [name for name, check in found.items() if not check.active]
    if inactive:
        yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(inactive)}"
    multi = [name for name, check in found.items() if check.controller == names.MULTIKUEUE_CONTROLLER]
    if len(multi) > 1:
        yield (
            "MultipleMultiKueueAdmissionChecks",
            f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {','.join(multi)}",
        )
    per_flavor = sorted({check.name for check in queue.checks if check.on_flavors and check.name in multi})
    if per_flavor:
        yield (
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}",
        )
    provisioning = [name for name, check in found.items() if check.controller == names.PROVISIONING_CONTROLLER]
    if multi and provisioning:
        both = f"{','.join(multi)}, {','.join(provisioning)}"
        yield (
            "MultiKueueWithProvisioningRequest",
            f"Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {both}",
        )
    if multi or topologies is None:
        return
    for name in queue.flavors():
        flavor = flavors.get(name)
        topology = flavor.spec.topology_name if flavor is not None else None
        if topology and topology not in topologies:
            yield "TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{name}"'
        elif topology and topologies[topology] is None:
            yield (
                "NotSupportedWithTopologyAwareScheduling",
                f'topology-aware scheduling is not built yet, and ResourceFlavor "{name}" names Topology "{topology}"',
            )
