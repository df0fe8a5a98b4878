"""Whom to preempt so that a workload fits: runs the searches, slice by slice, and remembers their answers.

Classical preemption walks one ordered list of candidates; fair sharing picks queues by their shares. Both take victims
until the workload fits and then give back whom it does not need. Sources: Kueue's preemptor, KEP-83, KEP-79, KEP-1714.
Simulates on the ledger and always puts it back; what is really evicted is not its business.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from turnstile.engine.instants import Instant
from turnstile.engine.options import Options
from turnstile.engine.pace import Pace, Sliced, arrange, discard
from turnstile.engine.preemption.candidates import WITHIN_QUEUE, Candidate, Found, Rank, by_rank, satisfies, with_usage
from turnstile.engine.preemption.classical import Classical
from turnstile.engine.preemption.fair import FairPreemption
from turnstile.engine.preemption.repeats import Repeats
from turnstile.engine.preemption.targets import NO_TARGETS, NO_VICTIMS, Target, Targets, fill_back, held_by_queue
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import Trial
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import Possibility

if TYPE_CHECKING:
    from turnstile.engine.flavors.assignment import Assignment
    from turnstile.engine.queue.nomination import Nomination
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info
    from turnstile.engine.quota.ledger import Ledger


class Known(Protocol):
    """What a search reads of the state."""

    @property
    def cluster_queues(self) -> "Mapping[str, ClusterQueue]":
        """All of them by name."""

    @property
    def ledger(self) -> "Ledger[Any]":
        """Who holds quota where."""

    @property
    def repeats(self) -> Repeats:
        """Victims that no preemptor may have preempted again."""

    @property
    def options(self) -> Options:
        """The configuration."""

    def is_evicted(self, info: "Info") -> bool:
        """Whether a Workload is evicted, or was chosen as a victim and the eviction is not seen yet."""

    @property
    def overdue(self) -> Mapping[str, object]:
        """Victims that did not go in time."""

    def line_usage(self, queue: "ClusterQueue", local_queue: str) -> float | None:
        """The usage of a LocalQueue, where that orders Workloads."""


_NO_PAIRS: frozenset[FlavorResource] = frozenset()
Question = tuple[str, Hashable, frozenset[FlavorResource]]


class Preemptor:
    """Finds targets for heads of one cycle.

    Between `start` and the answer the state must not change. `gone` are victims of others, which are no candidates any
    more.
    """

    __slots__ = ("_answers", "_fair", "_line_usage", "_state", "_with_usage", "gone", "now", "pace")

    def __init__(self, state: Known, now: Instant, pace: Pace | None = None) -> None:
        options = state.options
        self._state = state
        self._fair = options.fair_sharing
        self._with_usage = options.admission_fair_sharing is not None and options.gates.admission_fair_sharing
        self._answers: dict[Question, Targets] = {}
        self._line_usage: dict[tuple[str, str], float | None] = {}
        self.gone = NO_VICTIMS
        self.now = now
        self.pace = pace or Pace()

    def start(self) -> None:
        """Usage may have changed since the last question: forget the answers."""
        self._answers.clear()
        self.pace.renew()

    def queue(self, name: str) -> "ClusterQueue":
        """The ClusterQueue of that name."""
        return self._state.cluster_queues[name]

    def targets(self, queue: "ClusterQueue", info: "Info", assignment: "Assignment") -> Sliced[Targets]:
        """Workloads to preempt for an assignment in mode Preempt, none if that would not help."""
        pairs = assignment.needing_preemption(self._state.ledger.catalog.pair)
        return self.find(queue, info, assignment.usage.needed(), pairs)

    def nominated(self, queue: "ClusterQueue", nomination: "Nomination", usage: Usage) -> Sliced[Targets]:
        """The victims of a nomination that have not released their quota, if the usage fits once they have; else
        none."""
        requests = usage.needed()
        question = f"{nomination.preemptor} again", requests.key, _NO_PAIRS
        return self._answer(question, self._nominated(queue, nomination, requests))

    def _nominated(self, queue: "ClusterQueue", nomination: "Nomination", requests: Usage) -> Sliced[Targets]:
        targets = yield from self.leaving(nomination)
        with Trial() as trial:
            yield from trial.remove_all(targets.freed, self.pace)
            fits = bool(targets) and requests.fits(queue.node)
            yield from trial.undo(self.pace)
            return targets if fits else NO_TARGETS

    def leaving(self, nomination: "Nomination") -> Sliced[Targets]:
        """The victims of a nomination that were evicted and hold their quota still, but for those that are overdue."""
        state, pace = self._state, self.pace
        targets = Targets()
        for key, reason in nomination.victims.items():
            pace.left -= 2
            if pace.left <= 0:
                yield
            held = state.ledger.holder(key)
            if held is None or key in self.gone or key in state.overdue:
                continue
            other = state.cluster_queues.get(state.ledger.holders[key])
            if other is not None and state.is_evicted(held):
                targets.append(Target(held, other, reason))
        targets.freed = yield from held_by_queue(targets, pace)
        return targets

    def oracle(
        self, queue: "ClusterQueue", info: "Info", pair: FlavorResource, amount: int
    ) -> Sliced[tuple[Possibility, int]]:
        """Whether quota can be freed for so much of one resource in one flavor, and the borrowing level then."""
        targets = yield from self.find(queue, info, Usage({pair: amount}), {pair})
        if not targets:
            return Possibility.NO_CANDIDATES, tree.level(queue.node, pair, amount)[0]
        with Trial() as trial:
            yield from trial.remove_all(targets.freed, self.pace)
            level, _ = tree.level(queue.node, pair, amount)
            yield from trial.undo(self.pace)
        return Possibility.PREEMPT if queue in targets.freed else Possibility.RECLAIM, level

    def find(self, queue: "ClusterQueue", info: "Info", requests: Usage, pairs: set[FlavorResource]) -> Sliced[Targets]:
        """The smallest set of victims found that makes `requests` fit; `pairs` are those without room. Not to be
        changed: it is what is remembered."""
        question = info.key, requests.key, frozenset(pairs)
        return self._answer(question, self._search(queue, info, requests, pairs))

    def _answer(self, question: Question, search: Sliced[Targets]) -> Sliced[Targets]:
        """The answer that a search finds, or has found: the oracle is asked, and then the Workload itself."""
        found = self._answers.get(question)
        if found is not None:
            return found
        try:
            while True:
                next(search)
                yield
                self.pace.renew()
        except StopIteration as end:
            answer: Targets = end.value
            self._answers[question] = answer
            return answer
        finally:
            search.close()

    def _search(
        self, queue: "ClusterQueue", info: "Info", requests: Usage, pairs: set[FlavorResource]
    ) -> Sliced[Targets]:
        rolled = None if info.rollout is None else (yield from self._older(queue, info, pairs))
        if rolled is not None:
            found = yield from Classical(self, queue, info, requests, pairs).take_over(rolled)
        elif self._fair is not None:
            found = yield from self._find_fair(queue, info, requests, pairs)
        else:
            found = yield from Classical(self, queue, info, requests, pairs).run()
        targets = Targets(found)
        targets.freed = yield from held_by_queue(found, self.pace)
        return targets

    # Candidates

    def rank(self, candidate: "Info", queue: "ClusterQueue", own: "ClusterQueue") -> Rank:
        """Who is preempted first: evicted already, of another queue, of low priority, admitted last."""
        reserved_at = candidate.reserved_at
        return (
            not self._state.is_evicted(candidate),
            queue is own,
            candidate.priority,
            -(self.now if reserved_at is None else reserved_at),
            candidate.uid,
            candidate.key,
        )

    def collect(
        self,
        into: Found,
        queue: "ClusterQueue",
        own: "ClusterQueue",
        preemptor: "Info",
        policy: str,
        pairs: set[FlavorResource],
        *,
        variant: "int | Callable[[Info], int]" = WITHIN_QUEUE,
        lca: Node | None = None,
    ) -> Sliced[None]:
        """Workloads of one queue that use a pair without room and that the policy allows: those on their way out into
        the first list, the others into the second. `variant` says by which right, or tells it of each. The slice that
        the preemptor takes over from is none of them: its quota is counted on, and it runs until then. Neither is a
        victim that is overdue: when its quota becomes free is unknown."""
        if policy == "Never":
            return
        pace, gone, anyone = self.pace, self.gone, policy == "Any"
        replaced = preemptor.replaces if queue is own else None
        spared = self._state.repeats.spared(own, preemptor.key)
        overdue = self._state.overdue
        for other in queue.workloads.values():
            pace.left -= 1
            if pace.left <= 0:
                yield
            if not other.usage.uses(pairs) or not (anyone or satisfies(policy, preemptor, other)):
                continue
            if (gone and other.key in gone) or other.key == replaced or other.key in overdue:
                continue
            rank = self.rank(other, queue, own)
            if spared and rank[0] and other.key in spared:
                continue
            line_usage = self._usage_of_line(queue, other.local_queue) if self._with_usage else None
            right = variant if isinstance(variant, int) else variant(other)
            into[rank[0]].append(Candidate(other, queue, rank, right, lca, line_usage))

    def _older(self, queue: "ClusterQueue", info: "Info", pairs: set[FlavorResource]) -> Sliced[list[Candidate] | None]:
        """The Workloads of older revisions of the same rollout whose quota this one may take, whatever the policies
        are; None if no other revision has quota. In a rollout a pod takes no other job's quota: that of the old
        revision is about to be free."""
        mine = info.rollout
        assert mine is not None
        found: list[Candidate] | None = None
        for other in queue.workloads.values():
            self.pace.left -= 1
            if self.pace.left <= 0:
                yield
            theirs = other.rollout
            if theirs is None or (theirs.owner, other.namespace) != (mine.owner, info.namespace):
                continue
            if theirs.revision == mine.revision:
                continue
            found = found or []
            gone = other.key in self.gone or other.key in self._state.overdue
            if theirs.revision < mine.revision and mine.replaces and not gone and other.usage.uses(pairs):
                found.append(Candidate(other, queue, self.rank(other, queue, queue), WITHIN_QUEUE, None))
        return found

    def _usage_of_line(self, queue: "ClusterQueue", local_queue: str) -> float | None:
        """Nothing is sampled while a cycle is under way, so it is worked out once."""
        line = queue.name, local_queue
        if line not in self._line_usage:
            self._line_usage[line] = self._state.line_usage(queue, local_queue)
        return self._line_usage[line]

    def sort(self, candidates: list[Candidate]) -> Sliced[None]:
        """In the order they are to be preempted."""
        return arrange(candidates, with_usage if self._with_usage else by_rank, self.pace)

    # Fair sharing

    def _find_fair(
        self, queue: "ClusterQueue", info: "Info", requests: Usage, pairs: set[FlavorResource]
    ) -> Sliced[list[Target]]:
        assert self._fair is not None
        policy = queue.preemption
        found: Found = [], []
        yield from self.collect(found, queue, queue, info, policy.within_cluster_queue, pairs)
        if queue.node.parent is not None and policy.reclaim_within_cohort != "Never":
            for node in queue.node.root.walk_queues():
                self.pace.left -= 1
                if self.pace.left <= 0:
                    yield
                other = self._state.cluster_queues[node.name]
                if other is queue or not other.active or tree.within_nominal(node, pairs):
                    continue
                yield from self.collect(found, other, queue, info, policy.reclaim_within_cohort, pairs)
        leaving, candidates = found
        if not leaving and not candidates:
            return []
        yield from self.sort(leaving)
        yield from self.sort(candidates)
        candidates[:0] = leaving
        targets = yield from self._take_fair(queue, requests, pairs, candidates)
        del found, leaving
        yield from discard(candidates, self.pace)
        return targets

    def _take_fair(
        self, queue: "ClusterQueue", requests: Usage, pairs: set[FlavorResource], candidates: list[Candidate]
    ) -> Sliced[list[Target]]:
        assert self._fair is not None
        if not (yield from self._helps(queue, requests, candidates)):
            return []
        with Trial() as trial:
            search = FairPreemption(
                queue,
                requests,
                pairs,
                self._state.cluster_queues,
                within_nominal_gate=self._state.options.gates.fair_sharing_preempt_within_nominal,
                trial=trial,
                pace=self.pace,
            )
            if not (yield from search.run(candidates, self._fair.strategies)):
                return []
            targets = [Target(candidate.info, candidate.queue, reason) for candidate, reason in search.targets]
            yield from fill_back(queue, requests, targets, trial, self.pace, borrow=True)
            yield from trial.undo(self.pace)
        return targets

    def _helps(self, queue: "ClusterQueue", requests: Usage, candidates: list[Candidate]) -> Sliced[bool]:
        """Whether there would be room with all candidates gone; if not, no search is needed."""
        held = yield from held_by_queue(candidates, self.pace)
        with Trial() as trial:
            yield from trial.remove_all(held, self.pace)
            fits = requests.fits(queue.node)
            yield from trial.undo(self.pace)
            return fits
