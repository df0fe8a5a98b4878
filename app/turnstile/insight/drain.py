"""A drained pool of nodes: whose pods lose their nodes, and the quotas as they would be if they shrank with the pool.

Turnstile's quotas say nothing about nodes, so a drain alone changes no quota: Workloads keep theirs, and their pods
wait for nodes; in a Topology they get other nodes, as after a failure, or are evicted. The honest question has two
parts, and this answers the first and prepares the second: which Workloads hold quota in flavors of the drained nodes,
and the ClusterQueues and Cohorts with each quota of such a flavor smaller in the proportion in which the flavor's nodes
go. Must never decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Node, Pod
from turnstile.api.effectivequota import with_groups
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind
from turnstile.api.pods import Quantity
from turnstile.api.quantity import to_int
from turnstile.api.quota import FlavorQuotas, ResourceGroup, ResourceQuota
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import PodSetAssignment, UnhealthyNode, Workload
from turnstile.engine import Options, cycle
from turnstile.engine.instants import Instant
from turnstile.engine.intake import PLACES, node_of
from turnstile.engine.queue.secondpasses import FIRST_SECONDS
from turnstile.engine.quota.amounts import quantity, text
from turnstile.insight.consequences import Change
from turnstile.insight.difference import Difference
from turnstile.insight.snapshot import Sees, Snapshot

Left = Mapping[str, tuple[int, int]]
"""The rest of each resource of a flavor: amounts that stay, and that there were."""


class Displaced(msgspec.Struct, frozen=True):
    """A Workload that loses places in a Topology."""

    workload: str
    pods: int
    """Pods that have their places on the drained nodes."""
    room: bool
    """Whether these get other nodes, as after a failure; otherwise the Workload is evicted, and waits again."""


class DrainedFlavor(msgspec.Struct, frozen=True):
    """A flavor that loses nodes. Without known nodes, `nodes` is 0 and the whole flavor goes."""

    flavor: str
    drained: int
    nodes: int
    loses: dict[str, str]
    """The capacity of the drained nodes for pods, by resource."""
    workloads: tuple[str, ...]
    """Workloads that hold quota in the flavor: the pods of some or all of them lose their nodes."""
    hidden: int
    """How many more do that the asker may not see."""
    displaced: tuple[Displaced, ...] | None = None
    """With a Topology, the Workloads that have places on the drained nodes; None without."""


class Drained(msgspec.Struct, frozen=True):
    """The effect of a drain, and the change of quotas that would go with it."""

    flavors: tuple[DrainedFlavor, ...]
    quotas: Change


def selector(text_: str) -> LabelSelector:
    """A selector as kubectl takes it: `pool=a,zone!=b,gpu`. Raises InvalidValue."""
    labels: dict[str, str] = {}
    others: list[LabelSelectorRequirement] = []
    for part in text_.split(","):
        if "!=" in part:
            key, _, value = part.partition("!=")
            others.append(LabelSelectorRequirement(key=key.strip(), operator="NotIn", values=[value.strip()]))
        elif "=" in part:
            key, _, value = part.partition("=")
            labels[key.strip()] = value.lstrip("=").strip()
        else:
            key = part.strip()
            others.append(LabelSelectorRequirement(key=key.lstrip("!"), operator=_exists(key)))
    if not all(labels) or not all(each.key for each in others):
        raise InvalidValue("--drain", text_, "give labels of nodes, such as pool=spot,zone!=a")
    return LabelSelector(match_labels=labels, match_expressions=others)


def _exists(key: str) -> str:
    return "DoesNotExist" if key.startswith("!") else "Exists"


def drained(
    snapshot: Snapshot, nodes: LabelSelector, options: Options, now: Instant, *, sees: Sees = lambda _: True
) -> Drained:
    """The effect of draining the selected nodes, without names of Workloads that the asker may not see. Raises
    InvalidValue if the nodes are of no flavor."""
    flavors, left = [], dict[str, Left]()
    for flavor in snapshot.of(ResourceFlavor):
        name, labels = flavor.metadata.name, flavor.spec.node_labels
        own = [each for each in snapshot.of(Node) if labels.items() <= each.metadata.labels.items()]
        gone = [each for each in own if nodes.matches(each.metadata.labels)]
        if own and gone:
            left[name] = _left(own, gone)
            loses = {resource: text(resource, was - stays) for resource, (stays, was) in left[name].items()}
        elif not _nodes_known(snapshot) and labels and nodes.matches(labels):
            left[name], loses = {}, {}
        else:
            continue
        holders = [each.metadata for each in snapshot.of(Workload) if name in _flavors(each)]
        seen = tuple(each.key for each in holders if sees(each.namespace))
        lost = displaced(snapshot, gone, options, now, flavor=name) if flavor.spec.topology_name else None
        shown = tuple(each for each in lost if sees(each.workload.partition("/")[0])) if lost is not None else None
        flavors.append(DrainedFlavor(name, len(gone), len(own), loses, seen, len(holders) - len(seen), shown))
    if not flavors:
        asked = [*nodes.match_labels.items(), *(f"{each.key} {each.operator}" for each in nodes.match_expressions)]
        cure = "no ResourceFlavor has such nodes: compare its spec.nodeLabels with `kubectl get nodes --show-labels`"
        raise InvalidValue("--drain", asked, cure)
    return Drained(tuple(flavors), Change(put=tuple(_shrunk(snapshot, left))))


def displaced(
    snapshot: Snapshot, gone: Sequence[Node], options: Options, now: Instant, *, flavor: str = ""
) -> list[Displaced] | None:
    """The Workloads that have places on the nodes, in a flavor if it is named, and whether the engine finds other nodes
    for their pods, all of them one after the other. None if nodes or pods are not known."""
    if not snapshot.whole(*PLACES) or Pod not in snapshot.objects:
        return None
    lost = {each.metadata.labels.get(HOSTNAME, "") for each in gone}
    pods: dict[str, int] = {}
    put: list[Kind] = []
    for workload in snapshot.of(Workload):
        here: dict[str, int] = {}
        for given, host, count in places_of(workload):
            if host in lost and (not flavor or flavor in given.flavors.values()):
                here[host] = here.get(host, 0) + count
        if here:
            pods[workload.metadata.key] = sum(here.values())
            named = [UnhealthyNode(name=host) for host in here]
            put.append(replace(workload, status=replace(workload.status, unhealthy_nodes=named)))
    names = {each.metadata.name for each in gone}
    drop: list[tuple[type[Kind], str]] = [(Node, name) for name in names]
    drop += [(Pod, each.metadata.key) for each in snapshot.of(Pod) if node_of(each) in names]
    state, _ = snapshot.changed(put, drop).state(options, now)
    placed = {each.key for each in cycle(state, now + FIRST_SECONDS) if each.outcome == "place"}
    return [Displaced(key, count, key in placed) for key, count in pods.items()]


def places_of(workload: Workload) -> Iterator[tuple[PodSetAssignment, str, int]]:
    """The hosts on which a Workload has places, with the pods of each, by pod set."""
    admission = workload.status.admission
    if admission is None or not workload.quota_reserved or workload.finished:
        return
    for each in admission.pod_set_assignments:
        given = each.topology_assignment
        if given is not None and given.levels[-1:] == [HOSTNAME]:
            yield from ((each, place.values[-1], place.pods) for place in decode(given))


def plain(compared: Difference, pool: Drained | None) -> dict[str, Any]:
    """The answer to *what if* for programs, with what a drain means if there is one."""
    found: dict[str, Any] = msgspec.to_builtins(compared)
    return found if pool is None else {**found, "drained": msgspec.to_builtins(pool.flavors)}


def read(answer: bytes) -> tuple[Difference, Drained | None]:
    """The answer of `plain` as JSON."""
    found = msgspec.json.decode(answer)
    flavors = found.pop("drained", None)
    pool = Drained(msgspec.convert(flavors, tuple[DrainedFlavor, ...]), Change()) if flavors is not None else None
    return msgspec.convert(found, Difference), pool


def _nodes_known(snapshot: Snapshot) -> bool:
    return any(True for _ in snapshot.of(Node))


def _left(own: Sequence[Node], gone: Sequence[Node]) -> Left:
    was, lost = _sum(own), _sum(gone)
    return {resource: (amount - lost.get(resource, 0), amount) for resource, amount in was.items()}


def _sum(nodes: Sequence[Node]) -> dict[str, int]:
    total: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.status.allocatable.items():
            total[resource] = total.get(resource, 0) + to_int(resource, amount)
    return total


def _flavors(workload: Workload) -> set[str]:
    admission = workload.status.admission
    if admission is None or not workload.quota_reserved or workload.finished:
        return set()
    return {name for each in admission.pod_set_assignments for name in each.flavors.values()}


def _shrunk(snapshot: Snapshot, left: Mapping[str, Left]) -> Iterator[ClusterQueue | Cohort]:
    owners: list[ClusterQueue | Cohort] = [*snapshot.of(ClusterQueue), *snapshot.of(Cohort)]
    for each in owners:
        groups = [_group(group, left) for group in each.spec.resource_groups]
        if groups != list(each.spec.resource_groups):
            yield with_groups(each, groups)


def _group(group: ResourceGroup, left: Mapping[str, Left]) -> ResourceGroup:
    flavors = [_flavor(item, left[item.name]) if item.name in left else item for item in group.flavors]
    return replace(group, flavors=flavors)


def _flavor(item: FlavorQuotas, left: Left) -> FlavorQuotas:
    return replace(item, resources=[_resource(each, left) for each in item.resources])


def _resource(quota: ResourceQuota, left: Left) -> ResourceQuota:
    """A quota in the proportion of what is left; all of it goes with a flavor whose nodes are not known, and with a
    resource that nodes do not tell of as soon as no node is left."""
    stays, was = left.get(quota.name, (0, 1))
    if quota.name not in left and any(amount for amount, _ in left.values()):
        return quota  # such as a count of licences: nodes do not tell of it

    def part(amount: Quantity) -> Quantity:
        return quantity(quota.name, to_int(quota.name, amount) * stays // was) if was else amount

    lending = quota.lending_limit
    return replace(
        quota,
        nominal_quota=part(quota.nominal_quota),
        lending_limit=part(lending) if lending is not None else None,
    )
