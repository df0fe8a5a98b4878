"""Room on nodes for pods that no Topology places: whether each fits on a node, beside pods that are bound, and those
that Workloads have quota for and that are not bound yet.

Feasible, not placed: kube-scheduler chooses the nodes. Until it has, a pod of a Workload that holds quota is *expected*
on a node that has room for it; what is expected moves when nodes fill otherwise. Pods are counted by pod set and node.
Must never keep a pod from a node, nor know what quota is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from turnstile.api.topology import HOSTNAME
from turnstile.engine.causes import Cause
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.topology.capacity import PODS, Ask, Frees
from turnstile.engine.topology.counting import Kind, helped
from turnstile.engine.topology.eligibility import Pods
from turnstile.engine.topology.fits import Outlook, Overlay, put
from turnstile.engine.topology.loads import Bound
from turnstile.engine.topology.tree import Capacity, Leaf, Node, Tree

_NODE: Final = 0.6
"""Work to look at a node."""
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
        "_outlook",
        "_position",
        "freed",
        "tree",
        "version",
    )

    def __init__(self, frees: Frees) -> None:
        self.tree = Tree("", (HOSTNAME,), {}, ())
        self._outlook = Outlook(self.tree, frees)
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
        self._outlook.expect(place, share.asked.ask.amounts, pods)

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
        full: set[Capacity] = set()
        for place, amounts in self._outlook.expected.items():
            pace.left -= _NODE
            if pace.left <= 0:
                yield
                pace.renew()
            if _lacks(place.free.amounts, amounts):
                full.add(place)
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
        self._outlook.release()

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
                self._outlook.reserve(place, each.ask.amounts, pods)
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
                put(more, place, each.ask.amounts, pods)
            found.append(places)
        return found

    def _up_to(self, asked: Asked, more: Overlay, pace: Pace) -> Sliced[int]:
        """Pods that fit on all nodes."""
        fits = yield from self._outlook.fits(asked.kind, pace)
        return fits.total_with((yield from self._outlook.changed(fits, more, pace)))

    def _places(self, asked: Asked, pods: int, more: Overlay, pace: Pace) -> Sliced[list[tuple[Capacity, int]]]:
        """Places for so many pods, those first that have room for the fewest; fewer pods if there is no room."""
        fits = yield from self._outlook.fits(asked.kind, pace)
        changed = yield from self._outlook.changed(fits, more, pace)
        nodes = fits.roster.nodes
        found: list[tuple[Capacity, int]] = []
        for fit, node in fits.smallest_first(changed) if pods > 0 else ():
            pace.left -= _NODE
            if pace.left <= 0:
                yield
                pace.renew()
            found.append((nodes[node].capacity, min(fit, pods)))
            pods -= fit
            if pods <= 0:
                break
        return found

    def _why(self, asked: Asked, fit: int, more: Overlay, pace: Pace) -> Sliced[str]:
        """Why there is too little room."""
        fits = yield from self._outlook.fits(asked.kind, pace)
        labels = frozenset(asked.labels.items())
        found = fits.refusals.get(labels) if not more else None
        if found is None:
            found = yield from self._outlook.refusals(fits, labels, more, pace)
            if not more:
                fits.refusals[labels] = found
        nodes, reasons = found
        if not nodes:
            return Cause.ROOM_NO_NODE.says(flavor=asked.flavor)
        return Cause.ROOM_FEW.says(flavor=asked.flavor, fit=fit, needed=asked.pods) + reasons

    # Workloads that are tried again

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
                    put(freed, place, amounts, -1)
            expected = self._expected.get(run)
            for share in expected.shares if expected is not None else ():
                for place, pods in share.places.items():
                    put(freed, place, share.asked.ask.amounts, -pods)
        return freed


def _leaf_of(node: Node, tree: Tree) -> Leaf | None:
    return next((leaf for place in node.capacities for leaf in place.leaves if leaf.tree is tree), None)


def _place_of(node: Node, tree: Tree) -> Capacity | None:
    leaf = _leaf_of(node, tree)
    return leaf.capacity if leaf is not None else None


def _lacks(free: Mapping[str, int], amounts: Mapping[str, int]) -> bool:
    return any(amount > free.get(resource, 0) for resource, amount in amounts.items() if amount > 0)
