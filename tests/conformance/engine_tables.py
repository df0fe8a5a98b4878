"""Tables: one function, its inputs, its answer."""

import math
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, pass_over
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import to_int
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine.options import Options
from turnstile.engine.queue import consumption as usage
from turnstile.engine.quota import requests, shares, tree
from turnstile.engine.quota.amounts import FlavorResource, bounded, quota
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ordering import effective_priority, queue_timestamp
from turnstile.engine.quota.requests import LimitSummary, effective_pod
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.engine.state import State

Json = Any


def differs(what: str, want: Json, have: Json) -> list[str]:
    """A difference, if there is one."""
    return [] if want == have else [f"{what}: want {want!r}, have {have!r}"]


def _gates(case: Case, run: dict[str, Json]) -> Any:
    body = case.body.get("case") or {}
    inner = body.get("featureGates") if isinstance(body, dict) else None
    return world.gates(case.body.get("featureGates"), run.get("gates"), inner)


def _number(value: Json) -> Json:
    return "Unlimited" if value == "Unlimited" else int(value)


# The tree


def _tree(case: Case, run: dict[str, Json]) -> State:
    """Caches are built by the calls of the trace."""
    state = State(Options(gates=_gates(case, run)))
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"].rsplit(".", 1)[-1]:
            case "AddOrUpdateResourceFlavor":
                state.put_flavor(world.load(ResourceFlavor, args["rf"]))
            case "AddClusterQueue":
                state.put_cluster_queue(world.load(ClusterQueue, args["cq"]), 0.0)
            case "AddOrUpdateCohort":
                state.put_cohort(world.load(Cohort, args.get("apiCohort") or args.get("cohort")))
            case "AddOrUpdateWorkload":
                state.put_workload(world.load(Workload, args.get("w") or args.get("newWl") or args.get("wl")), 0.0)
    state.ledger.settle()
    return state


def never_negative(node: tree.Node, pair: FlavorResource) -> int:
    """What is free for a ClusterQueue, as Kueue tells it: debts elsewhere in the tree are not shown."""
    return max(0, tree.available(node, pair))


def available(case: Case, run: dict[str, Json]) -> list[str]:
    """What is available, in use and if nothing were."""
    body = case.body["case"]
    state = State()
    for item in body["clusterQueues"] or ():
        state.put_cluster_queue(world.load(ClusterQueue, item), 0.0)
    for item in body["cohorts"] or ():
        state.put_cohort(world.load(Cohort, item))
    state.ledger.settle()
    pair = state.surroundings.catalog.pair
    for name, amounts in (body["usage"] or {}).items():
        for key, amount in amounts.items():
            tree.add_usage(state.cluster_queues[name].node, pair(*key.split("/", 1)), int(amount))
    found = []
    for what, want, ask in (
        ("available", body["wantAvailable"], never_negative),
        ("potential", body["wantPotentiallyAvailable"], tree.potential),
    ):
        for name, amounts in (want or {}).items():
            for key, amount in amounts.items():
                have = bounded(ask(state.cluster_queues[name].node, pair(*key.split("/", 1))))
                found += differs(f"{what} {name} {key}", amount if amount != "Unlimited" else 2**63 - 1, have)
    return found


