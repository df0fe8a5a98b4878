"""Victims that free one domain of a Topology, where Kueue's order takes more of them, or more important ones.

Kueue takes victims in its order until a domain happens to be free, wherever they are. Here the same search is made once
more among the candidates of each domain alone. Its victims are preempted only if less is lost by one measure and
nothing more by any other: so the victims in Kueue's order are the most that is ever lost. Must never decide who is a
candidate.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.preemption.candidates import Candidate
from turnstile.engine.preemption.targets import Target, helps
from turnstile.engine.quota.usage import NO_USAGE, Usage
from turnstile.engine.topology.tree import Domain

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue

Search = Callable[[list[Candidate]], Sliced[list[Target]]]
"""Finds victims among candidates, which are in order; none if these are not enough."""


class OneDomain:
    """A search for better victims than those in Kueue's order, among all `candidates`, which are in that order.

    Under `fair` sharing only ClusterQueues that lose a Workload in Kueue's order do, because their shares are the
    largest. Otherwise this holds for the preemptor's own ClusterQueue: first it takes its quota back from others.
    """

    __slots__ = ("_candidates", "_fair", "_least", "_own", "_pace", "_requests", "_search")

    def __init__(
        self,
        own: "ClusterQueue",
        requests: Usage,
        candidates: list[Candidate],
        search: Search,
        pace: Pace,
        *,
        fair: bool,
    ) -> None:
        self._own = own
        self._requests = requests
        self._candidates = candidates
        self._search = search
        self._pace = pace
        self._fair = fair
        self._least = _Loss([])

    def instead_of(self, targets: list[Target]) -> Sliced[list[Target]]:
        """Better victims than these, which were found in Kueue's order; these if there are none. A single victim
        stays: it is the one that was admitted last."""
        leaving, running = yield from self._victims(targets)
        if len(running) < 2 or self._requests.sought is None:
            return targets
        self._least = _Loss(running)
        domains = yield from self._requests.sought.domains()
        candidates = yield from self._by_domain(domains, {each.queue for each in running})
        holding = [some for some in candidates if len(some) >= len(running) and set(some) >= set(running)]
        spread = not holding
        for some in candidates:
            better = [] if some in holding else (yield from self._in(some, leaving, spread=spread))
            if better:
                targets, spread = better, False
        return targets

    def _victims(self, targets: list[Target]) -> Sliced[tuple[list[Candidate], list[Candidate]]]:
        """The candidates that were chosen: those on their way out already, and the others."""
        keys = {target.info.key for target in targets}
        found: tuple[list[Candidate], list[Candidate]] = [], []
        for each in self._candidates:
            self._pace.left -= 0.25
            if self._pace.left <= 0:
                yield
                self._pace.renew()
            if each.info.key in keys:
                found[each.rank[0]].append(each)
        return found

    def _by_domain(self, domains: set[Domain], givers: set["ClusterQueue"]) -> Sliced[list[list[Candidate]]]:
        """The candidates in each domain that may be among better victims."""
        found: dict[Domain, list[Candidate]] = {}
        for each in self._candidates if domains else ():
            self._pace.left -= 1
            if self._pace.left <= 0:
                yield
                self._pace.renew()
            places = each.info.usage.places
            if places is None or not each.rank[0] or not self._least.allows(each):
                continue
            if each.queue in givers or not (self._fair or each.queue is self._own):
                self._pace.left -= len(places)
                for domain in places.among(domains):
                    found.setdefault(domain, []).append(each)
        return list(found.values())

    def _in(self, some: list[Candidate], leaving: list[Candidate], *, spread: bool) -> Sliced[list[Target]]:
        """Better victims among the candidates in one domain, and those that leave anyway; none if there are none."""
        some = [each for each in some if self._least.allows(each)]
        if not some or not (yield from helps(self._own, self._requests, leaving + some, self._pace)):
            return []
        targets = yield from self._search(leaving + some)
        keys = {target.info.key for target in targets}
        loss = _Loss([each for each in some if each.info.key in keys])
        if not targets or not loss.below(self._least, spread=spread):
            return []
        self._least = loss
        return targets


class _Loss:
    """The loss of some victims together."""

    __slots__ = ("_harms", "_quota")

    def __init__(self, victims: list[Candidate]) -> None:
        self._harms = sorted(map(_harm, victims), reverse=True)
        self._quota = Usage({})
        for each in victims:
            self._quota.include(each.info.usage.beyond(NO_USAGE))

    def allows(self, candidate: Candidate) -> bool:
        """Whether less may be lost with a candidate among the victims."""
        return [_harm(candidate)] <= self._harms[:1] and not candidate.info.usage.beyond(self._quota).size

    def below(self, other: "_Loss", *, spread: bool) -> bool:
        """Whether less is lost, and nothing more: fewer Workloads, or of lower priority; or less quota, if the others
        are `spread` over several domains. Among victims of one domain those that were admitted last are preferred."""
        pairs = zip(self._harms, other._harms, strict=False)
        if len(self._harms) > len(other._harms) or any(mine > theirs for mine, theirs in pairs):
            return False
        if self._quota.beyond(other._quota).size:
            return False
        return self._harms != other._harms or (spread and bool(other._quota.beyond(self._quota).size))


def _harm(candidate: Candidate) -> tuple[int, int]:
    """The priority of a candidate, and how often it was preempted before."""
    return candidate.rank[2], candidate.rank[3]
