"""Reloads the configuration file when it changes, and logs which changes apply and which need a restart.

The file is polled, because a mounted ConfigMap changes by a switched symlink. A file with faults changes nothing.
Must never decide what a field means.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from turnstile.api.config import Loaded, differences
from turnstile.api.errors import InvalidConfiguration, InvalidValue
from turnstile.process.configured import RELOADED

INTERVAL_SECONDS: Final = 10.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Follower:
    """One file: how to read it, its configuration at the start, and the function that applies a change.

    Until the process ends, all fields but those in RELOADED have their values from `started`.
    """

    path: Path
    read: Callable[[], Loaded]
    started: Loaded
    apply: Callable[[Loaded], None]
    interval: float = INTERVAL_SECONDS

    async def run(self) -> None:
        """Follow until cancelled."""
        current = self.started
        seen: object = None
        while True:
            stamp = await asyncio.to_thread(self._stamp)
            if stamp != seen:
                current = await self._check(current)
                seen = stamp
            await asyncio.sleep(self.interval)

    def _stamp(self) -> object:
        try:
            stat = self.path.stat()
        except OSError as error:
            return error.errno
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    async def _check(self, current: Loaded) -> Loaded:
        try:
            latest = await asyncio.to_thread(self.read)
        except InvalidConfiguration as error:
            for problem in error.problems:
                log.error("config.fault", path=problem.path, line=problem.line, fault=problem.message)  # noqa: TRY400
            return current
        except InvalidValue as error:
            log.error("config.unreadable", path=str(self.path), fault=error.cure)  # noqa: TRY400 -- one line is enough
            return current
        changed = [path for path in differences(current, latest) if _field(path) in RELOADED]
        waiting = [path for path in differences(self.started, latest) if _field(path) not in RELOADED]
        if changed:
            self.apply(latest)
            log.info("config.reloaded", fields=changed)
        if waiting and differences(current, latest):
            log.warning("config.restart_needed", fields=waiting)
        return latest


def _field(path: str) -> str:
    return path.split(".", 1)[0]
