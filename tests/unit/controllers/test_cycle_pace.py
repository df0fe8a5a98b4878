"""How far apart the scheduler's cycles begin."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from tests.unit.controllers import worlds as w
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.scheduling.scheduler import AT_ONCE, EDITS_APART, LONGEST_APART, Scheduler, seconds_apart
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.engine import Decision, State
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence
from turnstile.kube.gate import Gate, Rank


class TestPaceOfCycles:
    """A busy API server spreads long cycles; nothing else delays one."""

    def test_quick_server(self) -> None:
        """Cycles follow each other at once while the server answers at once."""
        assert seconds_apart(writes=0.004, cycle=0.05) <= 0.002

    def test_before_the_first_write(self) -> None:
        """Nothing is known of the server before its first answer, and no cycle waits for that."""
        assert seconds_apart(writes=0.0, cycle=0.05) == 0.0

    def test_short_cycles_on_a_busy_server(self) -> None:
        """A thousand short cycles over one ClusterQueue end within seconds, however slow the server is."""
        assert 1000 * seconds_apart(writes=5.0, cycle=0.0003) < 3.0

    def test_long_cycles_on_a_busy_server(self) -> None:
        """A long cycle takes a small part of the event loop's time."""
        assert seconds_apart(writes=2.0, cycle=0.03) >= 5 * 0.03

    def test_never_far_apart(self) -> None:
        """The next cycle comes soon, however slow the server and however long the last cycle."""
        assert seconds_apart(writes=60.0, cycle=30.0) == LONGEST_APART


class Unanswered:
    """A transport of which no write is ever answered."""

    def __init__(self) -> None:
        self.gate = Gate(asyncio.get_running_loop().time)

    async def patch(self, *_: Any, **__: Any) -> None:
        """Wait."""
        await asyncio.Event().wait()


