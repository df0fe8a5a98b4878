"""Turnstile with a way to ask its copy of the ledger: `python -m tests.cluster.asking FOLDER serve ...`.

At SIGUSR1 it asks what would be with the ClusterQueue in `FOLDER/question.json`, and writes the answer beside it.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from app import main
from app.__main__ import main as entry
from app.api.clusterqueue import ClusterQueue
from app.insight.whatif import WhatIf

FOLDER = Path(sys.argv.pop(1)) if __name__ == "__main__" else Path()


class Asking(main.Turnstile):
    """One process that may be asked."""

    async def run(self) -> None:
        """Run the roles, and answer."""
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked.set)
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(asked))
            try:
                await super().run()
            finally:
                answering.cancel()

    async def _answer(self, asked: asyncio.Event) -> None:
        while True:
            await asked.wait()
            asked.clear()
            queue = msgspec.json.decode((FOLDER / "question.json").read_bytes(), type=ClusterQueue)
            parts = await self.ask(WhatIf(now=main.now().timestamp(), put=[queue]))
            answer = {"parts": parts, "process": os.getpid()}
            (FOLDER / "answer.new").write_bytes(msgspec.json.encode(answer))
            (FOLDER / "answer.new").rename(FOLDER / "answer.json")


if __name__ == "__main__":
    main.Turnstile = Asking  # type: ignore[misc]
    entry()
