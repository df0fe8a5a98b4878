"""What the entries of a cycle took so far, and what their victims will free.

Those processed later see the tree's usage with all of it. Must never be left there: `take_off` ends every cycle, also
one that is left early.
"""

from typing import Any

from app.engine.cycle.entries import Entry, borrows_freely, ranks_below
from app.engine.pace import Pace, Sliced, finish
from app.engine.preemption.targets import Target
from app.engine.quota import tree
from app.engine.quota.amounts import Amounts
from app.engine.quota.clusterqueue import ClusterQueue
from app.engine.quota.ledger import Ledger
from app.engine.quota.trial import Trial


class Claims:
    """The claims of one cycle."""

    __slots__ = ("_coming", "_leaving", "_ledger", "_passing", "_preempting", "freed", "preempted")

    def __init__(self, ledger: Ledger[Any]) -> None:
        self._ledger = ledger
        self._passing: list[tuple[ClusterQueue, Amounts]] = []
        """Counted, and of no admission."""
        self._leaving: list[tuple[ClusterQueue, Amounts]] = []
        """Counted as of an admission, and yet not to stay."""
        self._coming: list[tuple[ClusterQueue, Amounts]] = []
        """What is held in its place."""
        self.preempted: dict[str, Target] = {}
        """Victims so far, by key."""
        self._preempting: list[Entry] = []
        """For whom."""
        self.freed: dict[ClusterQueue, Amounts] = {}
        """What they hold together."""

    def count(self, queue: ClusterQueue, usage: Amounts, *, admitted: bool = False) -> None:
        """Usage that those after see until the cycle ends, or for good if it is of an admission."""
        if self._ledger.journal is not None:
            self._ledger.keep_usage(queue)
        tree.add_all(queue.node, usage)
        if not admitted:
            self._passing.append((queue, usage))

    def replace(self, queue: ClusterQueue, usage: Amounts, held: Amounts) -> None:
        """What was counted for an admission is not what is held in the end, if anything."""
        self._leaving.append((queue, usage))
        self._coming.append((queue, held))

    def preempt(self, entry: Entry) -> None:
        """Those after it see that its victims are gone, or will be."""
        self._preempting.append(entry)
        for target in entry.targets:
            self.preempted[target.info.key] = target
        for queue, amounts in entry.targets.freed.items():
            total = self.freed.setdefault(queue, {})
            for pair, amount in amounts.items():
                total[pair] = total.get(pair, 0) + amount

    def overlap(self, entry: Entry) -> bool:
        """Whether an earlier entry has a victim of this one."""
        if not self.preempted:
            return False
        if entry.replaced is not None and entry.replaced.info.key in self.preempted:
            return True
        return any(target.info.key in self.preempted for target in entry.targets)

    def fits(self, entry: Entry) -> bool:
        """Whether the entry fits once all victims so far and its own, which are others, are gone."""
        if not entry.targets and not self.preempted:
            return tree.fits(entry.queue.node, usage_of(entry))
        return finish(self.fitting(entry, Pace()))

    def fitting(self, entry: Entry, pace: Pace) -> Sliced[bool]:
        """As `fits`, in slices.

        The workload slice that it replaces is counted on: only what is asked for beyond that must fit. Kueue takes the
        old one off as well, and so gives the same quota twice if a neighbour borrowed it in the same cycle.
        """
        with Trial() as trial:
            yield from self.free(trial, pace)
            yield from _free(trial, entry.targets.freed, pace)
            return tree.fits(entry.queue.node, usage_of(entry))

    def free(self, trial: Trial, pace: Pace) -> Sliced[None]:
        """Try how it is once all victims so far are gone."""
        return _free(trial, self.freed, pace)

    def beside(self, trial: Trial, head: Entry, pace: Pace) -> Sliced[None]:
        """Try how it is with the claim of one head counted as used, and no other: what it needs of its victims' quota
        is counted once, and what it does not need is still theirs."""
        yield from self.without_passing(trial, pace)
        usage = usage_of(head)
        needed = usage.copy()
        for queue, amounts in head.targets.freed.items():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            taken = {pair: min(amount, needed[pair]) for pair, amount in amounts.items() if needed.get(pair, 0) > 0}
            for pair, amount in taken.items():
                needed[pair] -= amount
            trial.remove(queue.node, taken)
        trial.add(head.queue.node, usage)

    def fits_beside_victims(self, entry: Entry, pace: Pace) -> Sliced[bool]:
        """Whether the entry fits while the victims of others still run and those others do not yet.

        Victims may free more than their preemptor needs. Kueue gives the rest away in the same cycle, and is over quota
        until the victims are gone; here quota is given when it is free.

        Nor may it take what is free now from a preemptor that would be short then, with its own victims gone. In the
        end there may be room for all, where the victims of another free more than is asked for; but not knowing that,
        the preemptor would have it, or a third one, preempted for what it took.
        """
        with Trial() as trial:
            yield from self.without_passing(trial, pace)
            if not tree.fits(entry.queue.node, usage_of(entry)):
                return False
            if len(self._preempting) > 1:  # alone, it was seen to fit beside this one, its victims gone
                for other in self._preempting:
                    if _gives_way(entry, other) and (yield from _leaves_short(entry, other, pace)):
                        return False
            return True

    def fits_by_its_own(self, entry: Entry, pace: Pace) -> Sliced[bool]:
        """Whether a preemptor fits once its own victims are gone, whatever those of others leave.

        Somebody may have been let in before it in the cycle. Kueue has its victims preempted also if it is only by the
        victims of another that there is room for it; the next search does not count on those, and finds it in vain.
        """
        with Trial() as trial:
            yield from self.without_passing(trial, pace)
            yield from _free(trial, entry.targets.freed, pace)
            return tree.fits(entry.queue.node, usage_of(entry))

    def without_passing(self, trial: Trial, pace: Pace) -> Sliced[None]:
        """Try how it is with what was admitted, and without what was counted for this cycle only."""
        for queue, usage in self._passing:
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            trial.remove(queue.node, usage)

    def take_off(self, pace: Pace) -> Sliced[None]:
        """Take off what was counted for this cycle only; what was admitted stays, as it will be held. To be begun anew
        if it is left early."""
        for counted, change in (
            (self._passing, tree.remove_all),
            (self._leaving, tree.remove_all),
            (self._coming, tree.add_all),
        ):
            while counted:
                queue, usage = counted.pop()
                change(queue.node, usage)
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()


