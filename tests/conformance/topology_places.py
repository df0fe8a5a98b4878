"""Places for pods in a topology: trees of nodes, and what is found in them."""

from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.topology_assignments import shown
from turnstile.api.core import Node, Pod
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import to_int
from turnstile.api.topology import TopologyAssignment, TopologyRequest
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload
from turnstile.engine.options import Gates
from turnstile.engine.pace import finish
from turnstile.engine.quota import requests
from turnstile.engine.quota.podsets import PodShape
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.placement import Placed, Placer, Policy, Wanted
from turnstile.engine.topology.replacement import grown, replaced
from turnstile.engine.topology.tree import Capacity

Json = Any


def put_node(nodes: Nodes, recorded: Json) -> bool:
    """A node as Go saw it; whether it changed what counts."""
    node = world.load(Node, recorded)
    if not node.takes_pods:
        return nodes.drop_node(node.metadata.name)
    return nodes.put_node(
        node.metadata.name,
        labels=node.metadata.labels,
        allocatable={name: to_int(name, value) for name, value in node.status.allocatable.items()},
        taints=node.spec.taints,
    )


def put_pod(nodes: Nodes, recorded: Json) -> str:
    """A pod that topology did not place, or that ended. The node that has more free now."""
    pod = world.load(Pod, {name: part for name, part in recorded.items() if name != "spec"})
    spec = world.load(PodSpec, recorded.get("spec") or {})
    if not spec.node_name or pod.status.phase in {"Succeeded", "Failed"}:
        return nodes.drop_pod(pod.metadata.key) or ""
    counted = requests.amounts(requests.pod_requests(requests.effective_pod(spec, overheads={}, limits={})))
    return nodes.put_pod(pod.metadata.key, spec.node_name, counted) or ""


def policy(gates: Gates) -> Policy:
    """What the gates of a case change."""
    return Policy(
        mixed=gates.tas_profile_mixed,
        balanced=gates.tas_balanced_placement,
        multi_layer=gates.tas_multi_layer_topology,
        liking=gates.tas_respect_node_affinity_preferred,
    )


def wanted(nodes: Nodes, recorded: Json) -> Wanted:
    """Pods of one pod set."""
    pod_set = recorded["PodSet"]
    request = pod_set.get("topologyRequest")
    return Wanted(
        pod_set.get("name", ""),
        recorded.get("Count", 0),
        nodes.frees.ask(recorded.get("SinglePodRequests") or {}),
        world.load(TopologyRequest, request) if request else None,
        PodShape(world.load(PodSpec, pod_set.get("template", {}).get("spec") or {})),
        recorded.get("PodSetGroupName", ""),
    )


def use(nodes: Nodes, flavor: str, recorded: Json) -> Capacity:
    """Have pods use a place, which is to be kept while they do."""
    capacity = nodes.capacity(flavor, nodes.trees[flavor].assigned_levels, tuple(recorded["Values"]))
    capacity.take(nodes.frees.ask(recorded["SinglePodRequests"]).amounts, recorded["Count"])
    return capacity


class _World:
    """What the calls of a case have made so far."""

    def __init__(self, gates: Gates) -> None:
        self.nodes = Nodes()
        self.policy = policy(gates)
        self.kept: list[Capacity] = []

    def flavor(self, ref: str, args: Json) -> None:
        info = args["flavorInfo"]
        levels = args["topologyInfo"]["Levels"]
        self.nodes.put_flavor(ref, info["TopologyName"], levels, info.get("NodeLabels") or {})

    def use(self, flavor: str, recorded: Json) -> None:
        self.kept += [use(self.nodes, flavor, each) for each in recorded]


def _assignment(placed: Placed | str) -> Json:
    if isinstance(placed, str):
        return {"FailureReason": placed}
    return {"TopologyAssignment": {"Levels": list(placed.levels), "Domains": shown(list(placed.places))}}


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run that finds places; None if none does."""
    gates = world.gates(case.body.get("featureGates"), run.get("gates"))
    made = _World(gates)
    found: list[str] | None = None
    workload: Workload | None = None
    for step in run.get("trace") or ():
        name = step["op"].rpartition(".")[2]
        args, results = step.get("args") or {}, step.get("results") or [None]
        match name:
            case "SyncNode":
                put_node(made.nodes, args["node"])
            case "DeleteNodeByName":
                made.nodes.drop_node(args["nodeName"])
            case "UpdateNonTASUsage":
                put_pod(made.nodes, args["pod"])
            case "NewTASFlavorCache":
                made.flavor(results[0]["$ref"], args)
            case "addUsage":
                made.use(args["$recv"]["$ref"], args["topologyRequests"])
            case "WithWorkload":
                workload = world.load(Workload, args["wl"])
            case "FindTopologyAssignmentsForFlavor":
                have = _find(made, args, workload)
                found = [*(found or []), *differs(step["op"], results[0], have)]
            case _:
                continue
    return found


def _find(made: _World, args: Json, workload: Workload | None) -> Json:
    tree = next(iter(made.nodes.trees.values()))
    placer = Placer(tree, made.nodes.frees, policy=made.policy)
    asked = [wanted(made.nodes, each) for each in args["flavorTASRequests"]]
    held = [_held(each) for each in args["flavorTASRequests"]]
    failed = {each.name for each in workload.status.unhealthy_nodes} if workload is not None else set()
    if workload is not None and failed:
        assert workload.status.admission is not None
        given = {each.name: each.topology_assignment for each in workload.status.admission.pod_set_assignments}
        return {
            each.name: _assignment(finish(replaced(tree, placer, each, _placed(given[each.name]), failed)))
            for each in asked
        }
    before = [each for each in held if each is not None]
    if len(before) == len(held):
        found = finish(grown(tree, placer, asked, before))
        if found is not None:
            told = [found] * len(asked) if isinstance(found, str) else found
            return {each.name: _assignment(placed) for each, placed in zip(asked, told, strict=True)}
    return {name: _assignment(each) for name, each in finish(placer.place(asked)).items()}


def _held(recorded: Json) -> Placed | None:
    before = recorded.get("PreviousAssignment")
    return _placed(world.load(TopologyAssignment, before)) if before else None


def _placed(assignment: TopologyAssignment | None) -> Placed:
    assert assignment is not None
    return Placed(tuple(assignment.levels), tuple(decode(assignment)))
