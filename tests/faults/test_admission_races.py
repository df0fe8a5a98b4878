"""Admissions whose Workload changes, goes or comes back between the decision and its write."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.faults.proxy import Fault, answer, drop, held, lose_answer, passed
from tests.faults.racing import Desk, cpus, pod_sets, racing
from tests.waiting import until
from turnstile.api.meta import to_plain
from turnstile.api.workload import Workload
from turnstile.controllers.status.draft import StatusDraft
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import Decision

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane) -> AsyncIterator[Desk]:
    """A scheduler that runs, and quota for three cpus."""
    async with racing(schema_server) as made:
        yield made


class TestAChangedWorkload:
    """Its admission was decided for something else."""

    async def test_does_not_get_the_quota_of_what_it_was(self, at: Desk) -> None:
        """A Workload that grows from one pod to five while its admission is on the way waits, as five do not fit."""
        gate = asyncio.Event()
        at.proxy.plan(held(gate, passed), applies=at.patches("grows"))
        await at.workload("grows")
        await at.asked("grows")
        await at.direct.patch(Workload, "grows", at.namespace, {"spec": {"podSets": pod_sets(5)}})
        gate.set()
        seen = await at.eventually("grows", lambda w: bool(w.status.conditions))
        assert not seen.quota_reserved
        assert "insufficient quota" in seen.status.conditions[0].message

    async def test_is_decided_anew(self, at: Desk) -> None:
        """One that grows to what still fits gets quota for all of it."""
        gate = asyncio.Event()
        at.proxy.plan(held(gate, passed), applies=at.patches("grows"))
        await at.workload("grows")
        await at.asked("grows")
        await at.direct.patch(Workload, "grows", at.namespace, {"spec": {"podSets": pod_sets(3)}})
        gate.set()
        assert cpus(await at.eventually("grows", lambda w: w.quota_reserved)) == "3"


class TestANamesake:
    """A Workload is deleted while its admission is on the way, and another of its name takes its place."""

    async def test_keeps_its_own_assumption(self, at: Desk) -> None:
        """The end of the first one's write does not give away what the second one was promised."""
        first, second = asyncio.Event(), asyncio.Event()
        at.proxy.plan(held(first, passed), held(second, passed), applies=at.patches("twice"))
        await at.workload("twice", pods=3)
        await at.asked("twice")
        await at.direct.delete(Workload, "twice", at.namespace)
        await at.workload("twice", pods=3)
        await at.workload("small")  # seen by the scheduler, and told that it waits, once the second one is assumed
        await at.eventually("small", lambda w: bool(w.status.conditions))
        await at.workload("other", pods=3, priority=10)
        await at.eventually("other", lambda w: bool(w.status.conditions))
        first.set()
        await at.asked("twice", times=2)
        second.set()
        await at.eventually("twice", lambda w: w.quota_reserved)
        assert not (await at.see("other")).quota_reserved


