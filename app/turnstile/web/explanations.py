"""Explanations of Workloads, worked out beside the event loop and kept for a while. Must never hold a request up, and
never show a reader what was worked out for one who sees more."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from turnstile.api.errors import TurnstileError
from turnstile.insight.explain import Explanation, explain
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World

T = TypeVar("T")

KEPT: Final = 256
APART_SECONDS: Final = 5.0
"""Seconds between two explanations of one Workload while the cluster changes."""


class Beside(Protocol):
    """Works out answers beside the event loop; `turnstile.process.aside` does."""

    def answers(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """Values that `work` yields. The generator is to be closed."""
        ...


@dataclass(slots=True)
class Kept(Generic[T]):
    """The answer about one Workload: an explanation, or a forecast."""

    answer: T | None = None
    complete: bool = False
    """Whether all parts of an answer that comes in parts are in it."""
    error: str = ""
    revision: int = -1
    """Version of the world that was asked."""
    at: float = float("-inf")
    asking: bool = False


About = tuple[str, Sight]
"""The key of a Workload, and what those see who are told about it."""


class Explanations:
    """Explanations by Workload, and by what their readers see. `await run()` in a task of its own."""

    def __init__(self, world: World, beside: Beside) -> None:
        self._world = world
        self._beside = beside
        self._kept: OrderedDict[About, Kept[Explanation]] = OrderedDict()
        self._wanted: asyncio.Queue[About] = asyncio.Queue(KEPT)

    def get(self, key: str, sight: Sight = EVERYTHING) -> Kept[Explanation]:
        """The answer known by now. A newer explanation is worked out if the world changed; the world tells when."""
        about = key, sight
        kept = self._kept.setdefault(about, Kept())
        self._kept.move_to_end(about)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        stale = kept.revision != self._world.revision
        if stale and not kept.asking and not self._wanted.full() and self._now() >= kept.at + APART_SECONDS:
            kept.asking = True
            self._wanted.put_nowait(about)
        return kept

    async def soon(self, key: str, seconds: float, sight: Sight = EVERYTHING) -> Kept[Explanation]:
        """Like `get`, but waits up to `seconds` for a first answer."""
        kept = self.get(key, sight)
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while kept.asking and kept.answer is None and not kept.error and (left := until - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._world.changed(self._world.news)
            except TimeoutError:
                break
        return kept

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Work out what is asked for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                about = await self._wanted.get()
                if (kept := self._kept.get(about)) is not None:
                    group.create_task(self._explain(*about, kept), name=f"explain {about[0]}")

    async def _explain(self, key: str, sight: Sight, kept: Kept[Explanation]) -> None:
        world = self._world
        revision = world.revision

        def work() -> Iterator[Explanation]:
            snapshot, now, tree = world.snapshot(), world.now.timestamp(), sight.tree
            for remedies in (0, None):
                yield explain(snapshot, world.options, now, key, sees=sight.sees, queues=tree, remedies=remedies)

        kept.error = ""
        found: Explanation | None = None
        try:
            async with aclosing(self._beside.answers(work)) as answers:
                async for found in answers:
                    if kept.answer is None or kept.answer.sentence != found.sentence:
                        kept.answer, kept.complete = found, False
                        world.notify()
            kept.answer, kept.complete = found, True
        except TurnstileError as error:
            kept.error = str(error)
        kept.revision, kept.at, kept.asking = revision, self._now(), False
        world.notify()
