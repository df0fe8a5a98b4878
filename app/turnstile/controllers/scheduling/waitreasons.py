"""Writes into the status of each pending Workload why the Workload waits: what a cycle decided, or what keeps every
cycle from looking at the Workload.

These writes give way to all others: each is computed when its turn has come, from the newest reason then. Only the
leader runs this. Must never decide about quota.
"""

import asyncio
import random
from typing import Final

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.errors import NotFound, NotLeading
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Emit, Patch
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.refusals import IN_DOUBT, REFUSED, RETRY
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import Decision, State
from turnstile.engine.causes import Cause
from turnstile.jobs.naming import split_job_key
from turnstile.kube.gate import Rank
from turnstile.kube.slices import Slice
from turnstile.wording.causes import waiting
from turnstile.wording.grammar import sentence
from turnstile.wording.shortage import explained, of_figures
from turnstile.wording.standing import grows_later

UNDECIDED_SECONDS: Final = 1.0
"""Seconds after a cycle until Workloads that no cycle has nominated get the reason why they wait in their status."""
INSUFFICIENT_QUOTA: Final = "InsufficientQuota"
"""Reason of the event that names amounts; Kueue has no event with this reason."""
GROWTH_PENDING: Final = "GrowthPending"
"""Reason of the event of an elastic job that runs, and waits to grow."""


