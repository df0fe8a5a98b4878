"""Cycles: the world is built, cycles are run, and every entry and what is left is compared."""

import math
import re
from collections import Counter
from typing import Any

from msgspec.structs import replace

from tests.conformance import engine_scheduler, world
from tests.conformance.cases import Case
from tests.conformance.topology_assignments import domains
from turnstile.api.meta import Condition
from turnstile.api.quantity import to_int
from turnstile.api.topology import TopologyAssignment
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload
from turnstile.engine.cycle.cycle import Cycle, cycle
from turnstile.engine.cycle.entries import Entry
from turnstile.engine.decisions import Decision
from turnstile.engine.flavors.assignment import PodSetAssignment
from turnstile.engine.reasons import POSSIBILITY_TEXT, Mode
from turnstile.engine.state import State

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str]:
    """Differences between a recorded run and ours. Kueue leaves the order of equals without UIDs to chance: where ours
    is another, they are told apart by the recorded one."""
    found = _replayed(case, run)
    return found if not found else _replayed(case, run, _places(run)) and found


_PLACED = re.compile(r"\d{3}\|")


def _places(run: dict[str, Json]) -> dict[str, str]:
    """What is put before UIDs, so that heads come in the recorded order."""
    order = [key for step in run["steps"] for key in step.get("order") or ()]
    return {key: f"{place:03}|" for place, key in enumerate(dict.fromkeys(order))}


def _placed(scenario: Json, places: dict[str, str]) -> Json:
    """The scenario with those UIDs, where UIDs do not tell workloads apart."""
    objects = scenario["objects"]
    workloads = objects.get("Workload") or []
    known = Counter(item["metadata"].get("uid", "") for item in workloads)

    def uid(item: Json) -> Json:
        meta = item["metadata"]
        given, prefix = meta.get("uid", ""), places.get(world.key_of(item))
        if prefix is None or (given and known[given] == 1):
            return item
        return {**item, "metadata": {**meta, "uid": prefix + given}}

    return {**scenario, "objects": {**objects, "Workload": [uid(item) for item in workloads]}}


def _replayed(case: Case, run: dict[str, Json], places: dict[str, str] | None = None) -> list[str]:
    scenario = case.body["scenario"]
    if places is not None:
        scenario = _placed(scenario, places)
    gates = world.gates(case.body.get("featureGates"), run.get("gates"))
    now = world.when(scenario["now"])
    params = case.body.get("params") or {}
    options = world.options(scenario["config"], gates, params)
    seen = scenario["config"].get("queues.Clock")
    built = world.when(seen["$clock"]) if seen is not None else now
    state = world.build(scenario["objects"], options, built, absent(scenario))
    # Of what was admitted before, the assignments were not taken down where topology is at work.
    already = set(state.ledger.holders) if case.suite.startswith("scheduler.TestScheduleForTAS") else set()
    others = engine_scheduler.Replay(case, run)
    others.state, others.now = state, now
    found: list[str] = others.found
    issued: dict[str, tuple[str, str]] = {}
    considered: dict[str, str] = {}
    for number, step in enumerate(run["steps"]):
        match step["do"]:
            case "cycle":
                if params.get("patchStatusErr"):  # Kueue writes evictions within the cycle, and that was made to fail
                    evicted = [{**entry, "status": "evicted"} for entry in step["entries"]]
                    step = {**step, "entries": evicted, "speed": "KeepGoing"}
                for _ in range(100):
                    result = cycle(state, now)
                    if result.entries or result.inadmissible or not step.get("heads"):
                        break
                found += [f"step {number}: {text}" for text in compare_cycle(step, result, state)]
                for decision in result.decisions:
                    if decision.outcome == "place":
                        state.put_workload(_written(decision), now)
                    if decision.outcome == "admit":
                        considered[decision.key] = decision.flavors_considered
                    for victim in decision.victims:
                        told = _PLACED.sub("", victim.message).replace("(UID: ,", "(UID: UNKNOWN,")
                        issued.setdefault(victim.key, (victim.reason, told))
                    if decision.outcome == "admit" and params.get("admissionError"):
                        state.forget(decision.key, now)  # the write of it was made to fail
            case "clock.set":
                now = others.now = world.when(step["args"]["now"])
            case "cache/queue.Manager.QueueSecondPassIfNeeded":
                workload = world.load(Workload, step["args"]["w"])
                if workload.metadata.key not in state.workloads:
                    state.put_workload(workload, now)
                needs = workload.metadata.key in state.second_passes.due(math.inf)
                if step["results"] != [needs]:
                    found.append(f"step {number}: needs a second pass: want {step['results']}, have {needs}")
            case call:
                others.call(call, step.get("args") or {}, step.get("results") or [])
    found += compare_outcome(run["outcome"], state, issued, already)
    for event in run["outcome"].get("recordedEvents") or ():
        if event["reason"] == "QuotaReserved" and event.get("object") in considered:
            told = event["message"].partition("; Flavors considered: ")[2]
            if told != considered[event["object"]]:
                found.append(f"considered for {event['object']}: want {told!r}, have {considered[event['object']]!r}")
    return found


