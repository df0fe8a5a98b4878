"""The changes that an administrator can make, the smallest of each kind, and the ends of others that would do.

Must never guess.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import gcd
from typing import Final

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.effectivequota import set_by
from turnstile.api.quantity import MAX_INT64
from turnstile.api.workload import Workload
from turnstile.engine import State
from turnstile.engine.reasons import Figure
from turnstile.insight import changes
from turnstile.insight.remedies.trial import STEPS, Outcome, Remedy, Supposed, Trial, most, remedy
from turnstile.wording import remedies as words

ENDED: Final = 64
"""Workloads that hold quota of which it is tried whether their end helps, at most: those that hold most."""


class Administrator:
    """The search for remedies of an administrator, with `begin` supposed besides."""

    def __init__(self, trial: Trial, begin: Supposed, figures: tuple[Figure, ...]) -> None:
        self._trial = trial
        self._begin = begin
        self._figures = figures

    def remedies(self) -> Iterator[Remedy]:
        """All of them, and the ends that would do."""
        queue = self._queue_of()
        if queue is None:
            return
        yield from self._more_quota(queue)
        yield from self._higher_priority()
        yield from self._ends()

    def _queue_of(self) -> ClusterQueue | None:
        """The ClusterQueue of the Workload as it is supposed to be."""
        queue = self._trial.cluster_queue(self._trial.local_queue(self._begin.workload))
        if queue is None:
            return None
        name = queue.metadata.name
        return next(
            (each for each in self._begin.put if isinstance(each, ClusterQueue) and each.metadata.name == name), queue
        )

    def _more_quota(self, queue: ClusterQueue) -> Iterator[Remedy]:
        """Raise the quota of the first flavor with which that helps."""
        state, _ = self._trial.snapshot.changed([self._begin.workload]).state(self._trial.options, self._trial.now)
        everything = _asked(state)
        short = _short(self._figures)
        for group in queue.spec.resource_groups:
            for flavor in group.flavors:
                unit = {resource: _unit(state, flavor.name, resource) for resource in everything}
                highest = {resource: amount // unit[resource] for resource, amount in everything.items()}
                lacking = {each: -(-short.get((flavor.name, each), 0) // unit[each]) for each in everything}
                found = self._least_quota(queue, flavor.name, unit, highest, lacking)
                if found is not None:
                    yield found
                    return

    def _least_quota(
        self,
        queue: ClusterQueue,
        flavor: str,
        unit: Mapping[str, int],
        highest: Mapping[str, int],
        lacking: Mapping[str, int],
    ) -> Remedy | None:
        """Raise the quota by what is lacking, then by more and more up to `highest`, until the Workload is admitted;
        then by less of each resource for as long as it is. Little is tried first: the more there is, the more Workloads
        the engine has to decide about. Numbers are multiples of `unit`."""

        def supposed(numbers: Mapping[str, int]) -> Supposed:
            more = {(flavor, resource): number * unit[resource] for resource, number in numbers.items() if number}
            amounts = [(pair[1], amount) for pair, amount in more.items()]
            does = words.raise_quota(queue.metadata.name, flavor, amounts, set_by=set_by(queue))
            return self._begin.and_(does, changes.with_quota(queue, more))

        raised = dict(lacking)
        begins = {resource: max(lacking[resource], -(-number // STEPS)) for resource, number in highest.items()}
        times = 1
        while (found := self._trial.admits(supposed(raised))) is None:
            if raised == highest:
                return None
            times *= 2
            raised = {resource: min(highest[resource], times * number) for resource, number in begins.items()}
        for resource in sorted(raised):
            top = raised[resource]

            def with_less(less: int, *, resource: str = resource, top: int = top) -> Outcome | None:
                return self._trial.admits(supposed({**raised, resource: top - less}))

            less, still = most(top, with_less, guess=top - lacking[resource])
            raised[resource] = top - less
            found = still or found
        more = any(raised[resource] > lacking[resource] for resource in raised)
        return remedy("administrator", supposed(raised), found, takers=found.others if more else ())

    def _higher_priority(self) -> Iterator[Remedy]:
        others = [each.spec.priority or 0 for each in self._trial.snapshot.of(Workload) if not each.finished]
        highest = max(others, default=0) + 1
        own = self._begin.workload.spec.priority or 0
        levels = sorted({each + 1 for each in others if each + 1 > own} | ({highest} if highest > own else set()))

        def raised(lower: int) -> Supposed:
            priority = levels[-lower]
            does = words.raise_priority(priority, own)
            return self._begin.of(changes.with_priority(self._begin.workload, priority), does)

        lower, found = most(len(levels), lambda lower: self._trial.admits(raised(lower)))
        if found is not None:
            yield remedy("administrator", raised(lower), found)

    def _ends(self) -> Iterator[Remedy]:
        """The fewest Workloads whose end admits it, as far as leaving out one after another finds them."""
        held = sorted(self._held(_short(self._figures)))[-ENDED:]
        holders = [key for _, key, _ in held]

        def without(names: list[str]) -> Supposed:
            return self._begin.and_(words.wait_for(names), drop=tuple((Workload, name) for name in names))

        if not holders or self._trial.admits(without(holders)) is None:
            return
        for key in sorted(holders, key={key: not enough for _, key, enough in held}.__getitem__):
            if found := self._trial.admits(without([key])):
                yield remedy("time", without([key]), found)
                return
        left = self._fewest(holders, lambda names: self._trial.admits(without(names)) is not None)
        if found := self._trial.admits(without(left)):
            yield remedy("time", without(left), found)

    def _held(self, short: Mapping[tuple[str, str], int]) -> Iterator[tuple[int, str, bool]]:
        """How much Workloads hold of what is short, their keys, and whether it is as much as is lacking."""
        state, _ = self._trial.snapshot.state(self._trial.options, self._trial.now)
        pairs = {state.surroundings.catalog.pair(*pair): lacking for pair, lacking in short.items()}
        for queue in state.cluster_queues.values():
            for key, info in queue.workloads.items():
                amounts = {pair: info.usage.of(pair) for pair in pairs}
                if any(amounts.values()):
                    yield max(amounts.values()), key, any(amounts[pair] >= pairs[pair] for pair in pairs)

    @staticmethod
    def _fewest(names: list[str], enough: Callable[[list[str]], bool]) -> list[str]:
        """Leave out as many as can be, in halves first."""
        chunk = len(names) // 2
        while chunk:
            at = 0
            while at < len(names):
                rest = names[:at] + names[at + chunk :]
                if rest and enough(rest):
                    names = rest
                else:
                    at += chunk
            chunk //= 2
        return names


def _asked(state: State) -> dict[str, int]:
    """The requests of all Workloads that wait, by resource."""
    total: dict[str, int] = {}
    for info in state.queues.waiting.values():
        for item in info.totals:
            for resource, amount in item.requests.items():
                total[resource] = total.get(resource, 0) + amount
    return total


def _unit(state: State, flavor: str, resource: str) -> int:
    """The largest amount of which all quotas, all that is in use, and all requests are multiples."""
    pair = state.surroundings.catalog.pair(flavor, resource)
    nodes = (*(queue.node for queue in state.cluster_queues.values()), *state.ledger.cohorts.values())
    amounts = [held.get(pair, 0) for node in nodes
               for held in (node.nominal, node.usage, node.borrowing_limit, node.lending_limit)]  # fmt: skip
    amounts += [item.requests.get(resource, 0) for info in state.queues.waiting.values() for item in info.totals]
    return gcd(*(amount for amount in amounts if amount < MAX_INT64)) or 1


def _short(figures: Iterable[Figure]) -> dict[tuple[str, str], int]:
    """The lacking amounts, by flavor and resource."""
    found: dict[tuple[str, str], int] = {}
    for each in figures:
        pair = each.flavor, each.resource
        found[pair] = max(found.get(pair, 0), each.requested + each.assumed - each.available)
    return found
