"""The ledger takes in thousands of objects without holding the event loop, and ends up with the newest of each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.unit.controllers import worlds as w
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.scheduling.scheduler import Scheduler
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.engine import State
from turnstile.kube.window import Window

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
"""No time passes while a test runs, however slow the machine is: what the scheduler writes after a while cannot be
written here."""

COUNT = 3000


def crowd() -> ClusterView:
    """Thousands of Workloads of a LocalQueue whose ClusterQueue does not exist: there is nothing to decide."""
    made = [w.workload() for _ in range(COUNT)]
    for number, workload in enumerate(made):
        workload.metadata.name = f"w{number:04}"
        workload.metadata.uid = f"uid-{number}"
    return w.world(*made, w.local_queue())


class At:
    """A scheduler that has just begun to follow a world."""

    def __init__(self, world: ClusterView) -> None:
        self.world = world
        self.state = State()
        nobody = cast(Any, None)  # nothing is decided, so nothing is written
        transport = cast(Any, SimpleNamespace(gate=SimpleNamespace(window=Window(lambda: 0.0))))
        self.scheduler = Scheduler(self.state, world, Executor(transport, {}, nobody, fence=nobody))
        self.undo = follow(self.state, world, take=self.scheduler.take, begin=self.scheduler.begin)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For as long as this lasts."""
        task = asyncio.create_task(self.scheduler.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for unsubscribe in self.undo:
                unsubscribe()


async def test_a_start_lets_others_run() -> None:
    """While it takes in what is there, others get their turn again and again."""
    at = At(crowd())
    assert not at.state.workloads
    known = [0]
    async with at.running():
        while known[-1] < COUNT:
            await asyncio.sleep(0)
            known.append(len(at.state.workloads))
        await at.scheduler.caught_up()
    assert max(after - before for before, after in pairwise(known)) < COUNT / 10


async def test_what_changes_meanwhile_is_not_lost() -> None:
    """What was deleted stays away, what was changed is as it is now."""
    at = At(crowd())
    async with at.running():
        # The first slice may end before its first change if the machine is busy: turns of the loop are waited for.
        while not at.state.workloads:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(at.state.workloads) < COUNT
        changed = msgspec.convert(msgspec.to_builtins(at.world.workloads.get("ns/w2999")), w.Workload)
        changed.spec.priority = 77
        changed.metadata.resource_version = "100000"
        at.world.workloads.observe(changed)
        at.world.workloads.delete("ns/w0000")
        at.world.workloads.delete("ns/w2998")
        await at.scheduler.caught_up()
    assert len(at.state.workloads) == COUNT - 2
    assert at.state.workloads["ns/w2999"].priority == 77


async def test_a_burst_of_changes_lets_others_run() -> None:
    """A list after a lost watch may change everything at once."""
    at = At(w.world(w.local_queue()))
    async with at.running():
        await at.scheduler.caught_up()
        for workload in crowd().workloads.values():
            at.world.workloads.observe(workload)
        known = [len(at.state.workloads)]
        while known[-1] < COUNT:
            await asyncio.sleep(0)
            known.append(len(at.state.workloads))
    assert max(after - before for before, after in pairwise(known)) < COUNT / 10
