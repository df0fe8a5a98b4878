"""Flavor assignment alone, with the answers of the preemption oracle given."""

from typing import Any

from tests.conformance import topology_places, world
from tests.conformance.cases import Case, pass_over
from tests.conformance.engine_cycles import compare_pod_sets
from turnstile.api.clusterqueue import FlavorFungibility
from turnstile.api.workload import PodSet, Workload
from turnstile.engine.flavors import partial
from turnstile.engine.flavors.assigner import Assigner
from turnstile.engine.flavors.fungibility import better
from turnstile.engine.flavors.places import policy_of
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.pace import Sliced, finish
from turnstile.engine.quota import tree
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.reasons import Possibility
from turnstile.engine.state import State

Json = Any

POSSIBILITY = {
    "": Possibility.NO_CANDIDATES,
    "NoCandidates": Possibility.NO_CANDIDATES,
    "Preempt": Possibility.PREEMPT,
    "Reclaim": Possibility.RECLAIM,
}


def check(case: Case, run: dict[str, Json]) -> list[str]:
    """Differences of every Assign of a recorded run."""
    scenario = case.body["scenario"]
    gates = world.gates(case.body.get("featureGates"), run.get("gates"))
    options = world.options(scenario["config"], gates)
    state = world.build(scenario["objects"], options, 0.0)
    state.ledger.settle()
    found: list[str] = []
    assigner: Assigner | None = None
    info: Info | None = None
    replaced: Info | None = None
    pins: Json = None
    queue = ""
    kept: list[Json] = []
    """Places, which are forgotten once nobody has them."""
    for step in run["steps"]:
        args = step.get("args") or {}
        match step["do"].rsplit(".", 1)[-1]:
            case "AddUsage":
                usage = (((args.get("usage") or {}).get("Quota") or {}).get("Assigned")) or {}
                on = state.cluster_queues.get(args.get("on") or (args.get("$recv") or {}).get("name", ""))
                for name, amount in usage.items() if on is not None else ():
                    pair = state.surroundings.catalog.pair(*name.split("/", 1))
                    tree.add_usage(on.node, pair, int(amount))
                for flavor, places in ((args.get("usage") or {}).get("TAS") or {}).items():
                    kept += [topology_places.use(state.surroundings.nodes, flavor, each) for each in places]
            case "DeleteResourceFlavor":
                state.drop_flavor(args["rf"]["metadata"]["name"])
            case "New":
                queue, wl = args["cq"], args["wl"]
                assigner = _assigner(state, args)
                info = _info(state, wl)
                pins = wl.get("NominationMapping")
                slice_ = args.get("preemptWorkloadSlice")
                replaced = _info(state, slice_) if slice_ else None
            case "Assign":
                if assigner is None or info is None or queue not in state.cluster_queues:
                    continue
                on = state.cluster_queues[queue]
                result = finish(assigner.assign(on, info, counts=args.get("counts"), pins=pins, replaced=replaced))
                want = (step.get("results") or [{}])[0] or {}
                found += _compare(want, result, observable=gates.unadmitted_workloads_observability)
            case _:
                pass_over(step["do"])
    return found


def _info(state: State, recorded: Json) -> Info:
    info = Info(world.load(Workload, recorded.get("Obj") or {"spec": {}}), state.surroundings)
    shapes = [item.shape for item in info.totals]
    pod_sets = [item.pod_set for item in info.totals]
    info.totals = [
        PodSetTotals(
            name=item.get("Name", ""),
            count=item.get("Count", 0),
            requests={name: int(amount) for name, amount in (item.get("Requests") or {}).items()},
            flavors=item.get("Flavors"),
            shape=shapes[index] if index < len(shapes) else None,
            pod_set=pod_sets[index] if index < len(pod_sets) else None,
        )
        for index, item in enumerate(recorded.get("TotalRequests") or ())
    ]
    return info


