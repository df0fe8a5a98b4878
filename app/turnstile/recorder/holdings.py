"""The quota that a Workload held, and when, from its timeline. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from turnstile.engine.instants import Instant
from turnstile.recorder.facts import Pair
from turnstile.recorder.reading import Entry, Recorded

_ENDS: Final = frozenset(("released", "waiting", "finished", "deleted"))
"""After each of these a Workload holds no quota."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Quota of one ClusterQueue that one Workload held from `begin` to `end`, the same all the time."""

    workload: Recorded
    cluster_queue: str
    begin: Instant
    end: Instant | None
    """None if it holds the quota still."""
    usage: dict[Pair, int]
    admitted: bool
    idle: bool
    """Whether no pod of it ran, as far as that is recorded; before its admission none can."""
    preempted: bool
    """Whether the attempt that it belongs to ended by preemption: what was computed may be lost."""


def holdings(workload: Recorded, entries: Iterable[Entry]) -> Iterator[Holding]:
    """The holdings of a Workload, in order of time; one attempt is several holdings if it changed meanwhile."""
    attempt: list[tuple[Instant, dict[str, Any], bool, bool]] = []  # since when, what, admitted, and known to be idle
    preempted = False

    def ended(at: Instant | None) -> Iterator[Holding]:
        for number, (begin, held, admitted, idle) in enumerate(attempt):
            end = attempt[number + 1][0] if number + 1 < len(attempt) else at
            if end is None or end > begin:
                usage = {(flavor, resource): amount for flavor, resource, amount in held["usage"]}
                yield Holding(
                    workload, held["cluster_queue"], begin, end, usage, admitted, idle or not admitted, preempted
                )
        attempt.clear()

    for entry in entries:
        if entry.what in _ENDS:
            yield from ended(entry.at)
        elif entry.what == "reserved" and entry.detail:
            yield from ended(entry.at)
            preempted = False
            attempt.append((entry.at, entry.detail, False, False))
        elif not attempt:
            continue
        elif entry.what == "usage" and entry.detail:
            attempt.append((entry.at, entry.detail, *attempt[-1][2:]))
        elif entry.what == "pods":
            attempt.append((entry.at, *attempt[-1][1:3], not entry.detail["run"]))
        elif entry.what == "admitted":
            attempt.append((entry.at, attempt[-1][1], True, attempt[-1][3]))
        elif entry.what == "evicted" and entry.reason == "Preempted":
            preempted = True
    yield from ended(None)
