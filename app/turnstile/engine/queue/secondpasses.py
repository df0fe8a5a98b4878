"""Workloads that hold quota and whose pods have no places yet, or lost some, and when a cycle looks for places again.

A Workload is looked at one second after that is seen, so that nodes which fail together are replaced together, and
after each failure later, up to half a minute. Source: Kueue's second pass queue. Must never look for places.
"""

from typing import Final, NamedTuple

from turnstile.api.topologyassignment import hosts
from turnstile.api.workload import Workload
from turnstile.engine.instants import Instant
from turnstile.engine.quota.info import Info

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0


class _Turn(NamedTuple):
    """When the places of a Workload are looked for, and the seconds that it waited for that."""

    at: Instant
    waited: float


class SecondPasses:
    """The Workloads that need a second pass. `pods_stay` is the gate SkipReassignmentForPodOwnedWorkloads: the one pod
    of a Workload that was made for it has no other that takes its place."""

    __slots__ = ("_pods_stay", "_turns")

    def __init__(self, *, pods_stay: bool = True) -> None:
        self._pods_stay = pods_stay
        self._turns: dict[str, _Turn] = {}

    def follow(self, info: Info, now: Instant) -> None:
        """A version of a Workload is seen."""
        if not needs_second_pass(info) or (self._pods_stay and info.admitted and _is_of_one_pod(info.workload)):
            self._turns.pop(info.key, None)
        elif info.key not in self._turns:
            self._turns[info.key] = _Turn(now + FIRST_SECONDS, FIRST_SECONDS)

    def drop(self, key: str) -> None:
        """A Workload is gone, or its places were found."""
        self._turns.pop(key, None)

    def put_off(self, key: str, now: Instant) -> None:
        """No places were found for a Workload: it waits for twice as long."""
        turn = self._turns[key]
        waited = min(LONGEST_SECONDS, turn.waited * 2)
        self._turns[key] = _Turn(now + waited, waited)

    def due(self, now: Instant) -> list[str]:
        """Workloads whose turn has come, by the time for which they waited."""
        found = [(turn.at, key) for key, turn in self._turns.items() if turn.at <= now]
        return [key for _, key in sorted(found)]

    @property
    def next_turn(self) -> Instant | None:
        """When the next turn comes; None if no Workload waits for one."""
        return min((turn.at for turn in self._turns.values()), default=None)


def needs_second_pass(info: Info) -> bool:
    """Whether places are to be found for pods of a Workload that holds quota: its admission checks are ready and it
    waited for them, or nodes on which it has places have failed."""
    if not info.reserved or info.finished or info.evicted or info.workload.status.admission is None:
        return False
    if info.admitted:
        return bool(failed_hosts(info.workload))
    ready = bool(info.checks) and all(each.state == "Ready" for each in info.checks)
    return ready and any(each.delayed == "Pending" and each.topology is None for each in info.totals)


def failed_hosts(workload: Workload) -> list[str]:
    """The nodes that have failed, of those on which a Workload has places, in the order in which its status names
    them."""
    named, admission = workload.status.unhealthy_nodes, workload.status.admission
    if not named or admission is None:
        return []
    used = {host for each in admission.pod_set_assignments for host in hosts(each.topology_assignment)}
    return [each.name for each in named if each.name in used]


def _is_of_one_pod(workload: Workload) -> bool:
    """Whether a Workload was made for a single Pod."""
    owners = workload.metadata.owner_references
    return [(each.api_version, each.kind) for each in owners] == [("v1", "Pod")]