def _assigner(state: State, args: dict[str, Json]) -> Assigner:
    answers = (args.get("oracle") or {}).get("simulationResult") or {}

    def oracle(_queue: Json, _info: Json, pair: Json, _amount: int) -> Sliced[tuple[Possibility, int]]:
        yield from ()
        answer = answers.get(f"{pair.flavor}/{pair.resource}")
        if answer is None:
            return Possibility.PREEMPT, 0
        return POSSIBILITY[answer.get("preemptionPossiblity", "")], answer.get("borrowingAfterSimulation", 0)

    gates, known = state.options.gates, state.activity.flavors
    setup = Setup(
        flavors={name: known[name] for name in args.get("resourceFlavors") or () if name in known},
        pair=state.surroundings.catalog.pair,
        oracle=oracle,
        topologies=state.activity.topologies,
        nodes=state.surroundings.nodes,
        policy=policy_of(gates),
        observable=gates.unadmitted_workloads_observability,
        fungible=gates.flavor_fungibility,
        fair_sharing=bool(args.get("enableFairSharing")),
        ignore_undeclared=gates.quota_check_strategy and args.get("quotaCheckStrategy") == "IgnoreUndeclared",
    )
    assigner = Assigner(setup)
    assigner.cycle = args.get("schedulingCycle") or 0
    return assigner


def _compare(want: dict[str, Json], result: Json, *, observable: bool) -> list[str]:
    found = compare_pod_sets(want.get("PodSets") or [], result.pod_sets, observable=observable)
    if want.get("representativeMode", "NoFit") != result.mode.text:
        found.append(f"mode: want {want.get('representativeMode')}, have {result.mode.text}")
    if want.get("Borrowing", 0) != result.borrowing:
        found.append(f"borrowing: want {want.get('Borrowing', 0)}, have {result.borrowing}")
    assigned = ((want.get("Usage") or {}).get("Quota") or {}).get("Assigned") or {}
    usage = {name: int(amount) for name, amount in assigned.items()}
    have = {str(pair): amount for pair, amount in result.usage.quota.items()}
    if usage != have:
        found.append(f"usage: want {usage}, have {have}")
    tried = [item or {} for item in (want.get("LastState") or {}).get("LastTriedFlavorIdx") or []]
    if tried != result.last.tried:
        found.append(f"last tried: want {tried}, have {result.last.tried}")
    if observable and want.get("NoFitReason", "") != (result.no_fit_reason if result.mode == 0 else ""):
        found.append(f"no fit reason: want {want.get('NoFitReason', '')!r}, have {result.no_fit_reason!r}")
    return found


def check_search(case: Case, run: dict[str, Json]) -> list[str]:
    """The search for reduced pod counts."""
    body = case.body["case"]
    pod_sets = [world.load(PodSet, item) for item in body["podSets"] or ()]

    def fits(counts: list[int]) -> Sliced[int | None]:
        yield from ()
        return sum(counts) if sum(counts) <= body["countLimit"] else None

    found = finish(partial.search([item.count for item in pod_sets], [item.min_count for item in pod_sets], fits))
    have = (found is not None, found or 0)
    want = (body["wantFound"], body["wantCount"])
    return [] if want[0] == have[0] and (not want[0] or want == have) else [f"want {want}, have {have}"]


def check_preferred(case: Case, run: dict[str, Json]) -> list[str]:
    """Which of two ways is preferred."""
    body = case.body["case"]
    names = {"noFit": 0, "noPreemptionCandidates": 1, "preempt": 2, "reclaim": 3, "fit": 4}

    def mode(value: Json) -> tuple[Possibility, int]:
        how = value.get("preemptionMode", 0)
        return Possibility(names.get(how, how)), value.get("borrowingLevel", 0)

    gates = world.gates(case.body.get("featureGates"), run.get("gates"))
    config = body.get("config") or {}
    fungibility = world.load(
        FlavorFungibility, {name[0].lower() + name[1:]: value for name, value in config.items() if value}
    )
    have = better(*mode(body["a"]), *mode(body["b"]), fungibility, fungible=gates.flavor_fungibility)
    return [] if have == body["wantPreferred"] else [f"want {body['wantPreferred']}, have {have}"]
