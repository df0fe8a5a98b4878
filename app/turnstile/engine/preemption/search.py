"""Whom to preempt so that a workload fits: runs the searches, slice by slice, and remembers their answers.

Classical preemption walks one ordered list of candidates; fair sharing picks queues by their shares. Both take victims
until the workload fits and then give back whom it does not need. Sources: Kueue's preemptor, KEP-83, KEP-79, KEP-1714.
Simulates on the ledger and always puts it back; what is really evicted is not its business.
"""

from collections.abc import Hashable
from functools import partial
from typing import Any

from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.instants import Instant
from turnstile.engine.options import Options
from turnstile.engine.pace import Pace, Sliced, discard
from turnstile.engine.preemption.candidates import Candidate, Found
from turnstile.engine.preemption.classical import Classical
from turnstile.engine.preemption.collector import Collector
from turnstile.engine.preemption.domains import OneDomain
from turnstile.engine.preemption.fair import FairPreemption
from turnstile.engine.preemption.targets import Target, Targets, fill_back, held_by_queue, helps
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.queue.protections import Protections
from turnstile.engine.queue.repeats import Repeats
from turnstile.engine.queue.sharing import UsageSharing
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.quota.trial import Trial
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import Possibility
from turnstile.engine.reservations import Reservations

Question = tuple[str, Hashable, frozenset[FlavorResource]]