def _written(decision: Decision) -> Workload:
    """The Workload of a decision once the places are written that were found for it."""
    workload = decision.workload
    conditions = [each for each in workload.status.conditions if each.type != "Admitted"]
    if decision.admitted:
        conditions.append(Condition(type="Admitted", status="True", reason="Admitted"))
    status = replace(workload.status, admission=decision.admission, conditions=conditions, unhealthy_nodes=())
    return replace(workload, status=status)


def absent(scenario: Json) -> frozenset[str]:
    """What the engine is not told of: what the cache does not have, and pending workloads and LocalQueues that the
    queues do not have."""
    presence = scenario.get("presence") or {}
    lines = {key for key in presence.get("notInQueues") or () if key.startswith("LocalQueue/")}
    pending = {
        f"Workload/{world.key_of(item)}"
        for item in scenario["objects"].get("Workload") or ()
        if not (item.get("status") or {}).get("admission")
    }
    return frozenset(
        {*(presence.get("notInCache") or ()), *lines, *pending.intersection(presence.get("notInQueues") or ())}
    )


def compare_cycle(step: dict[str, Json], result: Cycle, state: State) -> list[str]:
    """Differences of one cycle."""
    found: list[str] = []
    if "entries" not in step:
        if result.entries or result.inadmissible:
            found.append(f"nothing was to be done, but {[entry.info.key for entry in result.entries]} were looked at")
        return found
    for name, mine in (("entries", result.entries), ("inadmissibleEntries", result.inadmissible)):
        want = {entry["workload"]: entry for entry in step[name] or ()}
        have = {entry.info.key: entry for entry in mine}
        if set(want) != set(have):
            found.append(f"{name}: want {sorted(want)}, have {sorted(have)}")
        for key in sorted(set(want) & set(have)):
            found += [f"{key}: {text}" for text in compare_entry(want[key], have[key], state)]
    speed = "KeepGoing" if result.keep_going else "SlowDown"
    if step.get("speed", speed) != speed:
        found.append(f"speed: want {step['speed']}, have {speed}")
    if step.get("order") is not None and not same_order(step["order"], result, state):
        found.append(f"order: want {step['order']}, have {result.order}")
    return found


def same_order(want: list[str], result: Cycle, state: State) -> bool:
    """Whether the recorded order is ours, but for ties, which Kueue leaves to chance: between equals in all that is
    compared, and with fair sharing between trees."""
    entries = {entry.info.key: entry for entry in result.entries}
    if sorted(want) != sorted(entries):
        return False
    if state.options.fair_sharing is not None:
        trees: dict[str, list[str]] = {}
        for key in result.order:
            trees.setdefault(entries[key].queue.node.root.name, []).append(key)
        return all([key for key in want if key in keys] == keys for keys in trees.values())
    ranks = [
        (
            entry.assignment.borrowing,
            entry.info.order[0] if state.options.gates.priority_sorting_within_cohort else 0,
            entry.info.order[1],
        )
        for key in want
        if (entry := entries[key]).assignment is not None
    ]
    return state.options.gates.prioritize_preemptor_workloads or ranks == sorted(ranks)


