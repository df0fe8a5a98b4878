"""The page of nodes: the racks of a Topology as a picture, with what is free, which team uses what, and what failed.

A cell is a node, or the lowest domain of the Topology, filled by the part of one resource that is in use. The picture
of one moment is drawn once for all readers who see the same. Must never decide.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, sqrt
from typing import Final, NamedTuple

from turnstile.api.core import Node
from turnstile.api.localqueue import LocalQueue
from turnstile.engine.topology.tree import Capacity, Leaf, Tree
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World
from turnstile.wording.amounts import many, rank
from turnstile.wording.room import level_name

COLOURS: Final = 8
"""Colours of teams; a ninth team has the first one again."""
TEAMS: Final = 12
"""Teams in the legend, those that use the most first."""
TOGETHER: Final = 128
"""Cells that are drawn in one block; more are drawn in several blocks of half as many."""
PITCHES: Final = ((64, 26), (600, 17), (2000, 12), (1 << 62, 9))
"""Pixels from one cell to the next, by the number of cells."""
LISTED: Final = 256
"""Nodes of a rack in its table."""
KEPT: Final = 16
"""Pictures that are kept for other readers, until something changes."""
OTHERS: Final = "others"
"""Workloads of namespaces that the reader may not see."""


class Team(NamedTuple):
    """A namespace that uses the resource."""

    name: str
    colour: int
    """From 1 on; 0 for those that the reader may not see."""
    used: str


class Spot(NamedTuple):
    """One node of a rack, for its table."""

    name: str
    state: str
    """`ready`, `cordoned` or `failed`."""
    amounts: tuple[tuple[str, str, str], ...]
    """Resource, free amount, and the whole."""
    workloads: tuple[tuple[str, str], ...]
    """Keys of Workloads that have places there, and what they use of the resource."""
    hidden: str
    """The amount that Workloads use which the reader may not see; empty if there are none."""
    other: str
    """The amount that pods use which no Topology placed; empty if there are none."""


class Rack(NamedTuple):
    """One block of cells."""

    id: str
    name: str
    path: str
    """Its values; empty for a part of a rack."""
    free: str
    says: str
    """The rest of the sentence for those who do not see the picture."""
    cells: int
    columns: int
    marks: tuple[tuple[str, str], ...]
    """Classes and paths of what is drawn on the cells."""


class Section(NamedTuple):
    """The racks of one domain above them."""

    name: str
    free: str
    racks: tuple[Rack, ...]


class Hole(NamedTuple):
    """The domain of a level with the most that is free."""

    level: str
    name: str
    free: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything about the nodes of a flavor."""

    flavor: str
    flavors: tuple[str, ...]
    topology: str
    unit: str
    """A cell, as people call it: `node`."""
    resource: str
    resources: tuple[tuple[str, str], ...]
    """Names, and how people call them."""
    called: str
    """The resource, as people call it."""
    nodes: int
    empty: int
    """Nodes on which nothing is in use."""
    failed: int
    cordoned: int
    free: str
    total: str
    holes: tuple[Hole, ...]
    teams: tuple[Team, ...]
    more: int
    """Teams that are not in the legend."""
    other: str
    """The amount that pods use which no Topology placed; empty if there are none."""
    pitch: int
    sections: tuple[Section, ...]
    rack: str
    spots: tuple[Spot, ...]
    """Nodes of the rack that is asked for."""
    unlisted: int
    team: str


class _Cell(NamedTuple):
    """A node, or a domain of the lowest level."""

    values: tuple[str, ...]
    leaf: Leaf | None
    """None if it takes no pods."""
    state: str


