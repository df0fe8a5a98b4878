"""Whom to preempt so that a workload fits: candidates, their order, the smallest set. Finds none yet."""

from typing import TYPE_CHECKING, NamedTuple

from app.engine.amounts import FlavorResource
from app.engine.reasons import Possibility

if TYPE_CHECKING:
    from app.engine.flavors import Assignment
    from app.engine.info import Info
    from app.engine.queues import ClusterQueue
    from app.engine.state import State


class Target(NamedTuple):
    """A workload to preempt, the queue it holds quota in, and why."""

    info: "Info"
    queue: "ClusterQueue"
    reason: str


class Preemptor:
    """Finds targets. Simulates on the ledger and always puts it back."""

    __slots__ = ("state",)

    def __init__(self, state: "State", now: float) -> None:
        self.state = state

    def targets(self, queue: "ClusterQueue", info: "Info", assignment: "Assignment") -> list[Target]:
        """Workloads to preempt for an assignment in mode Preempt, none if that would not help."""
        return []

    def oracle(self, queue: "ClusterQueue", info: "Info", pair: FlavorResource, amount: int) -> tuple[Possibility, int]:
        """Whether room can be made for so much of one resource in one flavor."""
        from app.engine import tree

        return Possibility.NO_CANDIDATES, tree.level(queue.node, pair, amount)[0]