def dominant_share(case: Case, run: dict[str, Json]) -> list[str]:
    """Dominant resource shares of all nodes."""
    state = _tree(case, run)
    pair = state.surroundings.catalog.pair
    found: list[str] = []
    calls = run.get("trace") or ()
    for index, step in enumerate(calls):
        if not step["op"].endswith("scheduler.dominantResourceShare"):
            continue
        name = step["args"]["node"].get("name")
        node = state.cluster_queues[name].node if name in state.cluster_queues else state.ledger.cohorts.get(name)
        if node is None:
            continue
        extra = step["args"].get("wlReq") or {}
        for key, amount in extra.items():
            tree.add_usage(node, pair(*key.split("/", 1)), int(amount))
        share = shares.share(node)
        ratio, resource = shares.dominant(node)
        borrowed = {str(key) for key in node.subtree if node.parent is not None and tree.borrowing_with(node, key, 0)}
        for key, amount in extra.items():
            tree.remove_usage(node, pair(*key.split("/", 1)), int(amount))
        rounded = next(
            (each["results"][0] for each in calls[index : index + 3] if each["op"].endswith("roundedWeightedShare")),
            None,
        )
        if rounded is not None:
            found += differs(f"share of {name}", float(rounded), float(share.status))
        want = (step.get("results") or [{}])[0]
        if isinstance(want, dict):
            found += differs(f"dominant resource of {name}", want.get("dominantResource", ""), resource)
            found += differs(f"ratio of {name}", float(want.get("unweightedRatio", 0)), ratio)
            if name in state.cluster_queues or name in state.ledger.declared:
                found += differs(f"weight of {name}", float(want.get("fairWeight", 0)), node.weight)
            found += differs(f"{name} borrows", bool(want.get("borrowing")), bool(borrowed))
            found += differs(f"borrowed by {name}", _pairs(want.get("borrowedFRs")), borrowed)
    return found


def _pairs(recorded: Json) -> set[str]:
    return {f"{each.get('Flavor', '')}/{each.get('Resource', '')}" for each in recorded or ()}


def check_readiness(case: Case, run: dict[str, Json]) -> list[str]:
    """Reason and message of a ClusterQueue with admission checks."""
    body = case.body["case"]
    state = State(Options(gates=_gates(case, run)))
    for name, item in (body["admissionChecks"] or {}).items():
        state.put_admission_check(name, active=bool(item.get("Active")), controller=item.get("Controller", ""))
    terminating = body["cqStatus"] == "terminating"
    api = world.load(ClusterQueue, body["cq"])
    if terminating:
        api.metadata.deletion_timestamp = "2026-01-02T03:04:05Z"
    for group in api.spec.resource_groups:
        for flavor in group.flavors:
            state.put_flavor(world.load(ResourceFlavor, {"metadata": {"name": flavor.name}}))
    state.put_cluster_queue(api, 0.0)
    active, reason, message = state.questions.active_reason(api.metadata.name)
    return [
        *differs("status", body["wantStatus"], "active" if active else "terminating" if terminating else "pending"),
        *differs("reason", body["wantReason"], reason),
        *differs("message", body["wantMessage"], message),
    ]


def queue_usage(case: Case, run: dict[str, Json]) -> list[str]:
    """Reservations and usage of a ClusterQueue."""
    body = case.body["case"]
    state = State(Options(gates=_gates(case, run)))
    api = world.load(ClusterQueue, body["clusterQueue"])
    state.put_cluster_queue(api, 0.0)
    for item in body["workloads"] or ():
        state.put_workload(world.load(Workload, item), 0.0)
    state.ledger.settle()
    name = api.metadata.name
    counts = state.questions.queue_counts(name)
    found = [
        *differs("reserving", body["wantReservingWorkloads"], counts.reserving),
        *differs("admitted", body["wantAdmittedWorkloads"], counts.admitted),
    ]
    for what, admitted_only in (("wantReservedResources", False), ("wantUsedResources", True)):
        want = {
            (flavor["name"], item["name"]): (
                to_int(item["name"], item.get("total", 0)),
                to_int(item["name"], item.get("borrowed", 0)),
            )
            for flavor in body[what] or ()
            for item in flavor.get("resources") or ()
        }
        have = {
            (row.flavor, row.resource): (row.total, row.borrowed)
            for row in state.questions.queue_usage(name, admitted_only=admitted_only)
        }
        found += differs(what, want, have)
    return found


# Workloads


def _surroundings(case: Case, run: dict[str, Json], info_options: Json = None) -> Surroundings:
    transformations: Json = None
    excluded: Json = ()
    for option in info_options or ():
        sets = option.get("sets") or {}
        transformations = sets.get("resourceTransformations", transformations)
        excluded = sets.get("excludedResourcePrefixes", excluded)
    return Surroundings(
        Options(
            gates=_gates(case, run),
            transformations=world.transformations(transformations),
            exclude_resource_prefixes=tuple(excluded or ()),
        )
    )


