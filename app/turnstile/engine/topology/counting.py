"""How many pods and slices of one kind each domain of a tree can take.

Counts are kept with the tree and brought up to date by its log, so a search takes a step for each domain that changed
since the last one of pods of the same kind. Source: Kueue's TASFlavorSnapshot. Must never choose a domain.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from turnstile.engine.pace import Pace, Sliced, finish
from turnstile.engine.topology.capacity import Ask, Free, Frees
from turnstile.engine.topology.eligibility import Pods, exclusion, liking
from turnstile.engine.topology.tree import Capacity, Domain, Leaf, Tree

MOST_FIGURES: Final = 1 << 20
"""Figures that a tree keeps for later searches: 8 bytes each."""
MOST_KINDS: Final = 128
"""Kinds of pods for which a tree keeps figures."""
_LEAF_WORK: Final = 0.15
_EXCLUSION_WORK: Final = 2.0
"""Work to find out what keeps pods from a node."""
_DOMAIN_WORK: Final = 0.5


class Kind(NamedTuple):
    """Pods that are counted alike."""

    ask: Ask
    leader: Ask | None
    pods: Pods | None
    """None if they may run on every node: where a domain of the lowest level is wider than a node, nobody asks."""
    leads: Pods | None
    """As `pods`, of the leader."""
    slice_level: int
    slice_size: int
    inner: tuple[int, ...]
    """As of a shape."""
    empty: bool
    """Whether pods that topology placed are left out."""
    liking: bool
    """Whether preferred node affinity counts."""
    within: Domain | None = None
    """The domain outside of which nothing is counted."""
    without: frozenset[str] = frozenset()
    """Hosts on which nothing is counted."""

    @property
    def plain(self) -> bool:
        """Whether nothing but taints keeps such pods from a node, and nothing but pods is counted."""
        picky = self.pods is not None and bool(self.pods.node_selector or self.pods.terms is not None)
        return not (picky or self.liking or self.without) and self.leader is None and self.within is None


class Counts:
    """Figures of the domains of a tree, by `Domain.at`."""

    __slots__ = (
        "_assumed",
        "_beside",
        "_position",
        "_woke",
        "excluded",
        "kind",
        "leaders",
        "pods",
        "pods_with",
        "score",
        "slices",
        "slices_with",
        "tree",
    )

    def __init__(self, tree: Tree, kind: Kind, frees: Frees) -> None:
        self.tree = tree
        self.kind = kind
        self._position = -1
        self._woke = False
        """Whether all who may wait for such room were woken since this was counted last."""
        self._assumed: dict[Capacity, Free] = {}
        self._beside: Mapping[Free, tuple[int, int]] | None = (
            kind.ask.beside(kind.leader, frees) if kind.leader is not None else None
        )
        self.pods: list[int] = []
        self.slices: list[int] = []
        """0 below the level of slices."""
        self.leaders: list[int] = []
        """1 if a leader fits; empty if there is none."""
        self.pods_with = self.pods if self._beside is None else []
        """Pods that fit beside the leader."""
        self.slices_with = self.slices if self._beside is None else []
        self.score: list[int] = []
        """Sum of the preferences of nodes; empty if they do not count."""
        self.excluded: dict[int, str] = {}
        """Why a domain of the lowest level takes no pods, but for want of resources."""

    def assuming(self, taken: Mapping[Capacity, Mapping[str, int]]) -> "Counts":
        """As they would be with so much more in use; to be changed."""
        other = self.copy()
        for capacity, amounts in taken.items():
            before = capacity.bare if self.kind.empty else capacity.free
            left = {name: amount - amounts.get(name, 0) for name, amount in before.amounts.items()}
            other._assumed[capacity] = Free(left)
        finish(other._count([leaf for capacity in taken for leaf in capacity.leaves if leaf.tree is self.tree], Pace()))
        return other

    def copy(self) -> "Counts":
        """The same, to be changed."""
        other = Counts.__new__(Counts)
        other.tree, other.kind, other._position, other._beside = self.tree, self.kind, self._position, self._beside
        other._assumed, other._woke = self._assumed.copy(), False
        other.pods, other.slices = self.pods.copy(), self.slices.copy()
        other.leaders, other.score, other.excluded = self.leaders.copy(), self.score.copy(), self.excluded.copy()
        if self._beside is None:
            other.pods_with, other.slices_with = other.pods, other.slices
        else:
            other.pods_with, other.slices_with = self.pods_with.copy(), self.slices_with.copy()
        return other

    def wakes(self, leaf: Leaf) -> bool:
        """Whether to wake the Workloads that wait for such room: a domain of the lowest level has more of it than when
        it was counted last. False after that until a cycle has counted again for one of them."""
        if not self._woke:
            self._woke = self._improves(leaf)
            return self._woke
        return False

    def _improves(self, leaf: Leaf) -> bool:
        at = leaf.at
        if self._position < 0 or at >= len(self.pods):
            return True
        if at in self.excluded:
            return False
        free = leaf.free(empty=self.kind.empty)
        if self.kind.ask.fits[free] > self.pods[at]:
            return True
        if self._beside is None:
            return False
        leaders, beside = self._beside[free]
        return leaders > self.leaders[at] or beside > self.pods_with[at]

    def update(self, pace: Pace) -> Sliced[None]:
        """Count what changed. To be begun anew if it is left early."""
        tree = self.tree
        end = tree.start + len(tree.log)
        begin = self._position
        self._woke = False
        self._grow()
        if begin < tree.start or end - begin > tree.size:
            self._position = -1
            yield from self._count_all(pace)
        elif begin < end:
            self._position = -1
            yield from self._count(tree.log[begin - tree.start :], pace)
        self._position = end

    def _grow(self) -> None:
        missing = self.tree.size - len(self.pods)
        if missing > 0:
            zeros = [0] * missing
            self.pods += zeros
            self.slices += zeros
            if self._beside is not None:
                self.leaders += zeros
                self.pods_with += zeros
                self.slices_with += zeros
            if self.kind.liking:
                self.score += zeros

    def _count_all(self, pace: Pace) -> Sliced[None]:
        self.excluded.clear()
        alike = self._alike()
        if alike is not None:
            self.excluded.update(alike.excluded)
        yield from self._count_in_parts(self.tree.leaves, pace, judged=alike is not None)
        for level in range(len(self.tree.levels) - 2, -1, -1):
            domains = self.tree.domains(level)
            for start in range(0, len(domains), 64):
                part = domains[start : start + 64]
                pace.left -= _LEAF_WORK / 2 * sum([len(domain.children) for domain in part]) + _DOMAIN_WORK * len(part)
                self.gather(part)
                if pace.left <= 0:
                    yield
                    pace.renew()

    def _alike(self) -> "Counts | None":
        """Counts of other pods that the same keeps from nodes, if they are up to date."""
        mine, now = self.kind, self.tree.start + len(self.tree.log)
        if mine.plain or mine.liking or mine.leader is not None:
            return None
        for other in self.tree.counts.values():
            if isinstance(other, Counts) and other._position == now and not other._assumed:
                theirs = other.kind
                if (mine.pods, mine.within, mine.without) == (theirs.pods, theirs.within, theirs.without):
                    return other
        return None

    def _count(self, changed: Iterable[Domain], pace: Pace) -> Sliced[None]:
        leaves: dict[int, Leaf] = {}
        inner: list[dict[int, Domain]] = [{} for _ in self.tree.levels]
        for domain in changed:
            if isinstance(domain, Leaf) and domain.parent is not None:
                leaves[domain.at] = domain
            above = domain.parent if isinstance(domain, Leaf) else domain
            while above is not None and above.parent is not None and above.at not in inner[above.level]:
                inner[above.level][above.at] = above
                above = above.parent
        yield from self._count_in_parts(list(leaves.values()), pace)
        for domains in reversed(inner):
            for domain in domains.values():
                pace.left -= _DOMAIN_WORK + _LEAF_WORK / 2 * len(domain.children)
                self.gather((domain,))
                if pace.left <= 0:
                    yield
                    pace.renew()

    def _count_in_parts(self, leaves: list[Leaf], pace: Pace, *, judged: bool = False) -> Sliced[None]:
        """`judged` if it is known what keeps pods from nodes."""
        size, work = (512, _LEAF_WORK) if judged or self.kind.plain else (64, _EXCLUSION_WORK)
        for start in range(0, len(leaves), size):
            part = leaves[start : start + size]
            pace.left -= work * len(part)
            self._count_leaves(part, judged=judged)
            if pace.left <= 0:
                yield
                pace.renew()

    def _count_leaves(self, leaves: Sequence[Leaf], *, judged: bool) -> None:
        kind, pods = self.kind, self.pods
        fits, excluded = kind.ask.fits, self.excluded
        if judged:
            for leaf in leaves:
                pods[leaf.at] = 0 if leaf.at in excluded else fits[leaf.free(empty=kind.empty)]
        elif not kind.plain or self._assumed:
            for leaf in leaves:
                self._count_leaf(leaf)
        elif kind.empty:
            for leaf in leaves:
                pods[leaf.at] = fits[leaf.capacity.bare]
        else:
            for leaf in leaves:
                pods[leaf.at] = fits[leaf.capacity.free]
        if kind.plain and kind.pods is not None and not judged:
            for leaf in leaves:
                if leaf.node.taints or leaf.at in excluded:
                    self._count_leaf(leaf)
        if kind.slice_level == len(self.tree.levels) - 1:
            size = kind.slice_size
            for leaf in leaves:
                at = leaf.at
                self.slices[at] = pods[at] // size
                if self._beside is not None:
                    self.slices_with[at] = self.pods_with[at] // size

    def _count_leaf(self, leaf: Leaf) -> None:
        kind, at, free = self.kind, leaf.at, self.free(leaf)
        reason = self._exclusion(leaf, kind.pods)
        if kind.liking:
            node = leaf.node
            liked = kind.pods is not None and reason is None
            self.score[at] = liking(kind.pods, node.labels, node.name) if liked and kind.pods is not None else 0
        if reason is None:
            self.excluded.pop(at, None)
        else:
            self.excluded[at] = reason
        self.pods[at] = kind.ask.fits[free] if reason is None else 0
        if self._beside is not None:
            leads = kind.leads is kind.pods
            led = reason if leads else self._exclusion(leaf, kind.leads)
            leaders, beside = self._beside[free] if led is None else (0, self.pods[at])
            self.leaders[at], self.pods_with[at] = leaders, beside if reason is None else 0

    def _exclusion(self, leaf: Leaf, pods: Pods | None) -> str | None:
        """Why pods have no place there, whatever is free; None if they may have."""
        if pods is not None:
            node = leaf.node
            reason = exclusion(pods, self.tree.tolerations, node.labels, node.name, node.taints)
            if reason is not None:
                return reason
        kind = self.kind
        if kind.within is not None and not leaf.within(kind.within):
            return "topologyDomain"
        return "unhealthyNode" if leaf.values[-1] in kind.without else None

    def hosts(self, domain: Domain) -> int:
        """Leaders that a domain can take."""
        return self.leaders[domain.at] if self.leaders else 0

    def free(self, leaf: Leaf) -> Free:
        """Amounts that are free in a domain of the lowest level."""
        return self._assumed.get(leaf.capacity) or leaf.free(empty=self.kind.empty)

    def gather(self, domains: Iterable[Domain]) -> None:
        """Count domains by those below them."""
        kind, pods, slices = self.kind, self.pods, self.slices
        for domain in domains:
            at, level, children = domain.at, domain.level, domain.children
            size = kind.inner[level + 1]
            if size:
                total = sum([pods[child.at] // size * size for child in children])
            else:
                total = sum([pods[child.at] for child in children])
            pods[at] = total
            if level == kind.slice_level:
                slices[at] = total // kind.slice_size
            elif level < kind.slice_level:
                slices[at] = sum([slices[child.at] for child in children])
            if self._beside is not None:
                self._gather_beside(domain)
            if kind.liking:
                self.score[at] = sum([self.score[child.at] for child in children])

    def _gather_beside(self, domain: Domain) -> None:
        kind, at = self.kind, domain.at
        hosts = [child.at for child in domain.children if self.leaders[child.at]]
        self.leaders[at] = int(bool(hosts))
        self.pods_with[at] = self.slices_with[at] = 0
        if hosts:
            self.pods_with[at] = self.pods[at] - min(self.pods[host] - self.pods_with[host] for host in hosts)
            if domain.level == kind.slice_level:
                self.slices_with[at] = self.pods_with[at] // kind.slice_size
            elif domain.level < kind.slice_level:
                lost = min(self.slices[host] - self.slices_with[host] for host in hosts)
                self.slices_with[at] = self.slices[at] - lost


def helped(tree: Tree, leaf: Leaf) -> bool:
    """Whether pods that found no room may find it now that a domain of the lowest level has more free: it has room for
    more pods of a kind than when places for that kind were looked for last."""
    woken = [isinstance(each, Counts) and each.wakes(leaf) for each in tree.counts.values()]
    return tree.forgot or any(woken)


def counts_of(tree: Tree, kind: Kind, frees: Frees, pace: Pace) -> Sliced[Counts]:
    """Counts of pods of this kind as they are now. Not to be changed, and right until something changes."""
    kept = tree.counts
    found = kept.pop(kind, None)
    if found is None:
        while kept and (len(kept) >= MOST_KINDS or (len(kept) + 1) * 2 * tree.size > MOST_FIGURES):
            del kept[next(iter(kept))]
            tree.forgot = True
        found = Counts(tree, kind, frees)
    assert isinstance(found, Counts)
    kept[kind] = found
    yield from found.update(pace)
    return found
