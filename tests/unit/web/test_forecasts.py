"""When Workloads will start, on the pages that show them."""

import re

import pytest

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from tests.unit.web.asking import Page, page
from tests.unit.web.test_pages import words
from turnstile.api.workload import Workload

pytestmark = pytest.mark.asyncio


def finished(number: int) -> Workload:
    """A Workload that ran for 100 seconds, and ended before the one that runs began."""
    ran = b.held(f"done-{number}", "main", {"cpu": "1"}, at=-200)
    ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": b.stamp(-100)}
    conditions = [{"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": b.stamp(-200)}]
    return b.changed(ran, status={"conditions": [*conditions, ended]})


def busy() -> tuple[object, ...]:
    """A queue of one cpu, which is held, and for which two Workloads wait."""
    return (
        team(),
        b.flavor(),
        b.queue("main", {"default": {"cpu": 1}}),
        b.local("main", "main"),
        b.held("runs", "main", {"cpu": "1"}),
        b.workload("first", second=1),
        b.workload("second", second=2),
    )


async def soon(shown: Page, path: str) -> str:
    """The words of a page, once its forecasts are there."""
    text = (await shown.get(path)).text
    while "being worked out" in text or "…" in text:
        await shown.world.changed(shown.world.news)
        text = (await shown.get(path)).text
    return words(text)


async def test_a_workload() -> None:
    """The interval, and the runs that it is drawn from."""
    async with page(*busy(), *(finished(number) for number in range(20))) as shown:
        said = await soon(shown, "/workloads/team/first")
        time = r"2026-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        assert re.search(f"Likely start in about {time} 8 of 10 times between {time} and {time}", said), said
        assert "20 runs of queue team/main" in said


async def test_the_line_of_a_queue() -> None:
    """Each Workload in it, the second later than the first."""
    async with page(*busy(), *(finished(number) for number in range(20))) as shown:
        said = await soon(shown, "/clusterqueues/main")
        first, second = re.findall(r"starts in about (\S+ \S+) UTC 8 of 10 times between", said)
        assert first < second


async def test_without_runs() -> None:
    """Nothing is guessed, and the page says why."""
    async with page(*busy()) as shown:
        reason = "no run time is known: no Workload has finished yet, of those that can be read"
        assert f"Likely start no forecast: {reason}" in await soon(shown, "/workloads/team/first")
        assert f"no later end: {reason}" in await soon(shown, "/clusterqueues/main")


async def test_a_workload_that_runs() -> None:
    """Has started: there is nothing to foretell."""
    async with page(*busy()) as shown:
        assert "Likely start" not in await soon(shown, "/workloads/team/runs")
