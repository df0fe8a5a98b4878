"""Room on nodes for pods that no Topology places: whether each fits on a node, beside pods that are bound, and those
that Workloads have quota for and that are not bound yet.

Feasible, not placed: kube-scheduler chooses the nodes. Until it has, a pod of a Workload that holds quota is *expected*
on a node that has room for it; what is expected moves when nodes fill otherwise. Pods are counted by pod set and node.
Must never keep a pod from a node, nor know what quota is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from turnstile.api.topology import HOSTNAME
from turnstile.engine.causes import Cause
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.topology.capacity import PODS, Ask, Frees
from turnstile.engine.topology.counting import Counts, Kind, counts_of, helped
from turnstile.engine.topology.eligibility import Pods
from turnstile.engine.topology.failure import listed
from turnstile.engine.topology.loads import Bound
from turnstile.engine.topology.tree import Capacity, Leaf, Node, Tree

Overlay = Mapping[Capacity, Mapping[str, int]]
"""Amounts that are in use besides, by place; below zero where they will not be in use."""

_NODE: Final = 0.6
"""Work to look at a node."""
_AT_ONCE: Final = 128
"""Nodes that are looked at between two stops."""
_NOTHING: Final[Mapping[str, int]] = {}
"""Not to be changed."""


class Asked(NamedTuple):
    """Pods of one pod set that need room."""

    name: str
    """The pod set."""
    pods: int
    ask: Ask
    where: Pods
    """The nodes that they may run on, with the labels and tolerations of their flavors."""
    flavor: str
    """The flavor by which their nodes are called."""
    labels: Mapping[str, str]
    """Labels of the nodes of their flavors."""

    @property
    def kind(self) -> Kind:
        """Pods that are counted alike."""
        return Kind(self.ask, None, self.where, None, 0, 1, (0,), empty=False, liking=False)


class Lack(NamedTuple):
    """A pod set for which there is too little room, and why."""

    pod_set: str
    reason: str


class _Share:
    """The pods of one pod set that are expected, by place."""

    __slots__ = ("asked", "places", "pods")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.pods = 0
        self.places: dict[Capacity, int] = {}


class _Expected:
    """The pods that a Workload has quota for."""

    __slots__ = ("named", "shares", "workload")

    def __init__(self, workload: str, shares: Sequence[_Share], *, named: bool) -> None:
        self.workload = workload
        self.shares = shares
        self.named = named
        """Whether its pods are known to name it, or will."""


class Room:
    """All nodes, and the pods that are expected there.

    A *run* is a Workload (`namespace/name`), or the first of the slices of an elastic job, which pods name.
    """

    __slots__ = (
        "_bound",
        "_due",
        "_eased",
        "_expected",
        "_frees",
        "_position",
        "_reserved",
        "_taken",
        "freed",
        "tree",
        "version",
    )

    def __init__(self, frees: Frees) -> None:
        self._frees = frees
        self.tree = Tree("", (HOSTNAME,), {}, ())
        self.version = 0
        """Grows when more pods are expected."""
        self.freed = False
        """Whether fewer pods are expected on a node than before, and there is more room."""
        self._eased: set[Capacity] = set()
        """Places where fewer pods are expected than when Workloads were tried again last: pods that are bound there in
        their stead may leave before pods are counted again."""
        self._expected: dict[str, _Expected] = {}
        self._due: dict[str, None] = {}
        """Runs with pods that are expected nowhere yet."""
        self._bound: dict[str, dict[str, int]] = {}
        """Requests of the pods that are bound, by run."""
        self._taken: dict[Capacity, dict[str, int]] = {}
        """Requests of the pods that are expected, by place."""
        self._reserved: dict[Capacity, dict[str, int]] = {}
        """Requests of the pods of preemptors, which get room until the cycle ends."""
        self._position = -1

    # Pods that are bound

    def count(self, pod: Bound, times: int, near: Node | None) -> None:
        """A pod is bound to a node, or is no more if `times` is below zero."""
        run = pod.workload
        if not run:
            return
        bound = self._bound.setdefault(run, {})
        for resource, amount in pod.amounts.items():
            left = bound.get(resource, 0) + times * amount
            if left:
                bound[resource] = left
            else:
                bound.pop(resource, None)
        if not bound:
            del self._bound[run]
        if times > 0 and (expected := self._expected.get(run)) is not None:
            expected.named = True
        self._follow(run, near)

    # Pods that are expected

    def expect(self, run: str, workload: str, asked: Sequence[Asked], *, named: bool) -> None:
        """A Workload holds quota for these pods: those that are not bound need room. Pods of a Workload that was
        admitted by another program may not name it: they are expected once one is bound that does, unless it is known
        that they are `named`."""
        before = self._expected.get(run)
        named = named or run in self._bound or (before is not None and before.named)
        if before is not None and [share.asked for share in before.shares] == asked:
            before.workload, before.named = workload, named
            return
        self._clear(run)
        if asked:
            self.version += 1
            self._expected[run] = _Expected(workload, [_Share(each) for each in asked], named=named)
            self._follow(run, None)

    def forget(self, run: str, workload: str) -> None:
        """A Workload holds quota no more."""
        before = self._expected.get(run)
        if before is not None and before.workload == workload:
            self._clear(run)

    def _clear(self, run: str) -> None:
        before = self._expected.pop(run, None)
        self._due.pop(run, None)
        for share in before.shares if before is not None else ():
            for place in list(share.places):
                self._move(share, place, -share.places[place])
                self.freed = True

    def _follow(self, run: str, near: Node | None) -> None:
        """Expect no more pods of a run than are not bound; the node to which one was bound is left first."""
        expected = self._expected.get(run)
        if expected is None:
            return
        here = _place_of(near, self.tree) if near is not None else None
        for share, pods in zip(expected.shares, self._unbound(run, expected), strict=True):
            while share.pods > pods:
                place = here if here in share.places else next(reversed(share.places))
                assert place is not None
                self._move(share, place, -min(share.pods - pods, share.places[place]))
                self.freed = self.freed or place is not here
            if share.pods < pods:
                self._due[run] = None

    def _unbound(self, run: str, expected: _Expected) -> list[int]:
        """Pods of each pod set that are not bound. Pods that are bound count for the pod set with the largest requests
        that they may be of."""
        if not expected.named:
            return [0] * len(expected.shares)
        bound = self._bound.get(run, _NOTHING)
        left = [share.asked.pods for share in expected.shares]
        if not bound:
            return left
        amounts = dict(bound)
        for index in sorted(range(len(left)), key=lambda at: -sum(expected.shares[at].asked.ask.amounts.values())):
            ask = expected.shares[index].asked.ask
            pods = min(left[index], ask.into(amounts))
            left[index] -= pods
            for resource, amount in ask.amounts.items():
                amounts[resource] = amounts.get(resource, 0) - pods * amount
        for index, pods in enumerate(left):
            others = min(pods, max(0, amounts.get(PODS, 0)))
            left[index] -= others
            amounts[PODS] = amounts.get(PODS, 0) - others
        return left

    def _move(self, share: _Share, place: Capacity, pods: int) -> None:
        """Expect so many more pods in a place; fewer if below zero."""
        if pods < 0:
            self._eased.add(place)
        share.pods += pods
        left = share.places.get(place, 0) + pods
        if left:
            share.places[place] = left
        else:
            del share.places[place]
        _put(self._taken, place, share.asked.ask.amounts, pods)
        if not self._taken[place]:
            del self._taken[place]

    def _settle(self, pace: Pace) -> Sliced[None]:
        """Expect pods elsewhere whose place was filled otherwise, and those that are expected nowhere, as far as there
        is room. Pods without room take none from others."""
        position = self.tree.start + len(self.tree.log)
        if position != self._position:
            yield from self._leave_full(pace)
            self._position = position
        full: set[Kind] = set()
        for run in list(self._due):
            expected = self._expected[run]
            done = True
            for share, pods in zip(expected.shares, self._unbound(run, expected), strict=True):
                missing, kind = pods - share.pods, share.asked.kind
                if missing > 0 and kind not in full:
                    for place, fit in (yield from self._places(share.asked, missing, {}, pace)):
                        self._move(share, place, fit)
                        missing -= fit
                    if missing > 0:
                        full.add(kind)
                done = done and missing <= 0
            if done:
                del self._due[run]

    def _leave_full(self, pace: Pace) -> Sliced[None]:
        """Expect no pods in places that have no room for them any more."""
        full = {place for place, amounts in self._taken.items() if _lacks(place.free.amounts, amounts)}
        for run, expected in self._expected.items() if full else ():
            pace.left -= _NODE
            if pace.left <= 0:
                yield
                pace.renew()
            for share in expected.shares:
                for place in share.places.keys() & full:
                    self._move(share, place, -share.places[place])
                    self._due[run] = None

    # Questions

    def begin(self) -> None:
        """A cycle begins: no preemptor has room yet."""
        self._reserved.clear()

    def lack(self, asked: Sequence[Asked], pace: Pace, *, freed: Overlay | None = None) -> Sliced[Lack | None]:
        """The first pod set that has too little room, beside those before it and all pods that are expected; `freed`
        will not be in use."""
        found = yield from self._fit(asked, freed, pace)
        if isinstance(found, Lack):
            self.tree.lacking = True
            return found
        return None

    def reserve(self, asked: Sequence[Asked], pace: Pace, *, freed: Overlay) -> Sliced[None]:
        """Keep room for the pods of a preemptor until the cycle ends, on nodes that its victims leave too."""
        found = yield from self._fit(asked, freed, pace, placed=True)
        for each, places in zip(asked, () if isinstance(found, Lack) else found, strict=False):
            for place, pods in places:
                _put(self._reserved, place, each.ask.amounts, pods)
        self.version += 1

    def _fit(
        self, asked: Sequence[Asked], freed: Overlay | None, pace: Pace, *, placed: bool = False
    ) -> Sliced[list[list[tuple[Capacity, int]]] | Lack]:
        """The places of each pod set, of the last only if it is to be `placed`; or the first that finds too few."""
        yield from self._settle(pace)
        more: dict[Capacity, dict[str, int]] = {place: dict(amounts) for place, amounts in (freed or {}).items()}
        found: list[list[tuple[Capacity, int]]] = []
        for each in asked:
            if each is asked[-1] and not placed:
                fit = yield from self._up_to(each, more, pace)
                return found if fit >= each.pods else Lack(each.name, (yield from self._why(each, fit, more, pace)))
            places = yield from self._places(each, each.pods, more, pace)
            fit = sum([pods for _, pods in places])
            if fit < each.pods:
                return Lack(each.name, (yield from self._why(each, fit, more, pace)))
            for place, pods in places:
                _put(more, place, each.ask.amounts, pods)
            found.append(places)
        return found

    def _up_to(self, asked: Asked, more: Overlay, pace: Pace) -> Sliced[int]:
        """Pods that fit on all nodes, counted until they are enough."""
        counts = yield from counts_of(self.tree, asked.kind, self._frees, pace)
        total = 0
        for part in self._parts(pace):
            if part is None:
                yield
                continue
            total += sum([max(0, self._pods(counts, leaf, more)) for leaf in part])
            if total >= asked.pods:
                break
        return total

    def _places(self, asked: Asked, pods: int, more: Overlay, pace: Pace) -> Sliced[list[tuple[Capacity, int]]]:
        """Places for so many pods, those first that have room for the fewest; fewer pods if there is no room."""
        counts = yield from counts_of(self.tree, asked.kind, self._frees, pace)
        fits: list[tuple[int, Capacity]] = []
        for part in self._parts(pace):
            if part is None:
                yield
                continue
            for leaf in part:
                fit = self._pods(counts, leaf, more)
                if fit > 0:
                    fits.append((fit, leaf.capacity))
        fits.sort(key=lambda each: each[0])
        found = []
        for fit, place in fits:
            if pods <= 0:
                break
            found.append((place, min(fit, pods)))
            pods -= fit
        return found

    def _parts(self, pace: Pace) -> Iterator[list[Leaf] | None]:
        """All nodes, some at a time; None where there has to be a stop."""
        leaves = self.tree.domains(0)
        for start in range(0, len(leaves), _AT_ONCE):
            part = [leaf for leaf in leaves[start : start + _AT_ONCE] if isinstance(leaf, Leaf)]
            pace.left -= _NODE * len(part)
            if pace.left <= 0:
                yield None
                pace.renew()
            yield part

    def _pods(self, counts: Counts, leaf: Leaf, more: Overlay) -> int:
        """Pods that fit on a node beside what is expected."""
        place = leaf.capacity
        used = [each for overlay in (self._taken, self._reserved, more) if (each := overlay.get(place)) is not None]
        if not used or leaf.at in counts.excluded:
            return counts.pods[leaf.at]
        return counts.kind.ask.into(_beside(place, used))

    def _why(self, asked: Asked, fit: int, more: Overlay, pace: Pace) -> Sliced[str]:
        """Why there is too little room."""
        counts = yield from counts_of(self.tree, asked.kind, self._frees, pace)
        leaves = [leaf for leaf in self.tree.domains(0) if isinstance(leaf, Leaf) and _has(leaf.node, asked.labels)]
        pace.left -= _NODE * len(self.tree.domains(0))
        if not leaves:
            return Cause.ROOM_NO_NODE.says(flavor=asked.flavor)
        reasons: list[str] = []
        for leaf in leaves:
            pace.left -= _NODE
            if pace.left <= 0:
                yield
                pace.renew()
            reason = counts.excluded.get(leaf.at)
            if reason is None and not self._pods(counts, leaf, more):
                used = [each for overlay in (self._taken, self._reserved, more) if (each := overlay.get(leaf.capacity))]
                reason = f'resource "{asked.ask.limiting(_beside(leaf.capacity, used))}"'
            if reason is not None:
                reasons.append(reason)
        words = Cause.ROOM_FEW.says(flavor=asked.flavor, fit=fit, needed=asked.pods)
        return words + listed(reasons, len(leaves))

    def wakes(self) -> bool:
        """Whether Workloads that found no room are to be tried again, because fewer pods are expected somewhere."""
        found, self.freed = self.freed and self.tree.lacking, False
        return found

    def try_again(self) -> None:
        """All Workloads that found no room are tried again."""
        self.tree.lacking = False
        self._eased.clear()

    def helps(self, node: Node) -> bool:
        """Whether pods that found no room may find it, now that a node has more free."""
        if not self.tree.lacking:
            return False
        leaf = _leaf_of(node, self.tree)
        return leaf is not None and (leaf.capacity in self._eased or helped(self.tree, leaf))

    def given_up(
        self, runs: Iterable[str], claims: Mapping[str, Mapping[str, Mapping[str, int]]], nodes: Mapping[str, Node]
    ) -> Overlay:
        """The amounts, below zero, that are not in use once the pods of some runs are gone. `claims` are requests of
        the pods that are bound, by run and node."""
        freed: dict[Capacity, dict[str, int]] = {}
        for run in runs:
            for name, amounts in claims.get(run, {}).items():
                place = _place_of(nodes[name], self.tree) if name in nodes else None
                if place is not None:
                    _put(freed, place, amounts, -1)
            expected = self._expected.get(run)
            for share in expected.shares if expected is not None else ():
                for place, pods in share.places.items():
                    _put(freed, place, share.asked.ask.amounts, -pods)
        return freed


def _leaf_of(node: Node, tree: Tree) -> Leaf | None:
    return next((leaf for place in node.capacities for leaf in place.leaves if leaf.tree is tree), None)


def _place_of(node: Node, tree: Tree) -> Capacity | None:
    leaf = _leaf_of(node, tree)
    return leaf.capacity if leaf is not None else None


def _has(node: Node, labels: Mapping[str, str]) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())


def _beside(place: Capacity, used: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Amounts that are free in a place beside others."""
    free = dict(place.free.amounts)
    for amounts in used:
        for resource, amount in amounts.items():
            free[resource] = free.get(resource, 0) - amount
    return free


def _lacks(free: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    return any(amount > free.get(resource, 0) for resource, amount in amounts.items() if amount > 0)


def _put(total: dict[Capacity, dict[str, int]], place: Capacity, amounts: Mapping[str, int], times: int) -> None:
    mine = total.setdefault(place, {})
    for resource, amount in amounts.items():
        left = mine.get(resource, 0) + times * amount
        if left:
            mine[resource] = left
        else:
            mine.pop(resource, None)
