"""Workloads that hold quota and need places, when a cycle looks for them, and which pods get places in which flavor."""

import math
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api.topologyassignment import hosts
from turnstile.api.workload import Workload
from turnstile.engine.flavors.assignment import Assignment, PodSetAssignment
from turnstile.engine.flavors.places import PlaceFinder, policy_of
from turnstile.engine.options import Options
from turnstile.engine.pace import Pace
from turnstile.engine.queue.secondpasses import SecondPasses, needs_second_pass
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.engine.reasons import FlavorChoice, Mode

Json = Any


def needed(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether a Workload needs a second pass."""
    info = Info(world.load(Workload, case.body["case"]["wl"]), Surroundings(Options()))
    return differs("needs", case.body["case"]["want"], needs_second_pass(info))


def used(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The nodes on which an admitted Workload has places."""
    workload = world.load(Workload, case.body["case"]["wl"])
    admission = workload.status.admission if workload.admitted else None
    found = {
        host
        for each in (admission.pod_set_assignments if admission is not None else ())
        for host in hosts(each.topology_assignment)
    }
    return differs("nodes", sorted(case.body["case"]["want"] or ()), sorted(found))


def queued(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whose turn has come. Kueue is asked to queue a Workload; here each version that is seen says it."""
    passes, surroundings, now = SecondPasses(), Surroundings(Options()), world.when(world.NOW)
    found: list[str] = []
    for step in run["trace"]:
        args, results = step.get("args") or {}, step.get("results") or []
        match step["op"].rpartition(".")[2]:
            case "QueueSecondPassIfNeeded":
                info = Info(world.load(Workload, args["w"]), surroundings)
                before = info.key in passes.due(math.inf)
                passes.follow(info, now)
                found += differs(step["op"], results, [info.key in passes.due(math.inf) and not before])
            case "set":
                now = world.when(args["now"])
            case "takeAllReady":
                want = sorted(world.key_of(each["Info"]["Obj"]) for each in results[0] or ())
                found += differs(step["op"], want, sorted(passes.due(now)))
            case _:
                continue
    return found


def asked(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The pod sets that get places in a flavor, or why there are none."""
    found: list[str] | None = None
    for step in run["trace"]:
        if not step["op"].endswith("Assignment.WorkloadsTopologyRequests"):
            continue
        table = case.body["case"]
        options = Options(gates=world.gates(case.body.get("featureGates"), run.get("gates")))
        surroundings = Surroundings(options)
        for flavors in (table.get("assignment") or {}).get("PodSets") or table.get("podSets") or ():
            for choice in flavors["Flavors"].values():
                surroundings.nodes.put_flavor(choice["Name"], "default", ("kubernetes.io/hostname",), {})
        info = Info(world.load(Workload, step["args"]["wl"]["Obj"]), surroundings)
        result = Assignment(LastAssignment([], 0, 0, ""))
        for each in (table.get("assignment") or {}).get("PodSets") or table["podSets"]:
            pod_set = PodSetAssignment(each["Name"], each.get("Count", 0), {})
            pod_set.flavors = {
                name: FlavorChoice(choice["Name"], Mode.FIT, 0) for name, choice in each["Flavors"].items()
            }
            result.add(pod_set, {})
        finder = PlaceFinder(surroundings.nodes, policy_of(options.gates), Pace(), delays=lambda _, __: False)
        have = {
            flavor: [(each.name, each.pods, each.ask.amounts["cpu"]) for each in wanted]
            for flavor, wanted in finder._wanted(ClusterQueue("cq"), info, result).items()
        }
        want = {
            flavor: [(each["PodSet"]["name"], each["Count"], each["SinglePodRequests"]["cpu"]) for each in wanted]
            for flavor, wanted in (step["results"][0] or {}).items()
        }
        found = [*(found or []), *differs("requests", want, have)]
    return found