class WaitReasons:
    """The reasons that are still to be written."""

    def __init__(self, state: State, cluster: ClusterView, executor: Executor) -> None:
        self._state = state
        self._cluster = cluster
        self._executor = executor
        self._waiting: dict[str, Decision] = {}
        self._held_back: dict[str, Decision | None] = {}
        self._refusals: dict[str, int] = {}
        self._decided = asyncio.Event()
        self._after_cycle = asyncio.Event()

    def __len__(self) -> int:
        """Number of Workloads about which a cycle decided and whose reason is to be written."""
        return len(self._waiting)

    def put(self, decision: Decision) -> None:
        """Have the reason of a decision written, in the place of an older one."""
        if decision.key in self._held_back:
            self._held_back[decision.key] = decision
        else:
            self._waiting[decision.key] = decision
            self._decided.set()

    def drop(self, key: str) -> None:
        """A Workload is admitted: its reason is not written any more."""
        self._waiting.pop(key, None)
        if key in self._held_back:
            self._held_back[key] = None

    def _hold_back(self, key: str, decision: Decision | None) -> None:
        """Write no reason of a Workload for a while, because the API server has refused one; then the newest."""
        self._held_back[key] = self._waiting.pop(key, None) or decision
        times = self._refusals[key] = self._refusals.get(key, 0) + 1
        asyncio.get_running_loop().call_later(REFUSED.delay(times - 1, random.random), self._release, key)

    def _release(self, key: str) -> None:
        decision = self._held_back.pop(key, None)
        if decision is not None:
            self.put(decision)
        elif key not in self._state.queues.waiting:
            self._refusals.pop(key, None)
        else:
            self._after_cycle.set()

    def cycles_ended(self) -> None:
        """No Workload is left to decide about: those that no cycle has nominated may need a reason."""
        self._after_cycle.set()

    async def write_decided(self) -> None:
        """Write what cycles decided, one Workload at a time, until cancelled: the newest reason of each when the write
        has its turn."""
        failures = 0
        while True:
            await self._decided.wait()
            self._decided.clear()
            while self._waiting:
                key, decision = next(iter(self._waiting.items()))
                try:
                    await self._write_reason(key)
                    failures = 0
                    self._refusals.pop(key, None)
                except NotLeading:
                    raise
                except IN_DOUBT as error:
                    self._executor.report(Workload, key, error)
                    newer = self._waiting.pop(key, None)
                    self._waiting[key] = newer or decision  # after the others
                    await asyncio.sleep(RETRY.delay(failures, random.random))
                    failures += 1
                except NotFound:
                    self._waiting.pop(key, None)  # the Workload was deleted
                except Exception as error:
                    self._executor.report(Workload, key, error)
                    self._hold_back(key, decision)

    async def _write_reason(self, key: str) -> None:
        said = False
        decision: Decision | None = None

        def patch(workload: Workload) -> Patch | None:
            nonlocal said, decision
            decision = self._waiting.pop(key, decision)
            if decision is None:
                return None  # it was admitted meanwhile
            if workload.metadata.uid != decision.uid or not is_pending(workload):
                return None
            draft = self._cluster.draft(workload)
            draft.unreserve(reason=decision.condition_reason, message=decision.message)
            if decision.outcome == "gated":
                draft.set(wl.BLOCKED_ON_PREEMPTION_GATES, "True", reason="PreemptionGated", message=decision.message)
            draft.requests(decision.resource_requests)
            said = draft.changed
            return draft.patch() if said else None

        after = await self._executor.update(Workload, key, patch, rank=Rank.REASON)
        if said and decision is not None:
            self._executor.emit(Emit(after, "Warning", decision.condition_reason, decision.message))
            self._explain_amounts(after, decision)
            self._report_to_job(after, decision)

    def _report_to_job(self, workload: Workload, decision: Decision) -> None:
        """Emit an event on an elastic job that runs, with the reason why its growth waits."""
        before = self._cluster.workloads.get(workload.metadata.annotations.get(names.SLICE_REPLACEMENT_FOR, ""))
        if before is None or before.finished or not before.admitted:
            return
        pods = sum(each.count for each in workload.spec.pod_sets)
        for key in self._cluster.registry.jobs_of(workload):
            framework, name = split_job_key(key)
            integration = self._cluster.registry.by_framework(framework)
            store = self._cluster.jobs.get(integration.kind) if integration is not None else None
            job = store.get(name) if store is not None else None
            if job is not None:
                note = sentence(grows_later(pods, waiting(decision.message)))
                self._executor.emit(Emit(job, "Normal", GROWTH_PENDING, note))

    def _explain_amounts(self, workload: Workload, decision: Decision) -> None:
        """Emit an event with the requested and the available amounts, if amounts are why the Workload waits. The event
        is separate, because tools match the texts of Kueue's conditions and events to the letter."""
        if explanation := explained(of_figures(decision.figures)):
            self._executor.emit(Emit(workload, "Normal", INSUFFICIENT_QUOTA, explanation))

    async def write_undecided(self) -> None:
        """Write the reason of Workloads that wait without any cycle nominating them, such as because an equivalent
        Workload failed."""
        while True:
            await self._after_cycle.wait()
            await asyncio.sleep(UNDECIDED_SECONDS)
            self._after_cycle.clear()
            state, turn = self._state, Slice()
            sampled_at: dict[tuple[str, str], Decision] = {}
            for key, decision in list(state.queues.decisions.items()):
                if turn.over:
                    await turn.rest()
                if (info := state.queues.waiting.get(key)) is not None:
                    sampled_at[decision.cluster_queue, info.hash] = decision
            for key in list(state.queues.waiting):
                if turn.over:
                    await turn.rest()
                info = state.queues.waiting.get(key)
                try:
                    if info is None or key in self._held_back:
                        continue
                    if _has_reason(info.workload) or state.questions.waits(key) is None:
                        continue
                    await self._write_bypassed(key, sampled_at.get((info.cluster_queue, info.hash)))
                    turn.begin()
                except NotLeading:
                    raise
                except NotFound:
                    continue
                except Exception as error:
                    self._executor.report(Workload, key, error)
                    if isinstance(error, IN_DOUBT):
                        self._after_cycle.set()
                    else:
                        self._hold_back(key, None)

    async def _write_bypassed(self, key: str, equal: Decision | None) -> None:
        bypassed = False

        def patch(workload: Workload) -> Patch | None:
            nonlocal bypassed
            why = self._state.questions.waits(key)
            if why is None or not is_pending(workload) or _has_reason(workload):
                return None
            bypassed = why.message == Cause.EQUAL_FAILED.says()
            draft = self._cluster.draft(workload)
            draft.unreserve(reason=why.reason, message=why.message)
            return draft.patch()

        after = await self._executor.update(Workload, key, patch, rank=Rank.REASON)
        if bypassed and equal is not None:
            self._explain_amounts(after, equal)


def _has_reason(workload: Workload) -> bool:
    """Whether the status of a Workload has the reason why the Workload waits."""
    reserved = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    return reserved is not None and reserved.reason != "PendingEvaluation"


def is_pending(workload: Workload) -> bool:
    """Whether a Workload still waits for quota."""
    return (
        workload.spec.active
        and not workload.quota_reserved
        and not workload.finished
        and not workload.metadata.deletion_timestamp
    )
