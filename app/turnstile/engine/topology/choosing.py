"""Which domains get the pods of one pod set, or of a leader and its workers, by the counts of the domains.

Required and preferred levels are served by best fit: as few domains as possible, the last of them the tightest.
Otherwise the domains with the least free capacity come first, so that wide ones stay whole. Ties are decided by
leaders, preferences, slices, pods and names, in this order. Source: Kueue's TASFlavorSnapshot. Must never count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from turnstile.engine.topology.counting import Counts
from turnstile.engine.topology.shape import Shape
from turnstile.engine.topology.tree import Domain

Figures = Sequence[int] | Mapping[int, int]
"""By `Domain.at`."""


class Share(NamedTuple):
    """Pods and leaders that a domain gets."""

    domain: Domain
    pods: int
    leaders: int


class Short(NamedTuple):
    """There are not enough domains: so many slices would have a place."""

    fit: int


class Chooser:
    """Chooses by counts that do not change meanwhile. `best_fit` is False if the least free capacity comes first."""

    __slots__ = ("_best", "_counts", "_leaders", "_need", "_shape")

    def __init__(self, counts: Counts, shape: Shape, *, pods: int, leaders: int, best_fit: bool) -> None:
        self._counts = counts
        self._shape = shape
        self._need = pods // shape.slice_size
        self._leaders = leaders
        self._best = best_fit

    @property
    def _plain(self) -> bool:
        """Whether slices, pods and values alone decide the order."""
        return not self._leaders and not self._counts.score

    # Order

    def in_order(self, domains: Iterable[Domain], *, with_leader: bool = False) -> Iterator[Domain]:
        """Domains, given by values, in the order in which they are used. Those that nobody takes are not sorted."""
        counts = self._counts
        with_leader = with_leader and bool(counts.leaders)
        slices, pods = (counts.slices_with, counts.pods_with) if with_leader else (counts.slices, counts.pods)
        sign = -1 if self._best else 1
        grouped: dict[tuple[int, int, int], list[Domain]] = {}
        plain: dict[int, list[Domain]] = {}
        if with_leader or counts.score:
            leaders, score = counts.leaders, counts.score
            for domain in domains:
                at = domain.at
                key = (-leaders[at] if with_leader else 0, -score[at] if score else 0, sign * slices[at])
                grouped.setdefault(key, []).append(domain)
        else:
            for domain in domains:
                count = slices[domain.at]
                if count in plain:
                    plain[count].append(domain)
                else:
                    plain[count] = [domain]
            grouped = {(0, 0, sign * count): found for count, found in plain.items()}
        for key in sorted(grouped):
            found = grouped[key]
            if len(found) > 1 and not self._alike(found[0]):
                found.sort(key=lambda domain: pods[domain.at])
            yield from found

    def _alike(self, domain: Domain) -> bool:
        """Whether domains of its level that take as many slices take as many pods."""
        shape = self._shape
        return shape.slice_size == 1 and domain.level <= shape.slice_level and not self._leaders

    def _tightest(self, domains: Sequence[Domain], need: int, leaders: int, have: Figures) -> Domain:
        """The domain with the least that is enough, among those that are liked as the first; the first of several."""
        counts = self._counts
        score, hosts = counts.score, counts.leaders
        liked = score[domains[0].at] if score else 0
        fitting = [
            domain
            for domain in domains
            if have[domain.at] >= need
            and (not score or score[domain.at] == liked)
            and (not leaders or hosts[domain.at] >= leaders)
        ]
        return min(fitting, key=lambda domain: have[domain.at])

    def _leader_first(
        self, domains: list[Domain], need: int, leaders: int, have: Figures, beside: Figures
    ) -> list[Domain]:
        """Have the first domain lead that can host the leaders and leaves enough in all of them together."""
        if not leaders:
            return domains
        total = sum(have[domain.at] for domain in domains)
        for index, domain in enumerate(domains):
            at = domain.at
            if self._counts.leaders[at] >= leaders and total - (have[at] - beside[at]) >= need:
                return [domain, *domains[:index], *domains[index + 1 :]]
        return domains

    # Level

    def start(self) -> list[Domain] | Short:
        """The domains among which the pods are spread: one of the level that is asked for if there is one, else of the
        next wider level, at the top several."""
        for level in range(self._shape.level, -1, -1):
            found = self._at_level(level)
            if found is not None:
                return found
        raise AssertionError("the widest level always has an answer")

    def _at_level(self, level: int) -> list[Domain] | Short | None:
        counts, shape, need = self._counts, self._shape, self._need
        if not self._plain:
            return self._in_full_order(level)
        domains = counts.tree.domains(level)
        fitting = [domain for domain in domains if counts.slices[domain.at] >= need]
        if fitting:
            return [self._least(fitting, counts.slices)]
        if shape.required and self._best:
            return Short(max(counts.slices[domain.at] for domain in domains))
        if level > 0 and not shape.unconstrained:
            return None
        shares = self._fill(domains, need, 1, counts.slices)
        given = sum(share.pods for share in shares)
        return Short(given) if given < need else [share.domain for share in shares]

    def _least(self, domains: Sequence[Domain], have: Figures) -> Domain:
        """The domain with the least, of domains by values: the tightest one, and the one with the least free."""
        pods = self._counts.pods
        least = min([have[domain.at] for domain in domains])
        if self._alike(domains[0]):
            return next(domain for domain in domains if have[domain.at] == least)
        return min([domain for domain in domains if have[domain.at] == least], key=lambda domain: pods[domain.at])

    def _fill(self, domains: Sequence[Domain], need: int, size: int, have: Figures) -> list[Share]:
        """Share out so many units of `size` pods, without a leader and preferences, among domains by values. Only as
        many are sorted as are used."""
        found: list[Share] = []
        for domain in self.in_order(domains):
            if have[domain.at] >= need:
                if self._best:
                    used = {share.domain.at for share in found}
                    domain = self._least(
                        [each for each in domains if each.at not in used and have[each.at] >= need], have
                    )
                found.append(Share(domain, need * size, 0))
                break
            found.append(Share(domain, have[domain.at] * size, 0))
            need -= have[domain.at]
        return found

    def _in_full_order(self, level: int) -> list[Domain] | Short | None:
        counts, shape, need, leaders = self._counts, self._shape, self._need, self._leaders
        domains = list(self.in_order(counts.tree.domains(level), with_leader=True))
        slices = counts.slices_with

        def fits(domain: Domain) -> bool:
            return slices[domain.at] >= need and (not leaders or counts.leaders[domain.at] >= leaders)

        if self._best:
            if fits(domains[0]):
                return [self._tightest(domains, need, leaders, slices)]
            if shape.required:
                rest = next((index for index, domain in enumerate(domains) if fits(domain)), None)
                if rest is None:
                    return Short(counts.slices[domains[0].at])
                return [self._tightest(domains[rest:], need, leaders, slices)]
        else:
            for domain in domains:
                if fits(domain):
                    return [domain]
        if level > 0 and not shape.unconstrained:
            return None
        return self._several(domains)

    def _several(self, domains: list[Domain]) -> list[Domain] | Short:
        counts, need, leaders = self._counts, self._need, self._leaders
        rest = self._leader_first(domains, need, leaders, counts.slices, counts.slices_with)
        found: list[Domain] = []
        while leaders > 0 and rest and counts.leaders[rest[0].at]:
            domain = rest[0]
            if self._best and counts.slices_with[domain.at] >= need and counts.leaders[domain.at] >= leaders:
                domain = self._tightest(rest, need, leaders, counts.slices_with)
            found.append(domain)
            rest.remove(domain)
            leaders -= min(leaders, counts.leaders[domain.at])
            need -= counts.slices_with[domain.at]
        if leaders > 0:
            return Short(0)
        if found:
            rest = list(self.in_order(_by_values(rest)))
        for index, domain in enumerate(rest):
            if need <= 0:
                break
            if self._best and counts.slices[domain.at] >= need:
                domain = self._tightest(rest[index:], need, 0, counts.slices)
            found.append(domain)
            need -= counts.slices[domain.at]
        return Short(self._need - need) if need > 0 else found

    # Downwards

    def spread(self, domains: list[Domain]) -> list[Share]:
        """Share the pods out among domains of the lowest level, which are below these."""
        counts, shape = self._counts, self._shape
        shares = self._by_slices(_by_values(domains) if self._plain else domains)
        last = len(counts.tree.levels) - 1
        for _ in range(shares[0].domain.level if shares else last, min(last, shape.slice_level)):
            below = [child for parent in _by_values(share.domain for share in shares) for child in parent.children]
            shares = self._by_slices(below if self._plain else list(self.in_order(below)))
        return self.descend(shares)

    def descend(self, shares: list[Share]) -> list[Share]:
        """Share out what each domain got among those below it, down to the lowest level."""
        last = len(self._counts.tree.levels) - 1
        while shares and shares[0].domain.level < last:
            shares = [each for share in shares for each in self._below(share)]
        return shares

    def _by_slices(self, domains: list[Domain]) -> list[Share]:
        counts = self._counts
        return self.take(domains, self._need, self._leaders, self._shape.slice_size, counts.slices, counts.slices_with)

    def _below(self, share: Share) -> list[Share]:
        counts = self._counts
        parent = share.domain
        children = parent.children if self._plain else list(self.in_order(parent.children))
        size = self._shape.inner[parent.level + 1] or 1
        if parent.level < self._shape.slice_level:
            size = self._shape.slice_size
        have: Figures = counts.pods
        beside: Figures = counts.pods_with
        if size > 1:
            have = {child.at: counts.pods[child.at] // size for child in children}
            beside = {child.at: counts.pods_with[child.at] // size for child in children}
        return self.take(children, share.pods // size, share.leaders, size, have, beside)

    def take(
        self, domains: list[Domain], need: int, leaders: int, size: int, have: Figures, beside: Figures
    ) -> list[Share]:
        """Share out so many units of `size` pods among domains in their order, those with leaders first; `beside` is
        what a domain has beside a leader. They have to be enough. Without a leader and preferences the domains come by
        values."""
        if self._plain:
            return self._fill(domains, need, size, have)
        hosts = self._counts.leaders
        domains = self._leader_first(domains, need, leaders, have, beside)
        found: list[Share] = []
        for index, domain in enumerate(domains):
            figures, led = have, 0
            if leaders > 0:
                figures, led = beside, min(hosts[domain.at], leaders)
            if figures[domain.at] >= need and led >= leaders:
                if self._best:
                    domain = self._tightest(domains[index:], need, leaders, figures)
                found.append(Share(domain, need * size, leaders))
                return found
            found.append(Share(domain, figures[domain.at] * size, led))
            need -= figures[domain.at]
            leaders -= led
        return found


def _by_values(domains: Iterable[Domain]) -> list[Domain]:
    return sorted(domains, key=lambda domain: domain.values)
