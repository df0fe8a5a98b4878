"""Candidates for preemption: who may be taken, and in which order.

Source: Kueue's CandidatesOrdering and SatisfiesPreemptionPolicy. Must never simulate: who is taken is for
`turnstile.engine.preemption.search`.
"""

from functools import cmp_to_key
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from turnstile.engine.quota.tree import Node

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info

WITHIN_QUEUE, HIERARCHICAL, WITHOUT_BORROWING, WHILE_BORROWING = range(4)
"""By which right a candidate is one."""

Rank = tuple[bool, bool, int, int, float, str, str]


class Candidate(Struct, gc=False, eq=False):
    """A workload that policy allows to preempt. `lca` is the cohort it was found below, `rank` its place in order,
    `local_queue_usage` what its LocalQueue used, where that counts."""

    info: "Info"
    queue: "ClusterQueue"
    rank: Rank
    variant: int
    lca: Node | None
    local_queue_usage: float | None = None


Found = tuple[list[Candidate], list[Candidate]]
"""Candidates: those on their way out already, and the others."""


def satisfies(policy: str, preemptor: "Info", candidate: "Info") -> bool:
    """Whether a preemption policy allows one workload to preempt another (Kueue: SatisfiesPreemptionPolicy)."""
    match policy:
        case "Any":
            return True
        case "LowerPriority":
            return preemptor.priority > candidate.priority
        case "LowerOrNewerEqualPriority":
            if preemptor.priority != candidate.priority:
                return preemptor.priority > candidate.priority
            return preemptor.timestamp < candidate.timestamp
        case _:
            return False


def by_rank(candidate: Candidate) -> Rank:
    """Who is preempted first, where the usage of LocalQueues does not count."""
    return candidate.rank


def _compare_with_usage(left: Candidate, right: Candidate) -> int:
    """As by rank, but within a queue that shares by usage, those of the LocalQueue with more usage go first."""
    a, b = left.rank, right.rank
    if a[:2] != b[:2]:
        return -1 if a[:2] < b[:2] else 1
    if left.queue is right.queue:
        first, second = left.local_queue_usage, right.local_queue_usage
        if first is not None and second is not None and first != second:
            return -1 if first > second else 1
    return -1 if a < b else int(a > b)


with_usage: Final = cmp_to_key(_compare_with_usage)
"""Who is preempted first, where it does."""
