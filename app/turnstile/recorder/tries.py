"""Decisions of the scheduler about Workloads that wait, as facts; the same decision is recorded once.

Called for each decision of each cycle, in the event loop. Must never change a decision.
"""

from typing import Any, Final

from turnstile.engine import Decision
from turnstile.engine.instants import Instant
from turnstile.recorder.facts import Fact, attempt_of, kept

AGAIN_SECONDS: Final = 60.0
"""A Workload that is tried again and again with other amounts in the message is recorded once in so many seconds."""


class Tries:
    """The last decision about each Workload that waits, so that the same one is not recorded again. One each term."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[Instant, str, str, str]] = {}

    def of(self, decision: Decision, now: Instant) -> Fact | None:
        """The fact that the scheduler tried a Workload; None if it came to the same before."""
        uid = decision.uid
        if decision.outcome == "admit":
            self._last.pop(uid, None)  # the reservation will tell, once it is written
            return None
        preempts = [each for each in decision.victims if each.new]
        last = self._last.get(uid)
        if last is not None and not preempts:
            at, outcome, reason, message = last
            if (outcome, reason) == (decision.outcome, decision.condition_reason) and (
                message == decision.message or now - at < AGAIN_SECONDS
            ):
                return None
        self._last[uid] = now, decision.outcome, decision.condition_reason, decision.message
        detail: dict[str, Any] = {"outcome": decision.outcome, "cluster_queue": decision.cluster_queue}
        if explanation := decision.explanation:
            detail["short"] = kept(explanation)
        if preempts:
            detail["preempts"] = [[each.uid, each.key, each.reason] for each in preempts]
        reason, message = decision.condition_reason, kept(decision.message)
        attempt = attempt_of(decision.workload)
        return Fact(uid, "tried", now, attempt, f"{now:.3f}", True, reason, message, detail)

    def forget(self, uid: str) -> None:
        """A Workload is gone."""
        self._last.pop(uid, None)
