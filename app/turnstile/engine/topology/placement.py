"""Places for the pods of pod sets in one tree, or why there are none.

A generator, which stops after each stretch of work. Must never change what is in use: the places are in the result.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from turnstile.api.topology import TopologyRequest
from turnstile.api.topologyassignment import Domain as Place
from turnstile.engine.causes import Cause
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.topology.balanced import balanced
from turnstile.engine.topology.capacity import Ask, Frees
from turnstile.engine.topology.choosing import Chooser, Share, Short
from turnstile.engine.topology.counting import Counts, Kind, counts_of
from turnstile.engine.topology.eligibility import Pods
from turnstile.engine.topology.failure import too_few
from turnstile.engine.topology.shape import Shape, shape_of
from turnstile.engine.topology.tree import Capacity, Domain, Tree

_CHOOSING: Final = 0.15
"""Work to look at a domain."""
_PLACING: Final = 1.5
"""Work to give it pods."""


class Policy(NamedTuple):
    """Feature gates of Kueue that change where pods go."""

    mixed: bool = True
    """TASProfileMixed: least free capacity first where no level is asked for."""
    balanced: bool = False
    """TASBalancedPlacement."""
    multi_layer: bool = True
    """TASMultiLayerTopology."""
    liking: bool = False
    """TASRespectNodeAffinityPreferred."""


class Wanted(NamedTuple):
    """Pods of one pod set that need places."""

    name: str
    pods: int
    ask: Ask
    request: TopologyRequest | None
    where: Pods
    group: str = ""
    """Pod sets of one group, which are a leader and workers, are placed together."""


class Placed(NamedTuple):
    """Where the pods of a pod set go."""

    levels: tuple[str, ...]
    places: tuple[Place, ...]


Taken = Mapping[Capacity, Mapping[str, int]]
"""Requests of pods that shall have a place and are not counted yet, by capacity."""


class Placer:
    """Finds places in a tree. `empty` leaves out the pods that topology placed; `taken` is counted all the same. Where
    there are too few places, the reason is empty unless it is to be `explained`: that takes a step for each node."""

    __slots__ = ("_empty", "_explained", "_frees", "_pace", "_policy", "_tree", "taken")

    def __init__(
        self,
        tree: Tree,
        frees: Frees,
        *,
        policy: Policy | None = None,
        empty: bool = False,
        pace: Pace | None = None,
        taken: Taken | None = None,
        explained: bool = True,
    ) -> None:
        self._tree = tree
        self._frees = frees
        self._policy = policy or Policy()
        self._empty = empty
        self._explained = explained
        self._pace = pace or Pace()
        self.taken: dict[Capacity, dict[str, int]] = {each: dict(amounts) for each, amounts in (taken or {}).items()}

    def place(self, wanted: Sequence[Wanted]) -> Sliced[dict[str, Placed | str]]:
        """Places by pod set, or the reason why there are none, with which it ends. Each sees those before it."""
        found: dict[str, Placed | str] = {}
        for members in groups(wanted):
            why = refused(members)
            placed = why if why is not None else (yield from self.together(members))
            if isinstance(placed, str):
                found.update((member.name, placed) for member in members)
                break
            for member, each in zip(members, placed, strict=True):
                found[member.name] = each
                self.take(each, member.ask)
        return found

    def take(self, placed: Placed, ask: Ask) -> None:
        """Count places that were found, for those after."""
        for place in placed.places:
            leaf = self._tree.leaf(place.values)
            if leaf is not None:
                amounts = self.taken.setdefault(leaf.capacity, {})
                for resource, amount in ask.amounts.items():
                    amounts[resource] = amounts.get(resource, 0) + amount * place.pods

    def together(
        self,
        members: Sequence[Wanted],
        *,
        shape: Shape | None = None,
        within: Domain | None = None,
        without: frozenset[str] = frozenset(),
    ) -> Sliced[list[Placed] | str]:
        """Places of a pod set, or of a leader and its workers, in their order; `shape` in place of that of the request,
        only `within` a domain, and `without` some hosts."""
        leader, worker = roles(members)
        tree, policy = self._tree, self._policy
        wanted = shape or shape_of(worker.request, tree.levels, multi_layer=policy.multi_layer)
        if isinstance(wanted, str):
            return wanted
        if worker.pods % wanted.slice_size:
            return Cause.SLICES_BROKEN.says(pods=worker.pods, size=wanted.slice_size)
        if not tree.domains(wanted.level):
            return Cause.DOMAINS_NONE.says(level=tree.levels[wanted.level])
        kind = self._kind(leader, worker, wanted)._replace(within=within, without=without)
        counts = yield from counts_of(tree, kind, self._frees, self._pace)
        if self.taken:
            counts = counts.assuming(self.taken)
        leaders = leader.pods if leader is not None else 0
        shares = yield from self._choose(counts, wanted, worker, leaders)
        if isinstance(shares, Short):
            return (yield from too_few(counts, wanted, worker.pods, shares.fit, self._pace)) if self._explained else ""
        yield from self._rest(len(shares), _PLACING)
        workers = self._placed([(share.domain, share.pods) for share in shares])
        if leader is None:
            return [workers]
        led = self._placed([(share.domain, share.leaders) for share in shares])
        return [led if member is leader else workers for member in members]

    def wide(self, members: Sequence[Wanted]) -> Sliced[list[Domain]]:
        """Domains with room for all pods of a pod set, or of a leader and its workers, at the level that they ask for;
        at the next wider one that has any if they only prefer theirs."""
        leader, worker = roles(members)
        tree = self._tree
        shape = shape_of(worker.request, tree.levels, multi_layer=self._policy.multi_layer)
        if isinstance(shape, str):
            return []
        counts = yield from counts_of(tree, self._kind(leader, worker, shape), self._frees, self._pace)
        slices, need = counts.slices, worker.pods // shape.slice_size
        for level in range(shape.level, -1, -1):
            domains = tree.domains(level)
            yield from self._rest(len(domains))
            found = [domain for domain in domains if slices[domain.at] >= need]
            if found or shape.required or shape.unconstrained:
                return found
        return []

    def _kind(self, leader: Wanted | None, worker: Wanted, shape: Shape) -> Kind:
        by_host = self._tree.by_host
        return Kind(
            worker.ask,
            leader.ask if leader is not None else None,
            worker.where if by_host else None,
            leader.where if leader is not None and by_host else None,
            shape.slice_level,
            shape.slice_size,
            shape.inner,
            self._empty,
            self._policy.liking and bool(worker.where.preferred),
        )

    def _rest(self, domains: int, work: float = _CHOOSING) -> Sliced[None]:
        """Stop, if so many domains were looked at that it is time."""
        pace = self._pace
        pace.left -= work * domains
        if pace.left <= 0:
            yield
            pace.renew()

    def _choose(self, counts: Counts, shape: Shape, worker: Wanted, leaders: int) -> Sliced[list[Share] | Short]:
        best = not (shape.unconstrained and self._policy.mixed)
        chooser = Chooser(counts, shape, pods=worker.pods, leaders=leaders, best_fit=best)
        if self._policy.balanced and worker.request is not None and worker.request.preferred is not None:
            shares = balanced(counts, shape, pods=worker.pods, leaders=leaders)
            if shares is not None:
                return shares
        yield from self._rest(len(self._tree.domains(shape.level)))
        start = chooser.start()
        if isinstance(start, Short):
            return start
        yield from self._rest(len(self._tree.domains(shape.level)))
        return chooser.spread(start)

    def _placed(self, found: list[tuple[Domain, int]]) -> Placed:
        tree = self._tree
        ordered = sorted(((domain, pods) for domain, pods in found if pods > 0), key=lambda each: each[0].values)
        return Placed(tree.assigned_levels, tuple(Place(tree.key(domain.values), pods) for domain, pods in ordered))


def groups(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """Pod sets that are placed together, in the order in which they appear."""
    found: dict[str | int, list[Wanted]] = {}
    for index, each in enumerate(wanted):
        found.setdefault(each.group or index, []).append(each)
    return list(found.values())


def refused(members: Sequence[Wanted]) -> str | None:
    """Why pod sets cannot be placed together, whatever is free. Kueue leaves a third member of a group without a place,
    and its pods gated for ever."""
    if len(members) > 2:
        return Cause.GROUP_TOO_LARGE.says(group=members[0].group, count=len(members))
    return None


def roles(members: Sequence[Wanted]) -> tuple[Wanted | None, Wanted]:
    """The leader, if there is one, and the workers: the larger of two pod sets, the first if they are equal."""
    if len(members) == 1:
        return None, members[0]
    first, second = members
    return (first, second) if first.pods < second.pods else (second, first)
