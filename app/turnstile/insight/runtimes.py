"""How long Workloads run: the run times that were seen, by what Workloads have in common, as distributions.

A Workload's group says its queue, its priority class, the kind of its owner and the value of a label of the user's
choice. Runs of the same group count, and beside them, the less the more there are of these, runs of a coarser group: as
if the group were like some of the groups in it (a Dirichlet process over groups). Runs that are under way count too, as
longer than they lasted so far (the Kaplan-Meier estimator): otherwise the long ones would be missing. Nothing is made
up beyond the longest run that ended. Pure; chance comes in as an argument.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.engine.instants import Instant

LEAST: Final = 10
"""Runs that must have ended, of a group or of a coarser one, so that anything is told."""
LONGER: Final = 3
"""So many runs of a coarser group must have lasted longer than a run that is under way has until now."""
MOST: Final = 200
"""The latest runs of a group that count."""
PRIOR: Final = 4.0
"""So many runs of its own weigh as much as a coarser group."""
ALIKE: Final = 0.5
"""How evenly a group may be like those of a coarser one: the smaller, the more it is like a single one of them."""
ENDLESS: Final = float("inf")
"""Longer than any run that was seen to its end."""


class Group(NamedTuple):
    """The key that similar Workloads share."""

    queue: str = ""
    """Namespace and LocalQueue."""
    priority_class: str = ""
    kind: str = ""
    label: str = ""


class Run(NamedTuple):
    """A run of a Workload: it lasted so long, or does so far if it has not `ended`."""

    group: Group
    seconds: float
    ended: bool = True


_COARSER: Final[tuple[tuple[str, ...], ...]] = (
    ("queue", "priority_class", "kind", "label"),
    ("queue", "kind", "label"),
    ("queue", "label"),
    ("label",),
    ("queue", "priority_class", "kind"),
    ("queue", "kind"),
    ("queue",),
    ("kind",),
    (),
)
"""Which parts of a group are looked at, the finest first. The label comes last to be given up: users choose it because
it tells what a Workload does."""


class Distribution:
    """How long runs of one group last, with weights for the runs that were seen."""

    __slots__ = ("_survival", "_times")

    def __init__(self, runs: Sequence[tuple[float, bool]], weights: Sequence[float]) -> None:
        """From runs in the order of their length, of equal ones those that ended first."""
        self._times: list[float] = [next((seconds for seconds, ended in runs if ended), 0.0)]
        self._survival: list[float] = [1.0]
        longer = [*accumulate(reversed(weights), initial=0.0)][::-1]  # the weight of each and all longer ones, then 0
        for number, (seconds, ended) in enumerate(runs):
            if ended:
                self._times.append(seconds)
                left = longer[number + 1] / longer[number] if longer[number] else 0.0
                self._survival.append(self._survival[-1] * left)

    def draw(self, lots: Random, *, elapsed: float = 0.0) -> float:
        """How long a run lasts in all that has lasted so long already; ENDLESS past what was seen."""
        level = lots.random() * self._surviving(elapsed)
        if elapsed >= self._times[-1] or level < self._survival[-1]:
            return ENDLESS
        at = bisect_left(self._survival, -level, key=lambda each: -each)  # the first time at which so few are left
        begin = max(self._times[at - 1], elapsed) if at else elapsed
        return begin + lots.random() * (self._times[at] - begin)

    def _surviving(self, elapsed: float) -> float:
        """The part of all runs that last longer; between two times that were seen, it falls evenly."""
        at = bisect_right(self._times, elapsed)
        if at == 0:
            return 1.0
        if at >= len(self._times):
            return self._survival[-1]
        begin, end = self._times[at - 1], self._times[at]
        part = (elapsed - begin) / (end - begin) if end > begin else 1.0
        return self._survival[at - 1] + part * (self._survival[at] - self._survival[at - 1])


class Runs:
    """The latest runs of a group, the shortest first, and what they have in common."""

    __slots__ = ("_ends", "common", "ended", "runs")

    def __init__(self, common: str, runs: Iterable[Run]) -> None:
        self.common = common
        self.runs = tuple(sorted(runs, key=_length))
        self._ends = [each.seconds for each in self.runs if each.ended]
        self.ended = len(self._ends)

    def __str__(self) -> str:
        return f"{self.ended} {'run' if self.ended == 1 else 'runs'} of {self.common}"

    def longer(self, elapsed: float) -> int:
        """How many runs lasted longer, and were seen to their end."""
        return self.ended - bisect_right(self._ends, elapsed)


class Sample(NamedTuple):
    """The runs that tell how long a Workload runs: those of its own group, and those of a coarser one with more."""

    group: Group
    own: Runs
    coarser: Runs | None

    def __str__(self) -> str:
        return " and ".join(str(each) for each in (self.own, self.coarser) if each is not None and each.ended)

    def distribution(self, lots: Random) -> Distribution:
        """One that the runs make likely: each weighs at random (the Bayesian bootstrap), and so does each group of the
        coarser one, so that few runs leave much open."""
        weighed = [(run, lots.expovariate(1.0)) for run in self.own.runs]
        if self.coarser is not None:
            alike: dict[Group, float] = {}
            others = []
            for run in self.coarser.runs:
                if run.group == self.group:
                    continue
                if run.group not in alike:
                    alike[run.group] = lots.gammavariate(ALIKE, 1.0)
                others.append((run, alike[run.group] * lots.expovariate(1.0)))
            total = sum(weight for _, weight in others)
            share = lots.gammavariate(PRIOR, 1.0) / total if total else 0.0
            weighed += [(run, weight * share) for run, weight in others]
            weighed.sort(key=lambda each: _length(each[0]))
        return Distribution([(run.seconds, run.ended) for run, _ in weighed], [weight for _, weight in weighed])


class RunTimes:
    """All run times that were seen, in the order in which the runs ended or were looked at."""

    def __init__(self, runs: Iterable[Run], *, least: int = LEAST) -> None:
        self._least = least
        self._groups: list[dict[tuple[str, ...], list[Run]]] = [defaultdict(list) for _ in _COARSER]
        self._found: dict[Group, tuple[Runs, list[Runs]]] = {}
        self.ended = 0
        for run in runs:
            self.ended += run.ended
            for parts, held in zip(_COARSER, self._groups, strict=True):
                held[_part(run.group, parts)].append(run)

    def sample(self, group: Group, *, elapsed: float = 0.0) -> Sample | None:
        """The runs that tell how long a Workload of a group runs that has run so long already; None if too few do."""
        found = self._found.get(group)
        if found is None:
            own = Runs(*self._latest(group, _COARSER[0]))
            found = self._found[group] = own, list(self._coarser(group, own))
        own, others = found
        longer = (each for each in others if each.longer(elapsed) >= LONGER)
        coarser = next(longer, others[0] if others else None)
        return Sample(group, own, coarser) if coarser is not None or own.ended >= self._least else None

    def _coarser(self, group: Group, own: Runs) -> Iterator[Runs]:
        """The runs of coarser groups with enough of them, and more than it has of its own; the finest first."""
        for parts in _COARSER[1:]:
            if "label" in parts and not group.label:
                continue
            found = Runs(*self._latest(group, parts))
            if found.ended >= self._least and found.ended > own.ended:
                yield found

    def _latest(self, group: Group, parts: tuple[str, ...]) -> tuple[str, list[Run]]:
        """The latest runs of Workloads that have these parts of a group in common, and a name for them."""
        held = self._groups[_COARSER.index(parts)].get(_part(group, parts), [])
        written = [part for part in parts if part != "label" or group.label]
        common = ", ".join(f"{part.replace('_', ' ')} {getattr(group, part) or 'none'}" for part in written)
        return common or "all Workloads", held[-MOST:]


def _length(run: Run) -> tuple[float, bool]:
    """The order of runs: of equal ones, those that ended come first."""
    return run.seconds, not run.ended


def _part(group: Group, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(group, part) for part in parts)


# --- from Workloads ---------------------------------------------------------------------------------------------------


def group_of(workload: Workload, label: str = "") -> Group:
    """The group of a Workload; `label` is looked for on the Workload, then on its pods."""
    spec, meta = workload.spec, workload.metadata
    ref = spec.priority_class_ref
    owner = meta.controller or next(iter(meta.owner_references), None)
    value = meta.labels.get(label, "") if label else ""
    if label and not value:
        metas = [each.template.metadata for each in spec.pod_sets]
        value = next((found for each in metas if each is not None and (found := each.labels.get(label))), "")
    return Group(
        queue=f"{meta.namespace}/{spec.queue_name or ''}",
        priority_class=ref.name if ref is not None else "",
        kind=owner.kind if owner is not None else "",
        label=value,
    )


def started(workload: Workload) -> Instant | None:
    """When the current run of a Workload began: its admission. None if it does not run."""
    admitted = find_condition(workload.status.conditions, wl.ADMITTED)
    if admitted is None or admitted.status != "True":
        return None
    since = instant(admitted.last_transition_time)
    return since.timestamp() if since is not None else None


def runs_of(workloads: Iterable[Workload], now: Instant, label: str = "") -> list[Run]:
    """The runs of Workloads that have finished or run now, in the order in which they ended."""
    found: list[tuple[Instant, Run]] = []
    for each in workloads:
        begin = started(each)
        if begin is None:
            continue
        finished = find_condition(each.status.conditions, wl.FINISHED) if each.finished else None
        end = instant(finished.last_transition_time) if finished is not None else None
        last = end.timestamp() if end is not None else now
        if last >= begin and (end is not None or not each.evicted):
            found.append((last, Run(group_of(each, label), last - begin, ended=end is not None)))
    return [run for _, run in sorted(found, key=lambda each: each[0])]
