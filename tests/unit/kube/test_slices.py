"""Long work is cut so that others run in between, and nothing else about it changes."""

import asyncio
import time
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.kube.slices import RUN, SLICE_SECONDS, in_slices, ordered


def drawn(values: list[int]) -> list[int]:
    """What `ordered` gives, all of it."""
    return asyncio.run(in_slices(_all(values)))


def _all(values: list[int]) -> Generator[None, None, list[int]]:
    return list((yield from ordered(values)))


class TestOrdered:
    """Sorting in runs is sorting."""

    @given(st.lists(st.integers(), max_size=30))
    def test_few_values_come_sorted(self, values: list[int]) -> None:
        """One run, or none."""
        assert drawn(values) == sorted(values)

    @pytest.mark.parametrize("count", [RUN - 1, RUN, RUN + 1, 5 * RUN])
    def test_many_values_come_sorted(self, count: int) -> None:
        """However many runs there are, and equal values too."""
        values = [number * 7919 % 1009 for number in range(count)]
        assert drawn(values) == sorted(values)


class TestSlices:
    """Others get the loop after each slice."""

    def test_others_run_in_between(self) -> None:
        """As often as a slice is over."""
        turns: list[str] = []

        def work() -> Generator[None, None, str]:
            for _ in range(3):
                started = time.perf_counter()
                while time.perf_counter() - started <= SLICE_SECONDS:
                    pass
                turns.append("work")
                yield
            return "done"

        async def other() -> None:
            for _ in range(3):
                turns.append("other")
                await asyncio.sleep(0)

        async def both() -> str:
            result, _ = await asyncio.gather(in_slices(work()), other())
            return result

        assert asyncio.run(both()) == "done"
        assert turns == ["work", "other"] * 3

    def test_work_that_is_cancelled_is_closed(self) -> None:
        """What it holds open is let go at once."""
        closed: list[bool] = []

        def work() -> Generator[None, None, None]:
            try:
                while True:
                    yield
            finally:
                closed.append(True)

        async def cancelled() -> None:
            task = asyncio.create_task(in_slices(work()))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(cancelled())
        assert closed == [True]
