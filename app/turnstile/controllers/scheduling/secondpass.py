"""Writes what cycles decided about places of Workloads that hold quota, and wakes the scheduler for their turns.

Only the leader runs this. Must never look for places.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from turnstile.api.topology import TopologyAssignment
from turnstile.api.workload import Admission, Workload
from turnstile.controllers.runtime.actions import Emit, Patch
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.refusals import REFUSED
from turnstile.controllers.scheduling.settling import settle
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import Change
from turnstile.engine import Decision, State
from turnstile.kube.gate import Rank

_NODE_FAILURES: Final = "NodeFailures"
_UNPLACED: Final = "SecondPassFailed"
"""Reason of the event of a Workload that holds quota and for whose pods no places were found."""
_CHECK_SECONDS: Final = 1.0
"""Longest time between two looks for the next turn: half of it is what a turn that comes first may be late."""


class SecondPassWrites:
    """The writes of one term. `take` applies a change to the ledger, `wake` has the scheduler begin a cycle."""

    def __init__(
        self,
        state: State,
        cluster: ClusterView,
        executor: Executor,
        *,
        take: Callable[[Change], None],
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._cluster = cluster
        self._executor = executor
        self._take = take
        self._wake = wake
        self._refusals: dict[str, int] = {}

    @property
    def is_due(self) -> bool:
        """Whether the turn of a Workload has come."""
        turn = self._state.second_passes.next_turn
        return turn is not None and turn <= self._cluster.now.timestamp()

    async def follow_turns(self) -> None:
        """Wake the scheduler when the turn of a Workload comes, until cancelled."""
        while True:
            turn = self._state.second_passes.next_turn
            left = _CHECK_SECONDS if turn is None else turn - self._cluster.now.timestamp()
            await asyncio.sleep(min(_CHECK_SECONDS, max(0.05, left)))
            if self.is_due:
                self._wake()

    async def write(self, decision: Decision) -> None:
        """Write one decision, then apply its outcome to the ledger."""
        match decision.outcome:
            case "place":
                await self._place(decision)
            case "evict":
                await self._evict(decision)
            case _:
                self._executor.emit(Emit(decision.workload, "Warning", _UNPLACED, decision.message))

    async def _place(self, decision: Decision) -> None:
        key, admission = decision.key, decision.admission
        assert admission is not None

        def patch(workload: Workload) -> Patch | None:
            if not _same(workload, decision):
                return None
            draft = self._cluster.draft(workload)
            draft.place(admission, admitted=decision.admitted)
            return draft.patch()

        after, refused = await settle(self._executor, key, patch, Rank.ADMIT)
        if after is None or after.metadata.uid != decision.uid or _places(after.status.admission) != _places(admission):
            await self._back_off(decision, after, refused)
            self._take(lambda: self._state.forget(key, self._cluster.now.timestamp()))
            return
        self._refusals.pop(key, None)
        self._state.confirm(key, after.metadata.resource_version)
        if after.admitted and not decision.workload.admitted:
            note = f"Admitted by ClusterQueue {decision.cluster_queue}, wait time since reservation was 0s"
            self._executor.emit(Emit(after, "Normal", "Admitted", note))

    async def _evict(self, decision: Decision) -> None:
        def patch(workload: Workload) -> Patch | None:
            if not _same(workload, decision):
                return None
            draft = self._cluster.draft(workload)
            draft.evict(_NODE_FAILURES, decision.message)
            return draft.patch()

        after, refused = await settle(self._executor, decision.key, patch, Rank.STOP)
        if after is not None and after.evicted:
            self._refusals.pop(decision.key, None)
            self._executor.emit(Emit(after, "Normal", f"EvictedDueTo{_NODE_FAILURES}", decision.message))
            return
        await self._back_off(decision, after, refused)
        self._state.forget_eviction(decision.key)

    async def _back_off(self, decision: Decision, after: Workload | None, refused: Exception | None) -> None:
        """Wait, and for longer each time, if the API server refused a write."""
        key = decision.key
        if refused is None or after is None:
            self._refusals.pop(key, None)
            return
        times = self._refusals[key] = self._refusals.get(key, 0) + 1
        self._executor.emit(Emit(after, "Warning", "FailedUpdate", f"Cannot change its places: {refused}"))
        await asyncio.sleep(REFUSED.delay(times - 1, random.random))


def _same(workload: Workload, decision: Decision) -> bool:
    """Whether a Workload is as it was decided about: it holds the same quota in the same places, of which the same
    nodes have failed."""
    before, status = decision.workload, workload.status
    return (
        workload.metadata.uid == decision.uid
        and workload.quota_reserved
        and not (workload.evicted or workload.finished)
        and status.admission == before.status.admission
        and list(status.unhealthy_nodes) == list(before.status.unhealthy_nodes)
    )


def _places(admission: Admission | None) -> dict[str, TopologyAssignment | None]:
    given = admission.pod_set_assignments if admission is not None else ()
    return {each.name: each.topology_assignment for each in given}
