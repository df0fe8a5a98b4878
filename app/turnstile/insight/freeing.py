"""A plan that frees a domain of a Topology, such as a rack: whose pods have to move, and the run time that is lost.

Domains are compared by the run time of the pods that topology placed in them; the engine is asked, as after a failure
of the nodes, whether these pods get other nodes. Must never decide, and never write.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.core import Node, Pod
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind, find_condition
from turnstile.api.quantity import to_int
from turnstile.api.workload import PodSetAssignment, Workload, WorkloadStatus
from turnstile.engine import Options
from turnstile.engine.instants import Instant
from turnstile.engine.intake import PLACES, node_of, workload_of
from turnstile.engine.topology.tree import Domain, Tree
from turnstile.insight.drain import displaced, places_of
from turnstile.insight.running import held
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import decided
from turnstile.wording.lost import lost

TRIED: Final = 8
"""Maximum number of domains of a flavor, those with the least run time first, for which the engine is asked."""


class Move(msgspec.Struct, frozen=True):
    """A Workload whose pods have to leave the domain."""

    workload: str
    pods: int
    """Pods that topology placed in the domain."""
    room: bool
    """Whether these get other nodes; otherwise the Workload is evicted."""
    again: bool
    """Whether an evicted Workload is admitted again at once, in another domain."""
    loses: str
    """The run that is lost, such as `16.7 GPU-hours`: of these pods, or of all if it is evicted."""


class Plan(msgspec.Struct, frozen=True):
    """The domain of a flavor that is freed at the least cost that was found."""

    flavor: str
    labels: dict[str, str]
    """Labels of its nodes: the flavor's, and those of the level and the levels above."""
    nodes: int
    moves: tuple[Move, ...]
    """Empty if topology has placed no pods there."""
    preempts: tuple[str, ...]
    """Other Workloads, which those that start again would preempt."""


def plans(snapshot: Snapshot, level: str, options: Options, now: Instant) -> tuple[Plan, ...]:
    """A plan for each flavor whose Topology has the level, which is a node label or the end of one after its `/`.

    Raises InvalidValue if no flavor has it, or if nodes, pods or Workloads could not all be read.
    """
    if not snapshot.objects.keys() >= {Node, Pod} or not snapshot.whole(Workload, *PLACES):
        cure = "it takes the right to list nodes, pods and Workloads of all namespaces, or a dump with all of them"
        raise InvalidValue("--free-domain", level, cure)
    state, _ = snapshot.state(options, now)
    trees = state.surroundings.nodes.trees
    found = [_plan(snapshot, flavor, trees[flavor], at, options, now) for flavor, at in _at_level(trees, level)]
    if not found:
        known = dict.fromkeys(label for tree in trees.values() if tree.by_host for label in tree.levels)
        cure = f"the levels are {', '.join(known)}" if known else "no flavor has a Topology with hosts that are ready"
        raise InvalidValue("--free-domain", level, cure)
    return tuple(found)


def _at_level(trees: Mapping[str, Tree], asked: str) -> Iterator[tuple[str, int]]:
    for flavor, tree in sorted(trees.items()):
        levels = [number for number, label in enumerate(tree.levels) if asked in (label, label.rpartition("/")[2])]
        if levels and tree.by_host and tree.domains(levels[0]):
            yield flavor, levels[0]


class _Stay(msgspec.Struct, frozen=True):
    """Pods of one pod set of a Workload in a domain."""

    workload: Workload
    given: PodSetAssignment
    pods: int
    seconds: float
    """Since the Workload was admitted."""


def _plan(snapshot: Snapshot, flavor: str, tree: Tree, level: int, options: Options, now: Instant) -> Plan:
    domains = tree.domains(level)
    hosts: dict[str, Domain] = {}
    names: dict[Domain, list[str]] = {each: [] for each in domains}
    for leaf in tree.leaves:
        domain: Domain = leaf
        while domain.level > level and domain.parent is not None:
            domain = domain.parent
        hosts[leaf.values[-1]] = domain
        names[domain] += (each.name for each in leaf.nodes)
    stays: dict[Domain, list[_Stay]] = {each: [] for each in domains}
    for domain, stay in _stays(snapshot, hosts, now):
        stays[domain].append(stay)
    cheapest = sorted(domains, key=lambda each: (_cost(stays[each]), each.values))
    found: list[Plan] = []
    for domain in islice(cheapest, TRIED):
        labels = {**tree.node_labels, **dict(zip(tree.levels, domain.values, strict=False))}
        moves, preempts = _moves(snapshot, stays[domain], names[domain], options, now)
        found.append(Plan(flavor, labels, len(names[domain]), moves, preempts))
        if _harm(found[-1]) == (0, 0):
            break
    return min(found, key=_harm)