def compare_entry(want: dict[str, Json], entry: Entry, state: State) -> list[str]:
    """Differences of one entry."""
    found: list[str] = []

    def same(what: str, wanted: Json, have: Json) -> None:
        if wanted != have:
            found.append(f"{what}: want {wanted!r}, have {have!r}")

    same("status", want["status"], entry.status)
    reason = entry.requeue_reason
    same("requeueReason", want["requeueReason"], "" if reason == "FailedAfterNomination" else reason)
    same("message", want["inadmissibleMsg"], "" if entry.status == "assumed" else entry.message)
    same("quotaReservedReason", want["quotaReservedReason"], entry.quota_reason)
    assignment = entry.assignment
    if assignment is None or "mode" not in want:
        return found
    same("clusterQueue", want["clusterQueue"], entry.queue.name)
    same("mode", want["mode"], assignment.mode.text)
    if state.options.gates.unadmitted_workloads_observability:
        same("noFitReason", want.get("noFitReason", ""), assignment.no_fit_reason if assignment.mode == 0 else "")
    same("borrowing", want["borrowing"], assignment.borrowing)
    replaced = [entry.replaced] if entry.replaced is not None else []  # there it is the first of the victims
    targets = [
        {"workload": target.info.key, "reason": target.reason, "clusterQueue": target.queue.name}
        for target in (*replaced, *entry.targets)
        if target.reason != "FlavorMigration"  # evicted, but not a target of preemption
    ]
    wanted = want.get("preemptionTargets") or []
    if all(target.info.uid for target in entry.targets):
        same("targets", wanted, targets)
    else:  # without UIDs the order of equals is left to chance
        same(
            "targets",
            sorted(wanted, key=str),
            sorted(({key: item[key] for key in sorted(item)} for item in targets), key=str),
        )
    found += compare_pod_sets(
        want.get("podSets") or [],
        assignment.pod_sets,
        observable=state.options.gates.unadmitted_workloads_observability,
        deferred=assignment.mode is Mode.DEFERRED_FIT,
    )
    if want["status"] != "assumed" and not entry.info.reserved:  # one that holds quota has its flavors
        last = want.get("lastAssignment")
        have = entry.info.last_assignment
        same(
            "lastAssignment",
            None if last is None else [tried or {} for tried in last.get("LastTriedFlavorIdx") or []],
            None if have is None else have.tried,
        )
    return found


def compare_pod_sets(
    want: list[Json], have: list[PodSetAssignment], *, observable: bool, deferred: bool = False
) -> list[str]:
    """Differences of flavors, reasons and attempts. What fits only later is said there of each flavor, here of all."""
    found: list[str] = []
    if [item.get("Name", "") for item in want] != [item.name for item in have]:
        return [f"pod sets: want {[item.get('Name') for item in want]}, have {[item.name for item in have]}"]
    for wanted, mine in zip(want, have, strict=True):
        flavors = {
            resource: (
                choice.get("Name", ""),
                choice.get("Mode", "NoFit"),
                choice.get("borrow", 0),
                choice.get("TriedFlavorIdx", 0),
            )
            for resource, choice in (wanted.get("Flavors") or {}).items()
        }
        ours = {
            resource: (
                choice.flavor,
                (Mode.DEFERRED_FIT if deferred else choice.mode).text,
                choice.borrow,
                choice.tried_index,
            )
            for resource, choice in mine.flavors.items()
        }
        if flavors != ours:
            found.append(f"pod set {mine.name}: flavors: want {flavors}, have {ours}")
        if wanted.get("Count", 0) != mine.count:
            found.append(f"pod set {mine.name}: count: want {wanted.get('Count', 0)}, have {mine.count}")
        requests = {name: to_int(name, value) for name, value in (wanted.get("Requests") or {}).items()}
        if requests != mine.requests:
            found.append(f"pod set {mine.name}: requests: want {requests}, have {mine.requests}")
        placed = wanted.get("TopologyAssignment")
        places = None if mine.placed is None else (list(mine.placed.levels), list(mine.placed.places))
        if (None if placed is None else (placed["Levels"], domains(placed))) != places:
            found.append(f"pod set {mine.name}: places: want {placed}, have {places}")
        reasons = sorted((wanted.get("Status") or {}).get("reasons") or [])
        if reasons != sorted(mine.reasons):
            found.append(f"pod set {mine.name}: reasons: want {reasons}, have {sorted(mine.reasons)}")
        attempts = [
            (
                attempt.get("Flavor", ""),
                attempt.get("Mode", "NoFit"),
                attempt.get("Borrow", 0),
                attempt.get("PreemptionPossibility", ""),
                sorted(attempt.get("Reasons") or []),
                attempt.get("NoFitReason", ""),
            )
            for attempt in wanted.get("FlavorAssignmentAttempts") or []
        ]
        made = [
            (
                attempt.flavor,
                attempt.mode.text,
                attempt.borrow,
                POSSIBILITY_TEXT[attempt.possibility],
                sorted(attempt.reasons),
                attempt.no_fit_reason if observable else "",
            )
            for attempt in mine.merged_attempts()
        ]
        if sorted(attempts) != sorted(made):
            found.append(f"pod set {mine.name}: attempts: want {attempts}, have {made}")
    return found


