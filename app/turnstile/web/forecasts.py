"""Forecasts of when Workloads will be admitted, worked out beside the event loop and kept for a while.

One answer is for all Workloads that readers of equal rights ask about at the time: to foretell one costs about as
much as to foretell all of one tree of Cohorts. Must never hold a request up.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from turnstile.api.errors import TurnstileError
from turnstile.engine.instants import stamp
from turnstile.insight.forecast import COURSES, Forecast, forecasts
from turnstile.web.explanations import About, Beside, Kept
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World
from turnstile.wording.starts import soon

KEPT: Final = 1000
APART_SECONDS: Final = 15.0
"""Seconds between two forecasts of one Workload while the cluster changes, at least."""
IDLE_PART: Final = 4.0
"""And at least so many times as long as the last answer took: a large cluster costs a fifth of a core."""
MANY: Final = 5000
"""Workloads from which on fewer courses of events are drawn."""
FEWER: Final = COURSES // 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """When a Workload will be admitted: in 80 of 100 cases from `earliest` to `latest`; empty where nothing tells."""

    earliest: str
    median: str
    latest: str
    reason: str
    """Why there is no forecast, or no later end."""
    based_on: tuple[str, ...]
    made: str
    """When that was foretold."""
    soon: bool = False
    """Whether it is at once: then both ends are now, and say nothing."""


class Forecasts:
    """Forecasts by Workload, and by what their readers see. `await run()` in a task of its own."""

    def __init__(self, world: World, beside: Beside) -> None:
        self._world = world
        self._beside = beside
        self._kept: OrderedDict[About, Kept[Start]] = OrderedDict()
        self._asked = asyncio.Event()
        self._apart = APART_SECONDS

    def get(self, keys: Iterable[str], sight: Sight = EVERYTHING) -> Mapping[str, Kept[Start]]:
        """The forecast known by now. Newer forecasts are worked out if the world changed; the world tells when."""
        now = asyncio.get_running_loop().time()
        found = {}
        for key in keys:
            kept = found[key] = self._kept.setdefault((key, sight), Kept())
            self._kept.move_to_end((key, sight))
            if kept.revision != self._world.revision and not kept.asking and now >= kept.at + self._apart:
                kept.asking = True
                self._asked.set()
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    async def run(self) -> None:
        """Work out what is asked for, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            wanted: dict[Sight, dict[str, Kept[Start]]] = {}
            for (key, sight), kept in self._kept.items():
                if kept.asking:
                    wanted.setdefault(sight, {})[key] = kept
            for sight, of in wanted.items():
                await self._foretell(sight, of)

    async def _foretell(self, sight: Sight, wanted: Mapping[str, Kept[Start]]) -> None:
        world, loop = self._world, asyncio.get_running_loop()
        revision, now, began = world.revision, world.now.timestamp(), loop.time()

        def work() -> Iterator[list[Forecast]]:
            snapshot = world.snapshot()
            courses = FEWER if len(world.state.workloads) > MANY else COURSES
            yield forecasts(snapshot, world.options, now, wanted, courses=courses, sees=sight.sees)

        error = ""
        answer: dict[str, Start] = {}
        try:
            async with aclosing(self._beside.answers(work)) as answers:
                async for found in answers:
                    answer = {each.workload: _start(each, now) for each in found}
        except TurnstileError as failed:
            error = str(failed)
        took = loop.time() - began
        self._apart = max(APART_SECONDS, IDLE_PART * took)
        for key, kept in wanted.items():
            kept.answer, kept.error = answer.get(key, kept.answer), error
            kept.revision, kept.at, kept.asking = revision, loop.time(), False
        world.notify()


def _start(each: Forecast, now: float) -> Start:
    earliest, median, latest = (
        "" if seconds is None else stamp(now + seconds) for seconds in (each.earliest, each.median, each.latest)
    )
    return Start(
        earliest=earliest,
        median=median,
        latest=latest,
        reason=each.reason,
        based_on=each.based_on,
        made=stamp(now),
        soon=soon(each.latest),
    )


def reasons(kept: Iterable[Kept[Start]]) -> list[str]:
    """Why there are forecasts missing, or later ends: each reason once."""
    answer = {each.error or (each.answer.reason if each.answer is not None else "") for each in kept}
    return sorted(answer - {""})