class TestAnEviction:
    """Its write has to be made again, and by then nobody needs it."""

    @pytest.fixture
    def stale(self) -> Fault:
        """The server says that it holds a newer version."""
        status = (
            b'{"kind":"Status","code":409,"reason":"Conflict","message":"newer",'
            b'"details":{"name":"first","group":"kueue.x-k8s.io","kind":"workloads"}}'
        )
        return answer("409 Conflict", status)

    async def on_its_way(self, at: Desk, stale: Fault) -> asyncio.Event:
        """`first` runs, and its eviction for `urgent` is sent; the server answers once that is set."""
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        gate = asyncio.Event()
        at.proxy.plan(held(gate, stale), applies=at.patches("first"))
        sent = at.sent("first")
        await at.workload("urgent", pods=3, priority=10)
        await at.asked("first", times=sent + 1)
        return gate

    async def test_is_left_alone_once_its_preemptor_got_quota_elsewhere(self, at: Desk, stale: Fault) -> None:
        """Quota grows while the eviction is on the way: both have room, and nobody has to go."""
        gate = await self.on_its_way(at, stale)
        await at.edit_quota(6)
        await at.eventually("urgent", lambda w: w.quota_reserved)
        gate.set()
        await at.workload("last")
        await at.eventually("last", lambda w: bool(w.status.conditions))
        assert not (await at.see("first")).evicted

    async def test_is_left_alone_once_its_preemptor_is_gone(self, at: Desk, stale: Fault) -> None:
        """Deleted while the eviction is on the way: the victim stays where it is."""
        gate = await self.on_its_way(at, stale)
        await at.direct.delete(Workload, "urgent", at.namespace)
        await at.workload("last")
        await at.eventually("last", lambda w: bool(w.status.conditions))
        gate.set()
        await at.workload("later", pods=2)
        await at.eventually("later", lambda w: bool(w.status.conditions))
        assert not (await at.see("first")).evicted

    async def test_is_left_alone_once_it_has_finished(self, at: Desk, stale: Fault) -> None:
        """Its quota is free already, and its end is not to be told as an eviction."""
        gate = await self.on_its_way(at, stale)
        seen = to_plain((await at.see("first")).status.conditions)
        end = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
        conditions = [*seen, {**end, "lastTransitionTime": "2026-01-02T03:04:05Z"}]
        body = {"status": {"conditions": conditions}}
        await at.direct.patch(Workload, "first", at.namespace, body, subresource="status")
        await at.eventually("urgent", lambda w: w.quota_reserved)
        gate.set()
        await at.workload("last")
        await at.eventually("last", lambda w: bool(w.status.conditions))
        assert not (await at.see("first")).evicted

    async def test_is_made_again_while_it_is_needed(self, at: Desk, stale: Fault) -> None:
        """A conflict alone keeps nobody in his place."""
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        at.proxy.plan(stale, applies=at.patches("first"))
        await at.workload("urgent", pods=3, priority=10)
        await at.eventually("first", lambda w: w.evicted)


class TestALostAnswer:
    """It is not known whether the admission was written."""

    async def test_holds_what_was_written(self, at: Desk) -> None:
        """The server has it: nobody else gets that quota."""
        at.proxy.plan(lose_answer, times=2, applies=at.patches("first"))
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        await at.workload("second")
        seen = await at.eventually("second", lambda w: bool(w.status.conditions))
        assert not seen.quota_reserved

    async def test_is_not_given_to_another_while_the_write_may_still_arrive(self, at: Desk) -> None:
        """A write that hangs past its deadline may arrive later; whoever is let in meanwhile would be one too many."""
        gate = asyncio.Event()
        at.proxy.plan(held(gate, passed), drop, applies=at.patches("late"))
        await at.workload("late", pods=3)
        await at.asked("late")
        await at.workload("other", pods=3, priority=10)
        await at.asked("late", times=2)
        gate.set()
        await at.eventually("late", lambda w: w.quota_reserved)
        seen = await at.eventually("other", lambda w: bool(w.status.conditions))
        assert not seen.quota_reserved


