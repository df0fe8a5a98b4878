"""Traces of preemption for later cycles: nominations, claims that left others no room, and who had whom.

The nomination of a preemptor is kept with its ClusterQueue (`Pending.nomination`). Must never choose victims.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.repeats import Repeats
from turnstile.engine.queue.retries import Retries
from turnstile.engine.quota.ledger import Ledger


class Claim(NamedTuple):
    """A preemptor that waits: its key, its usage once it is admitted (`Usage.key`), and its victims."""

    preemptor: str
    usage: Hashable
    victims: tuple[str, ...]


class Nominations:
    """Claims by ClusterQueue, and victims by preemptor."""

    __slots__ = ("_ledger", "_retries", "barred", "crowded", "passed_over", "repeats")

    def __init__(self, ledger: Ledger[ClusterQueue], retries: Retries) -> None:
        self._ledger = ledger
        self._retries = retries
        self.repeats = Repeats(ledger)
        self.passed_over: dict[str, tuple[Claim, ...]] = {}
        """Claims of preemptors that made later Workloads inadmissible, by ClusterQueue. When such a claim ends, those
        Workloads are tried again once."""
        self.crowded: dict[str, Mapping[str, str]] = {}
        """The same of claims on places, which any ClusterQueue may make: by ClusterQueue that is short of them, the
        claimants and where they wait."""
        self.barred: dict[str, None] = {}
        """ClusterQueues with a Workload that names a ResourceClaim whose devices a preemptor waits for."""

    def end(self, key: str) -> None:
        """The victims of a preemptor that holds quota have served it: should it wait again, it has no precedence."""
        queue = self._ledger.cluster_queues.get(self._ledger.holders.get(key, ""))
        nomination = queue.pending.nomination if queue is not None else None
        if queue is not None and nomination is not None and nomination.preemptor == key:
            queue.pending.end_nomination(key)
            self._retries.mark_all(self.barred)
            self.barred.clear()

    def pass_over(self, cluster_queue: str, claim: Claim) -> bool:
        """A claim made Workloads of a ClusterQueue inadmissible; whether it is new."""
        claims = self.passed_over.get(cluster_queue, ())
        if claim in claims:
            return False
        self.passed_over[cluster_queue] = (*claims, claim)
        return True

    def crowd_out(self, cluster_queue: str, claimants: Mapping[str, str]) -> None:
        """Claims on places made Workloads of a ClusterQueue inadmissible: Workloads that wait, with their queues."""
        self.crowded[cluster_queue] = {**self.crowded.get(cluster_queue, {}), **claimants}

    def end_claims(self) -> None:
        """Where a preemptor is no longer active, Workloads that its claim left no room are to be tried again."""
        claimants = {key: where for each in self.crowded.values() for key, where in each.items()}
        ended = {key for key, where in claimants.items() if not self._claims(key, where)}
        for name in [name for name, each in self.crowded.items() if not ended.isdisjoint(each)]:
            del self.crowded[name]
            self._retries.mark(name)
        for name, claims in list(self.passed_over.items()):
            queue = self._ledger.cluster_queues.get(name)
            if queue is None or not queue.pending.is_active(claims[-1].preemptor):
                del self.passed_over[name]
                self._retries.mark(name)

    def _claims(self, key: str, cluster_queue: str) -> bool:
        """Whether a Workload still waits in the heap of a ClusterQueue that admits."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        return queue is not None and queue.active and queue.pending.is_active(key)

    def put_back(self, passed_over: Mapping[str, tuple[Claim, ...]], crowded: Mapping[str, Mapping[str, str]]) -> None:
        """The claims are as they were before a cycle that was abandoned."""
        self.passed_over.clear()
        self.passed_over.update(passed_over)
        self.crowded.clear()
        self.crowded.update(crowded)
