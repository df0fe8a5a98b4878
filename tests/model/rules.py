"""The rules of preemption and of the tournament once more: word for word, without any shortcut, and slow.

What the engine is held against. A pair is (flavor, resource), amounts are in the engine's units, a world is small.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.model.quota import Limits, Tree

Pair = tuple[str, str]
Usage = dict[Pair, int]
Share = tuple[bool, float]
"""Whether it is infinite, and how much it is."""


@dataclass(frozen=True, eq=False)
class Held:
    """A workload that holds quota. `since` is when it got it, `stood` since when it stood in line."""

    uid: str
    queue: str
    priority: int
    since: int
    stood: int
    evicted: bool
    usage: Usage


@dataclass(frozen=True)
class Policy:
    """Preemption policy of a queue; `threshold` is maxPriorityThreshold."""

    within: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    threshold: int | None = None


@dataclass(frozen=True)
class Head:
    """A workload that waits."""

    uid: str
    queue: str
    priority: int
    stood: int
    usage: Usage


Quota = tuple[int, int | None, int | None]
"""Nominal, borrowing limit, lending limit."""


def allowed(policy: str, above: int, *, older: bool) -> bool:
    """Whether a policy lets a head preempt a Workload whose priority is so much lower (KEP-83); `older` says that the
    head has waited since before that Workload did."""
    match policy:
        case "Any":
            return True
        case "LowerPriority":
            return above > 0
        case "LowerOrNewerEqualPriority":
            return above > 0 or (above == 0 and older)
        case _:
            return False


@dataclass
class Plain:
    """A tree and who holds quota in it. `parents` names every node; `policies` every queue."""

    parents: dict[str, str | None]
    quotas: dict[str, dict[Pair, Quota]]
    weights: dict[str, float]
    policies: dict[str, Policy]
    held: list[Held]
    extra: dict[tuple[str, Pair], int] = field(default_factory=dict)
    _trees: dict[Pair, Tree] = field(default_factory=dict, repr=False, compare=False)

    # Quota

    def children(self, node: str) -> list[str]:
        """By name."""
        return sorted(name for name, parent in self.parents.items() if parent == node)

    def ancestors(self, node: str) -> Iterator[str]:
        """Nearest first."""
        above = self.parents[node]
        while above is not None:
            yield above
            above = self.parents[above]

    def nominal(self, node: str, pair: Pair) -> int:
        """Nominal quota of a node itself."""
        return self.quotas[node].get(pair, (0,))[0]

    def tree(self, pair: Pair) -> Tree:
        """Quota of a pair."""
        if pair not in self._trees:
            self._trees[pair] = Tree(
                {
                    name: Limits(
                        *quota.get(pair, (0, None, None)), parent=self.parents[name], queue=name in self.policies
                    )
                    for name, quota in self.quotas.items()
                }
            )
        return self._trees[pair]

    def usage(self, pair: Pair) -> dict[str, int]:
        """Amounts in use, by ClusterQueue."""
        found: dict[str, int] = {}
        for item in self.held:
            found[item.queue] = found.get(item.queue, 0) + item.usage.get(pair, 0)
        for (queue, other), amount in self.extra.items():
            if other == pair:
                found[queue] = found.get(queue, 0) + amount
        return found

    def used(self, node: str, pair: Pair) -> int:
        """Usage of a ClusterQueue, or of a Cohort."""
        return self.tree(pair).used(node, self.usage(pair))

    def room(self, node: str, pair: Pair) -> int:
        """How much a node may still take; may be negative."""
        return self.tree(pair).room(node, self.usage(pair))

    def borrows_with(self, node: str, pair: Pair, amount: int) -> bool:
        """Whether so much more is past its quota."""
        return self.tree(pair).borrows(node, self.usage(pair), more=amount)

    def within(self, node: str, pairs: set[Pair]) -> bool:
        """Whether no usage is past its quota."""
        return not any(self.borrows_with(node, pair, 0) for pair in pairs)

    def fits_in_quota(self, node: str, asked: Usage) -> tuple[bool, Usage]:
        """Whether an amount is within the quota of a node, and how much of it goes further up."""
        good = not any(self.borrows_with(node, pair, amount) for pair, amount in asked.items())
        left = {pair: amount - self.tree(pair).spare(node, self.usage(pair)) for pair, amount in asked.items()}
        return good, {pair: max(0, amount) for pair, amount in left.items()}

    # Preemption

    def candidates(self, queue: str, policy: str, head: Head, pairs: set[Pair]) -> list[Held]:
        """Workloads of a ClusterQueue that the head may preempt."""
        return [
            item
            for item in self.held
            if item.queue == queue
            and pairs & item.usage.keys()
            and allowed(policy, head.priority - item.priority, older=head.stood < item.stood)
        ]

    @staticmethod
    def order(own: str) -> Callable[[Held], tuple[bool, bool, int, int, str]]:
        """Who is taken first."""
        return lambda item: (not item.evicted, item.queue == own, item.priority, -item.since, item.uid)

    def fits(self, queue: str, asked: Usage, *, borrow: bool) -> bool:
        """Whether there is room now."""
        return all(
            self.tree(pair).fits(queue, amount, self.usage(pair), borrow=borrow) for pair, amount in asked.items()
        )

    def fill_back(self, head: Head, taken: list[tuple[Held, str]], *, borrow: bool) -> list[tuple[str, str]]:
        """Give back who is not needed."""
        for index in range(len(taken) - 2, -1, -1):
            item = taken[index][0]
            self.held.append(item)
            if self.fits(head.queue, head.usage, borrow=borrow):
                taken[index] = taken[-1]
                taken.pop()
            else:
                self.held.remove(item)
        return [(item.uid, reason) for item, reason in taken]

    def victims(self, head: Head, pairs: set[Pair]) -> list[tuple[str, str]]:
        """Classical preemption."""
        everybody = list(self.held)
        for borrow, ordered in self._attempts(head, pairs):
            self.held = list(everybody)
            taken: list[tuple[Held, str]] = []
            for item, variant, lca in ordered:
                if variant != "own" and not self._valid(item, variant, lca, pairs, borrow=borrow):
                    continue
                self.held.remove(item)
                taken.append((item, REASONS[variant]))
                if self.fits(head.queue, head.usage, borrow=borrow):
                    found = self.fill_back(head, taken, borrow=borrow)
                    self.held = everybody
                    return found
        self.held = everybody
        return []

    def _valid(self, item: Held, variant: str, lca: str, pairs: set[Pair], *, borrow: bool) -> bool:
        if (borrow and variant == "without borrowing") or self.within(item.queue, pairs):
            return False
        for above in self.ancestors(item.queue):
            if above == lca:
                return True
            if self.within(above, pairs):
                return False
        raise AssertionError("the common ancestor is above")

    def _attempts(self, head: Head, pairs: set[Pair]) -> "list[tuple[bool, list[tuple[Held, str, str]]]]":
        policy, order = self.policies[head.queue], self.order(head.queue)
        own = [(item, "own", "") for item in self.candidates(head.queue, policy.within, head, pairs)]
        by_right: list[tuple[Held, str, str]] = []
        by_priority: list[tuple[Held, str, str]] = []
        advantage, rest = self.fits_in_quota(head.queue, head.usage)
        previous = head.queue
        for root in self.ancestors(head.queue) if policy.reclaim != "Never" else ():
            for queue in self._reachable(root, previous, pairs):
                for item in self.candidates(queue, policy.reclaim, head, pairs):
                    if advantage:
                        by_right.append((item, "by right", root))
                        continue
                    above = policy.threshold is not None and item.priority > policy.threshold
                    without = policy.borrow == "Never" or item.priority >= head.priority or above
                    by_priority.append((item, "without borrowing" if without else "while borrowing", root))
            good, rest = self.fits_in_quota(root, rest)
            advantage = advantage or good
            previous = root
        lists = [sorted(each, key=lambda found: order(found[0])) for each in (by_right, by_priority, own)]
        ordered = [
            found for evicted in (True, False) for each in lists for found in each if found[0].evicted is evicted
        ]
        if not by_right and not by_priority:
            return [(True, ordered)]
        if policy.borrow == "Never":
            if not all(self.nominal(head.queue, pair) > self.used(head.queue, pair) for pair in pairs):
                return [(True, ordered)]
            if not by_right:
                return [(False, ordered), (True, ordered)]
        return [(True, ordered), (False, ordered)]

    def _reachable(self, cohort: str, previous: str, pairs: set[Pair]) -> Iterator[str]:
        for child in self.children(cohort):
            if child == previous or self.within(child, pairs):
                continue
            if child in self.policies:
                yield child
            else:
                yield from self._reachable(child, previous, pairs)

    # Fair sharing

    def known(self, node: str) -> set[Pair]:
        """Pairs that anybody below has quota for."""
        return set(self.quotas[node]).union(*(self.known(child) for child in self.children(node)))

    def share(self, node: str) -> Share:
        """Weighted dominant resource share."""
        parent = self.parents[node]
        if parent is None:
            return False, 0.0
        borrowed: dict[str, int] = {}
        for pair in self.known(node):
            over = max(0, self.used(node, pair) - self.tree(pair).held(node))
            borrowed[pair[1]] = borrowed.get(pair[1], 0) + over
        ratio = 0.0
        for resource, amount in borrowed.items():
            pairs = [pair for pair in self.known([node, *self.ancestors(node)][-1]) if pair[1] == resource]
            lendable = sum(self.tree(pair).most(parent) for pair in pairs)
            if lendable > 0:
                ratio = max(ratio, amount * 1000 / lendable)
        if ratio == 0 or self.weights[node]:
            return False, ratio / self.weights[node] if ratio else 0.0
        return True, ratio

    def borrows(self, node: str) -> bool:
        """Of anything."""
        used = {pair for item in self.held for pair in item.usage} | {pair for _, pair in self.extra}
        return not self.within(node, used | self.known(node))

    def fair_victims(
        self, head: Head, pairs: set[Pair], strategies: tuple[str, ...], *, within_nominal: bool
    ) -> list[tuple[str, str]]:
        """Preemption under fair sharing."""
        everybody = list(self.held)
        policy = self.policies[head.queue]
        found = self.candidates(head.queue, policy.within, head, pairs)
        above = list(self.ancestors(head.queue))
        for queue in self.policies if above else ():
            if queue != head.queue and above[-1] in self.ancestors(queue) and not self.within(queue, pairs):
                found += self.candidates(queue, policy.reclaim, head, pairs)
        found.sort(key=self.order(head.queue))
        for pair, amount in head.usage.items():
            self.extra[head.queue, pair] = amount
        taken: list[tuple[Held, str]] = []
        within_nominal = within_nominal and self.within(head.queue, pairs)
        try:
            done = any(
                self._take(head, taken, item, reason)
                for item, reason in self._fair_order(head, found, strategies, within_nominal=within_nominal)
            )
            self.extra.clear()
            return self.fill_back(head, taken, borrow=True) if done else []
        finally:
            self.extra.clear()
            self.held = everybody

    def _take(self, head: Head, taken: list[tuple[Held, str]], item: Held, reason: str) -> bool:
        """One more; whether there is room."""
        self.held.remove(item)
        taken.append((item, reason))
        kept = dict(self.extra)
        self.extra.clear()
        good = self.fits(head.queue, head.usage, borrow=True)
        self.extra.update(kept)
        return good

    def _fair_order(
        self, head: Head, found: list[Held], strategies: tuple[str, ...], *, within_nominal: bool
    ) -> Iterator[tuple[Held, str]]:
        waiting = {queue: [item for item in found if item.queue == queue] for queue in self.policies}
        retry: list[Held] = []
        for queue in self._targets(head, waiting, set()):
            if queue == head.queue or within_nominal:
                yield waiting[queue].pop(0), REASONS["own" if queue == head.queue else "by right"]
                continue
            mine, theirs = self._sides(head.queue, queue)
            new, old = self.share(mine), self.share(theirs)
            if new[0] and not old[0]:
                retry += waiting[queue]
                waiting[queue] = []
            while waiting[queue]:
                item = waiting[queue].pop(0)
                self.held.remove(item)
                after = self.share(theirs)
                self.held.append(item)
                if new <= after if strategies[0] == "LessThanOrEqualToFinalShare" else new < old:
                    yield item, REASONS["fair"]
                    break
                retry.append(item)
        if len(strategies) > 1:
            waiting = {queue: [item for item in retry if item.queue == queue] for queue in self.policies}
            pruned: set[str] = set()
            for queue in self._targets(head, waiting, pruned):
                mine, theirs = self._sides(head.queue, queue)
                item = waiting[queue].pop(0)
                if self.share(mine) < self.share(theirs):
                    yield item, REASONS["fair"]
                pruned.add(queue)

    def _sides(self, own: str, other: str) -> tuple[str, str]:
        """The children of the lowest common ancestor on either side."""
        mine, theirs = [own, *self.ancestors(own)], [other, *self.ancestors(other)]
        common = next(node for node in mine if node in theirs)
        return mine[mine.index(common) - 1], theirs[theirs.index(common) - 1]

    def _targets(self, head: Head, waiting: dict[str, list[Held]], pruned: set[str]) -> Iterator[str]:
        path = list(self.ancestors(head.queue))
        if not path:
            while waiting[head.queue] and head.queue not in pruned:
                yield head.queue
        while path and path[-1] not in pruned:
            found = self._highest(head, path, path[-1], waiting, pruned)
            if found is not None:
                yield found

    def _highest(
        self, head: Head, path: list[str], cohort: str, waiting: dict[str, list[Held]], pruned: set[str]
    ) -> str | None:
        order = self.order(head.queue)
        queue: tuple[Share, str] | None = None
        below: tuple[Share, str] | None = None
        for child in self.children(cohort):
            if child in pruned:
                continue
            calm = not self.borrows(child)
            if child in self.policies:
                if (calm and child != head.queue) or not waiting[child]:
                    pruned.add(child)
                    continue
                value = self.share(child)
                tied = queue is not None and value == queue[0]
                if (
                    queue is None
                    or value > queue[0]
                    or (tied and order(waiting[child][0]) < order(waiting[queue[1]][0]))
                ):
                    queue = value, child
            elif calm and child not in path:
                pruned.add(child)
            elif below is None or self.share(child) >= below[0]:
                below = self.share(child), child
        if queue is None and below is None:
            pruned.add(cohort)
            return None
        if below is not None and (queue is None or below[0] >= queue[0]):
            return self._highest(head, path, below[1], waiting, pruned)
        assert queue is not None
        return queue[1]

    # The tournament

    def tournament(self, heads: list[Head], *, non_borrowing: bool, priority: bool) -> list[tuple[str, str]]:
        """Root and UID of each head in the order they win; who won uses what it asked for."""
        left = {head.queue: head for head in heads}
        found = []
        for queue in sorted(left):
            root = [queue, *self.ancestors(queue)][-1]
            while (winner := self._winner(root, left, non_borrowing=non_borrowing, priority=priority)) is not None:
                del left[winner.queue]
                self._use(winner, 1)
                found.append((root, winner.uid))
        return found

    def _use(self, head: Head, times: int) -> None:
        for pair, amount in head.usage.items():
            self.extra[head.queue, pair] = self.extra.get((head.queue, pair), 0) + times * amount

    def _winner(self, node: str, left: dict[str, Head], *, non_borrowing: bool, priority: bool) -> Head | None:
        if node in self.policies:
            return left.get(node)
        best: tuple[tuple[bool, Share, int, int], Head] | None = None
        for child in sorted(self.children(node), key=lambda name: (name in self.policies, name)):
            head = self._winner(child, left, non_borrowing=non_borrowing, priority=priority)
            if head is None:
                continue
            self._use(head, 1)
            asked = {pair for pair, amount in head.usage.items() if amount > 0}
            borrows = non_borrowing and not self.within(child, asked)
            rank = (borrows, self.share(child), -head.priority if priority else 0, head.stood)
            self._use(head, -1)
            if best is None or rank < best[0]:
                best = rank, head
        return best[1] if best is not None else None


REASONS = {
    "own": "InClusterQueue",
    "by right": "InCohortReclamation",
    "without borrowing": "InCohortReclamation",
    "while borrowing": "InCohortReclaimWhileBorrowing",
    "fair": "InCohortFairSharing",
}
