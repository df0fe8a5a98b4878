"""The usage that entries of a cycle took so far, and the usage that their victims will free.

Those processed later see the tree's usage with all of it. Must never be left there: `take_off` ends every cycle, also
one that is left early.
"""

from collections.abc import Callable

from turnstile.engine.cycle.entries import Entry, waits_for_victims
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.preemption.targets import Target
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import Trial
from turnstile.engine.quota.usage import NO_USAGE, Usage
from turnstile.engine.reasons import Mode

Freed = dict[ClusterQueue, Usage]
Counted = list[tuple[ClusterQueue, Usage]]


class _Tree:
    """What was claimed in one tree of cohorts: no other matters to an entry."""

    __slots__ = ("freed", "passing", "preempting", "reserved")

    def __init__(self) -> None:
        self.passing: Counted = []
        """Usage reserved in this cycle for entries that were not admitted."""
        self.reserved: Counted = []
        """The part of it that belongs to heads without preemption candidates."""
        self.preempting: list[Entry] = []
        """Entries that have victims."""
        self.freed: Freed = {}
        """Usage of these victims together."""


class Claims:
    """The claims of one cycle."""

    __slots__ = ("_admitted", "_coming", "_is_evicted", "_leaving", "_trees", "preempted")

    def __init__(self, is_evicted: Callable[[Info], bool]) -> None:
        self._is_evicted = is_evicted
        self._trees: dict[Node, _Tree] = {}
        """The state of each tree, by its root."""
        self._admitted: set[Node] = set()
        """Roots of trees in which anything was admitted so far."""
        self._leaving: Counted = []
        """Usage of admitted Workloads that leave when their replacement is admitted."""
        self._coming: Counted = []
        """Usage of those replacements."""
        self.preempted: dict[str, Target] = {}
        """Victims so far, by key."""

    def _tree(self, queue: ClusterQueue) -> _Tree:
        root = queue.node.root
        found = self._trees.get(root)
        if found is None:
            found = self._trees[root] = _Tree()
        return found

    def reserve(self, queue: ClusterQueue, usage: Usage) -> None:
        """Usage that those after see until the cycle ends, for a head that no preemption helps."""
        self.count(queue, usage)
        self._tree(queue).reserved.append((queue, usage))

    def count(self, queue: ClusterQueue, usage: Usage, *, admitted: bool = False) -> None:
        """Usage that those after see until the cycle ends, or for good if it is of an admission."""
        usage.add_to(queue.node)
        if admitted:
            self._admitted.add(queue.node.root)
        else:
            self._tree(queue).passing.append((queue, usage))

    def replace(self, queue: ClusterQueue, usage: Usage, held: Usage) -> None:
        """What was counted for an admission is not what is held in the end, if anything."""
        self._leaving.append((queue, usage))
        self._coming.append((queue, held))

    def preempt(self, entry: Entry) -> None:
        """Those after it see that its victims are gone, or will be."""
        tree = self._tree(entry.queue)
        tree.preempting.append(entry)
        for target in entry.targets:
            self.preempted[target.info.key] = target
        for queue, freed in entry.targets.freed.items():
            tree.freed.setdefault(queue, Usage({})).include(freed)

    def overlap(self, entry: Entry) -> bool:
        """Whether an earlier entry has a victim of this one."""
        if not self.preempted:
            return False
        if entry.replaced is not None and entry.replaced.info.key in self.preempted:
            return True
        return any(target.info.key in self.preempted for target in entry.targets)

    def fits(self, entry: Entry, pace: Pace) -> Sliced[bool]:
        """Whether the entry fits then, once all victims so far and its own have released their quota; and whether that
        is by its own victims, and leaves enough to the preemptors that came before it in the cycle.

        Kueue asks for the first only. But quota is given when it is free: victims may release more than their preemptor
        needs, and it is in use until then. And the next search of a preemptor counts on its own victims and on what is
        free, not on the victims of others: it would have more Workloads preempted, or find its own to be in vain.
        """
        root = entry.queue.node.root
        tree = self._trees.get(root)
        waits = tree is not None and (tree.preempting or (tree.reserved and waits_for_victims(entry)))
        if not entry.targets and not waits:
            return usage_of(entry).fits(entry.queue.node)
        if not (yield from self.fits_then(entry, pace)):
            return False
        assert entry.assignment is not None
        admits = entry.assignment.mode is Mode.FIT
        doubtful = root in self._admitted or entry.recomputed
        preempts = doubtful and not all(self._is_evicted(target.info) for target in entry.targets)
        if tree is None or not tree.preempting or not (admits or preempts):
            return True  # no Workload is preempted for it that was not before, or it was seen to fit by its own victims
        with Trial() as trial:
            yield from self.without_passing(trial, entry.queue, pace)
            if not (yield from _fits_without(entry.targets.freed, entry, pace)):
                return False
            if admits and len(tree.preempting) > 1:  # alone, it was seen to fit beside this one, its victims gone
                for other in tree.preempting:
                    if (yield from _leaves_short(entry, other, pace)):
                        return False
            return True

    def fits_then(self, entry: Entry, pace: Pace) -> Sliced[bool]:
        """Whether the entry fits once all victims so far and its own, which are others, have released their quota.

        The workload slice that the entry replaces is counted on: only what is asked for beyond that must fit. Kueue
        takes the old one off as well, and so gives the same quota twice if a neighbour borrowed it in the same cycle.
        """
        with Trial() as trial:
            yield from self.free(trial, entry, pace)
            yield from _free(trial, entry.targets.freed, pace)
            return usage_of(entry).fits(entry.queue.node)

    def free(self, trial: Trial, entry: Entry, pace: Pace) -> Sliced[None]:
        """Try how it is for an entry once all victims so far are gone. What a head without candidates keeps for itself
        is kept from those who come new, not from a preemptor for which Workloads were preempted before."""
        tree = self._tree(entry.queue)
        yield from _free(trial, tree.freed, pace)
        if waits_for_victims(entry):
            yield from _take_off(trial, tree.reserved, pace)

    def beside(self, trial: Trial, head: Entry, pace: Pace) -> Sliced[None]:
        """Try how it is with the claim of one head counted as used, and no other: what it needs of its victims' quota
        is counted once, and what it does not need is still theirs."""
        yield from self.without_passing(trial, head.queue, pace)
        usage = usage_of(head)
        needed = usage.copy()
        for queue, freed in head.targets.freed.items():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            trial.remove(queue.node, needed.cover(freed))
        trial.add(head.queue.node, usage)

    def without_passing(self, trial: Trial, queue: ClusterQueue, pace: Pace) -> Sliced[None]:
        """Try how it is in the tree of a ClusterQueue with what was admitted, and without what was counted for this
        cycle only."""
        return _take_off(trial, self._tree(queue).passing, pace)

    def take_off(self, pace: Pace) -> Sliced[None]:
        """Take off what was counted for this cycle only; what was admitted stays, as it will be held. To be begun anew
        if it is left early."""
        for counted, change in (
            *((tree.passing, Usage.remove_from) for tree in self._trees.values()),
            (self._leaving, Usage.remove_from),
            (self._coming, Usage.add_to),
        ):
            while counted:
                queue, usage = counted.pop()
                change(usage, queue.node)
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()


