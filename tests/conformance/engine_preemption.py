"""Victims: who is chosen for a given flavor assignment, in which order, and the words they get."""

from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, pass_over
from turnstile.api.workload import Workload
from turnstile.engine.decisions import preempted_message
from turnstile.engine.flavors.assignment import Assignment, PodSetAssignment
from turnstile.engine.options import Options
from turnstile.engine.pace import finish
from turnstile.engine.preemption.candidates import satisfies
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.engine.reasons import FlavorChoice, Mode
from turnstile.engine.state import State

Json = Any

MODES = {"NoFit": Mode.NO_FIT, "Preempt": Mode.PREEMPT, "DeferredFit": Mode.DEFERRED_FIT, "Fit": Mode.FIT}


def check(case: Case, run: dict[str, Json]) -> list[str]:
    """Differences of GetTargets, and of the messages of the evictions that follow."""
    scenario = case.body["scenario"]
    gates = world.gates(case.body.get("featureGates"), run.get("gates"))
    now = world.when(scenario["now"])
    state = world.build(scenario["objects"], world.options(scenario["config"], gates), now)
    state.ledger.settle()
    found: list[str] = []
    issued = 0
    for step in run["steps"]:
        if step["do"].endswith("IssuePreemptions") and step.get("results") and step["results"][0] != issued:
            found.append(f"issued: want {step['results'][0]}, have {issued}")
        if not step["do"].endswith("GetTargets"):
            if step["do"] == "client.update":
                continue  # others change labels of the victims: an eviction is not decided by these, nor stopped
            if not step["do"].endswith("IssuePreemptions"):
                pass_over(step["do"])
            continue
        args = step.get("args") or {}
        queue = state.cluster_queues[args["wl"].get("ClusterQueue") or case.body["params"]["targetCQ"]]
        info = Info(world.load(Workload, world.object_of(args["wl"])), state.surroundings, queue.name)
        targets = finish(state.preemptor(now).targets(queue, info, assignment(state, args)))
        have = [(target.info.key, target.reason, target.queue.name) for target in targets]
        issued = len(have)
        want = [(item["workload"], item["reason"], item["clusterQueue"]) for item in step.get("results") or ()]
        unordered = not all(target.info.uid for target in targets)
        if (sorted(want) != sorted(have)) if unordered else (want != have):
            found.append(f"targets: want {want}, have {have}")
        messages = {
            preempted_message(info.workload, target.reason, queue.node.path(), target.queue.node.path())
            for target in targets
        }
        recorded = {
            event["message"]
            for event in (run["outcome"].get("recordedEvents") or [])
            if event["reason"] == "EvictedDueToPreempted"
        }
        if recorded and recorded != messages:
            found.append(f"messages: want {sorted(recorded)}, have {sorted(messages)}")
    return found


def assignment(state: State, args: dict[str, Json]) -> Assignment:
    """The pre-made flavor assignment of a step."""
    result = Assignment(LastAssignment([], 0, 0, ""))
    totals = {item.get("Name", ""): item for item in args["wl"].get("TotalRequests") or ()}
    for item in args["assignment"].get("PodSets") or ():
        recorded = totals.get(item.get("Name", "")) or {}
        requests = {name: int(amount) for name, amount in (recorded.get("Requests") or {}).items()}
        pod_set = PodSetAssignment(item.get("Name", ""), item.get("Count", 0), requests)
        count, asked = item.get("Count", 0), recorded.get("Count", 0)
        for resource, choice in (item.get("Flavors") or {}).items():
            pod_set.flavors[resource] = FlavorChoice(choice.get("Name", ""), MODES[choice.get("Mode", "NoFit")], 0)
            pair = state.surroundings.catalog.pair(choice.get("Name", ""), resource)
            amount = requests.get(resource, 0)
            if asked and count != asked:
                amount = amount // asked * count
            result.usage.quota[pair] = result.usage.quota.get(pair, 0) + amount
        result.pod_sets.append(pod_set)
    return result


def check_policy(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether a policy allows a preemption."""
    body = case.body["case"]
    gates = world.gates(case.body.get("featureGates"), run.get("gates"), body.get("featureGates"))
    around = Surroundings(Options(gates=gates))
    preemptor, candidate = (Info(world.load(Workload, body[name]), around) for name in ("preemptor", "candidate"))
    have = satisfies(body["policy"], preemptor, candidate)
    return [] if have == body["want"] else [f"want {body['want']}, have {have}"]


def check_message(case: Case, run: dict[str, Json]) -> list[str]:
    """Message of a victim's conditions."""
    body = case.body["case"]
    have = preempted_message(
        world.load(Workload, {**(body["preemptor"] or {}), "spec": {}}),
        body["reason"],
        body["preemptorPath"],
        body["preempteePath"],
    )
    return [] if have == body["want"] else [f"want {body['want']}, have {have}"]
