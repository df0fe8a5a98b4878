"""Whether nodes have room for the pods of a Workload in flavors without a Topology, if its ClusterQueue asks for that.

A flavor without room is passed over, as one without quota is. No Workload is preempted for room: victims are chosen for
quota alone, and only if there is room once they are gone. Must never place a pod.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.topology.fits import Overlay
from turnstile.engine.topology.room import Asked, Lack, Room

if TYPE_CHECKING:
    from turnstile.engine.flavors.assignment import Assignment
    from turnstile.engine.flavors.demand import Demand
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info


class Table(Protocol):
    """Knows which ClusterQueues ask for room, and what pods ask of nodes."""

    def asks(self, queue: str) -> bool:
        """Whether a ClusterQueue admits only with room on nodes."""

    def asked(
        self, queue: "ClusterQueue", info: "Info", totals: PodSetTotals, pods: int, flavors: Sequence[str] | None = None
    ) -> Asked | None:
        """The pods of a pod set as nodes see them in some flavors; None if no room is asked for them."""

    def leaving(self, victims: "Sequence[Info]") -> Overlay:
        """The amounts, below zero, that are not in use once victims are gone."""


class RoomJudge:
    """Judges room in one cycle."""

    __slots__ = ("_pace", "_room", "_table")

    def __init__(self, table: Table, room: Room | None, pace: Pace) -> None:
        self._table = table
        self._room = room
        self._pace = pace

    def begin(self) -> None:
        """A cycle begins."""
        if self._room is not None:
            self._room.begin()

    def asks(self, queue: "ClusterQueue") -> bool:
        """Whether a ClusterQueue admits only with room on nodes."""
        return self._room is not None and self._table.asks(queue.name)

    def asked(self, demand: "Demand", flavors: Sequence[str]) -> list[Asked]:
        """The pods of the pod sets that share flavors: of a workload slice those that its job gets more."""
        found = []
        for index in demand.members:
            pods = demand.pods[index]
            if each := self._table.asked(demand.queue, demand.info, demand.info.totals[index], pods, flavors):
                found.append(each)
        return found

    def lacks(self, demand: "Demand", flavors: Sequence[str]) -> Sliced[str]:
        """Why nodes of these flavors together have too little room for the pods; empty if they have enough."""
        if self._room is None or not self._table.asks(demand.queue.name):
            return ""
        asked = self.asked(demand, flavors)
        if not asked:
            return ""
        found = yield from self._room.lack([*demand.beside, *asked], self._pace)
        return found.reason if found is not None else ""

    def lacks_then(self, assignment: "Assignment", victims: "Sequence[Info]") -> Sliced[Lack | None]:
        """The first pod set of an assignment that has too little room once its victims are gone."""
        if self._room is None or not assignment.asked:
            return None
        return (yield from self._room.lack(assignment.asked, self._pace, freed=self._table.leaving(victims)))

    def still_has(self, assignment: "Assignment") -> Sliced[bool]:
        """Whether there is still room for an assignment, if more pods are expected since it was judged."""
        if self._room is None or not assignment.asked or assignment.room_version == self._room.version:
            return True
        return (yield from self._room.lack(assignment.asked, self._pace)) is None

    def reserve(self, assignment: "Assignment", victims: "Sequence[Info]") -> Sliced[None]:
        """Keep room for a preemptor from the entries after it."""
        if self._room is not None and assignment.asked:
            yield from self._room.reserve(assignment.asked, self._pace, freed=self._table.leaving(victims))

    @property
    def version(self) -> int:
        """Grows when more pods are expected on nodes."""
        return self._room.version if self._room is not None else 0