def _gives_way(entry: Entry, preemptor: Entry) -> bool:
    """Whether an entry is let in only if that leaves enough to the preemptor: having made way for it, or borrowing."""
    chosen = preemptor.queue.pending.chosen if preemptor.preemptor else ()
    return any(key == entry.info.key for key, _ in chosen) or (borrows_freely(entry) and ranks_below(entry, preemptor))


def _leaves_short(entry: Entry, preemptor: Entry, pace: Pace) -> Sliced[bool]:
    """Whether the preemptor, with its own victims gone, fits without the entry, and not with it."""
    node, usage = preemptor.queue.node, usage_of(preemptor)
    with Trial() as trial:
        yield from _free(trial, preemptor.targets.freed, pace)
        if not tree.fits(node, usage):
            return False
        trial.add(entry.queue.node, usage_of(entry))
        return not tree.fits(node, usage)


def _free(trial: Trial, freed: dict[ClusterQueue, Amounts], pace: Pace) -> Sliced[None]:
    for queue, amounts in freed.items():
        pace.left -= 1
        if pace.left <= 0:
            yield
            pace.renew()
        trial.remove(queue.node, amounts)


def usage_of(entry: Entry) -> Amounts:
    """What it would take; nothing if it holds its reservation already."""
    assert entry.assignment is not None
    return {} if entry.info.reserved else entry.assignment.usage
