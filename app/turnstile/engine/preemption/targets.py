"""Workloads to preempt, and what is asked of a set of them: what it frees, and which of its members are not needed.

Must never choose candidates: that is for `turnstile.engine.preemption.search` and the searches it runs.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from turnstile.engine.pace import Pace, Sliced, discard
from turnstile.engine.preemption.candidates import Candidate
from turnstile.engine.quota.trial import PLACE, Trial
from turnstile.engine.quota.usage import Usage

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info


class Target(Struct, gc=False, eq=False):
    """A workload to preempt, the queue it holds quota in, and why."""

    info: "Info"
    queue: "ClusterQueue"
    reason: str


class Targets(list[Target]):
    """Workloads to preempt, in the order they are reported. `freed` is what they hold together, by queue: to take that
    off the ledger is the same as to take off one after the other."""

    __slots__ = ("freed",)

    def __init__(self, targets: Iterable[Target] = ()) -> None:
        super().__init__(targets)
        self.freed: dict[ClusterQueue, Usage] = {}


NO_TARGETS: Final = Targets()
"""Not to be changed."""

NO_VICTIMS: Mapping[str, Target] = {}


def held_by_queue(whose: "list[Target] | list[Candidate]", pace: Pace) -> "Sliced[dict[ClusterQueue, Usage]]":
    """Usage of several workloads together, by queue."""
    held: dict[ClusterQueue, Usage] = {}
    for each in whose:
        usage = each.info.usage
        pace.left -= 1 if usage.places is None else 1 + len(usage.places)
        if pace.left <= 0:
            yield
            pace.renew()
        total = held.get(each.queue)
        if total is None:
            held[each.queue] = usage.copy()
        else:
            total.include(usage)
    return held


def helps(queue: "ClusterQueue", requests: Usage, candidates: list[Candidate], pace: Pace) -> Sliced[bool]:
    """Whether requests would fit with all candidates gone; if not, no search is needed."""
    held = yield from held_by_queue(candidates, pace)
    with Trial() as trial:
        yield from trial.remove_all(held, pace)
        fits = requests.fits(queue.node)
        yield from trial.undo(pace)
    yield from discard(held, pace)
    return fits


def fill_back(
    queue: "ClusterQueue", requests: Usage, targets: list[Target], trial: Trial, pace: Pace, *, borrow: bool
) -> Sliced[None]:
    """Give back victims that are not needed, the latest first. The last one is always needed. The order of what is
    left follows Kueue: the last takes the place of one that is given back."""
    cost = 1 + 2 * requests.size
    for index in range(len(targets) - 2, -1, -1):
        pace.left -= cost
        if pace.left <= 0:
            yield
            pace.renew()
        target = targets[index]
        usage = target.info.usage
        if usage.places is not None:
            pace.left -= 2 * PLACE * len(usage.places)
        trial.add(target.queue.node, usage)
        if requests.fits(queue.node, borrow=borrow):
            targets[index] = targets[-1]
            targets.pop()
        else:
            trial.remove(target.queue.node, usage)