class TestARefusal:
    """The server does not take an admission, and says so."""

    async def test_is_not_asked_for_again_at_once_and_holds_nothing(self, at: Desk) -> None:
        """The Workload stands back, longer each time, and others get the quota."""
        forbidden = answer("403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
        at.proxy.plan(forbidden, times=1000, applies=at.patches("refused"))
        await at.workload("refused", pods=3)
        await at.asked("refused")
        await at.workload("next", pods=3)
        await at.eventually("next", lambda w: w.quota_reserved)
        await asyncio.sleep(1.0)
        assert at.sent("refused") < 10

    async def test_is_asked_for_again_later(self, at: Desk) -> None:
        """Once the server takes it, it is admitted."""
        forbidden = answer("403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
        at.proxy.plan(forbidden, applies=at.patches("refused"))
        await at.workload("refused", pods=3)
        await at.eventually("refused", lambda w: w.quota_reserved)


class TestARefusedEviction:
    """The server does not take an eviction, and says so."""

    async def test_is_not_asked_for_again_at_once_and_is_told(self, at: Desk) -> None:
        """A refused write of any kind is made again after a back-off, and the owners of both Workloads read why their
        job stays as it is; the preemptor's event does not name the victim."""
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        forbidden = answer("403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
        at.proxy.plan(forbidden, times=1000, applies=at.patches("first"))
        sent = at.sent("first")
        await at.workload("urgent", pods=3, priority=10)
        await until(
            lambda: len([each for each in at.notes.told if "refuses" in each[1] or "policy" in each[1]]) >= 4,
            seconds=10,
            what=f"told is only {at.notes.told}",
        )
        assert at.sent("first") - sent <= 3
        told = dict(at.notes.told)
        assert told["FailedUpdate"] == "Cannot be evicted: 403 Forbidden: policy"
        expected = f"It cannot preempt in ClusterQueue {at.namespace}: the API server refuses an eviction."
        assert told["FailedPreemption"] == expected
        at.proxy.clear()
        await at.eventually("first", lambda w: w.evicted)


class TestAFault:
    """An error of Turnstile itself about one Workload."""

    async def test_keeps_no_other_decision_from_being_written(self, at: Desk) -> None:
        """What was assumed in the ledger is written, whatever fails beside it; else its quota is held for the term."""

        def broken(decision: Decision) -> None:
            raise RuntimeError(decision.key)

        at.scheduler.tried = broken
        at.scheduler.decided = lambda decisions, seconds: broken(decisions[0])
        await at.workload("first")
        await at.eventually("first", lambda w: w.quota_reserved)

    async def test_in_a_write_holds_no_quota(self, at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        """It ends where a refusal ends: the Workload stands back, and others get the quota."""
        draft = ClusterView.draft

        def failing(self: ClusterView, workload: Workload) -> StatusDraft:
            if workload.metadata.name == "broken":
                raise RuntimeError("no draft")
            return draft(self, workload)

        monkeypatch.setattr(ClusterView, "draft", failing)
        await at.workload("broken", pods=3)
        await at.workload("next", pods=3)
        await at.eventually("next", lambda w: w.quota_reserved)


class TestAReasonForWaiting:
    """It is told late rather than never."""

    async def test_survives_trouble_of_the_server(self, at: Desk) -> None:
        """A write that failed is made again, though nothing else changes."""
        trouble = answer("500 Internal Server Error", b"etcdserver: no leader")
        at.proxy.plan(trouble, times=8, applies=at.patches("waits"))
        await at.workload("waits", pods=5)
        await at.eventually("waits", lambda w: bool(w.status.conditions))

    async def test_that_the_server_refuses_is_written_after_a_back_off(self, at: Desk) -> None:
        """However often cycles decide about the Workload meanwhile; then the newest reason is written."""
        forbidden = answer("403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
        at.proxy.plan(forbidden, times=1000, applies=at.patches("waits"))
        await at.workload("waits", pods=9)
        await at.asked("waits")
        for cpu in range(4, 8):
            await at.edit_quota(cpu)
            await at.workload(f"fits-{cpu}")
            await at.eventually(f"fits-{cpu}", lambda w: w.quota_reserved)
        assert at.sent("waits") <= 3
        at.proxy.clear()
        await at.eventually("waits", lambda w: bool(w.status.conditions))


class TestAnUnreadableWorkload:
    """One that came past the webhook."""

    async def test_keeps_nobody_else_from_being_admitted(self, at: Desk) -> None:
        """Its amounts make no sense, in the middle of cycles too; the loop goes on."""
        for number in range(10):
            await at.workload(f"bad-{number}", cpu="banana")
            await at.workload(f"waits-{number}", pods=4 + number)
        await at.workload("good")
        await at.eventually("good", lambda w: w.quota_reserved)
