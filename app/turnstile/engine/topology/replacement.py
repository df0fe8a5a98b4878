"""Places of an assignment that exists: other nodes for those that failed, more or fewer pods, and what is gone.

All failed nodes are replaced at once; Kueue replaces the first and forgets the others. Must never move pods of a node
that works.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from turnstile.api.topologyassignment import Domain as Place
from turnstile.engine.causes import Cause
from turnstile.engine.pace import Sliced
from turnstile.engine.topology.placement import Placed, Placer, Wanted
from turnstile.engine.topology.shape import Shape, shape_of
from turnstile.engine.topology.tree import Domain, Tree


def stale(tree: Tree, places: Iterable[Place]) -> Place | None:
    """The first place that does not exist any more."""
    return next((place for place in places if tree.leaf(place.values) is None), None)


def merge(tree: Tree, one: Iterable[Place], other: Iterable[Place]) -> tuple[Place, ...]:
    """Places of both, in the order of their domains."""
    pods: dict[tuple[str, ...], int] = {}
    for place in (*one, *other):
        pods[place.values] = pods.get(place.values, 0) + place.pods

    def order(values: tuple[str, ...]) -> tuple[str, ...]:
        leaf = tree.leaf(values)
        return leaf.values if leaf is not None else values

    return tuple(Place(values, pods[values]) for values in sorted(pods, key=order))


def shrunk(places: Sequence[Place], pods: int) -> tuple[Place, ...]:
    """The first places, for so many pods."""
    found = []
    for place in places:
        if pods <= 0:
            break
        found.append(Place(place.values, min(place.pods, pods)))
        pods -= place.pods
    return tuple(found)


def grown(
    tree: Tree, placer: Placer, members: Sequence[Wanted], held: Sequence[Placed]
) -> Sliced[list[Placed] | str | None]:
    """Places of pod sets that have some already and want more or fewer; None if any of these is gone."""
    if any(stale(tree, each.places) is not None for each in held):
        return None
    found = []
    for member, before in zip(members, held, strict=True):
        placer.take(before, member.ask)
    for member, before in zip(members, held, strict=True):
        more = member.pods - sum(place.pods for place in before.places)
        if more <= 0:
            found.append(Placed(before.levels, shrunk(before.places, member.pods)))
            continue
        new = yield from placer.together([member._replace(pods=more)])
        if isinstance(new, str):
            return new
        placer.take(new[0], member.ask)
        found.append(Placed(before.levels, merge(tree, before.places, new[0].places)))
    return found


def replaced(
    tree: Tree,
    placer: Placer,
    wanted: Wanted,
    held: Placed,
    failed: AbstractSet[str],
    *,
    beside: Sequence[Place] = (),
) -> Sliced[Placed | str]:
    """Places of a pod set with other nodes for those that failed, or why there are none. `beside` are places of its
    group: a pod set that lost all its places belongs where its group is."""
    lost = [place for place in held.places if place.values[-1] in failed]
    kept = tuple(place for place in held.places if place.values[-1] not in failed)
    if not lost:
        return held
    if (gone := stale(tree, kept)) is not None:
        return Cause.PLACE_STALE.says(domain=",".join(gone.values))
    shape = shape_of(wanted.request, tree.levels)
    if isinstance(shape, str):
        return shape
    while lost:
        pods, within = _next(tree, shape, lost, kept, beside)
        found = yield from placer.together(
            [wanted._replace(pods=pods)], shape=_reduced(shape, pods), within=within, without=frozenset(failed)
        )
        if isinstance(found, str):
            return found
        placer.take(found[0], wanted.ask)
        kept = merge(tree, kept, found[0].places)
    return Placed(held.levels, kept)


def _next(
    tree: Tree, shape: Shape, lost: list[Place], kept: tuple[Place, ...], beside: Sequence[Place]
) -> tuple[int, Domain | None]:
    """Take the pods that are placed next off those that lost their place, and find the domain where they belong: those
    of all nodes, or of one node if its pods have to complete a slice that others are left of."""
    whole_slices = all(place.pods % size == 0 for place in lost for _, size in shape.layers)
    if whole_slices or not (kept or beside):
        pods = sum(place.pods for place in lost)
        lost.clear()
        return pods, _home(tree, shape, pods, kept, beside)[0]
    first = lost.pop(0).pods
    domain, whole = _home(tree, shape, first, kept, beside)
    together = first + sum(place.pods for place in lost)
    if not whole and lost:
        joint, whole = _home(tree, shape, together, kept, beside)
        if whole:
            lost.clear()
            return together, joint
    return first, domain


def _home(
    tree: Tree, shape: Shape, pods: int, kept: tuple[Place, ...], beside: Sequence[Place]
) -> tuple[Domain | None, bool]:
    """The domain in which so many pods have to be beside those that kept their place, None if in any; and whether
    their slices are complete then."""
    broken = [(level, size) for level, size in shape.layers if pods % size]
    if broken:
        level, size = broken[-1]
        left: dict[Domain, int] = {}
        for place in kept:
            domain = _above(tree, place, level)
            left[domain] = left.get(domain, 0) + place.pods
        found = next((domain for domain, count in left.items() if (count + pods) % size == 0), None)
        return found, found is not None
    if shape.required and (near := kept or beside):
        return _above(tree, near[0], shape.level), True
    return None, True


def _above(tree: Tree, place: Place, level: int) -> Domain:
    """The domain of a level in which a place is."""
    domain: Domain | None = tree.leaf(place.values)
    while domain is not None and domain.level > level:
        domain = domain.parent
    assert domain is not None, "stale places have been refused"
    return domain


def _reduced(shape: Shape, pods: int) -> Shape:
    """The request as far as it concerns so many pods: the innermost slices that they make."""
    last = len(shape.inner) - 1
    level, size = next(((level, size) for level, size in reversed(shape.layers) if pods % size == 0), (last, 1))
    return shape._replace(slice_level=level, slice_size=size, inner=(0,) * len(shape.inner))