def new_info(case: Case, run: dict[str, Json]) -> list[str]:
    """Totals of a workload."""
    body = case.body["case"]
    info = Info(world.load(Workload, body["workload"]), _surroundings(case, run, body["infoOptions"]))
    want = [
        (
            item.get("Name", ""),
            item.get("Count", 0),
            {name: _number(amount) for name, amount in (item.get("Requests") or {}).items()},
            item.get("Flavors") or {},
        )
        for item in body["wantInfo"].get("TotalRequests") or ()
    ]
    names = [item.get("name", "") for item in (body["workload"].get("spec") or {}).get("podSets") or ()]
    have = [
        (item.name if item.name in names else "", item.count, item.requests, item.flavors or {}) for item in info.totals
    ]
    return differs("totals", want, have)


def _pod_sets(workload: Json) -> list[Json]:
    return ((workload or {}).get("spec") or {}).get("podSets") or []


def adjusted(case: Case, run: dict[str, Json]) -> list[str]:
    """Requests of effective pods under LimitRanges and RuntimeClasses. Kueue lets a default request take precedence
    over the limit of a container that requests nothing; the API server has made the limit the request by then."""
    body = case.body["case"]
    limits = requests.summarize(world.load(LimitRange, item) for item in body["limitranges"] or ())
    overheads = {
        item["metadata"]["name"]: world.load(RuntimeClass, item).overhead.pod_fixed
        for item in body["runtimeClasses"] or ()
        if item.get("overhead")
    }
    found = []
    for before, after in zip(_pod_sets(body["wl"]), _pod_sets(body["wantWl"]), strict=True):
        mine = effective_pod(world.load(PodSpec, before["template"]["spec"]), overheads=overheads, limits=limits)
        want = effective_pod(world.load(PodSpec, after["template"]["spec"]))
        for group in ("containers", "init_containers"):
            own = getattr(_raw_pod(world.load(PodSpec, before["template"]["spec"])), group)
            for have, wanted, stated in zip(getattr(mine, group), getattr(want, group), own, strict=True):
                wanted.requests |= {name: amount for name, amount in stated.requests.items() if name in stated.limits}
                found += differs("requests", wanted.requests, have.requests)
                found += differs("limits", wanted.limits, have.limits)
        found += differs("overhead", want.overhead, mine.overhead)
        found += differs("pod requests", requests.pod_requests(want), requests.pod_requests(mine))
    return found


