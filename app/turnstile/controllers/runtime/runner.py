"""Runs controllers: a work queue and workers for each, and subscriptions that add keys.

Must never depend on a kind. The load or the failures of one controller delay no other: controllers share only the
executor. Large numbers of keys are added in slices (`turnstile.kube.slices`).
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import structlog

from turnstile.api.errors import Conflict, NotLeading
from turnstile.api.meta import Kind
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Dispatch, Target, Watch
from turnstile.controllers.runtime.executor import Executor
from turnstile.kube.slices import Slice, in_slices
from turnstile.kube.workqueue import WorkQueue, run_workers

log = structlog.get_logger(__name__)

K = TypeVar("K")
Result = Literal["success", "conflict", "error"]


class Runner:
    """Runs some controllers. `ledger_has` calls a function once all changes so far were applied to the ledger."""

    def __init__(
        self,
        executor: Executor,
        controllers: Iterable[Controller],
        dispatches: Iterable[Dispatch] = (),
        *,
        ledger_has: Callable[[Callable[[], None]], None] = lambda then: then(),
    ) -> None:
        self._executor = executor
        self._controllers = tuple(controllers)
        self._dispatches = tuple(dispatches)
        self._ledger_has = ledger_has
        self._to_add: deque[Iterator[None]] = deque()
        self._more_to_add = asyncio.Event()
        self.queues = {
            each.name: WorkQueue(base_delay=each.base_delay, max_delay=each.max_delay) for each in self._controllers
        }
        """The work queue of each controller, by its name."""
        self.reconciles: Counter[tuple[str, Result]] = Counter()
        """Number of reconciles, by controller and result."""

    async def run(self) -> None:
        """Reconcile every object once, and then every change, until cancelled."""
        with self.subscribed():
            self.reconcile_all()
            await self.work()

    async def work(self) -> None:
        """Reconcile the keys of the queues until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._add(), name="keys to reconcile")
            for controller in self._controllers:
                group.create_task(self._reconcile(controller), name=f"{controller.name} controller")

    def reconcile_all(self) -> None:
        """Decide about each object again, as at the start."""
        for controller in self._controllers:
            self._later(controller.initial(), self.queues[controller.name].add)
        for dispatch in self._dispatches:
            self._hand_out_later(dispatch.initial)

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Subscribe the controllers to their stores for as long as the block lasts."""
        undo = list(self._subscribe())
        try:
            yield
        finally:
            for unsubscribe in undo:
                unsubscribe()

    def _subscribe(self) -> Iterator[Callable[[], None]]:
        for controller in self._controllers:
            for watch in controller.watches:
                yield self._follow(watch, self.queues[controller.name].add)
        for dispatch in self._dispatches:
            for shared in dispatch.watches:
                yield self._follow(shared, self.requeue)
            for store, targets in dispatch.complete.items():
                yield store.on_complete(partial(self._hand_out_later, targets))

    def _follow(self, watch: Watch[Any, K], add: Callable[[K], None]) -> Callable[[], None]:
        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            keys, steps = tuple(watch.keys(key, old, new)), watch.many(key, old, new)
            if not keys and steps is None:
                return

            def add_all() -> None:
                for each in keys:
                    add(each)
                if steps is not None:
                    self._later(steps, add)

            if watch.after_ledger:
                self._ledger_has(add_all)
            else:
                add_all()

        return watch.store.subscribe(changed)

    def requeue(self, target: Target) -> None:
        """Reconcile a key of a controller; nothing if no such controller runs."""
        name, key = target
        queue = self.queues.get(name)
        if queue is not None:
            queue.add(key)

    def _hand_out_later(self, steps: Callable[[], Iterator[Target | None]]) -> None:
        self._later(steps(), self.requeue)

    # --- many keys ----------------------------------------------------------------------------------------------------

    def _later(self, steps: Iterator[K | None], add: Callable[[K], None]) -> None:
        """Add possibly many keys, in slices."""

        def adding() -> Iterator[None]:
            for key in steps:
                if key is not None:
                    add(key)
                yield

        self._to_add.append(adding())
        self._more_to_add.set()

    async def _add(self) -> None:
        while True:
            await self._more_to_add.wait()
            self._more_to_add.clear()
            turn = Slice()
            while self._to_add:
                try:
                    for _ in self._to_add.popleft():
                        if turn.over:
                            await turn.rest()
                except Exception:
                    log.exception("keys.broken")

    # --- one key ------------------------------------------------------------------------------------------------------

    async def _reconcile(self, controller: Controller) -> None:
        name, kind, queue = controller.name, controller.kind, self.queues[controller.name]

        async def handle(key: str) -> None:
            decided = controller.decide(key)
            decision = decided if isinstance(decided, ReconcileResult) else await in_slices(decided)
            if log.is_enabled_for(logging.DEBUG):
                actions = [described(action) for action in decision.actions]
                log.debug("reconcile.decided", kind=kind.KIND, key=key, why=decision.why, actions=actions)
            await self._executor.carry_out(kind, key, decision, queue)
            if decision.failure is not None:
                raise decision.failure
            self.reconciles[name, "success"] += 1

        def failed(key: str, error: Exception) -> None:
            self.reconciles[name, "conflict" if isinstance(error, Conflict | NotLeading) else "error"] += 1
            self._executor.report(kind, key, error)

        await run_workers(queue, handle, workers=controller.workers, on_error=failed)


def described(action: Action) -> str:
    """An action in a few words, for the log."""
    match action:
        case RequeueAfter():
            return f"requeue after {action.seconds:g}s"
        case Emit():
            return f"event {action.reason}"
        case Create() | Patch() | Delete():
            verb = type(action).__name__.lower()
            subresource = f" {action.subresource}" if isinstance(action, Patch) and action.subresource else ""
            key = f"{action.namespace}/{action.name}" if action.namespace else action.name
            return f"{verb}{subresource} {action.kind.KIND} {key}"
