"""Balanced placement: about as many pods in each of as few domains as possible (Kueue: TASBalancedPlacement).

Only for a preferred level, behind its gate. Where it finds nothing, best fit decides. Must never place pods of another
kind of request.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from turnstile.engine.topology.choosing import Chooser, Share
from turnstile.engine.topology.counting import Counts
from turnstile.engine.topology.shape import Shape
from turnstile.engine.topology.tree import Domain

MOST_STATES: Final = 1 << 16
"""Sums of slices that a search for a set of domains looks at."""


class _Greedy(NamedTuple):
    """A choice of the domains with the most capacity until all have a place."""

    used: int
    last: Domain | None
    last_with_leader: Domain | None


class _Found(NamedTuple):
    threshold: int
    used: int
    siblings: list[Domain]
    counts: Counts
    """Without the domains in which fewer slices would be than the threshold."""


def balanced(counts: Counts, shape: Shape, *, pods: int, leaders: int) -> list[Share] | None:
    """Shares of domains of the lowest level; None if nothing balanced is found."""
    search = _Search(counts, shape, pods, leaders)
    best: _Found | None = None
    for siblings in _sets(counts, shape.level):
        found = search.among(siblings, best)
        if found is not None and (best is None or (-found.threshold, found.used) < (-best.threshold, best.used)):
            best = found
    if best is None or best.threshold < 1:
        return None
    return search.place(best)


def _sets(counts: Counts, level: int) -> Iterable[list[Domain]]:
    """Domains of the level that have one domain above them."""
    tree = counts.tree
    return (parent.children for parent in (tree.domains(level - 1) if level else [tree.root]))


class _Search:
    __slots__ = ("_counts", "_leaders", "_pods", "_shape", "_slices")

    def __init__(self, counts: Counts, shape: Shape, pods: int, leaders: int) -> None:
        self._counts = counts
        self._shape = shape
        self._pods = pods
        self._slices = pods // shape.slice_size
        self._leaders = leaders

    def _chooser(self, counts: Counts) -> Chooser:
        return Chooser(counts, self._shape, pods=self._pods, leaders=self._leaders, best_fit=True)

    def _lower(self, siblings: Iterable[Domain]) -> list[Domain]:
        """The domains among which slices are balanced."""
        if self._shape.level < self._shape.slice_level:
            return [child for domain in siblings for child in domain.children]
        return list(siblings)

    def among(self, siblings: list[Domain], best: "_Found | None") -> "_Found | None":
        """The highest threshold of one set of siblings, unless another set has a higher one."""
        before = self._counts
        greedy = self._greedy(before, self._lower(siblings))
        if greedy is None or not greedy.used:
            return None
        bounds = [self._slices // greedy.used]
        if greedy.last is not None:
            bounds.append(before.slices[greedy.last.at])
        if greedy.last_with_leader is not None:
            bounds.append(before.slices_with[greedy.last_with_leader.at])
        threshold = min(bounds)
        last = greedy.last or greedy.last_with_leader
        lower = before.slices_with[last.at] if last is not None else threshold
        for each in dict.fromkeys((threshold, min(threshold, lower))):
            if best is not None and each < best.threshold:
                return None
            counts = self._prune(siblings, each)
            left = self._greedy(counts, siblings)
            if left is not None:
                return _Found(each, left.used, siblings, counts)
        return None

    def _greedy(self, counts: Counts, domains: Sequence[Domain]) -> _Greedy | None:
        """Leaders first; None if not all have a place."""
        chooser = self._chooser(counts)
        need, leaders = self._slices, self._leaders
        used: list[Domain] = []
        if leaders:
            hosts = takewhile(lambda domain: counts.leaders[domain.at], chooser.in_order(domains, with_leader=True))
            for domain in hosts:
                if leaders <= 0:
                    break
                used.append(domain)
                leaders -= counts.leaders[domain.at]
                need -= counts.slices_with[domain.at]
            if leaders > 0:
                return None
        last_with_leader = used[-1] if used else None
        last: Domain | None = None
        taken = {domain.at for domain in used}
        for domain in chooser.in_order([domain for domain in domains if domain.at not in taken]):
            if need <= 0:
                break
            last = domain
            used.append(domain)
            need -= counts.slices[domain.at]
        return _Greedy(len(used), last, last_with_leader) if need <= 0 else None

    def _prune(self, siblings: list[Domain], threshold: int) -> Counts:
        """Counts without the domains in which fewer slices would be."""
        counts = self._counts.copy()
        lower = self._lower(siblings)
        if lower != siblings:
            self._drop(counts, lower, threshold)
            counts.gather(siblings)
        self._drop(counts, siblings, threshold)
        return counts

    def _drop(self, counts: Counts, domains: Iterable[Domain], threshold: int) -> None:
        for domain in domains:
            at = domain.at
            if counts.slices[at] < threshold:
                counts.slices[at] = counts.pods[at] = 0
                if counts.leaders:
                    counts.leaders[at] = counts.slices_with[at] = counts.pods_with[at] = 0
            elif counts.leaders and counts.slices_with[at] < threshold:
                counts.leaders[at] = 0
                counts.slices_with[at], counts.pods_with[at] = counts.slices[at], counts.pods[at]

    def place(self, best: "_Found") -> list[Share] | None:
        """Share out; None if the threshold cannot be kept after all."""
        counts = best.counts
        domains: list[Domain] | None = best.siblings
        if self._shape.level < self._shape.slice_level:
            domains = self._optimal(counts, best.siblings, by_entropy=True)
            domains = [child for domain in domains for child in domain.children] if domains is not None else None
        chosen = self._optimal(counts, domains, by_entropy=False) if domains is not None else None
        shares = self._share(counts, chosen, best.threshold) if chosen is not None else None
        return self._chooser(counts).descend(shares) if shares is not None else None

    def _optimal(self, counts: Counts, domains: Sequence[Domain], *, by_entropy: bool) -> list[Domain] | None:
        """As few domains as possible that have the least left over, by sums of the slices that they can take."""
        greedy = self._greedy(counts, domains)
        if greedy is None:
            return None
        ordered = sorted(
            (
                domain
                for domain in domains
                if counts.slices[domain.at] or (counts.leaders and counts.leaders[domain.at])
            ),
            key=(lambda domain: _by_entropy(counts, domain)) if by_entropy else (lambda domain: domain.values),
        )
        sets: list[dict[tuple[int, int], tuple[Domain, ...]]] = [{} for _ in range(greedy.used + 1)]
        sets[0][self._leaders, self._slices] = ()
        for domain in ordered:
            at = domain.at
            hosts = counts.hosts(domain)
            for used in range(greedy.used - 1, -1, -1):
                after = sets[used + 1]
                for (leaders, left), chosen in sets[used].items():
                    if leaders and hosts:
                        after.setdefault(
                            (leaders - min(leaders, hosts), left - counts.slices_with[at]), (*chosen, domain)
                        )
                    after.setdefault((leaders, left - counts.slices[at]), (*chosen, domain))
                if len(after) > MOST_STATES:
                    return None
        complete = {left: chosen for (leaders, left), chosen in sets[-1].items() if not leaders and left <= 0}
        return list(complete[max(complete)]) if complete else None

    def _share(self, counts: Counts, domains: list[Domain], threshold: int) -> list[Share] | None:
        """Each domain gets the threshold, and what is left over as far as it can, in their order."""
        size, leaders = self._shape.slice_size, self._leaders
        extra = self._slices - threshold * len(domains)
        if extra < 0:
            return None
        shares = []
        ordered = self._chooser(counts).in_order(sorted(domains, key=lambda domain: domain.values), with_leader=True)
        for domain in ordered:
            led = min(leaders, counts.leaders[domain.at]) if leaders else 0
            have = (counts.slices_with if led else counts.slices)[domain.at]
            more = min(extra, have - threshold)
            if more < 0:
                return None
            shares.append(Share(domain, (threshold + more) * size, led))
            extra -= more
            leaders -= led
        return shares if extra == 0 and leaders == 0 else None


def _by_entropy(counts: Counts, domain: Domain) -> tuple[int, int, float, tuple[str, ...]]:
    return -counts.hosts(domain), -counts.slices_with[domain.at], -_entropy(counts, domain), domain.values


def _entropy(counts: Counts, domain: Domain) -> float:
    """How evenly pods would be spread among the domains below."""
    pods = [counts.pods[child.at] for child in domain.children if counts.pods[child.at] > 0]
    total = sum(pods)
    return -sum(each / total * math.log2(each / total) for each in pods)
