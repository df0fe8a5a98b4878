"""Parts of the scheduler: orders, the cohort graph, scan progress, snapshots after simulated changes."""

from typing import Any

from tests.conformance import engine_preemption, world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.quantity import to_int
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine.cycle.entries import Entry, entry_rank, outdated, to_reserve
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.options import Options
from turnstile.engine.preemption.candidates import WITHIN_QUEUE, Candidate, with_usage
from turnstile.engine.queue.clusterqueue import ClusterQueue as Queue
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ordering import effective_priority
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import Mode
from turnstile.engine.state import State

Json = Any


def _gates(case: Case, run: dict[str, Json]) -> Any:
    body = case.body.get("case") or {}
    return world.gates(case.body.get("featureGates"), run.get("gates"), body.get("featureGates"))


def pending_flavors(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether a scan left flavors untried."""
    body = case.body["case"]
    return differs(
        "pending", body["wantPendingFlavors"], body["state"] is not None and world.last_of(body["state"]).pending
    )


def last_assignment_outdated(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether a scan is to start over."""
    body = case.body["case"]
    args = body["args"]
    have = outdated(
        world.last_of(args.get("last") or {}),
        cycle=args.get("currentSchedulingCycle", 0),
        generation=args.get("currentCQGeneration", 0),
        hash_=world.known_hash(args.get("currentSchedulingHash", "")),
        preserve_progress=body["preserveProgress"],
    )
    return differs("outdated", body["want"], have)


def entry_order(case: Case, run: dict[str, Json]) -> list[str]:
    """Classical order of entries."""
    body = case.body["case"]
    gates = _gates(case, run)
    around = Surroundings(Options(gates=gates, wait_for_pods_ready=world.pods_ready(body["workloadOrdering"])))
    entries = []
    for item in body["input"] or ():
        head = item.get("Head") or {}
        info = Info(world.load(Workload, world.object_of(head.get("Info"))), around)
        entry = Entry(info, Queue("q"))
        entry.assignment = Assignment(LastAssignment([], 0, 0, ""))
        entry.assignment.borrowing = (item.get("assignment") or {}).get("Borrowing", 0)
        entry.nomination = Nomination(info.key) if head.get("IsPreemptor") else None
        entries.append(entry)
    places = {name: place for place, name in enumerate(body["wantOrder"] or ())}
    entries.sort(key=lambda entry: places.get(entry.info.workload.metadata.name, -1))  # equals in any order
    entries.sort(key=lambda entry: entry_rank(entry, gates)[:5])
    return differs("order", body["wantOrder"] or [], [entry.info.workload.metadata.name for entry in entries])


def candidates_order(case: Case, run: dict[str, Json]) -> list[str]:
    """Order of candidates for preemption."""
    body = case.body["case"]
    gates = _gates(case, run)
    fixture = case.body.get("fixture") or {}
    items = body["candidates"] or ()
    state = State(Options(gates=gates))
    own = fixture.get("preemptorCq") or "preemptor"
    queues = {name: Queue(name) for name in {item.get("ClusterQueue", "") for item in items} | {own}}
    preemptor = state.preemptor(world.when(fixture.get("now") or world.NOW))
    found = []
    for item in items:
        info = Info(world.load(Workload, world.object_of(item)), state.surroundings)
        queue = queues[item.get("ClusterQueue", "")]
        rank, used = preemptor.collector.rank(info, queue, queues[own]), item.get("LocalQueueFSUsage")
        found.append(Candidate(info, queue, rank, WITHIN_QUEUE, None, used))
    have = [candidate.info.workload.metadata.name for candidate in sorted(found, key=with_usage)]
    return differs("order", [name.rpartition("/")[2] for name in body["wantCandidates"] or ()], have)


def total_requests(case: Case, run: dict[str, Json]) -> list[str]:
    """Requests of an assignment by flavor and resource."""
    body = case.body["case"]
    if body["fields"].get("replaceWorkloadSlice"):
        return _total_of_slice(body)
    state = State()
    result = engine_preemption.assignment(state, {"wl": body["args"]["wl"], "assignment": body["fields"]})
    have = {str(pair): amount for pair, amount in result.usage.quota.items() if amount}
    return differs("requests", {name: int(amount) for name, amount in (body["want"] or {}).items()}, have)


def _total_of_slice(body: Json) -> list[str]:
    state = State()
    replaced = body["fields"]["replaceWorkloadSlice"]
    old = {item.get("Name", ""): item.get("Requests") or {} for item in replaced.get("TotalRequests") or ()}
    wl = {**body["args"]["wl"]}
    wl["TotalRequests"] = [
        {
            **item,
            "Requests": {
                name: amount - old.get(item.get("Name", ""), {}).get(name, 0)
                for name, amount in (item.get("Requests") or {}).items()
            },
        }
        for item in wl.get("TotalRequests") or ()
    ]
    counts = {item.get("Name", ""): item.get("Count", 0) for item in wl["TotalRequests"]}  # a slice is never in part
    pod_sets = [{**item, "Count": counts.get(item.get("Name", ""), 0)} for item in body["fields"].get("PodSets") or ()]
    result = engine_preemption.assignment(state, {"wl": wl, "assignment": {"PodSets": pod_sets}})
    have = {str(pair): amount for pair, amount in result.usage.quota.items() if amount}
    return differs("requests", {name: int(amount) for name, amount in (body["want"] or {}).items()}, have)


def graph(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Cohorts, their members, and cycles."""
    body = case.body["case"]
    if not any(step["op"].endswith("NewManager") for step in run["trace"]):
        return None
    state = State()
    queues: dict[str, str] = {}
    cohorts: dict[str, str] = {}
    for step in run["trace"]:
        args = step.get("args") or {}
        match step["op"].rsplit(".", 1)[-1]:
            case "AddCohort":
                cohorts.setdefault(args["cohortName"], "")
                state.put_cohort(_cohort(args["cohortName"], cohorts[args["cohortName"]]))
            case "UpdateCohortEdge":
                cohorts[args["name"]] = args["parentName"]
                state.put_cohort(_cohort(args["name"], args["parentName"]))
            case "DeleteCohort":
                cohorts.pop(args["name"], None)
                state.drop_cohort(args["name"])
            case "AddClusterQueue":
                queues[args["cq"]["name"]] = ""
                state.put_cluster_queue(_queue(args["cq"]["name"], ""), 0.0)
            case "UpdateClusterQueueEdge":
                queues[args["name"]] = args["parentName"]
                state.put_cluster_queue(_queue(args["name"], args["parentName"]), 0.0)
            case "DeleteClusterQueue":
                queues.pop(args["name"], None)
                state.drop_cluster_queue(args["name"])
    ledger = state.ledger
    if "wantCycles" in body:
        want = body["wantCycles"] or {}
        have = {name: ledger.cyclic(node) for name, node in ledger.cohorts.items() if name in want}
        return differs("cycles", want, have)
    edges = sorted((queue.name, queue.node.parent.name) for queue in state.cluster_queues.values() if queue.node.parent)
    cohort_edges = sorted((node.name, node.parent.name) for node in ledger.cohorts.values() if node.parent)
    return [
        *differs("cohorts", sorted(body["wantCohorts"] or []), sorted(ledger.cohorts)),
        *differs("queues", sorted(body["wantCqs"] or []), sorted(state.cluster_queues)),
        *differs("queue edges", sorted((item["child"], item["parent"]) for item in body["wantCqEdge"] or []), edges),
        *differs(
            "cohort edges",
            sorted((item["child"], item["parent"]) for item in body["wantCohortEdge"] or []),
            cohort_edges,
        ),
    ]


def _cohort(name: str, parent: str) -> Cohort:
    return world.load(Cohort, {"metadata": {"name": name}, "spec": {"parentName": parent or None}})  # type: ignore[no-any-return]


def _queue(name: str, cohort: str) -> ClusterQueue:
    return world.load(ClusterQueue, {"metadata": {"name": name}, "spec": {"cohortName": cohort or None}})  # type: ignore[no-any-return]


def local_usage(case: Case, run: dict[str, Json]) -> list[str]:
    """Usage of a LocalQueue."""
    body = case.body["case"]
    state = State()
    key = None
    for step in run["trace"]:
        args = step.get("args") or {}
        match step["op"].rsplit(".", 1)[-1]:
            case "AddClusterQueue":
                state.put_cluster_queue(world.load(ClusterQueue, args["cq"]), 0.0)
            case "AddLocalQueue":
                local = world.load(LocalQueue, args["q"])
                key = f"{local.metadata.namespace}/{local.metadata.name}"
                state.put_local_queue(local, 0.0)
            case "AddOrUpdateWorkload":
                state.put_workload(world.load(Workload, args["w"]), 0.0)
    if key is None:
        return []
    want = {
        (flavor["name"], item["name"]): to_int(item["name"], item["total"])
        for flavor in body["wantUsage"] or ()
        for item in flavor["resources"]
    }
    return differs(
        "usage", want, {(row.flavor, row.resource): row.total for row in state.questions.local_queue_usage(key)}
    )


def used_by(case: Case, run: dict[str, Json]) -> list[str]:
    """ClusterQueues that name a flavor, or a check."""
    body = case.body["case"]
    queues = {item["metadata"]["name"]: Queue(item["metadata"]["name"]) for item in body["clusterQueues"] or ()}
    for item in body["clusterQueues"] or ():
        queues[item["metadata"]["name"]].update(world.load(ClusterQueue, item))
    if "check" in body:
        have = sorted(
            name for name, queue in queues.items() if any(check.name == body["check"] for check in queue.checks)
        )
    else:
        flavor = next(
            step["args"]["flavor"] for step in run["trace"] if step["op"].endswith("ClusterQueuesUsingFlavor")
        )
        have = sorted(name for name, queue in queues.items() if flavor in queue.flavors())
    return differs("queues", sorted(body["wantInUseClusterQueueNames"] or []), have)


def boost(case: Case, run: dict[str, Json]) -> list[str]:
    """Boost of a priority, and the priority with it."""
    body = case.body["case"]
    workload = world.load(Workload, body["workload"])
    gates = _gates(case, run)
    have = effective_priority(workload, boost=gates.priority_boost)
    if "wantBoost" in body:
        return differs("boost", body["wantBoost"], have - (workload.spec.priority or 0))
    return differs("priority", body["wantPriority"], have) if not body.get("wantErr") else []


def reserve(case: Case, run: dict[str, Json]) -> list[str]:
    """Capacity kept for a head without candidates."""
    body = case.body["case"]
    state = State()
    name = ""
    for step in run["trace"]:
        args = step.get("args") or {}
        match step["op"].rsplit(".", 1)[-1]:
            case "AddOrUpdateResourceFlavor":
                state.put_flavor(world.load(ResourceFlavor, args["rf"]))
            case "AddClusterQueue":
                state.put_cluster_queue(world.load(ClusterQueue, args["cq"]), 0.0)
            case "AddOrUpdateWorkload":
                state.put_workload(world.load(Workload, args["w"]), 0.0)
            case "resourcesToReserve":
                name = args["cq"]["name"]
    state.ledger.settle()
    pair = state.surroundings.catalog.pair
    result = Assignment(LastAssignment([], 0, 0, ""))
    result.borrowing = int(body["borrowing"])
    result.usage = Usage(
        {pair(*key.split("/", 1)): int(amount) for key, amount in (body["assignmentUsage"] or {}).items()}
    )
    kept = result.usage  # what fits counts in full
    if engine_preemption.MODES[body["assignmentMode"]] is Mode.PREEMPT:
        kept = to_reserve(state.cluster_queues[name], result)
    have = {str(key): amount for key, amount in kept.quota.items()}
    return differs("reserved", {key: int(amount) for key, amount in (body["wantReserved"] or {}).items()}, have)


def subtree_quota(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Subtree quotas before and after a cohort goes."""
    body = case.body["case"]
    state = State()
    found: list[str] = []
    want = body["wantBefore"]
    for step in run["trace"]:
        args = step.get("args") or {}
        match step["op"].rsplit(".", 1)[-1]:
            case "AddOrUpdateCohort":
                state.put_cohort(world.load(Cohort, args["apiCohort"]))
            case "AddClusterQueue":
                state.put_cluster_queue(world.load(ClusterQueue, args["cq"]), 0.0)
            case "DeleteCohort":
                found += _subtree(state, want)
                state.drop_cohort(args["cohortName"])
                want = body["wantAfter"]
    return found + _subtree(state, want)


def _subtree(state: State, want: Json) -> list[str]:
    state.ledger.settle()
    found: list[str] = []
    for name, amounts in (want or {}).items():
        node = state.ledger.cohorts[name]
        have = {str(pair): amount for pair, amount in node.subtree.items()}
        found += differs(f"subtree of {name}", {key: int(amount) for key, amount in amounts.items()}, have)
    return found


def snapshot(case: Case, run: dict[str, Json]) -> list[str]:
    """Usages after workloads are taken out and put back."""
    body = case.body["case"]
    want = (body["want"].get("Manager") or {}).get("clusterQueues") or {}
    fixture = case.body.get("fixture") or {}
    state = State()
    for item in fixture.get("clusterQueues") or fixture.get("cqs") or ():
        state.put_cluster_queue(world.load(ClusterQueue, item), 0.0)
    for item in fixture.get("workloads") or ():
        state.put_workload(world.load(Workload, item), 0.0)
    state.ledger.settle()
    infos = {key: (queue, info) for queue in state.cluster_queues.values() for key, info in queue.workloads.items()}
    for key in body["remove"] or ():
        queue, info = infos[key.lstrip("/")]
        info.usage.remove_from(queue.node)
    for key in body["add"] or ():
        queue, info = infos[key.lstrip("/")]
        info.usage.add_to(queue.node)
    found: list[str] = []
    for name, item in want.items():
        if "ResourceNode" not in item:
            continue
        usage = {key: int(amount) for key, amount in (item["ResourceNode"].get("Usage") or {}).items() if amount}
        have = {str(pair): amount for pair, amount in state.cluster_queues[name].node.usage.items() if amount}
        found += differs(f"usage of {name}", usage, have)
        quotas = {key: int(amount) for key, amount in (item["ResourceNode"].get("SubtreeQuota") or {}).items()}
        have = {str(pair): amount for pair, amount in state.cluster_queues[name].node.subtree.items()}
        found += differs(f"quota of {name}", quotas, have)
        cohort = ((item.get("ClusterQueue") or {}).get("cohort")) or {}
        if "ResourceNode" in cohort:
            usage = {key: int(amount) for key, amount in (cohort["ResourceNode"].get("Usage") or {}).items() if amount}
            node = state.ledger.cohorts[cohort.get("Name", "")]
            have = {str(pair): amount for pair, amount in node.usage.items() if amount}
            found += differs(f"usage of cohort {node.name}", usage, have)
    return found
