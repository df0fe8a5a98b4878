"""The node table and its trees: what a node has free, which domains nodes form, which places are gone."""

from collections.abc import Iterator
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.topology_assignments import domains, shown
from tests.conformance.topology_places import put_node, put_pod
from turnstile.api.topology import TopologyRequest
from turnstile.engine.topology.capacity import Ask, Frees
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.replacement import merge, shrunk, stale
from turnstile.engine.topology.shape import shape_of
from turnstile.engine.topology.tree import Domain, Leaf, Tree

Json = Any

_FLAVOR = "flavor"


def counted(case: Case, run: dict[str, Json]) -> list[str] | None:
    """How many pods fit into free amounts, and which resource allows the fewest."""
    found: list[str] | None = None
    frees = Frees()
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        if not args["$recv"]:
            continue  # no pod asks for nothing: each needs the place of a pod
        ask, free = Ask(args["$recv"] or {}), frees.of(args["capacity"] or {})
        have: Json = [ask.fits[free]]
        if step["op"].endswith("WithLimitingResource"):
            have.append(ask.limiting(free.amounts) if any(ask.amounts.values()) else results[-1])
        found = [*(found or []), *differs(step["op"], results[: len(have)], have)]
    return found


def _tree(nodes: Nodes, args: Json) -> Tree:
    """Domains of nodes by levels, as a call of the trace made them."""
    nodes.put_flavor(_FLAVOR, "default", args["levels"], {})
    for each in args.get("nodes") or ():
        put_node(nodes, each)
    return nodes.trees[_FLAVOR]


def _key(domain: Domain, tree: Tree) -> Json:
    """A domain as Go names it: a host by its name alone."""
    values = tree.key(domain.values) if isinstance(domain, Leaf) else domain.values
    return {"ID": ",".join(values), **({"Level": domain.level} if domain.level else {})}


def _shown(tree: Tree) -> Iterator[Json]:
    """All domains, as Go's test dumps them."""
    for level in range(len(tree.levels)):
        for domain in tree.domains(level):
            value: Json = {"LevelValues": list(domain.values)}
            if domain.parent is not None and domain.parent.level >= 0:
                value["Parent"] = _key(domain.parent, tree)
            else:
                value["Root"] = True
            if isinstance(domain, Leaf):
                value["Leaf"] = True
                value["CPUCapacity"] = domain.capacity.bare.amounts.get("cpu", 0)
                if tree.by_host:
                    value["NodeName"] = domain.node.name
            if domain.children:
                value["Children"] = [_key(child, tree) for child in domain.children]
            yield {"key": _key(domain, tree), "value": value}


def trees(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Domains that nodes form, whether a level exists, and what fits into a node."""
    nodes = Nodes()
    tree: Tree | None = None
    found: list[str] | None = None
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"].rpartition(".")[2]:
            case "newTopologyTree":
                tree = _tree(nodes, args)
            case "Fits" | "updateTASUsage" as call if tree is not None:
                values = tuple(args["domainID"].split(",")) if call == "updateTASUsage" else ()
                if call == "Fits":
                    places = Places()
                    for each in args["flavorUsage"]:
                        place = nodes.capacity(_FLAVOR, tree.levels, tuple(each["Values"]))
                        places.put(place, Ask(each["SinglePodRequests"]), each["Count"])
                    found = [*(found or []), *differs(step["op"], results[0], places.fits())]
                else:
                    sign = -1 if args["op"] else 1
                    nodes.capacity(_FLAVOR, tree.levels, values).take(args["usage"], sign * args["count"])
            case "HasLevel" if tree is not None:
                shape = shape_of(world.load(TopologyRequest, args["r"] or {}), tree.levels)
                missing = isinstance(shape, str) and shape.startswith("no requested topology level")
                found = [*(found or []), *differs(step["op"], results[0], not missing)]
            case _:
                continue
    for check in run.get("checks") or ():
        if check.get("of") == "dumpTopologyTree(tree)" and tree is not None:
            want = sorted(check.get("got") or (), key=str)
            found = [*(found or []), *differs("the tree", _sorted(want), _sorted(list(_shown(tree))))]
    return found


def _sorted(dump: list[Json]) -> list[Json]:
    def ordered(value: Json) -> Json:
        children = value["value"].get("Children")
        if children:
            value = {**value, "value": {**value["value"], "Children": sorted(children, key=str)}}
        return value

    return sorted(map(ordered, dump), key=lambda each: (each["key"].get("Level", 0), each["key"]["ID"]))


def assignments(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Assignments put together, cut off, and found to be of the past."""
    found: list[str] | None = None
    body = case.body.get("case") or {}
    if "newCount" in body:
        given = body["assignment"]
        want = domains(body["want"]) if body.get("want") else []
        return differs("the places", want, list(shrunk(domains(given), body["newCount"])) if given else [])
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"].rpartition(".")[2]:
            case "mergeTopologyAssignments":
                tree = Tree("default", args["a"].get("Levels") or args["b"]["Levels"], {}, ())
                have = list(merge(tree, domains(args["a"]), domains(args["b"])))
                found = [*(found or []), *differs(step["op"], results[0].get("Domains") or [], shown(have))]
            case "IsTopologyAssignmentStale":
                nodes = Nodes()
                tree = _tree(nodes, {"levels": body["tree"]["levelKeys"], "nodes": []})
                for leaf in body["tree"]["leaves"].values():
                    values = leaf["domain"]["levelValues"]
                    labels = dict(zip(tree.levels, values, strict=True))
                    nodes.put_node(values[-1], labels=labels, allocatable={}, taints=())
                gone = stale(tree, domains(args["ta"]))
                answer = [gone is not None, ",".join(gone.values) if gone is not None else ""]
                found = [*(found or []), *differs(step["op"], results, answer)]
            case _:
                continue
    return found


def outside(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Pods that topology did not place, and the nodes that have more free when one ends."""
    nodes = Nodes()
    names: set[str] = set()
    found: list[str] | None = None
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [""]
        match step["op"].rpartition(".")[2]:
            case "update":
                names.add((args["pod"].get("spec") or {}).get("nodeName", ""))
                have = put_pod(nodes, args["pod"])
                ended = (args["pod"].get("status") or {}).get("phase") in {"Succeeded", "Failed"}
                if ended or not have:
                    found = [*(found or []), *differs(step["op"], results[0], have)]
            case "delete" if "Name" in args.get("key", {}):
                key = f"{args['key'].get('Namespace', '')}/{args['key']['Name']}"
                found = [*(found or []), *differs(step["op"], results[0], nodes.drop_pod(key) or "")]
            case _:
                continue
    for check in run.get("checks") or ():
        if str(check.get("of")).startswith(("got", "collectNodeUsage")) and isinstance(check.get("got"), dict):
            have = {name: dict(nodes.outside(name)) for name in sorted(names) if nodes.outside(name)}
            found = [*(found or []), *differs("usage of nodes", check["got"], have)]
    return found


def nodes(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Changes of a node that count."""
    table = Nodes()
    generation = 0
    found: list[str] | None = None
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [0]
        match step["op"].rpartition(".")[2]:
            case "sync":
                generation += put_node(table, args["node"])
            case "delete":
                generation += table.drop_node(args["nodeName"])
            case "currentGeneration":
                found = [*(found or []), *differs(step["op"], results[0], generation)]
            case _:
                continue
    for check in run.get("checks") or ():
        if check.get("of") == "nc.schedulableAndReadyNodes":
            found = [*(found or []), *differs("nodes", sorted(check["got"] or ()), sorted(table.names))]
    return found