def _leaves_short(entry: Entry, preemptor: Entry, pace: Pace) -> Sliced[bool]:
    """Whether the preemptor, its own victims gone, fits without the entry, and not with it."""
    freed = preemptor.targets.freed
    if not (yield from _fits_without(freed, preemptor, pace)):
        return False
    with Trial() as trial:
        trial.add(entry.queue.node, usage_of(entry))
        return not (yield from _fits_without(freed, preemptor, pace))


def _fits_without(freed: Freed, entry: Entry, pace: Pace) -> Sliced[bool]:
    """Whether the entry fits with so much less in use."""
    with Trial() as trial:
        yield from _free(trial, freed, pace)
        return usage_of(entry).fits(entry.queue.node)


def _take_off(trial: Trial, counted: list[tuple[ClusterQueue, Usage]], pace: Pace) -> Sliced[None]:
    for queue, usage in counted:
        pace.left -= 1
        if pace.left <= 0:
            yield
            pace.renew()
        trial.remove(queue.node, usage)


def _free(trial: Trial, freed: Freed, pace: Pace) -> Sliced[None]:
    for queue, usage in freed.items():
        pace.left -= 1
        if pace.left <= 0:
            yield
            pace.renew()
        trial.remove(queue.node, usage)


def usage_of(entry: Entry) -> Usage:
    """What it would take; nothing if it holds its reservation already."""
    assert entry.assignment is not None
    return NO_USAGE if entry.info.reserved else entry.assignment.usage
