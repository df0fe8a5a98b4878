"""The smallest changes that would admit a pending Workload, each found by asking the engine.

A remedy is offered only if the scheduler's own cycles admit the Workload on a ledger in which the change was made.
Changes that the owner of the Workload can make come before those that need an administrator.
"""

from collections.abc import Iterable, Iterator

from turnstile.engine.reasons import Figure
from turnstile.insight.remedies.administrator import Administrator
from turnstile.insight.remedies.owner import Owner
from turnstile.insight.remedies.trial import Remedy, Supposed, Trial, remedy

__all__ = ["Remedy", "Supposed", "Trial", "of_owner", "remedies"]


def remedies(trial: Trial, figures: Iterable[Figure]) -> Iterator[Remedy]:
    """The remedies, those of the Workload's owner first. `figures` are the amounts that kept it from flavors, if any
    did."""
    begin = trial.unstopped()
    if begin.does and (found := trial.admits(begin)):
        yield remedy("administrator" if begin.put else "owner", begin, found)
        return
    short = tuple(figures)
    yield from Owner(trial, begin, short).remedies()
    yield from Administrator(trial, begin, short).remedies()


def of_owner(trial: Trial, figures: Iterable[Figure]) -> Iterator[Remedy]:
    """The remedies of the Workload's owner alone."""
    yield from Owner(trial, Supposed(trial.workload), tuple(figures)).remedies()
