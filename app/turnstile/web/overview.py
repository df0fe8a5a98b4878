"""The first page: trees of Cohorts with their ClusterQueues, and who lends to whom. Must never decide."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from turnstile.engine.quota.amounts import FlavorResource, text
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import NO_USAGE, Usage
from turnstile.web import quotas
from turnstile.web.quotas import Loans, Quota
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World
from turnstile.wording.amounts import rank
from turnstile.wording.inactivity import inactive

PAGE: Final = 50
"""ClusterQueues on one page: trees of Cohorts stay together unless they have more."""
FOLDED: Final = 20
"""Quotas that a row holds folded, besides the scarcest; the page of the ClusterQueue has all."""


class Loan(NamedTuple):
    """The loans of a resource of a flavor among members of a Cohort."""

    borrowers: tuple[tuple[str, str], ...]
    """Names and amounts."""
    lenders: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A ClusterQueue or a Cohort in a tree."""

    name: str
    is_queue: bool
    depth: int
    quotas: tuple[Quota, ...]
    pending: int = 0
    reserving: int = 0
    """Workloads that hold quota and wait for admission checks."""
    admitted: int = 0
    why: str = ""
    """Why it admits nothing; empty if it admits."""
    stopped: bool = False
    """Whether that is so because its owner stopped it."""
    preemptors: tuple[str, ...] = ()
    """Workloads for which quota is held: those they preempted are leaving, or have left."""
    loans: Mapping[FlavorResource, Loan] = field(default_factory=dict)
    """The loans among the members of a Cohort."""

    @property
    def ordered(self) -> list[Quota]:
        """Its quotas, the scarcest first."""
        return quotas.scarcest(self.quotas, self.loans)

    @property
    def standing(self) -> str:
        """`stopped` (by its owner), `broken` (it cannot admit), `short` (full, and others wait), `full`, or empty."""
        if self.why:
            return "stopped" if self.stopped else "broken"
        if not any(each.full for each in self.quotas):
            return ""
        return "short" if self.pending else "full"


@dataclass(frozen=True, slots=True)
class Tree:
    """A topmost Cohort with what is below it, or a ClusterQueue without a Cohort."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One page of trees."""

    trees: tuple[Tree, ...]
    queues: int
    """ClusterQueues that match."""
    pending: int
    reserving: int
    admitted: int
    stopped: int
    """ClusterQueues that admit nothing because their owners stopped them."""
    broken: int
    """ClusterQueues that admit nothing for another reason."""
    totals: Mapping[str, tuple[Quota, ...]]
    """Sums over everything, by flavor."""
    widest: float
    """The length of all bars, in times of the nominal quota."""
    page: int
    pages: int


def overview(world: World, *, page: int, wanted: str, sight: Sight = EVERYTHING) -> Overview:
    """The page with a number from 1, of ClusterQueues whose name, or whose Cohort's, contains `wanted`."""
    state = world.state
    state.ledger.settle()
    known = sorted(state.cluster_queues) if sight.tree else ()
    names = [name for name in known if _matches(world, name, wanted.lower())]
    sheets = _sheets(world, names)
    page = max(1, min(page, len(sheets)))
    counts = [state.questions.queue_counts(name) for name in names]
    held = Held(world, sight)
    trees = tuple(_tree(world, root, members, held) for root, members in sheets[page - 1])
    totals = _totals(world) if sight.tree and not wanted else {}
    drawn = [quota for tree in trees for row in tree.rows for quota in row.quotas]
    idle = [name for name in names if not state.questions.active_reason(name)[0]]
    stopped = sum(_is_stopped(world, name) for name in idle)
    return Overview(
        trees=trees,
        queues=len(names),
        pending=sum(each.pending for each in counts),
        reserving=sum(each.reserving - each.admitted for each in counts),
        admitted=sum(each.admitted for each in counts),
        stopped=stopped,
        broken=len(idle) - stopped,
        totals=totals,
        widest=quotas.widest(drawn),
        page=page,
        pages=len(sheets),
    )


def _is_stopped(world: World, name: str) -> bool:
    return world.state.cluster_queues[name].api.spec.stop_policy != "None"


def _matches(world: World, name: str, wanted: str) -> bool:
    return wanted in name.lower() or any(
        wanted in cohort.lower() for cohort in world.state.questions.cohorts_above(name)
    )


def _sheets(world: World, names: Sequence[str]) -> list[list[tuple[Node, list[str]]]]:
    """Topmost nodes and names of ClusterQueues, by page; a tree that is larger than a page goes on on the next."""
    roots: dict[Node, list[str]] = {}
    for name in names:
        roots.setdefault(_root(world, name), []).append(name)
    sheets: list[list[tuple[Node, list[str]]]] = [[]]
    room = PAGE
    for root in sorted(roots, key=lambda node: (node.is_queue, node.name)):
        members = roots[root]
        for start in range(0, len(members), PAGE):
            part = members[start : start + PAGE]
            if len(part) > room:
                sheets.append([])
                room = PAGE
            sheets[-1].append((root, part))
            room -= len(part)
    return sheets


