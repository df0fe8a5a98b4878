"""Notices what fell silent in a process: a scheduler, the thread of the Lease, a watch, writes.

`/healthz` fails for what only a restart can mend: a scheduler or a Lease thread that does not turn. A slow or absent
API server is never a reason. (An event loop that hangs answers no probe, and the Lease is not renewed for it.)

`/readyz` of the controller fails for what people should look at: a kind that cannot be watched for long, a leader that
cannot write. No admission review depends on it. `/readyz` of the webhook names the same and does not fail: all replicas
see the same API server, and reviews are answered from what is cached.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from turnstile.controllers.runtime.executor import Executor
from turnstile.kube.cache import State
from turnstile.kube.caches import Caches
from turnstile.kube.candidacy import Candidacy
from turnstile.kube.lease import CURE_RENEWAL
from turnstile.process.metrics import Term

CHECK_SECONDS: Final = 1.0
"""Seconds between two looks."""
STALLED_SECONDS: Final = 60.0
"""Seconds without progress after which a scheduler with work, or the Lease thread, is taken to hang."""
UNWATCHED_SECONDS: Final = 60.0
"""Seconds for which a kind cannot be watched before the controller is not ready."""
SILENT_SECONDS: Final = 240.0
"""Seconds without a sign of the server on a watch before the controller is not ready. Bookmarks come every minute, and
a watch of a kind that does not change ends after 80 s; the first one after 170 s."""
UNABLE_SECONDS: Final = 30.0
"""Seconds for which a leader cannot write before the controller is not ready, and between two lines of the log."""
CURE_WRITES: Final = (
    "see whether the API server answers, and how slow it is (turnstile_write_slowness); nothing decided is lost"
)

log = structlog.get_logger(__name__)


class Watchdog:
    """Looks every second at the parts of a process that may fall silent. `run` must run for most of it."""

    def __init__(
        self,
        caches: Caches,
        *,
        candidacy: Candidacy | None = None,
        term: Callable[[], Term | None] = lambda: None,
        unable_seconds: float = UNABLE_SECONDS,
        unwatched_seconds: float = UNWATCHED_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        stalled_seconds: float = STALLED_SECONDS,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._caches = caches
        self._candidacy = candidacy
        self._term = term
        self._unable_after = unable_seconds
        self._unwatched_after = unwatched_seconds
        self._silent_after = silent_seconds
        self._stalled_after = stalled_seconds
        self._check_seconds = check_seconds
        self._failing_since: dict[str, float] = {}
        self._writes = _Writes(memory=unable_seconds * 2 / 3)
        self._unable_since: float | None = None
        self._reported_at = float("-inf")
        self.cause = ""
        """Why the leader cannot write now; empty if it can, or if this process does not lead."""

    @property
    def unable_for(self) -> float:
        """Seconds for which the leader has been unable to write; 0 if it can, or if this process does not lead."""
        return 0.0 if self._unable_since is None else asyncio.get_running_loop().time() - self._unable_since

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(self._check_seconds)

    def check(self) -> None:
        """Check once."""
        now = asyncio.get_running_loop().time()
        failing = {cache.name for cache in self._caches.all if cache.standing.state is State.FAILING}
        self._failing_since = {name: self._failing_since.get(name, now) for name in failing}
        self.cause, cure = self._why_unable(now)
        if not self.cause:
            if self._unable_since is not None and self._reported_at > self._unable_since:
                log.info("leader.writes_again", seconds=round(now - self._unable_since, 1))
            self._unable_since = None
            return
        if self._unable_since is None:
            self._unable_since = now
        if now - max(self._unable_since, self._reported_at) >= self._unable_after:
            self._reported_at = now
            log.error("leader.cannot_write", cause=self.cause, seconds=round(now - self._unable_since, 1), cure=cure)

    def _why_unable(self, now: float) -> tuple[str, str]:
        candidacy, term = self._candidacy, self._term()
        fence = candidacy.stats.fence if candidacy is not None else None
        if candidacy is not None and fence is not None and fence.suspended:
            why = candidacy.stats.failure or "no answer yet"
            return f"the Lease was not renewed for {fence.since_renewal:.0f} s: {why}", CURE_RENEWAL
        why = self._writes.check(term.executor, now) if term is not None else ""
        return why, CURE_WRITES

    # --- for the probes -----------------------------------------------------------------------------------------------

    def dead(self) -> dict[str, str]:
        """Faults that only a restart can mend, by name; empty for a process that is alive."""
        faults = {}
        term, candidacy = self._term(), self._candidacy
        if term is not None and (silent := term.scheduler.stalled_seconds) > self._stalled_after:
            faults["scheduler"] = f"no progress for {silent:.0f} s, with work to do"
        if candidacy is not None and (silent := candidacy.silent_seconds) > self._stalled_after:
            faults["lease"] = f"the thread of the Lease has not run for {silent:.0f} s"
        return faults

    def unwatched(self) -> str:
        """The kinds that cannot be watched for long, and those whose watch fell silent."""
        now = asyncio.get_running_loop().time()
        failing = [name for name, since in self._failing_since.items() if now - since > self._unwatched_after]
        silent = [
            cache.name
            for cache in self._caches.all
            if cache.standing.state in (State.READING, State.SYNCED)
            and self._silent_after < now - cache.reflector.last_contact < float("inf")
        ]
        parts = {"cannot be watched": failing, f"nothing heard for {self._silent_after:.0f} s": silent}
        return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in parts.items() if names)

    def unable(self) -> str:
        """Why the leader cannot write for long."""
        return self._words() if self.unable_for > self._unable_after else ""

    def notes(self) -> list[str]:
        """Faults that do not affect readiness: kinds that fail now, and why a leader cannot write now."""
        self.check()
        return [*self._caches.failing(), *([f"leader: {self._words()}"] if self.cause else [])]

    def _words(self) -> str:
        return f"cannot write for {self.unable_for:.0f} s: {self.cause}"


class _Writes:
    """Whether writes of a term fail: one failed within `memory` seconds, and none has succeeded since."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._executor: Executor | None = None
        self._succeeded = self._failed = 0
        self._failed_at = float("-inf")

    def check(self, executor: Executor, now: float) -> str:
        """The last error, if writes fail; empty otherwise."""
        stats = executor.stats
        succeeded, failed = sum(stats.writes.values()), stats.outages
        if executor is not self._executor:
            self._executor, self._failed_at, self._failed = executor, float("-inf"), 0
        elif succeeded > self._succeeded:
            self._failed_at = float("-inf")
        elif failed > self._failed:
            self._failed_at = now
        self._succeeded, self._failed = succeeded, failed
        return stats.outage if now - self._failed_at < self._memory else ""
