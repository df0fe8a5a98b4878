"""Whose workloads fair sharing takes first, what workloads hold, and what admission gives pods."""

from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_webhooks import topologies
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.errors import PermanentError
from turnstile.api.meta import to_plain
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import PodSet, PodSetAssignment, Workload
from turnstile.engine import Options, State
from turnstile.engine.pace import finish
from turnstile.engine.preemption.candidates import WITHIN_QUEUE, Candidate, by_rank
from turnstile.engine.preemption.fair import TargetOrdering
from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs.podsets import Directives, PodSetInfo, changes, info_of, merge

Json = Any


def target_order(case: Case, run: dict[str, Json]) -> list[str]:
    """ClusterQueues in the order fair sharing takes victims from them; an action says what is done with each."""
    body = case.body["case"]
    state = State(Options())
    state.put_flavor(world.load(ResourceFlavor, {"metadata": {"name": "default"}}))
    for item in body["cohorts"] or ():
        state.put_cohort(world.load(Cohort, item))
    for item in body["clusterQueues"] or ():
        state.put_cluster_queue(world.load(ClusterQueue, item), 0.0)
    for item in body["admitted"] or ():
        state.put_workload(world.load(Workload, item), 0.0)
    state.ledger.settle()
    own = state.cluster_queues[body["preemptorCQ"]]
    preemptor = state.preemptor(0.0)
    candidates: dict[str, list[Candidate]] = {}
    for name in body["candidateCQs"] or ():
        queue = state.cluster_queues[name]
        found = [
            Candidate(info, queue, preemptor.collector.rank(info, queue, own), WITHIN_QUEUE, None)
            for info in queue.workloads.values()
        ]
        candidates[name] = sorted(found, key=by_rank)
    ordering = TargetOrdering(own, candidates, state.cluster_queues)
    finish(ordering.prepare())
    actions = iter(body["actions"] or ())
    have = []
    for queue in ordering:
        have.append(queue.name)
        if next(actions, "pop") == "drop":
            ordering.drop(queue)
        else:
            candidates[queue.name].pop(0)
    return differs("order", body["wantOrder"] or [], have)


def held(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Quota that a workload holds; what has no flavor holds none."""
    body = case.body["case"]
    if body["info"] is None:
        return None
    info = Info(Workload(), Surroundings(Options()))
    info.totals = [
        PodSetTotals(
            name=item.get("Name", ""), count=1, requests=item.get("Requests") or {}, flavors=item.get("Flavors")
        )
        for item in body["info"].get("TotalRequests") or ()
    ]
    usage: Amounts = info.usage.quota
    want = (body["want"] or {}).get("Assigned") or {}
    return differs("usage", want, {str(pair): amount for pair, amount in usage.items()})


def _given(recorded: Json) -> PodSetInfo:
    pods = world.load(
        PodSet,
        {
            "template": {
                "metadata": {"labels": recorded.get("Labels") or {}, "annotations": recorded.get("Annotations") or {}},
                "spec": {
                    "containers": [],
                    "nodeSelector": recorded.get("NodeSelector") or {},
                    "tolerations": recorded.get("Tolerations") or [],
                    "schedulingGates": recorded.get("SchedulingGates") or [],
                },
            }
        },
    )
    return PodSetInfo("", 1, **_plain(Directives.of(pods.template)))


def _plain(directives: Directives | PodSetInfo) -> dict[str, Json]:
    return {
        "labels": dict(directives.labels),
        "annotations": dict(directives.annotations),
        "node_selector": dict(directives.node_selector),
        "tolerations": directives.tolerations,
        "scheduling_gates": directives.scheduling_gates,
    }


def merged(case: Case, run: dict[str, Json]) -> list[str]:
    """What pods carry once admission has added its part, or that it contradicts what they carry."""
    body = case.body["case"]
    before = Directives.of(world.load(PodSet, body["podSet"]).template)
    try:
        have = merge(before, _given(body["info"]))
    except PermanentError:
        return differs("refused", bool(body.get("wantError")), True)
    want = Directives.of(world.load(PodSet, body["wantPodSet"]).template) if body["wantPodSet"] else before
    found = differs("refused", bool(body.get("wantError")), False) + differs("pods", _plain(want), _plain(have))
    if any(step["op"].endswith("RestorePodSpec") for step in run.get("trace") or ()):
        found += differs("restored", bool(body.get("wantRestoreChanges")), bool(changes(have, before)))
    return found


def given(case: Case, run: dict[str, Json]) -> list[str]:
    """What flavors give the pods of one pod set."""
    body = case.body["case"]
    known = {item["metadata"]["name"]: world.load(ResourceFlavor, item) for item in body["flavors"] or ()}
    pod_set = world.load(PodSet, {"name": body["assignment"]["name"], "count": body["defaultCount"], "template": {}})
    assignment = world.load(PodSetAssignment, body["assignment"])
    try:
        asked = topologies(case, run)
        have = info_of(pod_set, assignment, workload=Workload(), flavors=known.get, topologies=asked)
    except LookupError:
        return differs("refused", body["wantError"] is not None, True)
    want = body["wantInfo"]
    assert want is not None
    ours = _plain(have)
    theirs = _plain(_given(want))
    differences = differs("count", want.get("Count", 0), have.count)
    ours["annotations"].pop("kueue.x-k8s.io/workload")
    for name in ("annotations", "node_selector", "tolerations", "scheduling_gates"):
        differences += differs(name, to_plain(theirs[name]), to_plain(ours[name]))
    return differences
