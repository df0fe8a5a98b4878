"""Answers that are worked out in a fork."""

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from turnstile.api.errors import InvalidValue, Unanswered
from turnstile.process.aside import Aside

pytestmark = pytest.mark.asyncio


async def test_what_is_yielded_arrives_in_order() -> None:
    """From another process, and nothing that it does is seen here."""
    here = ["before"]

    def work() -> Iterator[object]:
        here.append("changed")
        yield os.getpid()
        yield tuple(here)

    found = [each async for each in Aside().answers(work)]
    assert found[0] != os.getpid()
    assert found[1:] == [("before", "changed")]
    assert here == ["before"]


async def test_a_refusal_is_raised_here() -> None:
    """With its field, value and cure."""

    def work() -> Iterator[int]:
        yield 1
        raise InvalidValue("pods", 0, "give at least 1")

    with pytest.raises(InvalidValue) as refused:
        [each async for each in Aside().answers(work)]
    assert (refused.value.field, refused.value.value, refused.value.cure) == ("pods", 0, "give at least 1")


async def test_any_other_failure_is_told() -> None:
    """As a question that got no answer."""

    def work() -> Iterator[int]:
        yield 1 // 0

    with pytest.raises(Unanswered, match="ZeroDivisionError"):
        [each async for each in Aside().answers(work)]


async def test_what_takes_too_long_is_given_up() -> None:
    """And its process is gone."""
    aside, started = Aside(seconds=4.0), list[int]()

    def work() -> Iterator[int]:
        yield os.getpid()
        time.sleep(600)
        yield 0

    async def ask() -> None:
        async for each in aside.answers(work):
            started.append(each)

    with pytest.raises(Unanswered, match="took longer than"):
        await ask()
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


async def test_so_many_at_once() -> None:
    """A third question waits for the first two, and is answered."""

    def work() -> Iterator[int]:
        yield os.getpid()

    async def one(aside: Aside) -> list[int]:
        return [each async for each in aside.answers(work)]

    aside = Aside(at_once=2)
    assert len({pid for found in await asyncio.gather(*(one(aside) for _ in range(5))) for pid in found}) == 5