class Edited:
    """A scheduler with a Workload that asks for more than its ClusterQueue has, whatever is edited."""

    def __init__(self) -> None:
        flavor = w.decode(ResourceFlavor, {"metadata": {"name": "f"}})
        self.world = w.world(flavor, self.queue(1), w.local_queue(), self.workload("wl"))
        self.state = State()
        transport, clock = Unanswered(), asyncio.get_running_loop().time
        self.gate = transport.gate
        fence = Fence(clock=clock, epoch=1, renewed_at=clock(), span=math.inf)
        events = Recorder(cast(Any, transport), instance="test")
        executor = Executor(cast(Any, transport), {Workload: self.world.workloads}, events, fence=fence)
        self.attempts: list[float] = []
        self.scheduler = Scheduler(self.state, self.world, executor, decided=self.decided)
        self.undo = follow(
            self.state,
            self.world,
            take=self.scheduler.take,
            edit=self.scheduler.take_edit,
            begin=self.scheduler.begin,
        )

    def workload(self, name: str) -> Workload:
        """A Workload for 100 CPUs."""
        container = {"name": "c", "resources": {"requests": {"cpu": "100"}}}
        pod_sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
        made = w.workload(spec={"podSets": pod_sets})
        made.metadata.name, made.metadata.uid = name, f"{name}-uid"
        return made

    def queue(self, cpu: int) -> ClusterQueue:
        """The ClusterQueue with so much quota."""
        quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
        meta = {"name": "cq", "uid": "cq", "resourceVersion": str(cpu), "generation": cpu}
        return w.decode(ClusterQueue, {"metadata": meta, "spec": spec})

    def decided(self, decisions: Sequence[Decision], _: float) -> None:
        """Note when a cycle decided about the Workload."""
        if decisions:
            self.attempts.append(asyncio.get_running_loop().time())

    def edit(self, cpu: int) -> None:
        """Somebody gives the ClusterQueue so much quota."""
        self.world.cluster_queues.observe(self.queue(cpu))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first attempt on."""
        task = asyncio.create_task(self.scheduler.run())
        try:
            await asyncio.sleep(10)
            assert len(self.attempts) == 1
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for unsubscribe in self.undo:
                unsubscribe()


@pytest.mark.asyncio
@pytest.mark.looptime
class TestEditsOfAQueue:
    """Each has all pending Workloads of its tree tried again."""

    async def test_one_is_tried_at_once(self) -> None:
        """Nobody waits for a second one."""
        edited = Edited()
        async with edited.running():
            began = asyncio.get_running_loop().time()
            edited.edit(2)
            await asyncio.sleep(EDITS_APART / 100)
            assert edited.attempts[1:] == pytest.approx([began])

    async def test_ten_in_a_burst_share_a_few_attempts(self) -> None:
        """At most five, as in Kueue; the last edit is tried too."""
        edited = Edited()
        async with edited.running():
            for number in range(10):
                edited.edit(number + 2)
                await asyncio.sleep(0.05)
            last = asyncio.get_running_loop().time()
            await asyncio.sleep(1)
            assert 1 <= len(edited.attempts[1:]) <= 5
            assert edited.attempts[-1] >= last - 0.05

    async def test_what_else_happens_waits_for_no_burst(self) -> None:
        """A new Workload is tried at once, and with it what was edited."""
        edited = Edited()
        async with edited.running():
            edited.edit(2)
            await asyncio.sleep(EDITS_APART / 10)
            edited.edit(3)
            await asyncio.sleep(EDITS_APART / 10)
            began = asyncio.get_running_loop().time()
            edited.world.workloads.observe(edited.workload("next"))
            await asyncio.sleep(EDITS_APART / 100)
            assert edited.attempts[-1] == pytest.approx(began)


@pytest.mark.asyncio
@pytest.mark.looptime
class TestAdmissionsThatWait:
    """The API server takes no more writes at the moment."""

    async def test_no_cycle_begins_while_more_wait_than_may_be_in_flight(self) -> None:
        """Until then the ledger follows what happens, and the loop does not count as stalled."""
        edited, answered = Edited(), asyncio.Event()

        async def write() -> None:
            async with edited.gate.turn(Rank.ADMIT, "ns"):
                await answered.wait()

        async with edited.running(), asyncio.TaskGroup() as writes:
            for _ in range(3 * edited.gate.window.size):
                writes.create_task(write())
            await asyncio.sleep(1)
            for priority in range(2 * AT_ONCE):
                following = edited.workload("next")
                following.spec.priority, following.metadata.resource_version = priority, str(100 + priority)
                edited.world.workloads.observe(following)
            await asyncio.sleep(60)
            assert len(edited.attempts) == 1
            assert edited.state.workloads["ns/next"].priority == 2 * AT_ONCE - 1
            assert edited.scheduler.stalled_seconds < 1
            answered.set()
            await asyncio.sleep(1)
            assert len(edited.attempts) > 1


@pytest.mark.asyncio
@pytest.mark.looptime
class TestDeadlines:
    """Time alone changes what is decided about a Workload."""

    @pytest.mark.parametrize("readings_before_it", range(4))
    async def test_a_clock_behind_the_timer_loses_no_attempt(self, readings_before_it: int) -> None:
        """The timer of the event loop may ring when the clock is not there yet: whichever reading is the first behind
        the deadline, the Workload is tried again."""
        edited = Edited()
        start, loop = edited.world.clock(), asyncio.get_running_loop()
        began, behind = loop.time(), [timedelta(milliseconds=-1)] * readings_before_it

        def clock() -> datetime:
            passed = loop.time() - began
            return start + timedelta(seconds=passed) + (behind.pop() if passed >= 60 and behind else timedelta())

        object.__setattr__(edited.world, "clock", clock)
        async with edited.running():
            edited.state.deadlines.follow("ns/wl", start.timestamp() + 60)
            edited.scheduler.wake()
            await asyncio.sleep(100)
            assert edited.attempts[1:] == pytest.approx([began + 60], abs=0.1)
