"""Nodes in racks and blocks, and pods that want a place there."""

from collections.abc import Iterable, Mapping

from turnstile.api.pods import PodSpec, Taint
from turnstile.api.topology import HOSTNAME, TopologyRequest
from turnstile.engine.pace import finish
from turnstile.engine.quota.podsets import PodShape
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.placement import Placed, Placer, Wanted

BLOCK, RACK = "block", "rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
FLAVOR = "gpu-nodes"
ANYWHERE = PodShape(PodSpec())


def cluster(racks: Mapping[str, Iterable[int]], *, taints: Iterable[Taint] = ()) -> Nodes:
    """Nodes by `block/rack`: for each the pods of one cpu that it has room for. Hosts are numbered: `rack-0`."""
    nodes = Nodes()
    nodes.put_flavor(FLAVOR, "default", LEVELS, {})
    for where, hosts in racks.items():
        block, _, rack = where.partition("/")
        for number, cpus in enumerate(hosts):
            put_node(nodes, f"{rack}-{number}", block=block, rack=rack, cpus=cpus, taints=taints)
    return nodes


def put_node(nodes: Nodes, name: str, *, block: str, rack: str, cpus: int, taints: Iterable[Taint] = ()) -> None:
    """One node that is ready."""
    labels = {BLOCK: block, RACK: rack, HOSTNAME: name}
    nodes.put_node(name, labels=labels, allocatable={"cpu": cpus, "pods": 2**40}, taints=tuple(taints))


def pods(nodes: Nodes, count: int, *, name: str = "main", cpus: int = 1, group: str = "", **request: object) -> Wanted:
    """Pods of so many cpus each, with a topology request."""
    asked = TopologyRequest(**request) if request else None  # type: ignore[arg-type]
    return Wanted(name, count, nodes.frees.ask({"cpu": cpus}), asked, ANYWHERE, group)


def place(nodes: Nodes, *wanted: Wanted, empty: bool = False) -> dict[str, dict[str, int] | str]:
    """Pods by host, or the reason why there is no place, by pod set."""
    found = finish(Placer(nodes.trees[FLAVOR], nodes.frees, empty=empty).place(wanted))
    return {name: by_host(each) if isinstance(each, Placed) else each for name, each in found.items()}


def by_host(placed: Placed) -> dict[str, int]:
    """Pods by host."""
    return {each.values[-1]: each.pods for each in placed.places}


def use(nodes: Nodes, host: str, count: int, *, cpus: int = 1) -> object:
    """Have pods of a Workload use a host. The place lasts as long as whoever keeps it."""
    capacity = nodes.capacity(FLAVOR, (HOSTNAME,), (host,))
    capacity.take(nodes.frees.ask({"cpu": cpus}).amounts, count)
    return capacity
