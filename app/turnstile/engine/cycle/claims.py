"""The usage that entries of a cycle took so far, and the usage that their victims will free.

Those processed later see the tree's usage with all of it. Must never be left there: `take_off` ends every cycle, also
one that is left early.
"""

from collections.abc import Callable, Mapping

from turnstile.engine.cycle.entries import Entry, usage_of, waits_for_victims
from turnstile.engine.cycle.promises import Promises
from turnstile.engine.pace import Pace, Sliced, discard
from turnstile.engine.preemption.targets import Target
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import Trial, View
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import Mode

Counted = list[tuple[ClusterQueue, Usage]]


class _Tree:
    """Claims in one tree of cohorts: those of other trees do not matter to an entry."""

    __slots__ = ("freed", "freed_unreserved", "passing", "promises", "reserves", "staying")

    def __init__(self) -> None:
        self.passing: Counted = []
        """Usage that is counted until the cycle ends, for entries that were not admitted."""
        self.reserves = False
        """Whether some of that usage belongs to heads without candidates."""
        self.promises = Promises()
        """Entries that have victims."""
        self.staying: View | None = None
        """Usage as it would be without `passing`, where that differs."""
        self.freed: View | None = None
        """Usage as it would be without the victims of all entries so far, where that differs."""
        self.freed_unreserved: View | None = None
        """The same, and without what heads without candidates reserve, where that differs."""

    def after_victims(self, entry: Entry) -> View | None:
        """Usage as it would be for an entry once all victims so far have gone. The reservation of a head without
        candidates is kept from new entries, not from a preemptor for which Workloads were preempted before."""
        return self.freed_unreserved if self.reserves and waits_for_victims(entry) else self.freed


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
        tree = self._tree(queue)
        if not tree.reserves:
            tree.reserves = True
            tree.freed_unreserved = tree.freed.copy() if tree.freed is not None else View()
        assert tree.freed_unreserved is not None
        tree.freed_unreserved.keep(queue.node, usage)
        self._pass(tree, queue, usage)
        if tree.freed is not None:
            tree.freed.add(queue.node, usage)
        usage.add_to(queue.node)

    def count(self, queue: ClusterQueue, usage: Usage, *, admitted: bool = False) -> None:
        """Usage that those after see until the cycle ends, or for good if it is of an admission."""
        tree = self._tree(queue)
        if admitted:
            self._admitted.add(queue.node.root)
            tree.promises.admitted(queue.node, usage, tree.staying)
            if tree.staying is not None:
                tree.staying.add(queue.node, usage)
        else:
            self._pass(tree, queue, usage)
        for view in (tree.freed, tree.freed_unreserved):
            if view is not None:
                view.add(queue.node, usage)
        usage.add_to(queue.node)

    @staticmethod
    def _pass(tree: _Tree, queue: ClusterQueue, usage: Usage) -> None:
        """Count usage that does not stay, in the list of what is to be taken off and in no view of what stays."""
        tree.passing.append((queue, usage))
        if tree.staying is None:
            tree.staying = View()
        tree.staying.keep(queue.node, usage)

    def replace(self, queue: ClusterQueue, usage: Usage, held: Usage) -> None:
        """Replace the usage counted for an admission by the usage that is held in the end, if any is."""
        self._leaving.append((queue, usage))
        self._coming.append((queue, held))

    def preempt(self, entry: Entry, pace: Pace) -> Sliced[None]:
        """Those after it see that its victims are gone, or will be."""
        tree = self._tree(entry.queue)
        tree.promises.add(entry)
        for target in entry.targets:
            pace.left -= 0.25
            if pace.left <= 0:
                yield
                pace.renew()
            self.preempted[target.info.key] = target
        if tree.freed is None:
            tree.freed = View()
        for view in (tree.freed, tree.freed_unreserved):
            if view is not None:
                for queue, freed in entry.targets.freed.items():
                    pace.left -= 3
                    if pace.left <= 0:
                        yield
                        pace.renew()
                    view.remove(queue.node, freed)

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
        waits = tree is not None and (len(tree.promises) > 0 or (tree.reserves and waits_for_victims(entry)))
        if not entry.targets and not waits:
            return usage_of(entry).fits(entry.queue.node)
        if not (yield from self.fits_then(entry, pace)):
            return False
        assert entry.assignment is not None
        admits = entry.assignment.mode is Mode.FIT
        doubtful = root in self._admitted or entry.recomputed
        preempts = doubtful and not all(self._is_evicted(target.info) for target in entry.targets)
        if tree is None or not len(tree.promises) or not (admits or preempts):
            return True  # no Workload is preempted for it that was not before, or it was seen to fit by its own victims
        if not (yield from _fits_without(entry.targets.freed, entry, tree.staying, pace)):
            return False
        if admits and len(tree.promises) > 1:  # alone, it was seen to fit beside this one, its victims gone
            return (yield from tree.promises.leave_room(entry, tree.staying, pace))
        return True

    def fits_then(self, entry: Entry, pace: Pace) -> Sliced[bool]:
        """Whether the entry fits once all victims so far and its own, which are others, have released their quota.

        The workload slice that the entry replaces is counted on: only what is asked for beyond that must fit. Kueue
        takes the old one off as well, and so gives the same quota twice if a neighbour borrowed it in the same cycle.
        """
        return _fits_without(entry.targets.freed, entry, self._tree(entry.queue).after_victims(entry), pace)

    def freed(self, entry: Entry) -> Trial:
        """A trial of how it is for an entry once all victims so far are gone."""
        return Trial(self._tree(entry.queue).after_victims(entry))

    def staying(self, queue: ClusterQueue) -> Trial:
        """A trial of how it is in the tree of a ClusterQueue with what was admitted, and without what was counted for
        this cycle only. It shows that ClusterQueue."""
        trial = Trial(self._tree(queue).staying)
        trial.show(queue.node)
        return trial

    def beside(self, trial: Trial, head: Entry, pace: Pace) -> Sliced[None]:
        """Add the claim of one head to a trial of what stays: what it needs of its victims' quota is counted once, and
        what it does not need is still theirs."""
        usage = usage_of(head)
        needed = usage.copy()
        for queue, freed in head.targets.freed.items():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            trial.remove(queue.node, needed.cover(freed))
        trial.add(head.queue.node, usage)

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
        for tree in self._trees.values():
            for view in (tree.staying, tree.freed, tree.freed_unreserved):
                if view is not None:
                    yield from discard(view.usage, pace)
            yield from tree.promises.discard(pace)
        yield from discard(self.preempted, pace)


def _fits_without(freed: Mapping[ClusterQueue, Usage], entry: Entry, view: View | None, pace: Pace) -> Sliced[bool]:
    """Whether the entry fits in that view with so much less in use."""
    with Trial(view) as trial:
        trial.show(entry.queue.node)
        yield from trial.remove_all(freed, pace)
        fits = usage_of(entry).fits(entry.queue.node)
        yield from trial.undo(pace)
        return fits