class Preemptor:
    """Finds targets for heads of one cycle.

    Between `start` and the answer the state must not change.
    """

    __slots__ = ("_answers", "_fair", "_gate", "_ledger", "_reservations", "collector", "pace", "promised")

    def __init__(
        self,
        ledger: Ledger[Any],
        reservations: Reservations,
        repeats: Repeats,
        sharing: UsageSharing,
        protections: Protections,
        options: Options,
        now: Instant,
        pace: Pace,
    ) -> None:
        self._ledger = ledger
        self._reservations = reservations
        self._fair = options.fair_sharing
        self._gate = options.gates.fair_sharing_preempt_within_nominal
        self._answers: dict[Question, Targets] = {}
        self.collector = Collector(ledger.cluster_queues, reservations, repeats, sharing, protections, now, pace)
        self.pace = pace
        self.promised: Targets | None = None
        """The only victims that `oracle` counts on, for a preemptor that waits for them; None to search for victims."""

    def start(self) -> None:
        """Usage may have changed since the last question: forget the answers."""
        self._answers.clear()
        self.pace.renew()

    def targets(self, queue: ClusterQueue, info: Info, assignment: Assignment) -> Sliced[Targets]:
        """Workloads to preempt for an assignment in mode Preempt, none if that would not help."""
        pairs = assignment.needing_preemption(self._ledger.catalog.pair)
        return self.find(queue, info, assignment.usage.needed(), pairs)

    def suffice(self, targets: Targets, queue: ClusterQueue, usage: Usage) -> Sliced[bool]:
        """Whether the usage fits once these have released their quota."""
        with Trial() as trial:
            yield from trial.remove_all(targets.freed, self.pace)
            fits = usage.needed().fits(queue.node)
            yield from trial.undo(self.pace)
            return fits

    def leaving(self, nomination: Nomination) -> Sliced[Targets]:
        """The victims of a nomination that were evicted and hold their quota still, but for those that are overdue."""
        ledger, pace = self._ledger, self.pace
        gone, overdue = self.collector.gone, self._reservations.overdue
        targets = Targets()
        for key, reason in nomination.victims.items():
            pace.left -= 2
            if pace.left <= 0:
                yield
                pace.renew()
            held = ledger.holder(key)
            if held is None or key in gone or key in overdue:
                continue
            other = ledger.cluster_queues.get(ledger.holders[key])
            if other is not None and self._reservations.is_evicted(held):
                targets.append(Target(held, other, reason))
        targets.freed = yield from held_by_queue(targets, pace)
        return targets

    def oracle(
        self, queue: ClusterQueue, info: Info, pair: FlavorResource, amount: int
    ) -> Sliced[tuple[Possibility, int]]:
        """Whether quota can be freed for so much of one resource in one flavor, and the borrowing level then."""
        targets = self.promised
        if targets is None:
            targets = yield from self.find(queue, info, Usage({pair: amount}), {pair})
        if not targets:
            return Possibility.NO_CANDIDATES, tree.level(queue.node, pair, amount)[0]
        with Trial() as trial:
            yield from trial.remove_all(targets.freed, self.pace)
            level, _ = tree.level(queue.node, pair, amount)
            yield from trial.undo(self.pace)
        return Possibility.PREEMPT if queue in targets.freed else Possibility.RECLAIM, level

    def find(self, queue: ClusterQueue, info: Info, requests: Usage, pairs: set[FlavorResource]) -> Sliced[Targets]:
        """The smallest set of victims found that makes `requests` fit; `pairs` are those without room. Not to be
        changed: it is what is remembered."""
        question = info.key, requests.key, frozenset(pairs)
        found = self._answers.get(question)
        if found is None:  # the oracle is asked, and then the Workload itself
            found = self._answers[question] = yield from self._search(queue, info, requests, pairs)
        return found

    def _search(self, queue: ClusterQueue, info: Info, requests: Usage, pairs: set[FlavorResource]) -> Sliced[Targets]:
        rolled = None if info.rollout is None else (yield from self.collector.older(queue, info, pairs))
        classical = Classical(self.collector, queue, info, requests, pairs)
        if rolled is not None:
            found = yield from classical.take_over(rolled)
        elif self._fair is not None:
            found = yield from self._find_fair(queue, info, requests, pairs)
        else:
            found = yield from classical.run()
        targets = Targets(found)
        targets.freed = yield from held_by_queue(found, self.pace)
        return targets

    # Fair sharing

    def _find_fair(
        self, queue: ClusterQueue, info: Info, requests: Usage, pairs: set[FlavorResource]
    ) -> Sliced[list[Target]]:
        assert self._fair is not None
        policy = queue.preemption
        found: Found = [], []
        yield from self.collector.collect(found, queue, queue, info, policy.within_cluster_queue, pairs)
        if queue.node.parent is not None and policy.reclaim_within_cohort != "Never":
            cohorts = [queue.node.root]
            while cohorts:
                cohort = cohorts.pop()
                cohorts += cohort.cohorts.values()
                for other in (yield from self.collector.borrowers(cohort, pairs)).cluster_queues:
                    if other is not queue:
                        yield from self.collector.collect(
                            found, other, queue, info, policy.reclaim_within_cohort, pairs
                        )
        leaving, candidates = found
        if not leaving and not candidates:
            return []
        yield from self.collector.sort(leaving)
        yield from self.collector.sort(candidates)
        candidates[:0] = leaving
        targets: list[Target] = []
        if (yield from helps(queue, requests, candidates, self.pace)):
            take = partial(self._take_fair, queue, requests, pairs)
            targets = yield from take(candidates)
            if targets and requests.sought is not None:
                freeing = OneDomain(queue, requests, candidates, take, self.pace, fair=True)
                targets = yield from freeing.instead_of(targets)
        del found, leaving
        yield from discard(candidates, self.pace)
        return targets

    def _take_fair(
        self, queue: ClusterQueue, requests: Usage, pairs: set[FlavorResource], candidates: list[Candidate]
    ) -> Sliced[list[Target]]:
        assert self._fair is not None
        with Trial() as trial:
            search = FairPreemption(
                queue,
                requests,
                pairs,
                self._ledger.cluster_queues,
                within_nominal_gate=self._gate,
                trial=trial,
                pace=self.pace,
            )
            if not (yield from search.run(candidates, self._fair.strategies)):
                return []
            targets = [Target(candidate.info, candidate.queue, reason) for candidate, reason in search.targets]
            yield from fill_back(queue, requests, targets, trial, self.pace, borrow=True)
            yield from trial.undo(self.pace)
        return targets