class Pictures:
    """Draws the pages of nodes of one world, each once for what does not change."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._revision = -1
        self._kept: dict[tuple[object, ...], Picture] = {}

    def of(self, form: Mapping[str, str], sight: Sight = EVERYTHING) -> Picture | None:
        """The picture that a form asks for; None if there is no Topology, or the flavor has none."""
        world = self._world
        if self._revision != world.revision or len(self._kept) >= KEPT:
            self._revision = world.revision
            self._kept.clear()
        key = (*(form[name] for name in FIELDS), sight.namespaces)
        found = self._kept.get(key)
        if found is None:
            drawn = _picture(world, form, sight)
            if drawn is None:
                return None
            found = self._kept[key] = drawn
        return found


FIELDS: Final = ("flavor", "resource", "team", "rack", "workload")


def _picture(world: World, form: Mapping[str, str], sight: Sight) -> Picture | None:
    nodes = world.state.surroundings.nodes
    flavors = tuple(sorted(nodes.trees))
    flavor = form["flavor"] or max(flavors, key=lambda name: len(nodes.trees[name].leaves), default="")
    tree = nodes.trees.get(flavor)
    if tree is None:
        return None
    ready = (_Cell(leaf.values, leaf, "ready") for leaf in tree.leaves)
    cells = sorted([*ready, *_away(world, tree)], key=lambda cell: cell.values)
    resources = sorted({name for cell in cells if cell.leaf for name in _whole(cell.leaf)}, key=rank)
    resource = form["resource"] if form["resource"] in resources else next(iter(resources), "cpu")
    return _Drawing(world, tree, cells, resource, form, sight).picture(flavor, flavors, resources)


def _away(world: World, tree: Tree) -> Iterator[_Cell]:
    """Nodes of the flavor that take no pods now."""
    nodes, store = world.state.surroundings.nodes, world.of(Node)
    known = {*nodes.names}
    names = store.keys()
    for key in names:
        node = store.get(key) if key not in known else None
        values = tree.values_in(node.metadata.labels) if node is not None else None
        if node is None or values is None or tree.leaf(tree.key(values)) is not None:
            continue
        broken = node.is_broken(world.options.node_failure_conditions)
        yield _Cell(values, None, "cordoned" if node.is_ready and not broken else "failed")


def _whole(leaf: Leaf) -> Mapping[str, int]:
    if not leaf.others:
        return leaf.node.allocatable.amounts
    total: dict[str, int] = {}
    for node in leaf.nodes:
        for resource, amount in node.allocatable.amounts.items():
            total[resource] = total.get(resource, 0) + amount
    return total


class _Drawing:
    """One picture in the making."""

    def __init__(
        self, world: World, tree: Tree, cells: list[_Cell], resource: str, form: Mapping[str, str], sight: Sight
    ) -> None:
        self._tree = tree
        self._resource = resource
        self._form = form
        self._sight = sight
        self._colours = _colours(each.metadata.namespace for each in world.of(LocalQueue).values())
        self._users: dict[Capacity, list[tuple[str, int]]] = {}
        for key, places in world.state.surroundings.nodes.holders.items():
            for place in places.capacities:
                amount = (places.amounts(place) or {}).get(resource, 0)
                self._users.setdefault(place, []).append((key, amount))
        rack = form["rack"]
        self._shown = [cell for cell in cells if not rack or "/".join(cell.values[:-1]) == rack]
        self._pitch = next(pitch for most, pitch in PITCHES if len(self._shown) <= most)
        self._side = self._pitch - 2
        self._used: dict[str, int] = {}
        self._other = 0

    def picture(self, flavor: str, flavors: tuple[str, ...], resources: Sequence[str]) -> Picture:
        """All of it."""
        tree, rack, resource = self._tree, self._form["rack"], self._resource
        shown = self._shown
        sections = tuple(self._sections(shown))
        leaves = [cell.leaf for cell in shown if cell.leaf is not None]
        whole = sum(_whole(leaf).get(resource, 0) for leaf in leaves)
        teams = sorted(self._used.items(), key=lambda each: (-each[1], each[0]))
        listed = tuple(Team(name or OTHERS, self._colours.get(name, 0), self._says(used)) for name, used in teams)
        return Picture(
            flavor=flavor,
            flavors=flavors,
            topology=tree.topology,
            unit=level_name(tree.levels[-1]),
            resource=resource,
            resources=tuple((name, many(name)) for name in resources),
            called=many(resource),
            nodes=len(shown),
            empty=sum(leaf.capacity.free.amounts == _whole(leaf) for leaf in leaves),
            failed=sum(cell.state == "failed" for cell in shown),
            cordoned=sum(cell.state == "cordoned" for cell in shown),
            free=self._says(sum(map(self._free, leaves))),
            total=self._says(whole),
            holes=tuple(self._holes(shown)) if not rack else (),
            teams=listed[:TEAMS],
            more=max(0, len(listed) - TEAMS),
            other=self._says(self._other) if self._other else "",
            pitch=self._pitch,
            sections=sections,
            rack=rack,
            spots=tuple(self._spot(cell, resources) for cell in shown[:LISTED]) if rack else (),
            unlisted=max(0, len(shown) - LISTED) if rack else 0,
            team=self._form["team"],
        )

    def _says(self, amount: int) -> str:
        return rounded(self._resource, amount)

    def _free(self, leaf: Leaf) -> int:
        return max(0, leaf.capacity.free.amounts.get(self._resource, 0))

    def _holes(self, cells: Sequence[_Cell]) -> Iterator[Hole]:
        """The largest hole of each level above the lowest one."""
        for level in range(len(self._tree.levels) - 1):
            free: dict[tuple[str, ...], int] = {}
            for cell in cells:
                if cell.leaf is not None:
                    above = cell.values[: level + 1]
                    free[above] = free.get(above, 0) + self._free(cell.leaf)
            if free:
                most = max(free, key=lambda values: free[values])
                yield Hole(level_name(self._tree.levels[level]), "/".join(most), self._says(free[most]))

    def _sections(self, cells: Sequence[_Cell]) -> Iterator[Section]:
        levels = [level_name(level) for level in self._tree.levels]
        for above, members in groupby(cells, key=lambda cell: cell.values[:-2]):
            names = [f"{level} {value}" for level, value in zip(levels, above, strict=False)]
            held = list(members)
            free = sum(self._free(cell.leaf) for cell in held if cell.leaf is not None)
            yield Section(" / ".join(names), self._says(free), tuple(self._racks(held)))

    def _racks(self, cells: Iterable[_Cell]) -> Iterator[Rack]:
        for values, members in groupby(cells, key=lambda cell: cell.values[:-1]):
            held = list(members)
            name, path = values[-1] if values else "", "/".join(values)
            if len(held) <= TOGETHER:
                yield self._rack(name, path, path, held)
                continue
            for start in range(0, len(held), TOGETHER // 2):
                part = held[start : start + TOGETHER // 2]
                yield self._rack(f"{part[0].values[-1]} …", "", f"{path}/{start}", part)

    def _rack(self, name: str, path: str, id_: str, cells: Sequence[_Cell]) -> Rack:
        columns = ceil(sqrt(2 * len(cells)))
        marks: dict[str, list[str]] = {}
        free = away = 0
        for number, cell in enumerate(cells):
            x, y = number % columns * self._pitch + 1, number // columns * self._pitch + 1
            if cell.leaf is None:
                away += 1
                marks.setdefault(cell.state, []).append(self._crossed(x, y, twice=cell.state == "failed"))
                continue
            free += self._free(cell.leaf)
            self._fill(cell.leaf, x, y, marks)
        amount = self._says(free)
        takes_none = f", {away} {'takes' if away == 1 else 'take'} no pods" if away else ""
        says = f" {many(self._resource)} on {len(cells)} {level_name(self._tree.levels[-1])}s{takes_none}"
        paths = tuple((kind, "".join(found)) for kind, found in sorted(marks.items()))
        return Rack(f"rack-{id_}", name, path, amount, says, len(cells), columns, paths)

    def _fill(self, leaf: Leaf, x: int, y: int, marks: dict[str, list[str]]) -> None:
        """Draw what is in use, from the bottom to the top: first pods that no Topology placed, then the teams."""
        whole = _whole(leaf).get(self._resource, 0)
        outside = max(0, whole - leaf.capacity.bare.amounts.get(self._resource, 0))
        self._other += outside
        parts: dict[str, int] = {"other": outside} if outside else {}
        mine = False
        for key, amount in self._users.get(leaf.capacity, ()):
            name = key.partition("/")[0] if self._sight.shows(key) else ""
            self._used[name] = self._used.get(name, 0) + amount
            kind = f"team-{self._colours.get(name, 0)}" if self._form["team"] in ("", name) else "dim"
            parts[kind] = parts.get(kind, 0) + amount
            mine = mine or (bool(name) and key == self._form["workload"])
        bottom = float(y + self._side)
        for kind, amount in sorted(parts.items()):
            height = min(bottom - y, self._side * amount / whole) if whole else 0
            if height > 0:
                bottom -= height
                marks.setdefault(kind, []).append(_box(x, bottom, self._side, height))
        if mine:
            marks.setdefault("mine", []).append(_box(x, y, self._side, self._side))

    def _crossed(self, x: int, y: int, *, twice: bool) -> str:
        near, far = 0.5, self._side - 0.5
        line = f"M{x + near} {y + far}L{x + far} {y + near}"
        return f"{line}M{x + near} {y + near}L{x + far} {y + far}" if twice else line

    def _spot(self, cell: _Cell, resources: Sequence[str]) -> Spot:
        name, leaf = cell.values[-1], cell.leaf
        if leaf is None:
            return Spot(name, cell.state, (), (), "", "")
        whole, free = _whole(leaf), leaf.capacity.free.amounts
        amounts = tuple(
            (each, rounded(each, max(0, free.get(each, 0))), rounded(each, whole.get(each, 0))) for each in resources
        )
        users = self._users.get(leaf.capacity, ())
        shown = tuple((key, self._says(amount)) for key, amount in users if self._sight.shows(key))
        hidden = sum(amount for key, amount in users if not self._sight.shows(key))
        outside = max(0, whole.get(self._resource, 0) - leaf.capacity.bare.amounts.get(self._resource, 0))
        return Spot(
            name,
            cell.state,
            amounts,
            shown,
            self._says(hidden) if hidden else "",
            self._says(outside) if outside else "",
        )


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x} {y:g}h{width}v{height:.4g}h-{width}z"


def _colours(namespaces: Iterable[str]) -> dict[str, int]:
    """A colour for each namespace with a queue, which stays while no namespace comes or goes."""
    return {name: number % COLOURS + 1 for number, name in enumerate(sorted({*namespaces}))}


_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def rounded(resource: str, amount: int) -> str:
    """An amount as a picture shows it, to one digit after the point."""
    if resource == "cpu":
        return f"{amount / 1000:,.1f}".removesuffix(".0")
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if amount >= size:
                return f"{amount / size:,.1f}".removesuffix(".0") + unit
    return f"{amount:,}"
