"""Over any history no key is with two workers, none is lost and none invented."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.examples import examples
from turnstile.kube.workqueue import QueueShutDown, WorkQueue


class QueueMachine(RuleBasedStateMachine):
    """Any history of adds, gets and dones: no key twice in work, none lost, none invented."""

    keys = st.sampled_from(("a", "b", "ns/c", "ns/d", "batch/job:ns/e", "batch/job:other/f"))

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue()
        self.waiting: set[str] = set()
        self.working: set[str] = set()
        self.again: set[str] = set()

    @rule(key=keys)
    def add(self, key: str) -> None:
        """An event."""
        self.queue.add(key)
        (self.again if key in self.working else self.waiting).add(key)

    @rule()
    def get(self) -> None:
        """A worker takes the next key."""
        if not len(self.queue):
            return
        coroutine = self.queue.get()
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        key = stopped.value.value
        assert key in self.waiting
        assert key not in self.working
        self.waiting.remove(key)
        self.working.add(key)

    @rule(key=keys)
    def done(self, key: str) -> None:
        """A worker gives it back."""
        if key not in self.working:
            return
        self.queue.done(key)
        self.working.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.waiting.add(key)

    @invariant()
    def agrees(self) -> None:
        """The queue and the model hold the same keys."""
        assert len(self.queue) == len(self.waiting)
        assert self.queue.processing == len(self.working)


@settings(max_examples=20, deadline=None)
@given(adds=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30))
def test_the_last_add_is_always_followed_by_a_look(adds: list[tuple[str, int]]) -> None:
    """However adds and workers interleave, each key is looked at after its last add, and never by two at once."""
    looks: Counter[str] = Counter()
    added_after: dict[str, bool] = {}
    busy: set[str] = set()

    async def work(queue: WorkQueue) -> None:
        while True:
            try:
                key = await queue.get()
            except QueueShutDown:
                return
            assert key not in busy
            busy.add(key)
            added_after[key] = False
            for _ in range(3):
                await asyncio.sleep(0)
            looks[key] += 1
            busy.remove(key)
            queue.done(key)

    async def scenario() -> None:
        queue = WorkQueue()
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(work(queue))
            for key, pause in adds:
                queue.add(key)
                added_after[key] = True
                for _ in range(pause):
                    await asyncio.sleep(0)
            queue.shut_down()

    asyncio.run(scenario())
    assert not any(added_after.values())
    assert set(looks) == {key for key, _ in adds}


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