def _stays(snapshot: Snapshot, hosts: Mapping[str, Domain], now: Instant) -> Iterator[tuple[Domain, _Stay]]:
    for workload in snapshot.of(Workload):
        admitted = find_condition(workload.status.conditions, wl.ADMITTED)
        since = instant(admitted.last_transition_time) if admitted is not None and admitted.status == "True" else None
        seconds = max(0.0, now - since.timestamp()) if since is not None else 0.0
        for given, host, pods in places_of(workload):
            if host in hosts:
                yield hosts[host], _Stay(workload, given, pods, seconds)


def _cost(stays: list[_Stay]) -> tuple[float, int]:
    return sum(each.pods * each.seconds for each in stays), sum(each.pods for each in stays)


def _harm(plan: Plan) -> tuple[int, int]:
    """Workloads that wait afterwards, and those that are evicted."""
    evicted = [each for each in plan.moves if not each.room]
    return sum(not each.again for each in evicted) + len(plan.preempts), len(evicted)


def _moves(
    snapshot: Snapshot, stays: list[_Stay], nodes: list[str], options: Options, now: Instant
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """All that have to leave, those first that are evicted, and others that would be preempted."""
    if not stays:
        return (), ()
    gone = [node for name in nodes if (node := snapshot.get(Node, name)) is not None]
    room = {each.workload for each in displaced(snapshot, gone, options, now) or () if each.room}
    by_workload: dict[str, list[_Stay]] = {}
    for each in stays:
        by_workload.setdefault(each.workload.metadata.key, []).append(each)
    evicted = by_workload.keys() - room
    again, preempts = _again(snapshot, gone, evicted, options, now)
    moves = []
    for key, mine in by_workload.items():
        loses = held(_admitted(mine[0].workload)) if key in evicted else _held_here(mine)
        pods = sum(each.pods for each in mine)
        moves.append(Move(key, pods, key not in evicted, key in again, lost(loses, mine[0].seconds)))
    return tuple(sorted(moves, key=lambda each: (each.room, each.again, -each.pods, each.workload))), preempts


def _again(
    snapshot: Snapshot, gone: Sequence[Node], evicted: AbstractSet[str], options: Options, now: Instant
) -> tuple[set[str], tuple[str, ...]]:
    """The evicted Workloads that the engine admits again without these nodes, and others that it preempts for them."""
    if not evicted:
        return set(), ()
    names = {each.metadata.name for each in gone}
    drop: list[tuple[type[Kind], str]] = [(Node, name) for name in names]
    drop += [
        (Pod, each.metadata.key) for each in snapshot.of(Pod) if node_of(each) in names or workload_of(each) in evicted
    ]
    put = [replace(each, status=WorkloadStatus()) for each in snapshot.of(Workload) if each.metadata.key in evicted]
    state, _ = snapshot.changed(put, drop).state(options, now)
    last = {fate.key: fate.outcome for _, found in decided(state, now) for fate in found}
    again = {key for key in evicted if last.get(key) in ("admitted", "reserved")}
    return again, tuple(sorted(key for key, fate in last.items() if fate == "preempted" and key not in evicted))


def _admitted(workload: Workload) -> Sequence[PodSetAssignment]:
    admission = workload.status.admission
    return admission.pod_set_assignments if admission is not None else []


def _held_here(stays: list[_Stay]) -> dict[str, int]:
    """The quota of those pods of a Workload, by resource."""
    total: dict[str, int] = {}
    for each in stays:
        for resource in each.given.flavors:
            amount = max(0, to_int(resource, each.given.resource_usage.get(resource, 0)))
            total[resource] = total.get(resource, 0) + amount * each.pods // max(1, each.given.count or 1)
    return total
