"""Controllers run beside each other: what one has to do, or fails to do, delays no other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog

from tests.unit.controllers.worlds import decode
from turnstile.api.core import Namespace
from turnstile.api.errors import Conflict
from turnstile.api.meta import Kind
from turnstile.controllers.runtime.actions import Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Dispatch, Target, Watch, every, itself
from turnstile.controllers.runtime.runner import Runner
from turnstile.kube.store import Store
from turnstile.kube.workqueue import WorkQueue

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Ledger:
    """Takes changes in when it is told to, as the scheduler's does after a cycle."""

    def __init__(self) -> None:
        self.kept: list[Callable[[], None]] = []

    def __call__(self, then: Callable[[], None]) -> None:
        """Keep it."""
        self.kept.append(then)


class Diary:
    """What was reconciled by whom, in order; keys named `bad` fail, keys named `slow` take an hour."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.failed: Counter[tuple[str, str]] = Counter()

    def controller(
        self,
        name: str,
        *watches: Watch[Namespace, str],
        initial: Callable[[], Iterator[str | None]] = lambda: iter(()),
        workers: int = 1,
        actions: Iterable[Emit | RequeueAfter] = (),
    ) -> Controller:
        """A controller that decides on these actions whatever the key."""
        return Controller(
            name=name,
            kind=Namespace,
            decide=lambda key: ReconcileResult(list(actions), why=f"{name}: {key}"),
            watches=watches,
            initial=initial,
            workers=workers,
        )

    async def carry_out(self, _: type[Kind], key: str, decision: ReconcileResult, queue: WorkQueue) -> None:
        """Write it down."""
        name = decision.why.partition(":")[0]
        if key == "slow":
            await asyncio.sleep(3600)
        if key == "bad":
            raise ValueError("bad")
        if key == "stale" and (name, key) not in self.done:
            self.done.append((name, key))
            raise Conflict(409, "Conflict", "it has changed")
        self.done.append((name, key))
        for action in decision.actions:
            if isinstance(action, RequeueAfter):
                queue.add_after(key, action.seconds)

    def report(self, _: type[Kind], key: str, error: Exception) -> None:
        """Count it."""
        self.failed[key, type(error).__name__] += 1


@asynccontextmanager
async def running(runner: Runner) -> AsyncIterator[None]:
    """Run the controllers for the time of a block, which begins when they have nothing left to do."""
    task = asyncio.ensure_future(runner.run())
    await settled()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled() -> None:
    """Let everything happen that is due."""
    await asyncio.sleep(0.001)


def namespace(name: str, version: int = 1) -> Namespace:
    """A version of a Namespace."""
    return decode(Namespace, {"metadata": {"name": name, "resourceVersion": str(version)}})


def stored(*names: str) -> Store[Namespace]:
    """A store of Namespaces."""
    store: Store[Namespace] = Store()
    for name in names:
        store.observe(namespace(name))
    return store


async def test_everything_is_reconciled_once_and_then_what_changes() -> None:
    """Also what changed before the workers began, and nothing after the end."""
    store, diary = stored("b", "a"), Diary()
    runner = Runner(diary, [diary.controller("one", Watch(store, itself), initial=lambda: every(store))])
    async with running(runner):
        assert diary.done == [("one", "a"), ("one", "b")]
        store.observe(namespace("c"))
        await settled()
        assert diary.done[2:] == [("one", "c")]
        runner.reconcile_all()
        await settled()
        assert diary.done[3:] == [("one", "a"), ("one", "b"), ("one", "c")]
    store.observe(namespace("d"))
    assert len(runner.queues["one"]) == 0
    assert runner.reconciles == {("one", "success"): 6}


async def test_a_controller_that_is_stuck_delays_no_other() -> None:
    """All its workers wait for an answer, and thousands of its keys wait for them."""
    store, diary = stored("slow", *map(str, range(3000))), Diary()
    stuck = diary.controller("stuck", Watch(store, itself), initial=lambda: iter(["slow", *map(str, range(3000))]))
    other = diary.controller("other", Watch(store, itself))
    runner = Runner(diary, [stuck, other])
    async with running(runner):
        store.observe(namespace("new"))
        await settled()
        assert diary.done == [("other", "new")]
        assert (len(runner.queues["stuck"]), runner.queues["stuck"].processing) == (3001, 1)


async def test_a_failure_is_reported_and_costs_the_others_nothing() -> None:
    """Its own controller goes on with other keys too; a conflict is told apart from an error."""
    diary = Diary()
    runner = Runner(
        diary,
        [
            diary.controller("one", initial=lambda: iter(["bad", "good", "stale"])),
            diary.controller("other", initial=lambda: iter(["good"])),
        ],
    )
    async with running(runner):
        assert {("one", "good"), ("other", "good")} <= set(diary.done)
        assert diary.failed["bad", "ValueError"] == 1
        assert runner.reconciles["one", "error"] == 1
        assert runner.reconciles["one", "conflict"] == 1
        await asyncio.sleep(1)
        assert diary.failed["bad", "ValueError"] > 1


async def test_keys_that_cannot_be_listed_cost_no_others() -> None:
    """A fault in one list of keys ends that list only."""
    diary = Diary()

    def broken() -> Iterator[str]:
        yield "a"
        raise ValueError("no more")

    runner = Runner(
        diary, [diary.controller("one", initial=broken), diary.controller("two", initial=lambda: iter("b"))]
    )
    async with running(runner):
        assert diary.done == [("one", "a"), ("two", "b")]


async def test_one_subscription_serves_many_controllers() -> None:
    """A dispatch says which controller has to reconcile which key; a controller that does not run is passed over."""
    store, diary = stored(), Diary()

    def changed(key: str, _: Namespace | None, __: Namespace | None) -> list[Target]:
        name, _, rest = key.partition("-")
        return [(name, rest)]

    runner = Runner(
        diary, [diary.controller("one"), diary.controller("two")], [Dispatch(watches=[Watch(store, changed)])]
    )
    async with running(runner):
        for name in ("one-a", "two-b", "three-c"):
            store.observe(namespace(name))
        await settled()
        assert diary.done == [("one", "a"), ("two", "b")]


async def test_a_store_that_becomes_complete_is_gone_through_again() -> None:
    """What was not there when the controllers started may have been held back by nothing but its absence."""
    store, diary = stored(), Diary()
    store.doubt()
    listed: list[Target] = []
    dispatch = Dispatch(complete={store: lambda: iter(listed)})
    async with running(Runner(diary, [diary.controller("one")], [dispatch])):
        assert diary.done == []
        listed.append(("one", "a"))
        store.believe()
        await settled()
        assert diary.done == [("one", "a")]


async def test_many_keys_are_added_in_slices() -> None:
    """Nobody else waits for the end of a list of a hundred thousand keys."""
    diary, beside = Diary(), 0
    runner = Runner(diary, [diary.controller("one", initial=lambda: iter(map(str, range(100_000))), workers=0)])
    task = asyncio.ensure_future(runner.run())
    while len(runner.queues["one"]) < 100_000:
        await asyncio.sleep(0)
        beside += 1
    assert beside > 10
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_rests_on_the_ledger_waits_for_it() -> None:
    """Keys of such a watch are added, and many of them listed, when the ledger has taken in the change, not before."""
    store, diary, ledger = stored(), Diary(), Ledger()
    listed = ["a"]
    watch: Watch[Namespace, str] = Watch(store, itself, lambda *_: iter(listed), after_ledger=True)
    async with running(Runner(diary, [diary.controller("one", watch)], ledger_has=ledger)):
        store.observe(namespace("any"))
        await settled()
        assert diary.done == []
        listed.append("b")
        ledger.kept.pop()()
        await settled()
        assert diary.done == [("one", "any"), ("one", "a"), ("one", "b")]


async def test_the_log_says_what_was_decided_and_why() -> None:
    """At the level debug, a line for each decision."""
    diary = Diary()
    actions = [RequeueAfter(1.5), Emit(namespace("a"), "Normal", "Started", "note")]
    runner = Runner(diary, [diary.controller("one", initial=lambda: iter("a"), actions=actions)])
    with structlog.testing.capture_logs() as logs:
        async with running(runner):
            pass
    assert logs == [
        {
            "event": "reconcile.decided",
            "log_level": "debug",
            "kind": "Namespace",
            "key": "a",
            "why": "one: a",
            "actions": ["requeue after 1.5s", "event Started"],
        }
    ]
