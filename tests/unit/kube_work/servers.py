"""A server as a queue: a few requests are worked on at once, the others wait in it."""

import asyncio


class Server:
    """Works on `capacity` requests at a time, `seconds` on each, in the order of their arrival."""

    def __init__(self, *, capacity: int, seconds: float) -> None:
        self.seconds = seconds
        self.present = 0
        """Requests in the server, worked on or waiting."""
        self.done = 0
        self._places = asyncio.Semaphore(capacity)

    async def work(self) -> float:
        """One request; the seconds that it took with its wait."""
        began = asyncio.get_running_loop().time()
        self.present += 1
        async with self._places:
            await asyncio.sleep(self.seconds)
        self.present -= 1
        self.done += 1
        return asyncio.get_running_loop().time() - began