def _root(world: World, name: str) -> Node:
    node = world.state.cluster_queues[name].node
    return node if world.state.ledger.cyclic(node) else node.root


def _totals(world: World) -> dict[str, tuple[Quota, ...]]:
    state = world.state
    cohorts = [node for node in state.ledger.cohorts.values() if node.parent is None]
    single = [each for each in state.cluster_queues.values() if _root(world, each.name).is_queue]
    found = [quotas.of_cohort(world, node, {}) for node in cohorts]
    by_flavor: dict[str, list[Quota]] = {}
    for each in quotas.totals([*found, *(quotas.of_queue(world, queue, {}, NO_USAGE) for queue in single)]):
        by_flavor.setdefault(each.pair.flavor, []).append(each)
    return {flavor: tuple(sorted(found, key=_rank)) for flavor, found in by_flavor.items()}


def _rank(quota: Quota) -> tuple[int, str]:
    return rank(quota.pair.resource)


# --- rows -------------------------------------------------------------------------------------------------------------


class Held:
    """Quota that preempted Workloads still hold, by ClusterQueue; and the names of those for which they go."""

    def __init__(self, world: World, sight: Sight = EVERYTHING) -> None:
        self._sight = sight
        self.usages: dict[str, Usage] = {}
        self._preemptors: dict[str, dict[str, None]] = {}
        self._world = world
        gone = world.leaving()
        keys = {info.uid: info.key for info in world.state.queues.waiting.values()} if gone else {}
        for key, uid in gone.items():
            queue = world.state.ledger.holders.get(key, "")
            self.usages.setdefault(queue, Usage({})).include(world.state.workloads[key].usage)
            if uid in keys:
                self._preemptors.setdefault(queue, {})[keys[uid]] = None

    def preemptors(self, name: str) -> tuple[str, ...]:
        """Workloads for which quota of a ClusterQueue is held, or that wait in it for their victims."""
        nomination = self._world.state.cluster_queues[name].pending.nomination
        own = [nomination.preemptor] if nomination is not None and nomination.victims else []
        every = dict.fromkeys((*self._preemptors.get(name, ()), *own))
        return tuple(key for key in every if self._sight.shows(key))


def row(world: World, name: str, depth: int, loans: Loans, held: Held) -> Row:
    """The row of a ClusterQueue."""
    state = world.state
    counts = state.questions.queue_counts(name)
    active, _, why = state.questions.active_reason(name)
    return Row(
        name=name,
        is_queue=True,
        depth=depth,
        quotas=quotas.of_queue(world, state.cluster_queues[name], loans, held.usages.get(name, NO_USAGE)),
        pending=counts.pending,
        reserving=counts.reserving - counts.admitted,
        admitted=counts.admitted,
        why="" if active else inactive(why),
        stopped=not active and _is_stopped(world, name),
        preemptors=held.preemptors(name),
    )


def _tree(world: World, root: Node, members: Sequence[str], held: Held) -> Tree:
    if root.is_queue:
        return Tree(root.name, (row(world, root.name, 0, {}, held),))
    loans = quotas.loans(world, world.state.cluster_queues[members[0]].node)
    return Tree(root.name, tuple(_rows(world, root, 0, frozenset(members), loans, held)))


def _rows(world: World, cohort: Node, depth: int, members: frozenset[str], loans: Loans, held: Held) -> Iterator[Row]:
    below = [node.name for node in cohort.walk_queues()]
    if members.isdisjoint(below):
        return
    counts = [world.state.questions.queue_counts(name) for name in below]
    yield Row(
        name=cohort.name,
        is_queue=False,
        depth=depth,
        quotas=quotas.of_cohort(world, cohort, loans),
        pending=sum(each.pending for each in counts),
        reserving=sum(each.reserving - each.admitted for each in counts),
        admitted=sum(each.admitted for each in counts),
        loans=_lent_to_queues(cohort, loans),
    )
    for name in sorted(members.intersection(cohort.queues)):
        yield row(world, name, depth + 1, loans, held)
    for name in sorted(cohort.cohorts):
        yield from _rows(world, cohort.cohorts[name], depth + 1, members, loans, held)


def _lent_to_queues(cohort: Node, loans: Loans) -> dict[FlavorResource, Loan]:
    """The loans among the members of a Cohort in which a ClusterQueue borrows; where only Cohorts borrow, their own
    rows say to whom it went."""
    return {
        pair: each
        for pair, each in written_loans(cohort, loans).items()
        if any(name in cohort.queues for name, _ in each.borrowers)
    }


def written_loans(cohort: Node, loans: Loans) -> dict[FlavorResource, Loan]:
    """The loans among the members of a Cohort, with amounts as people write them."""
    return {pair: Loan(*(_named(pair, each) for each in by[cohort])) for pair, by in loans.items() if cohort in by}


def _named(pair: FlavorResource, parts: tuple[tuple[Node, int], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((node.name, text(pair.resource, amount)) for node, amount in parts)