def _domains(assignment: TopologyAssignment | None) -> Json:
    """Where pods were placed."""
    return (assignment.levels, list(decode(assignment))) if assignment is not None else None


def compare_outcome(
    outcome: dict[str, Json], state: State, issued: dict[str, tuple[str, str]], already: set[str]
) -> list[str]:
    """Differences of what holds quota, what waits where, and what is evicted."""
    found: list[str] = []
    held = {
        key: {
            item.name: (
                dict(sorted((item.flavors or {}).items())),
                dict(sorted(item.requests.items())),
                item.count,
                _domains(item.topology),
            )
            for item in info.totals
        }
        for queue in state.cluster_queues.values()
        for key, info in queue.workloads.items()
        if key not in already
    }
    want = {
        key: {
            item.get("name", "main"): (
                dict(sorted((item.get("flavors") or {}).items())),
                {name: to_int(name, value) for name, value in sorted((item.get("resourceUsage") or {}).items())},
                item.get("count", 0),
                _domains(
                    world.load(TopologyAssignment, item["topologyAssignment"])
                    if item.get("topologyAssignment")
                    else None
                ),
            )
            for item in admission.get("podSetAssignments") or []
        }
        for key, admission in (outcome.get("assignments") or {}).items()
        if key not in already
    }
    if "assignments" in outcome and want != held:
        found += [
            f"assignment of {key}: want {want.get(key)}, have {held.get(key)}"
            for key in sorted(set(want) | set(held))
            if want.get(key) != held.get(key)
        ]
    for name, place in (("left", "active"), ("inadmissible", "inadmissible")):
        if name not in outcome:
            continue
        wanted = {queue: sorted(keys) for queue, keys in (outcome[name] or {}).items() if keys}
        have = {
            queue.name: sorted(keys)
            for queue in state.cluster_queues.values()
            if (keys := [info.key for info in getattr(queue.pending, f"{place}_infos")()])
        }
        if wanted != have:
            found.append(f"{name}: want {wanted}, have {have}")
    for workload in outcome.get("workloads") or []:
        meta = workload["metadata"]
        key = f"{meta.get('namespace', '')}/{meta['name']}".lstrip("/")
        conditions = {
            condition["type"]: condition for condition in (workload.get("status") or {}).get("conditions", [])
        }
        preempted = conditions.get("Preempted")
        if preempted is not None and preempted["status"] == "True" and key in issued:
            mine = issued[key]
            if (preempted["reason"], preempted["message"]) != mine:
                found.append(f"victim {key}: want {(preempted['reason'], preempted['message'])}, have {mine}")
    return found
