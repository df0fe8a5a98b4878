"""Which clusters a Workload is nominated for: all at once, a few more each round, or one that has room. Pure, but for
the times of rounds.

A further way is that another controller writes `status.nominatedClusterNames`; then nothing is nominated here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

from turnstile.api.config.defaults import ALL_AT_ONCE, FIT, INCREMENTAL
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.fit import Fit, Outlook
from turnstile.controllers.multikueue.situation import Remote
from turnstile.jobs.options import MultiKueueOptions

ROUND_SECONDS: Final = 300.0
"""Between two rounds of the incremental dispatcher, as in Kueue."""
FIT_SECONDS: Final = 30.0
"""Until one more cluster is nominated by its room, if the best has not admitted the Workload."""
MOST: Final = 20
"""Clusters that a Workload can be nominated for."""


NO_OUTLOOKS: Final[Mapping[str, Outlook]] = MappingProxyType({})


class Rounds:
    """When the last clusters were nominated for each Workload, by uid. A new leader waits a whole round again."""

    def __init__(self) -> None:
        self._begun: dict[str, datetime] = {}

    def left(self, workload: Workload, now: datetime, seconds: float = ROUND_SECONDS) -> float:
        """Seconds until the next round of a Workload; a round takes so many."""
        uid = workload.metadata.uid
        if not workload.status.nominated_cluster_names:
            self._begun.pop(uid, None)
            return 0.0
        begun = self._begun.setdefault(uid, now)
        return max(0.0, seconds - (now - begun).total_seconds())

    def begin(self, workload: Workload, now: datetime) -> None:
        """The next clusters are nominated now."""
        self._begun[workload.metadata.uid] = now

    def forget(self, workload: Workload) -> None:
        """The Workload waits for no cluster any more."""
        self._begun.pop(workload.metadata.uid, None)


def nominees(
    workload: Workload,
    offered: Sequence[str],
    remotes: Mapping[str, Remote],
    options: MultiKueueOptions,
    *,
    due: bool,
    outlooks: Mapping[str, Outlook] = NO_OUTLOOKS,
) -> list[str] | None:
    """The clusters to nominate; None if another controller does. `offered` are those of the configuration, in its
    order; `due` if the next round has come. `outlooks` are those of clusters that can take the Workload at all."""
    present = list(workload.status.nominated_cluster_names)
    offered = [name for name in offered if not _taken(remotes.get(name))] or offered
    if options.dispatcher == ALL_AT_ONCE:
        # A cluster that is not heard of for a moment stays nominated: its copy would be made anew in vain.
        usable = sorted(name for name in offered if _usable(remotes.get(name), known=name in present))[:MOST]
        return present if set(usable) == set(present) else usable
    if options.dispatcher == FIT:
        return by_room(present, offered, outlooks, due=due)[:MOST]
    if options.dispatcher != INCREMENTAL:
        return None
    kept = [name for name in present if name in offered]
    if not due:
        return kept
    order = offered if options.in_config_order else sorted(offered)
    more = [name for name in order if name not in kept and not _lacks(remotes.get(name))]
    return [*kept, *more[: options.step]][:MOST]


def by_room(present: Sequence[str], offered: Sequence[str], outlooks: Mapping[str, Outlook], *, due: bool) -> list[str]:
    """The cluster with the best outlook, and later others: at once where one has room and none of the present has, else
    one each round. No nomination is taken back while the Workload keeps its quota."""
    order = sorted(
        (name for name in offered if name in outlooks and outlooks[name].fit is not Fit.NEVER),
        key=lambda name: (outlooks[name], offered.index(name)),
    )
    kept = [name for name in present if name in offered]
    more = next((name for name in order if name not in kept), None)
    if more is None:
        return kept
    has_room = any(name in outlooks and outlooks[name].fit is Fit.NOW for name in kept)
    better = outlooks[more].fit is Fit.NOW and not has_room
    return [*kept, more] if not kept or better or due else kept


def _usable(remote: Remote | None, *, known: bool) -> bool:
    return remote is not None and not remote.lacks and (remote.connected or known)


def _taken(remote: Remote | None) -> bool:
    return remote is not None and bool(remote.taken)


def _lacks(remote: Remote | None) -> bool:
    return remote is not None and bool(remote.lacks)
