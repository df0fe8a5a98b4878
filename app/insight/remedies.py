"""The smallest changes that would admit a pending Workload, each found by asking the engine.

A remedy is offered only if the scheduler's own cycles admit the Workload on a ledger in which the change was made,
while everything else stays as it is: no Workload finishes, and victims of preemption go. Changes that the owner of the
Workload can make come before those that need an administrator. Must never guess.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from app.api.clusterqueue import ClusterQueue
from app.api.localqueue import LocalQueue
from app.api.meta import Kind
from app.api.resourceflavor import ResourceFlavor
from app.api.workload import RequeueState, Workload
from app.engine import Options
from app.engine.instants import Instant
from app.engine.quota.amounts import text
from app.engine.reasons import Figure
from app.insight import changes
from app.insight.snapshot import Snapshot
from app.insight.whatif import Fate, WhatIf

STEPS: Final = 1024
"""An amount is searched in so many steps at most."""
ENDED: Final = 200
"""Workloads that hold quota of which it is tried whether their end helps, at most."""


class Remedy(msgspec.Struct, frozen=True):
    """One change, or several together, after which the Workload is admitted."""

    by: str
    """`owner` of the Workload, or `administrator`."""
    does: str
    """What to change, as an imperative sentence."""
    flavors: tuple[dict[str, str], ...] = ()
    """The flavor of each resource that it would get, by pod set."""
    preempts: tuple[str, ...] = ()
    """Workloads that it would preempt."""
    ends: tuple[str, ...] = ()
    """Workloads that would have to end."""
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

    def of(self, workload: Workload, does: str) -> "Supposed":
        """With the Workload changed."""
        return Supposed(workload, self.put, self.drop, (*self.does, does))


class Outcome(NamedTuple):
    """The Workload is admitted."""

    flavors: tuple[dict[str, str], ...]
    preempts: tuple[str, ...]


@dataclass(slots=True)
class Search:
    """Looks for remedies on copies of a snapshot."""

    snapshot: Snapshot
    options: Options
    now: Instant
    trials: int = 0
    """Ledgers that were built and asked."""

    def admits(self, supposed: Supposed) -> Outcome | None:
        """How the Workload is admitted with what is supposed; None if it is not."""
        self.trials += 1
        key = supposed.workload.metadata.key
        state, _ = self.snapshot.state(self.options, self.now)
        question = WhatIf(now=self.now, put=(*supposed.put, supposed.workload), drop=supposed.drop)
        last: Fate | None = None
        preempts: list[str] = []
        for part in question.answer(state):
            if isinstance(part, Fate):
                if part.key == key:
                    last = part
                if part.preemptor == key:
                    preempts.append(part.key)
        if last is None or last.outcome not in ("admitted", "reserved"):
            return None
        return Outcome(last.flavors, tuple(sorted(preempts)))

    def remedies(self, workload: Workload, figures: Iterable[Figure]) -> Iterator[Remedy]:
        """The remedies of a Workload that is not admitted, those of its owner first. `figures` are the amounts that
        kept it from flavors, if any did."""
        begin = self._unstopped(Supposed(workload))
        if begin.does and (found := self.admits(begin)):
            by = "administrator" if begin.put else "owner"
            yield _remedy(by, begin, found)
            return
        short = tuple(figures)
        yield from self._by_owner(begin, short)
        yield from self._by_administrator(begin, short)

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
        for supposed in self._other_queues(begin):
            if found := self.admits(supposed):
                yield _remedy("owner", supposed, found)
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
        for local in self.snapshot.of(LocalQueue):
            if local.metadata.namespace != namespace or local.spec.cluster_queue == ours:
                continue
            name = local.metadata.name
            yield begin.of(changes.in_queue(begin.workload, name), f"submit it to LocalQueue {name}")

    def _fewer_pods(self, begin: Supposed, pod_set: str, count: int) -> Iterator[Remedy]:
        def with_count(number: int) -> Supposed:
            does = f"run {_pods(number)} instead of {count} in pod set {pod_set}"
            return begin.of(changes.with_count(begin.workload, pod_set, number), does)

        number = self._most(count - 1, lambda number: self.admits(with_count(number)) is not None)
        if number:
            supposed = with_count(number)
            if found := self.admits(supposed):
                yield _remedy("owner", supposed, found)

    def _smaller_pods(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        """Ask for less of one resource; or of all that are short, where less of one is not enough."""
        resources = sorted({figure.resource for figure in figures})
        asked = _asked_by_pod(self, begin.workload)
        alone = False
        for pod_set, amounts in asked.items():
            for resource in resources:
                for remedy in self._less(begin, [(pod_set, resource, amounts.get(resource, 0))]):
                    alone = True
                    yield remedy
        every = [
            (name, resource, amounts[resource])
            for name, amounts in asked.items()
            for resource in resources
            if amounts.get(resource)
        ]
        if not alone and len(every) > 1:
            yield from self._less(begin, every)

    def _less(self, begin: Supposed, parts: list[tuple[str, str, int]]) -> Iterator[Remedy]:
        parts = [part for part in parts if part[2] > 0]
        if not parts:
            return
        steps = min(STEPS, max(amount for _, _, amount in parts))

        def asking(step: int) -> Supposed:
            workload = begin.workload
            told = []
            for pod_set, resource, amount in parts:
                workload = changes.with_request(workload, pod_set, resource, (step, steps))
                less = amount * step // steps
                told.append(f"{text(resource, less)} {resource} instead of {text(resource, amount)}")
            names = sorted({name for name, _, _ in parts})
            does = f"ask for {' and '.join(told)} in each pod of pod set {', '.join(names)}"
            return begin.of(workload, does)

        step = self._most(steps - 1, lambda step: self.admits(asking(step)) is not None)
        if step:
            supposed = asking(step)
            if found := self.admits(supposed):
                yield _remedy("owner", supposed, found)

    # --- what an administrator can do ---------------------------------------------------------------------------------

    def _by_administrator(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        queue = self._queue_of(begin)
        if queue is None:
            return
        yield from self._more_quota(begin, queue)
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

    def _more_quota(self, begin: Supposed, queue: ClusterQueue) -> Iterator[Remedy]:
        """Raise the quota of the flavor that needs least: by what all that wait in the tree ask for at most, then by
        less of each resource for as long as that is enough."""
        limit = self._all_asked(begin.workload)
        for group in queue.spec.resource_groups:
            for flavor in group.flavors:
                found = self._least_quota(begin, queue, flavor.name, limit)
                if found is not None:
                    yield found
                    return

    def _least_quota(
        self, begin: Supposed, queue: ClusterQueue, flavor: str, limit: Mapping[str, int]
    ) -> Remedy | None:
        raised = dict(limit)

        def supposed(amounts: Mapping[str, int]) -> Supposed:
            more = {(flavor, resource): amount for resource, amount in amounts.items() if amount}
            told = [f"{text(resource, amount)} {resource}" for (_, resource), amount in sorted(more.items())]
            where = f"flavor {flavor} in ClusterQueue {queue.metadata.name}"
            does = f"raise the nominal quota of {where} by {' and '.join(told)}"
            return begin.and_(does, changes.with_quota(queue, more))

        if self.admits(supposed(raised)) is None:
            return None
        for resource in sorted(raised):
            top = raised[resource]

            def enough(less: int, *, resource: str = resource, top: int = top) -> bool:
                return self.admits(supposed({**raised, resource: top - less})) is not None

            raised[resource] = top - self._most(top, enough)
        last = supposed(raised)
        found = self.admits(last)
        return _remedy("administrator", last, found) if found is not None else None

    def _all_asked(self, workload: Workload) -> dict[str, int]:
        total: dict[str, int] = {}
        state, _ = self.snapshot.changed([workload]).state(self.options, self.now)
        for info in state.waiting.values():
            for item in info.totals:
                for resource, amount in item.requests.items():
                    total[resource] = total.get(resource, 0) + amount
        return total

    def _higher_priority(self, begin: Supposed) -> Iterator[Remedy]:
        others = [each.spec.priority or 0 for each in self.snapshot.of(Workload) if not each.finished]
        highest = max(others, default=0) + 1
        own = begin.workload.spec.priority or 0
        levels = sorted({each + 1 for each in others if each + 1 > own} | ({highest} if highest > own else set()))
        at = self._most(len(levels), lambda skipped: skipped < len(levels) and self._with(begin, levels[-1 - skipped]))
        if levels and (found := self.admits(supposed := self._raised(begin, levels[-1 - at]))):
            yield _remedy("administrator", supposed, found)

    def _raised(self, begin: Supposed, priority: int) -> Supposed:
        does = f"give it a priority of {priority} or more (it has {begin.workload.spec.priority or 0})"
        return begin.of(changes.with_priority(begin.workload, priority), does)

    def _with(self, begin: Supposed, priority: int) -> bool:
        return self.admits(self._raised(begin, priority)) is not None

    def _ends(self, begin: Supposed, figures: tuple[Figure, ...]) -> Iterator[Remedy]:
        """The fewest Workloads whose end admits it, as far as leaving out one after another finds them."""
        pairs = {(figure.flavor, figure.resource) for figure in figures}
        state, _ = self.snapshot.state(self.options, self.now)
        catalog = state.surroundings.catalog
        keys = (
            [
                (max(info.usage.quota.get(catalog.pair(*pair), 0) for pair in pairs), key)
                for queue in state.cluster_queues.values()
                for key, info in queue.workloads.items()
            ]
            if pairs
            else []
        )
        holders = [key for amount, key in sorted(keys, key=lambda item: (item[0], item[1])) if amount][:ENDED]

        def without(names: list[str]) -> Supposed:
            what = "1 Workload" if len(names) == 1 else f"{len(names)} Workloads"
            does = f"wait for the end of {what}"
            return begin.and_(does, drop=tuple((Workload, name) for name in names))

        if not holders or self.admits(without(holders)) is None:
            return
        single = [[key] for key in holders]
        for one in single:
            if found := self.admits(without(one)):
                yield _remedy("administrator", without(one), found)
                return
        left = self._fewest(holders, lambda names: self.admits(without(names)) is not None)
        if found := self.admits(without(left)):
            yield _remedy("administrator", without(left), found)

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
    def _most(limit: int, enough: Callable[[int], bool]) -> int:
        """The largest number from 0 to `limit` that is enough, if all below the largest are; 0 if none is."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if enough(middle):
                low = middle
            else:
                high = middle - 1
        return low


def _asked_by_pod(search: Search, workload: Workload) -> dict[str, dict[str, int]]:
    """What one pod of each pod set asks for, in the engine's units."""
    state, _ = search.snapshot.changed([workload]).state(search.options, search.now)
    info = state.waiting.get(workload.metadata.key)
    if info is None:
        return {}
    return {
        item.name: {resource: -(-amount // item.count) for resource, amount in item.requests.items()}
        for item in info.totals
        if item.count
    }


def _remedy(by: str, supposed: Supposed, found: Outcome) -> Remedy:
    ends = tuple(key for kind, key in supposed.drop if kind is Workload)
    return Remedy(by, "; ".join(supposed.does), found.flavors, found.preempts, ends, (*supposed.put, supposed.workload))


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
