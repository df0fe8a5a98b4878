"""The smallest changes that would admit a pending Workload, each found by asking the engine.

A remedy is offered only if the scheduler's own cycles admit the Workload on a ledger in which the change was made,
while everything else stays as it is: no Workload finishes, and victims of preemption go. Changes that the owner of the
Workload can make come before those that need an administrator. Must never guess.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import gcd
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.quantity import MAX_INT64
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import RequeueState, Workload
from turnstile.engine import Options, State
from turnstile.engine.instants import Instant
from turnstile.engine.quota.amounts import text
from turnstile.engine.quota.tree import available
from turnstile.engine.reasons import Figure
from turnstile.insight import changes
from turnstile.insight.near import Near
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, WhatIf

STEPS: Final = 1024
"""An amount is searched in so many steps at most."""
QUEUES: Final = 50
"""Other LocalQueues that are tried at most, by name."""
OFFERED: Final = 3
"""Other LocalQueues that are offered at most."""
MI: Final = 1 << 20
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
ENDED: Final = 64
"""Workloads that hold quota of which it is tried whether their end helps, at most: those that hold most."""


class Remedy(msgspec.Struct, frozen=True):
    """One change, or several together, after which the Workload is admitted."""

    by: str
    """`owner` of the Workload, or `administrator`."""
    does: str
    """The change, as an imperative sentence."""
    flavors: tuple[dict[str, str], ...] = ()
    """The flavor of each resource that it would get, by pod set."""
    preempts: tuple[str, ...] = ()
    """Workloads that it would preempt."""
    ends: tuple[str, ...] = ()
    """Workloads that would have to end."""
    takers: tuple[str, ...] = ()
    """Of quota that is raised by more than the Workload lacks: the others that are admitted then too."""
    put: tuple[Kind, ...] = ()
    """The objects as they would be, the Workload among them if it would be changed."""


class Supposed(NamedTuple):
    """Objects that are supposed to exist as given, and those that are supposed to be gone."""

    workload: Workload
    put: tuple[Kind, ...] = ()
    drop: tuple[tuple[type[Kind], str], ...] = ()
    does: tuple[str, ...] = ()

    def and_(self, does: str, *put: Kind, drop: tuple[tuple[type[Kind], str], ...] = ()) -> "Supposed":
        """With more of them."""
        return Supposed(self.workload, (*self.put, *put), (*self.drop, *drop), (*self.does, does))

    def pods(self, pod_set: str) -> int:
        """How many pods a pod set has."""
        return next(each.count for each in self.workload.spec.pod_sets if each.name == pod_set)

    def of(self, workload: Workload, does: str) -> "Supposed":
        """With the Workload changed."""
        return Supposed(workload, self.put, self.drop, (*self.does, does))


class _Part(NamedTuple):
    """A resource that is short, as the pods of one pod set ask for it."""

    pod_set: str
    resource: str
    asked: int
    """By each pod."""
    pods: int
    free: int
    """The most that is free of it in one flavor."""

    @property
    def fair(self) -> int:
        """What each of the pods may have of what is free."""
        return min(max(0, self.free) // max(1, self.pods), self.asked - 1)

    @property
    def unit(self) -> int:
        """The amount of which people write whole numbers: bytes of large amounts are given in Mi."""
        return MI if self.resource.startswith(_BYTES) and self.asked >= 4 * MI else 1


class Outcome(NamedTuple):
    """The Workload is admitted."""

    flavors: tuple[dict[str, str], ...]
    preempts: tuple[str, ...]
    others: tuple[str, ...]
    """Workloads that are admitted too, in the order of their admission."""


@dataclass(slots=True)
class Search:
    """Looks for remedies of a Workload that is not admitted, on ledgers of what can decide about it."""

    near: Near
    options: Options
    now: Instant
    workload: Workload
    snapshot: Snapshot = field(init=False)
    """The objects that can decide about the Workload in its present queue."""

    def __post_init__(self) -> None:
        self.snapshot = self.near.of(self.workload)

    def admits(self, supposed: Supposed) -> Outcome | None:
        """How the Workload is admitted with what is supposed; None if it is not."""
        key = supposed.workload.metadata.key
        stays = supposed.workload.spec.queue_name == self.workload.spec.queue_name
        snapshot = self.snapshot if stays else self.near.of(supposed.workload)
        state, _ = snapshot.state(self.options, self.now)
        question = WhatIf(now=self.now, put=(*supposed.put, supposed.workload), drop=supposed.drop)
        last: dict[str, Fate] = {}
        preempts: list[str] = []
        for part in question.answer(state):
            if isinstance(part, Fate):
                last[part.key] = part
                if part.preemptor == key:
                    preempts.append(part.key)
        admitted = {each: fate for each, fate in last.items() if fate.outcome in ("admitted", "reserved")}
        own = admitted.pop(key, None)
        return Outcome(own.flavors, tuple(sorted(preempts)), tuple(admitted)) if own is not None else None

    def remedies(self, figures: Iterable[Figure]) -> Iterator[Remedy]:
        """The remedies, those of the Workload's owner first. `figures` are the amounts that kept it from flavors, if
        any did."""
        begin = self._unstopped(Supposed(self.workload))
        if begin.does and (found := self.admits(begin)):
            by = "administrator" if begin.put else "owner"
            yield _remedy(by, begin, found)
            return
        short = tuple(figures)
        yield from self._by_owner(begin, short)
        yield from self._by_administrator(begin, short)

    def unstopped(self) -> tuple[Workload, tuple[Kind, ...]]:
        """The Workload and its queues, as they are when nothing but quota holds the Workload back."""
        begin = self._unstopped(Supposed(self.workload))
        return begin.workload, begin.put

    def of_owner(self, figures: Iterable[Figure]) -> Iterator[Remedy]:
        """The remedies of the Workload's owner alone."""
        yield from self._by_owner(Supposed(self.workload), tuple(figures))

    # --- what holds a Workload back besides quota ---------------------------------------------------------------------

    def _unstopped(self, given: Supposed) -> Supposed:
        workload = given.workload
        if not workload.spec.active:
            given = given.of(changes.activated(workload), "set spec.active of the Workload to true")
        state = given.workload.status.requeue_state
        if state is not None and state.requeue_at is not None:
            waited = replace(given.workload.status, requeue_state=RequeueState(count=state.count))
            given = Supposed(replace(given.workload, status=waited), given.put, given.drop, given.does)
            given = Supposed(
                given.workload,
                given.put,
                given.drop,
                (*given.does, f"wait until {state.requeue_at}, when its back-off ends"),
            )
        local = self._local_queue(workload)
        if local is None:
            return given
        if local.spec.stop_policy not in (None, "None"):
            open_ = replace(local, spec=replace(local.spec, stop_policy="None"))
            given = given.and_(f"resume LocalQueue {local.metadata.name}: set its stopPolicy to None", open_)
        queue = self._cluster_queue(local)
        if queue is None:
            return given
        if queue.spec.stop_policy not in (None, "None"):
            resumed = replace(queue, spec=replace(queue.spec, stop_policy="None"))
            given = given.and_(f"resume ClusterQueue {queue.metadata.name}: set its stopPolicy to None", resumed)
        for name in self._missing_flavors(queue):
            flavor = ResourceFlavor()
            flavor.metadata.name = name
            given = given.and_(f"create ResourceFlavor {name}", flavor)
        return given

    def _missing_flavors(self, queue: ClusterQueue) -> list[str]:
        named = {flavor.name for group in queue.spec.resource_groups for flavor in group.flavors}
        return sorted(name for name in named if self.snapshot.get(ResourceFlavor, name) is None)

    def _local_queue(self, workload: Workload) -> LocalQueue | None:
        return self.snapshot.get(LocalQueue, f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")

    def _cluster_queue(self, local: LocalQueue | None) -> ClusterQueue | None:
        name = local.spec.cluster_queue if local is not None else None
        return self.snapshot.get(ClusterQueue, name) if name else None

    # --- what the owner can do ----------------------------------------------------------------------------------------

    def _by_owner(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        others = islice(self._other_queues(begin), QUEUES)
        yield from islice((_remedy("owner", each, found) for each in others if (found := self.admits(each))), OFFERED)
        for item in begin.workload.spec.pod_sets:
            yield from self._fewer_pods(begin, item.name, item.count)
        yield from self._smaller_pods(begin, figures)
        free = begin.of(changes.anywhere(begin.workload), "")
        if free.workload != begin.workload and (found := self.admits(free)):
            flavors = sorted({name for each in found.flavors for name in each.values()})
            names = ", ".join(flavors)
            does = f"let its pods run on nodes of flavor {names}: change their node selector, affinity or tolerations"
            yield _remedy("owner", begin.of(free.workload, does), found)

    def _other_queues(self, begin: Supposed) -> Iterator[Supposed]:
        namespace = begin.workload.metadata.namespace
        own = self._local_queue(begin.workload)
        ours = own.spec.cluster_queue if own is not None else None
        for local in self.near.whole.of(LocalQueue):
            if local.metadata.namespace != namespace or local.spec.cluster_queue == ours:
                continue
            name = local.metadata.name
            yield begin.of(changes.in_queue(begin.workload, name), f"submit it to LocalQueue {name}")

    def _fewer_pods(self, begin: Supposed, pod_set: str, count: int) -> Iterator[Remedy]:
        def fewer(number: int) -> Supposed:
            does = f"run {_pods(number)} instead of {count} in pod set {pod_set}"
            return begin.of(changes.with_count(begin.workload, pod_set, number), does)

        number, found = self._most(count - 1, lambda number: self.admits(fewer(number)))
        if found is not None:
            yield _remedy("owner", fewer(number), found)

    def _smaller_pods(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        """Ask for less of one resource; or of all that are short, where less of one is not enough."""
        free = self._free(begin.workload, figures)
        resources = sorted(free)
        parts = [
            _Part(name, resource, amounts[resource], begin.pods(name), free[resource])
            for name, amounts in _asked_by_pod(self, begin.workload).items()
            for resource in resources
            if amounts.get(resource)
        ]
        alone = False
        for part in parts:
            for remedy in self._less_of_one(begin, part):
                alone = True
                yield remedy
        if not alone and len(parts) > 1:
            yield from self._less_of_all(begin, parts)

    def _free(self, workload: Workload, figures: tuple[Figure, ...]) -> dict[str, int]:
        """The most that is free in a flavor of each resource that is short. A search for flavors ends at the first
        resource that is, so `figures` are not all."""
        found: dict[str, int] = {}
        for figure in figures:
            found[figure.resource] = max(found.get(figure.resource, 0), figure.available)
        state, _ = self.snapshot.changed([workload]).state(self.options, self.now)
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

    def _less_of_one(self, begin: Supposed, part: "_Part") -> Iterator[Remedy]:
        """The most of one resource with which it is admitted, as a whole number of units; what is free is tried
        first."""
        unit = part.unit
        number, found = self._most(
            (part.asked - 1) // unit,
            lambda number: self.admits(self._asking(begin, [(part, number * unit)])),
            guess=part.fair // unit,
        )
        if found is not None:
            yield _remedy("owner", self._asking(begin, [(part, number * unit)]), found)

    def _less_of_all(self, begin: Supposed, parts: "list[_Part]") -> Iterator[Remedy]:
        """Ask for what is free of each resource; where that is not enough, for the same part of all of them."""
        fair = [(part, min(part.asked, part.fair // part.unit * part.unit)) for part in parts]
        if all(amount > 0 for _, amount in fair) and (found := self.admits(self._asking(begin, fair))):
            yield _remedy("owner", self._asking(begin, fair), found)
            return
        steps = min(STEPS, max(part.asked for part in parts))

        def amounts(step: int) -> list[tuple[_Part, int]]:
            return [(part, part.asked * step // steps // part.unit * part.unit) for part in parts]

        def asking(step: int) -> Supposed:
            return self._asking(begin, amounts(step))

        step, found = self._most(steps - 1, lambda step: self.admits(asking(step)))
        if found is not None and all(amount for _, amount in amounts(step)):
            yield _remedy("owner", asking(step), found)

    @staticmethod
    def _asking(begin: Supposed, amounts: "list[tuple[_Part, int]]") -> Supposed:
        workload = begin.workload
        told = []
        for part, less in amounts:
            if less < part.asked:
                workload = changes.with_request(workload, part.pod_set, part.resource, (less, part.asked))
                told.append(f"{text(part.resource, less)} {part.resource} instead of {text(part.resource, part.asked)}")
        pod_sets = ", ".join(sorted({part.pod_set for part, less in amounts if less < part.asked}))
        return begin.of(workload, f"ask for {' and '.join(told)} in each pod of pod set {pod_sets}")

    # --- what an administrator can do ---------------------------------------------------------------------------------

    def _by_administrator(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        queue = self._queue_of(begin)
        if queue is None:
            return
        yield from self._more_quota(begin, queue, figures)
        yield from self._higher_priority(begin)
        yield from self._ends(begin, figures)

    def _queue_of(self, begin: Supposed) -> ClusterQueue | None:
        """The ClusterQueue of the Workload as it is supposed to be."""
        queue = self._cluster_queue(self._local_queue(begin.workload))
        if queue is None:
            return None
        name = queue.metadata.name
        return next(
            (each for each in begin.put if isinstance(each, ClusterQueue) and each.metadata.name == name), queue
        )

    def _more_quota(self, begin: Supposed, queue: ClusterQueue, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        """Raise the quota of the first flavor with which that helps."""
        state, _ = self.snapshot.changed([begin.workload]).state(self.options, self.now)
        everything = _asked(state)
        short = _short(figures)
        for group in queue.spec.resource_groups:
            for flavor in group.flavors:
                unit = {resource: _unit(state, flavor.name, resource) for resource in everything}
                most = {resource: amount // unit[resource] for resource, amount in everything.items()}
                lacking = {each: -(-short.get((flavor.name, each), 0) // unit[each]) for each in everything}
                found = self._least_quota(begin, queue, flavor.name, unit, most, lacking)
                if found is not None:
                    yield found
                    return

    def _least_quota(
        self,
        begin: Supposed,
        queue: ClusterQueue,
        flavor: str,
        unit: Mapping[str, int],
        most: Mapping[str, int],
        lacking: Mapping[str, int],
    ) -> Remedy | None:
        """Raise the quota by what is lacking, then by more and more up to `most`, until the Workload is admitted; then
        by less of each resource for as long as it is. Little is tried first: the more there is, the more Workloads the
        engine has to decide about. Numbers are multiples of `unit`."""

        def supposed(numbers: Mapping[str, int]) -> Supposed:
            more = {(flavor, resource): number * unit[resource] for resource, number in numbers.items() if number}
            told = [f"{text(resource, amount)} {resource}" for (_, resource), amount in sorted(more.items())]
            where = f"flavor {flavor} in ClusterQueue {queue.metadata.name}"
            does = f"raise the nominal quota of {where} by {' and '.join(told)}"
            return begin.and_(does, changes.with_quota(queue, more))

        raised = dict(lacking)
        begins = {resource: max(lacking[resource], -(-number // STEPS)) for resource, number in most.items()}
        times = 1
        while (found := self.admits(supposed(raised))) is None:
            if raised == most:
                return None
            times *= 2
            raised = {resource: min(most[resource], times * number) for resource, number in begins.items()}
        for resource in sorted(raised):
            top = raised[resource]

            def with_less(less: int, *, resource: str = resource, top: int = top) -> Outcome | None:
                return self.admits(supposed({**raised, resource: top - less}))

            less, still = self._most(top, with_less, guess=top - lacking[resource])
            raised[resource] = top - less
            found = still or found
        more = any(raised[resource] > lacking[resource] for resource in raised)
        return _remedy("administrator", supposed(raised), found, takers=found.others if more else ())

    def _higher_priority(self, begin: Supposed) -> Iterator[Remedy]:
        others = [each.spec.priority or 0 for each in self.snapshot.of(Workload) if not each.finished]
        highest = max(others, default=0) + 1
        own = begin.workload.spec.priority or 0
        levels = sorted({each + 1 for each in others if each + 1 > own} | ({highest} if highest > own else set()))

        def raised(lower: int) -> Supposed:
            priority = levels[-lower]
            does = f"give it a priority of {priority} or more (it has {own})"
            return begin.of(changes.with_priority(begin.workload, priority), does)

        lower, found = self._most(len(levels), lambda lower: self.admits(raised(lower)))
        if found is not None:
            yield _remedy("administrator", raised(lower), found)

    def _ends(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        """The fewest Workloads whose end admits it, as far as leaving out one after another finds them."""
        held = sorted(self._held(_short(figures)))[-ENDED:]
        holders = [key for _, key, _ in held]

        def without(names: list[str]) -> Supposed:
            what = "1 Workload" if len(names) == 1 else f"{len(names)} Workloads"
            does = f"wait for the end of {what}"
            return begin.and_(does, drop=tuple((Workload, name) for name in names))

        if not holders or self.admits(without(holders)) is None:
            return
        for key in sorted(holders, key={key: not enough for _, key, enough in held}.__getitem__):
            if found := self.admits(without([key])):
                yield _remedy("administrator", without([key]), found)
                return
        left = self._fewest(holders, lambda names: self.admits(without(names)) is not None)
        if found := self.admits(without(left)):
            yield _remedy("administrator", without(left), found)

    def _held(self, short: Mapping[tuple[str, str], int]) -> Iterator[tuple[int, str, bool]]:
        """How much Workloads hold of what is short, their keys, and whether it is as much as is lacking."""
        state, _ = self.snapshot.state(self.options, self.now)
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

    @staticmethod
    def _most(limit: int, admits: Callable[[int], Outcome | None], *, guess: int = 0) -> tuple[int, Outcome | None]:
        """The largest number from 1 to `limit` with which the Workload is admitted, if it is with all below, and how;
        0 and None if there is none. A good guess spares trials."""
        low, high, found = 0, limit, None
        guesses = iter((guess, guess + 1))
        while low < high:
            middle = next((each for each in guesses if low < each <= high), (low + high + 1) // 2)
            if outcome := admits(middle):
                low, found = middle, outcome
            else:
                high = middle - 1
        return low, found


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


def _asked_by_pod(search: Search, workload: Workload) -> dict[str, dict[str, int]]:
    """The requests of one pod of each pod set, in the engine's units."""
    state, _ = search.snapshot.changed([workload]).state(search.options, search.now)
    info = state.queues.waiting.get(workload.metadata.key)
    if info is None:
        return {}
    return {
        item.name: {resource: -(-amount // item.count) for resource, amount in item.requests.items()}
        for item in info.totals
        if item.count
    }


def _remedy(by: str, supposed: Supposed, found: Outcome, *, takers: tuple[str, ...] = ()) -> Remedy:
    ends = tuple(key for kind, key in supposed.drop if kind is Workload)
    put = (*supposed.put, supposed.workload)
    return Remedy(by, "; ".join(supposed.does), found.flavors, found.preempts, ends, takers, put)


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
