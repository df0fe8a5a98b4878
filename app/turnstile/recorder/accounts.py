"""Accounts: what was held over time, by queue, namespace, user and flavor: amount-seconds between two instants. Pure.

- *reserved*: quota that was reserved for Workloads.
- *used*: of it, while the Workload was admitted.
- *idle*: of what was reserved, while no pod of the Workload ran, waits for admission checks included.
- *borrowed*: of what was reserved, above the nominal quota that the ClusterQueue had at the time; the Workloads that
  hold quota in a ClusterQueue at a time borrow in proportion to what they hold.
- *lent*: quota of a ClusterQueue or Cohort that others borrowed, by the rule of `engine.quota.lending`.
- *preempted*: of what was reserved, by attempts that ended by preemption.

All change at instants only, so the integral is a sum over the time between two of them: exact but for rounding.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from turnstile.engine.instants import Instant
from turnstile.engine.quota.tree import Node
from turnstile.recorder.facts import Pair, Quota
from turnstile.recorder.holdings import Holding
from turnstile.recorder.quotatree import Tree
from turnstile.recorder.scope import EVERYTHING, Scope

By = Literal["cluster_queue", "local_queue", "namespace", "user", "flavor"]
UNKNOWN: Final = ""
"""The user of Workloads without a label that tells."""


class Account(NamedTuple):
    """Whose usage it is. A lender has neither namespace nor LocalQueue nor user."""

    cluster_queue: str
    local_queue: str
    namespace: str
    user: str
    flavor: str
    resource: str


@dataclass(slots=True)
class Figures:
    """Amount-seconds, in milli for cpu and base units otherwise; `lent` is None where it has no meaning."""

    reserved: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    borrowed: float = 0.0
    lent: float | None = None
    preempted: float = 0.0

    def add(self, other: "Figures") -> None:
        """Add others to these."""
        self.reserved += other.reserved
        self.used += other.used
        self.idle += other.idle
        self.borrowed += other.borrowed
        self.preempted += other.preempted
        if other.lent is not None:
            self.lent = (self.lent or 0.0) + other.lent


@dataclass(slots=True)
class _Cell:
    """The holdings of one ClusterQueue in one flavor and resource. `share` is the integral of the part of it that is
    borrowed: who holds an amount for a while borrowed the amount times the growth of `share`."""

    held: int = 0
    share: float = 0.0
    since: Instant = 0.0

    def advance(self, now: Instant, borrowed: int) -> None:
        """Let time pass, in which nothing changed."""
        if borrowed:
            self.share += borrowed / self.held * (now - self.since)
        self.since = now


@dataclass(slots=True)
class _Pool:
    """The loans below one root of one flavor and resource; `over` are the ClusterQueues that borrow."""

    since: Instant
    over: set[str] = field(default_factory=set)
    rates: dict[Node, float] = field(default_factory=dict)


def accounts(
    holdings: Iterable[Holding],
    quotas: Sequence[Quota],
    since: Instant,
    until: Instant,
    *,
    user_label: str = "",
    scope: Scope = EVERYTHING,
) -> dict[Account, Figures]:
    """The accounts of all that was held between two instants. `quotas` are in order of time. The user of a Workload is
    what its label says. Only what a scope shows has an account, but all that was held decides how much was borrowed;
    lenders have one if everything is shown."""
    held = [each for each in holdings if each.begin < until and (each.end is None or each.end > since)]
    return _Sweep(quotas, since, until, user_label, scope).run(held)


class _Sweep:
    """Goes through all changes in order of time."""

    def __init__(self, quotas: Sequence[Quota], since: Instant, until: Instant, user_label: str, scope: Scope) -> None:
        self._since, self._until = since, until
        self._user_label = user_label
        self._scope = scope
        self._tree = Tree()
        self._cells: dict[tuple[str, Pair], _Cell] = {}
        self._pools: dict[tuple[Node, Pair], _Pool] = {}
        self._found: dict[Account, Figures] = defaultdict(Figures)
        self._dirty: set[tuple[Node, Pair]] = set()
        """Pools of which the rates are to be computed anew before time goes on."""
        self._tree.put(*(quota for quota in quotas if quota.at <= since))
        self._quotas = [quota for quota in quotas if since < quota.at < until]

    def run(self, held: Sequence[Holding]) -> dict[Account, Figures]:
        """The accounts."""
        changes: list[tuple[Instant, int, int]] = []  # when; 0 an end, 1 a quota, 2 a beginning; of which
        for number, each in enumerate(held):
            changes.append((max(each.begin, self._since), 2, number))
            changes.append((self._until if each.end is None else min(each.end, self._until), 0, number))
        changes += [(quota.at, 1, number) for number, quota in enumerate(self._quotas)]
        changes.sort()
        shares: dict[int, list[float]] = {}
        before = self._since
        for now, what, number in changes:
            if now > before:
                self._lend_anew()
                before = now
            if what == 1:
                self._change_quota(self._quotas[number], now)
            else:
                self._change_holding(held[number], number, shares, now, ends=what == 0)
        self._lend_anew()
        for key, pool in self._pools.items():
            self._lend(key, pool, self._until)
        return dict(self._found)

    def _change_holding(
        self, each: Holding, number: int, shares: dict[int, list[float]], now: Instant, *, ends: bool
    ) -> None:
        queue = each.cluster_queue
        seconds = now - max(each.begin, self._since) if ends else 0.0
        begun = shares.pop(number) if ends else []
        for index, (pair, amount) in enumerate(each.usage.items()):
            cell = self._cell(queue, pair, now)
            if ends:
                borrowed = amount * (cell.share - begun[index])
                self._count(each, pair, amount * seconds, borrowed)
            else:
                begun.append(cell.share)
            more = -amount if ends else amount
            cell.held += more
            self._tree.use(queue, pair, more)
            self._pool(queue, pair, now)
        if not ends:
            shares[number] = begun

    def _count(self, each: Holding, pair: Pair, reserved: float, borrowed: float) -> None:
        workload = each.workload
        if not self._scope.shows(workload.namespace, workload.created):
            return
        user = workload.labels.get(self._user_label, UNKNOWN) if self._user_label else UNKNOWN
        local_queue = f"{workload.namespace}/{workload.local_queue}"
        account = Account(each.cluster_queue, local_queue, workload.namespace, user, *pair)
        self._found[account].add(
            Figures(
                reserved=reserved,
                used=reserved if each.admitted else 0.0,
                idle=reserved if each.idle else 0.0,
                borrowed=borrowed,
                preempted=reserved if each.preempted else 0.0,
            )
        )

    def _cell(self, queue: str, pair: Pair, now: Instant) -> _Cell:
        """The cell as of now."""
        cell = self._cells.setdefault((queue, pair), _Cell(since=now))
        cell.advance(now, self._tree.borrowed(queue, pair))
        return cell

    # --- what is lent -------------------------------------------------------------------------------------------------

    def _change_quota(self, quota: Quota, now: Instant) -> None:
        for queue, pair in self._cells:
            self._cell(queue, pair, now)
        for key, pool in self._pools.items():
            self._lend(key, pool, now)
        self._pools.clear()
        self._dirty.clear()
        held: dict[str, dict[Pair, int]] = defaultdict(dict)
        for (queue, pair), cell in self._cells.items():
            held[queue][pair] = cell.held
        self._tree.put(quota, held=held)
        for queue, pair in self._cells:
            self._pool(queue, pair, now)

    def _pool(self, queue: str, pair: Pair, now: Instant) -> None:
        """A ClusterQueue holds another amount, or another quota holds."""
        root = self._tree.root(queue)
        if root is None:
            return
        key = root, pair
        pool = self._pools.setdefault(key, _Pool(since=now))
        self._lend(key, pool, now)
        if self._tree.borrowed(queue, pair):
            pool.over.add(queue)
        else:
            pool.over.discard(queue)
        self._dirty.add(key)

    def _lend_anew(self) -> None:
        for root, pair in self._dirty:
            pool = self._pools[root, pair]
            pool.rates = self._tree.lent(root, pair) if pool.over else {}
        self._dirty.clear()

    def _lend(self, key: tuple[Node, Pair], pool: _Pool, now: Instant) -> None:
        """Let time pass, in which the same was lent."""
        seconds, pool.since = now - pool.since, now
        if not self._scope.whole:
            return
        for node, rate in pool.rates.items():
            lender = node.name if node.is_queue else f"cohort {node.name}"
            self._found[Account(lender, "", "", UNKNOWN, *key[1])].add(Figures(lent=rate * seconds))


def summed(found: Mapping[Account, Figures], by: Sequence[By]) -> dict[tuple[str, ...], Figures]:
    """The figures by some of the fields of an account, and by resource, in order. A loan belongs to no namespace,
    LocalQueue and user: it is summed by ClusterQueue and flavor only."""
    lends = set(by) <= {"cluster_queue", "flavor"}
    total: dict[tuple[str, ...], Figures] = {}
    for account, figures in found.items():
        if not account.namespace and not lends:
            continue
        key = (*(str(getattr(account, name)) for name in by), account.resource)
        sums = total.setdefault(key, Figures(lent=0.0 if lends else None))
        sums.add(figures)
    return {key: total[key] for key in sorted(total)}
