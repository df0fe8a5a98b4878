"""The changes that the owner of a Workload can make, the smallest of each kind. Must never guess."""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine.quota.tree import available
from turnstile.engine.reasons import Figure
from turnstile.insight import changes
from turnstile.insight.remedies.trial import STEPS, Remedy, Supposed, Trial, most, remedy
from turnstile.wording import remedies as words
from turnstile.wording.remedies import Less
from turnstile.wording.workloads import written

QUEUES: Final = 50
"""Other LocalQueues that are tried at most, by name."""
OFFERED: Final = 3
"""Other LocalQueues that are offered at most."""
MI: Final = 1 << 20
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")


class _Part(NamedTuple):
    """A resource that is short, as the pods of one pod set ask for it."""

    pod_set: str
    resource: str
    asked: int
    """By each pod."""
    pods: int
    free: int
    """The most that is free of it in one flavor."""
    written: str
    """The amount as the owner wrote it."""

    @property
    def fair(self) -> int:
        """Free amount that each of the pods may have."""
        return min(max(0, self.free) // max(1, self.pods), self.asked - 1)

    @property
    def unit(self) -> int:
        """The amount of which people write whole numbers: bytes of large amounts are given in Mi."""
        return MI if self.resource.startswith(_BYTES) and self.asked >= 4 * MI else 1


class Owner:
    """The search for remedies of a Workload's owner, with `begin` supposed besides."""

    def __init__(self, trial: Trial, begin: Supposed, figures: tuple[Figure, ...]) -> None:
        self._trial = trial
        self._begin = begin
        self._figures = figures
        self._written = written(begin.workload)

    def remedies(self) -> Iterator[Remedy]:
        """All of them, the easiest first."""
        others = islice(self._other_queues(), QUEUES)
        yield from islice(
            (remedy("owner", each, found) for each in others if (found := self._trial.admits(each))), OFFERED
        )
        for item in self._begin.workload.spec.pod_sets:
            yield from self._fewer_pods(item.name, item.count)
        yield from self._smaller_pods()
        free = self._begin.of(changes.anywhere(self._begin.workload), "")
        if free.workload != self._begin.workload and (found := self._trial.admits(free)):
            flavors = sorted({name for each in found.flavors for name in each.values()})
            yield remedy("owner", self._begin.of(free.workload, words.run_on(flavors)), found)

    def _other_queues(self) -> Iterator[Supposed]:
        namespace = self._begin.workload.metadata.namespace
        own = self._trial.local_queue(self._begin.workload)
        ours = own.spec.cluster_queue if own is not None else None
        for local in self._trial.near.whole.of(LocalQueue):
            if local.metadata.namespace != namespace or local.spec.cluster_queue == ours:
                continue
            name = local.metadata.name
            yield self._begin.of(changes.in_queue(self._begin.workload, name), words.submit_to(name))

    def _fewer_pods(self, pod_set: str, count: int) -> Iterator[Remedy]:
        def fewer(number: int) -> Supposed:
            does = words.fewer_pods(number, count, pod_set if len(self._begin.workload.spec.pod_sets) > 1 else "")
            return self._begin.of(changes.with_count(self._begin.workload, pod_set, number), does)

        number, found = most(count - 1, lambda number: self._trial.admits(fewer(number)))
        if found is not None:
            yield remedy("owner", fewer(number), found)

    def _smaller_pods(self) -> Iterator[Remedy]:
        """Ask for less of one resource; or of all that are short, where less of one is not enough."""
        free = self._free()
        resources = sorted(free)
        parts = [
            _Part(
                name,
                resource,
                amounts[resource],
                self._begin.pods(name),
                free[resource],
                self._written.get(resource, ""),
            )
            for name, amounts in _asked_by_pod(self._trial, self._begin.workload).items()
            for resource in resources
            if amounts.get(resource)
        ]
        alone = False
        for part in parts:
            for found in self._less_of_one(part):
                alone = True
                yield found
        if not alone and len(parts) > 1:
            yield from self._less_of_all(parts)

    def _free(self) -> dict[str, int]:
        """The most that is free in a flavor of each resource that is short. A search for flavors ends at the first
        resource that is, so the figures are not all."""
        found: dict[str, int] = {}
        workload = self._begin.workload
        for figure in self._figures:
            found[figure.resource] = max(found.get(figure.resource, 0), figure.available)
        state, _ = self._trial.snapshot.changed([workload]).state(self._trial.options, self._trial.now)
        info = state.queues.waiting.get(workload.metadata.key)
        queue = state.cluster_queues.get(info.cluster_queue) if info is not None else None
        if info is None or queue is None or state.ledger.cyclic(queue.node):
            return found
        state.ledger.settle()
        for item in info.totals:
            for resource, amount in item.requests.items():
                group = queue.group_of.get(resource)
                if group is None or resource in found:
                    continue
                pairs = [state.surroundings.catalog.pair(flavor, resource) for flavor in group.flavors]
                free = max((available(queue.node, pair) for pair in pairs), default=0)
                if amount > free:
                    found[resource] = max(0, free)
        return found

    def _less_of_one(self, part: _Part) -> Iterator[Remedy]:
        """The most of one resource with which it is admitted, as a whole number of units; what is free is tried
        first."""
        unit = part.unit
        number, found = most(
            (part.asked - 1) // unit,
            lambda number: self._trial.admits(self._asking([(part, number * unit)])),
            guess=part.fair // unit,
        )
        if found is not None:
            yield remedy("owner", self._asking([(part, number * unit)]), found)

    def _less_of_all(self, parts: list[_Part]) -> Iterator[Remedy]:
        """Ask for what is free of each resource; where that is not enough, for the same part of all of them."""
        fair = [(part, min(part.asked, part.fair // part.unit * part.unit)) for part in parts]
        if all(amount > 0 for _, amount in fair) and (found := self._trial.admits(self._asking(fair))):
            yield remedy("owner", self._asking(fair), found)
            return
        steps = min(STEPS, max(part.asked for part in parts))

        def amounts(step: int) -> list[tuple[_Part, int]]:
            return [(part, part.asked * step // steps // part.unit * part.unit) for part in parts]

        def asking(step: int) -> Supposed:
            return self._asking(amounts(step))

        step, found = most(steps - 1, lambda step: self._trial.admits(asking(step)))
        if found is not None and all(amount for _, amount in amounts(step)):
            yield remedy("owner", asking(step), found)

    def _asking(self, amounts: list[tuple[_Part, int]]) -> Supposed:
        workload = self._begin.workload
        several = len(workload.spec.pod_sets) > 1
        smaller = []
        for part, less in amounts:
            if less < part.asked:
                workload = changes.with_request(workload, part.pod_set, part.resource, (less, part.asked))
                pod_set = part.pod_set if several else ""
                smaller.append(Less(pod_set, part.resource, less, part.asked, part.written))
        return self._begin.of(workload, words.ask_for_less(smaller))


def _asked_by_pod(trial: Trial, workload: Workload) -> dict[str, dict[str, int]]:
    """The requests of one pod of each pod set, in the engine's units."""
    state, _ = trial.snapshot.changed([workload]).state(trial.options, trial.now)
    info = state.queues.waiting.get(workload.metadata.key)
    if info is None:
        return {}
    return {
        item.name: {resource: -(-amount // item.count) for resource, amount in item.requests.items()}
        for item in info.totals
        if item.count
    }