def scheduling_hash(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether two workloads are alike to the scheduler."""
    body = case.body.get("case")
    if not body or "wantSame" not in body:
        return None
    around = _surroundings(case, run)
    hashes = [Info(world.load(Workload, body[name]), around).hash for name in ("wl1", "wl2")]
    return differs("same", body["wantSame"], hashes[0] == hashes[1])


def order_timestamp(case: Case, run: dict[str, Json]) -> list[str]:
    """Since when a workload stands in line, under both settings."""
    body = case.body["case"]
    workload = world.load(Workload, body["wl"])
    found: list[str] = []
    for step in run["trace"]:
        if step["op"].endswith("GetQueueOrderTimestamp"):
            ordering = step["args"]["$recv"] if isinstance(step["args"].get("$recv"), dict) else {}
            options = Options(gates=_gates(case, run), wait_for_pods_ready=world.pods_ready(ordering))
            found += differs("timestamp", world.when(step["results"][0]), queue_timestamp(workload, options))
    return found


def priority(case: Case, run: dict[str, Json]) -> list[str]:
    """Effective priority."""
    body = case.body["case"]
    have = effective_priority(world.load(Workload, body["workload"]), boost=_gates(case, run).priority_boost)
    return differs("priority", body["wantPriority"] if "wantPriority" in body else body["want"], have)


def violations(case: Case, run: dict[str, Json]) -> list[str]:
    """Requests above limits."""
    body = case.body["case"]
    workload = world.load(Workload, world.object_of(body["workloadInfo"]))
    have = [
        str(item)
        for index, pod_set in enumerate(workload.spec.pod_sets)
        for item in requests.limit_violations(_raw_pod(pod_set.template.spec), f"spec.podSets[{index}].template.spec")
    ]
    return differs("errors", [item["message"] for item in body["wantError"] or ()], have)


def _raw_pod(spec: PodSpec) -> requests.EffectivePod:
    return effective_pod(spec)


def range_violations(case: Case, run: dict[str, Json]) -> list[str]:
    """Requests outside LimitRanges."""
    body = case.body["case"]
    if "summary" in body:
        limits = {kind: _summary(item) for kind, item in (body["summary"] or {}).items()}
        specs = [step["args"]["ps"] for step in run["trace"] if "ps" in (step.get("args") or {})]
        pods = [world.load(PodSpec, spec) for spec in specs[:1]]
        want = body["want"]
    else:
        ranges = [body["limitRange"]] if body["limitRange"] else []
        limits = requests.summarize(world.load(LimitRange, item) for item in ranges)
        pods = [pod_set.template.spec for pod_set in world.load(Workload, body["workload"]).spec.pod_sets]
        want = body["wantError"]
    have = [
        str(item)
        for index, pod in enumerate(pods)
        for item in requests.range_violations(effective_pod(pod), f"spec.podSets[{index}].template.spec", limits)
    ]
    return differs("errors", [item["message"] for item in want or ()], have)


def _summary(item: Json) -> LimitSummary:
    summary = LimitSummary()
    summary.default = requests.exact(item.get("default") or {})
    summary.default_request = requests.exact(item.get("defaultRequest") or {})
    summary.max = requests.exact(item.get("max") or {})
    summary.min = requests.exact(item.get("min") or {})
    summary.max_limit_request_ratio = requests.exact(item.get("maxLimitRequestRatio") or {})
    return summary


def summarize(case: Case, run: dict[str, Json]) -> list[str]:
    """LimitRanges as one. Of several defaults Kueue takes the first; the API server takes any, so the largest request
    counts here. What the API server adds to the defaults of a LimitRange is not in a table that never saw one."""
    body = case.body["case"]
    have = requests.summarize(world.load(LimitRange, item) for item in body["ranges"] or ())
    found = differs("types", sorted(body["expected"]), sorted(have))
    for kind, item in body["expected"].items():
        want = _summary(item)
        for name in LimitSummary.__slots__ if kind in have else ():
            wanted, mine = getattr(want, name), getattr(have[kind], name)
            if name.startswith("default"):
                mine = {key: mine.get(key) for key in wanted}
            if name == "default_request":
                mine = {key: min(amount or 0, wanted[key]) for key, amount in mine.items()}
            found += differs(f"{kind} {name}", wanted, mine)
    return found


# Admission fair sharing


def calls_of_usage(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Decay, penalties and usage, call by call."""
    found: list[str] = []
    compared = False
    ledgers: dict[str, dict[str, usage.LocalQueueUsage]] = {}
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results")
        name = step["op"].rsplit(".", 1)[-1]
        have: Json = None
        want: Json = results[0] if results else None
        lines = ledgers.setdefault("", {})
        match name:
            case "CalculateDecayedConsumed":
                have = usage.decayed(
                    _consumed(args.get("oldUsage")),
                    _consumed(args.get("newUsage")),
                    elapsed=args["elapsed"],
                    half_life=args["halfLifeTime"],
                )
                want = _consumed(want)
            case "CalculateEntryPenalty":
                sharing = world.usage_sharing(args["afs"])
                assert sharing is not None
                have = usage.entry_penalty(_consumed(args.get("totalRequests")), sharing)
                want = _consumed(want)
            case "CalculateUsage":
                have = usage.weighted(
                    _consumed(args.get("consumed")),
                    _consumed(args.get("penalty")),
                    args.get("resWeights") or {},
                    args["lqWeight"],
                )
                want = math.inf if want == "+Inf" else want
            case "ResolveLQWeight":
                if results[1:] and results[1] is not None:
                    continue  # the API failed; here the weight is at hand
                have, want = (
                    _weight(run, world.local_queue_key({"metadata": _lower(args["lqObjKey"])})),
                    float(want or 0),
                )
            case "MulByFloat":
                have, want = usage.scaled(_consumed(args.get("q")), args["f"]), _consumed(want)
            case "PushPenalty":
                line = lines.setdefault(args["lqKey"], usage.LocalQueueUsage())
                line.push(args["wlKey"], _consumed(args.get("penalty")), world.when(args["now"]))
                continue
            case "SubPenalty":
                line = lines.get(args["lqKey"])
                have = line.penalties.pop(args["wlKey"], None) if line is not None else None
                want = None if want is None else _consumed(want)
            case "PeekPenalty":
                line = lines.get(args["lqKey"])
                have = {key: value for key, value in (line.penalty if line else {}).items() if value}
                want = {key: value for key, value in _consumed(want).items() if value}
            case "HasPendingPenalty":
                line = lines.get(args["lqKey"])
                have = bool(line is not None and any(line.penalty.values()))
            case "PendingPenalty" | "HasPenaltyRecord" if "penaltyRecords" in (args.get("$recv") or {}):
                line = usage.LocalQueueUsage()
                for key, penalty in args["$recv"]["penaltyRecords"].items():
                    line.push(key, _consumed(penalty), 0.0)
                have = args["wlKey"] in line.penalties if name == "HasPenaltyRecord" else dict(line.penalty)
                want = want if name == "HasPenaltyRecord" else _consumed(want)
            case "Update":  # what the function that it was given made of the entry
                line = lines[args["lqKey"]] = usage.LocalQueueUsage()
                line.consumed = _consumed(want.get("Resources"))
                line.last_update = world.when(want["LastUpdate"]) if want.get("LastUpdate") else None
                line.penalties = {key: _consumed(each) for key, each in (want.get("penaltyRecords") or {}).items()}
                continue
            case "Get":
                line = lines.get(args["lqKey"])
                open_ = line.penalties if line else {}
                have = [
                    line is not None,
                    line.consumed if line else {},
                    line.last_update if line else None,
                    dict(open_),
                ]
                records = {key: _consumed(each) for key, each in (want.get("penaltyRecords") or {}).items()}
                since = world.when(want["LastUpdate"]) if want.get("LastUpdate") else None
                want = [results[1], _consumed(want.get("Resources")), since, records]
            case _ if "AfsUsageLedger." in step["op"]:
                pass_over(step["op"])
                continue
            case _:
                continue
        compared = True
        found += differs(name, want, have)
    return found if compared else None


def _consumed(quantities: Json) -> usage.Consumed:
    """Recorded quantities, which may be left out."""
    return usage.from_quantities(quantities or {})


def _lower(names: Json) -> Json:
    return {name.lower(): value for name, value in names.items()}


def _weight(run: dict[str, Json], key: str) -> float:
    """The weight by which the usage of a LocalQueue is divided; infinite usage is of weight 0."""
    sharing = world.usage_sharing({})
    state = State(Options(admission_fair_sharing=sharing))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    body = {"metadata": {"name": "cq"}, "spec": {"admissionScope": scope}}
    state.put_cluster_queue(world.load(ClusterQueue, body), 0.0)
    for step in run.get("trace") or ():
        if step["op"] in {"client.build", "client.create"}:
            given = step.get("args") or {}
            for item in given.get("objects") or [given.get("object")]:
                if item and item.get("kind") == "LocalQueue":
                    state.put_local_queue(world.load(LocalQueue, item), 0.0)
    state.sharing.set_consumed(key, {"cpu": "1"}, 0.0)
    used = state.sharing.usage(state.cluster_queues["cq"], key)
    return 1.0 / used if used else 1.0


def quantities(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Amounts from quantities."""
    body = case.body["case"]
    amount = quota(body["resource"], body["quantity"])
    found = differs("unlimited", body["wantUnlimited"], amount > 2**63)
    return found if body["wantUnlimited"] else found + differs("value", _number(body["wantValue"]), amount)


def single_value(case: Case, run: dict[str, Json]) -> list[str]:
    """One quantity in the engine's unit."""
    body = case.body["case"]
    return differs("value", int(body["want"]), to_int(body["resource"], body["quantity"]))
