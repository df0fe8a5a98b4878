"""Who may be preempted: the candidates of one search, from the Workloads that hold quota.

Must never choose among them: that is for `turnstile.engine.preemption.classical` and `fair`.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from turnstile.engine.instants import Instant
from turnstile.engine.pace import Pace, Sliced, arrange
from turnstile.engine.preemption.candidates import WITHIN_QUEUE, Candidate, Found, Rank, by_rank, satisfies, with_usage
from turnstile.engine.preemption.targets import NO_VICTIMS
from turnstile.engine.queue.protections import Protections
from turnstile.engine.queue.repeats import Repeats
from turnstile.engine.queue.sharing import UsageSharing
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.tree import Node
from turnstile.engine.reservations import Reservations

_name: Final = attrgetter("name")


class Borrowers(NamedTuple):
    """Child Cohorts and ClusterQueues of a Cohort that use more than their quota of a pair; these ClusterQueues admit.
    By name."""

    cohorts: list[Node]
    cluster_queues: list[ClusterQueue]


_Users = dict[FlavorResource, list[Info]]


class Collector:
    """Collects candidates for heads of one cycle. `gone` are victims of others, which are no candidates any more.

    With `steady` no usage changes from one search to the next: what many heads ask of a Cohort is found once, and so is
    who uses each pair in a ClusterQueue that was searched before.
    """

    __slots__ = (
        "_borrowers",
        "_cluster_queues",
        "_local_queue_usage",
        "_protections",
        "_repeats",
        "_reservations",
        "_searched",
        "_sharing",
        "gone",
        "now",
        "pace",
        "spared",
        "steady",
    )

    def __init__(
        self,
        cluster_queues: Mapping[str, ClusterQueue],
        reservations: Reservations,
        repeats: Repeats,
        sharing: UsageSharing,
        protections: Protections,
        now: Instant,
        pace: Pace,
    ) -> None:
        self._cluster_queues = cluster_queues
        self._reservations = reservations
        self._repeats = repeats
        self._sharing = sharing
        self._protections = protections
        self._local_queue_usage: dict[tuple[str, str], float | None] = {}
        self._borrowers: dict[tuple[Node, frozenset[FlavorResource]], Borrowers] = {}
        self._searched: dict[str, _Users | None] = {}
        """Who uses each pair, by ClusterQueue; None after its first search, which reads all of its Workloads."""
        self.gone = NO_VICTIMS
        self.spared: dict[str, Instant] = {}
        """Preemptors that found Workloads which have not run long enough: when the first of these may be preempted."""
        self.now = now
        self.pace = pace
        self.steady = False

    def borrowers(self, cohort: Node, pairs: set[FlavorResource]) -> Sliced[Borrowers]:
        """Who borrows any of the pairs, directly below a Cohort."""
        key = cohort, frozenset(pairs)
        found = self._borrowers.get(key) if self.steady else None
        if found is not None:
            return found
        pace, found = self.pace, Borrowers([], [])
        for child in cohort.cohorts.values():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            if not tree.within_nominal(child, pairs):
                found.cohorts.append(child)
        for node in cohort.queues.values():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            queue = self._cluster_queues[node.name]
            if queue.active and not tree.within_nominal(node, pairs):
                found.cluster_queues.append(queue)
        yield from arrange(found.cohorts, _name, pace)
        yield from arrange(found.cluster_queues, _name, pace)
        if self.steady:
            self._borrowers[key] = found
        return found

    def end_steady(self) -> None:
        """Usage changes from now on."""
        self.steady = False
        self._borrowers.clear()
        self._searched.clear()

    def _users(self, queue: ClusterQueue, pairs: set[FlavorResource]) -> Sliced[Iterable[Info]]:
        """The Workloads of a ClusterQueue that may use any of the pairs, and perhaps others."""
        if not self.steady:
            return queue.workloads.values()
        if queue.name not in self._searched:
            self._searched[queue.name] = None
            return queue.workloads.values()
        users = self._searched[queue.name]
        if users is None:
            users, pace = {}, self.pace
            for info in queue.workloads.values():
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
                for pair in info.usage.pairs:
                    users.setdefault(pair, []).append(info)
            self._searched[queue.name] = users
        found = [users[pair] for pair in pairs if pair in users]
        if len(found) < 2:
            return found[0] if found else ()
        return {info.key: info for some in found for info in some}.values()

    def rank(self, candidate: Info, queue: ClusterQueue, own: ClusterQueue) -> Rank:
        """Who is preempted first: evicted already, of another queue, of low priority, preempted least often, admitted
        last. Kueue does not count how often: there the one that was admitted last is preempted again and again."""
        reserved_at = candidate.reserved_at
        return (
            not self._reservations.is_evicted(candidate),
            queue is own,
            candidate.priority,
            candidate.preemptions,
            -(self.now if reserved_at is None else reserved_at),
            candidate.uid,
            candidate.key,
        )

    def collect(
        self,
        into: Found,
        queue: ClusterQueue,
        own: ClusterQueue,
        preemptor: Info,
        policy: str,
        pairs: set[FlavorResource],
        *,
        variant: int | Callable[[Info], int] = WITHIN_QUEUE,
        lca: Node | None = None,
    ) -> Sliced[None]:
        """Workloads of one queue that use a pair without room and that the policy allows: those on their way out into
        the first list, the others into the second. `variant` says by which right, or tells it of each. The slice that
        the preemptor takes over from is none of them: its quota is counted on, and it runs until then. Neither is a
        victim that is overdue: when its quota becomes free is unknown; nor a Workload that has not run for its minimum
        run time."""
        if policy == "Never":
            return
        pace, gone, anyone = self.pace, self.gone, policy == "Any"
        replaced = preemptor.replaces if queue is own else None
        spared = self._repeats.spared(own, preemptor.key)
        overdue = self._reservations.overdue
        protections = self._protections if self._protections.concern(queue) else None
        for other in (yield from self._users(queue, pairs)):
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            if not other.usage.uses(pairs) or not (anyone or satisfies(policy, preemptor, other)):
                continue
            if (gone and other.key in gone) or other.key == replaced or other.key in overdue:
                continue
            rank = self.rank(other, queue, own)
            if spared and rank[0] and other.key in spared:
                continue
            if protections is not None and rank[0]:
                until = protections.until(other, queue)
                if until is not None and until > self.now:
                    self.spared[preemptor.key] = min(until, self.spared.get(preemptor.key, until))
                    continue
            usage = self._usage_of_local_queue(queue, other.local_queue) if self._sharing.config is not None else None
            right = variant if isinstance(variant, int) else variant(other)
            into[rank[0]].append(Candidate(other, queue, rank, right, lca, usage))

    def older(self, queue: ClusterQueue, info: Info, pairs: set[FlavorResource]) -> Sliced[list[Candidate] | None]:
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
                self.pace.renew()
            theirs = other.rollout
            if theirs is None or (theirs.owner, other.namespace) != (mine.owner, info.namespace):
                continue
            if theirs.revision == mine.revision:
                continue
            found = found or []
            gone = other.key in self.gone or other.key in self._reservations.overdue
            if theirs.revision < mine.revision and mine.replaces and not gone and other.usage.uses(pairs):
                found.append(Candidate(other, queue, self.rank(other, queue, queue), WITHIN_QUEUE, None))
        return found

    def _usage_of_local_queue(self, queue: ClusterQueue, local_queue: str) -> float | None:
        """Nothing is sampled while a cycle is under way, so it is worked out once."""
        key = queue.name, local_queue
        if key not in self._local_queue_usage:
            self._local_queue_usage[key] = self._sharing.usage(queue, local_queue)
        return self._local_queue_usage[key]

    def sort(self, candidates: list[Candidate]) -> Sliced[None]:
        """In the order they are to be preempted."""
        return arrange(candidates, with_usage if self._sharing.config is not None else by_rank, self.pace)
