"""The work queue in the event loop of the process, which is uvloop; the other tests run in asyncio's."""

import asyncio

import uvloop

from turnstile.kube.workqueue import WorkQueue


def test_a_key_is_delayed_by_microseconds_and_delayed_again() -> None:
    """uvloop calls at once what is due in less than half a millisecond, and its handle does not know when that is. A
    second delay of the key ended the controller then."""

    async def delayed_twice() -> str:
        queue = WorkQueue()
        for seconds in (1e-6, 30.0, 4e-4, 1e-6):
            queue.add_after("a", seconds)
        async with asyncio.timeout(60):
            return await queue.get()

    assert uvloop.run(delayed_twice()) == "a"
