"""Recorded calls of Kueue's rules for slices of elastic jobs, and looks of its ungater at their pods."""

import copy
import json
from typing import Any

import jsonpatch

from tests.conformance import world
from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import decode
from tests.unit.controllers.worlds import world as cluster_of
from turnstile.api.core import Job, Pod
from turnstile.api.meta import ObjectMeta, without_nulls
from turnstile.api.patch import JsonPatch, apply_merge_patch
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers.jobs import slices
from turnstile.controllers.jobs.plan import Plan
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.workloads import heldpods
from turnstile.engine.options import Options
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.labels import is_elastic
from turnstile.jobs.options import JobOptions
from turnstile.jobs.workload import elastic

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The calls of one run."""
    found: list[str] = []
    compared = False
    built: list[Json] = []
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or []
        name = step["op"].rpartition(".")[2]
        if step["op"] == "client.build":
            built = args.get("objects") or []
            continue
        call = _CALLS.get(name)
        if call is None:
            raise NotRead(f"the runner does not know the call {step['op']}")
        texts = call(case, run, args, results, built)
        compared = compared or texts is not None
        found += texts or []
    return found if compared else None


def _load(body: Json) -> Workload:
    return world.load(Workload, body)


def _name(body: Json) -> str:
    return str(body["metadata"]["name"]) if body else ""


def _enabled(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str] | None:
    meta = world.load(ObjectMeta, args["object"]["metadata"])
    if is_elastic(meta) and not results[0]:
        return None  # the gate is off, which the options of jobs say
    return differs("enabled", results[0], is_elastic(meta))


def _replacement(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    return differs("replaces", results[0] if results else "", slices.replaced_by(_load(args["wl"])))


def _scaled_down(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """Of the pod sets that both have: whether the numbers are written into the slice that runs, and are smaller."""
    old, new = args.get("oldCounts") or {}, args.get("newCounts") or {}
    common = sorted(old.keys() & new.keys())
    pod_sets = [{"name": name, "count": old[name], "template": {"spec": {}}} for name in common]
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "", "message": ""}
    running = _load({"metadata": {"name": "wl"}, "spec": {"podSets": pod_sets}, "status": {"conditions": [reserved]}})
    change = slices.change(running, {name: new[name] for name in common})
    return differs("scaled down", results[0], change == "numbers")


def _latest_active(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    head = slices.chain([_load(each) for each in built if each["kind"] == "Workload"]).head
    return differs("latest", _name(results[0]) if results else "", head.metadata.name if head is not None else "")


def _normalized(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """The slice that stays, the one that runs until then, and how the others are finished."""
    found = slices.chain([_load(each) for each in args["workloads"]])
    want = case.body["case"]["want"]
    survivor, kept = _name(results[0]) if results else "", want.get("keptAdmitted") or ""
    head = found.head.metadata.name if found.head is not None and found.pending is not None else ""
    latest = found.latest.metadata.name if found.latest is not None else ""
    texts = differs("survivor", survivor, latest) + differs("kept", kept, head)
    finished = {
        _name(each): (condition["reason"], condition["message"])
        for each in run.get("finalObjects") or ()
        for condition in each["status"]["conditions"]
        if condition["type"] == "Finished"
    }
    ours = {each.workload.metadata.name: (each.reason, each.message) for each in found.spent}
    return texts + differs("finished", finished, ours)


def _without_snapshot(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str] | None:
    """Which slice is replaced: what the snapshot holds was not recorded, only that it is not found there."""
    if any(results) or args.get("wl") is None:
        return None
    info = Info(_load(args["wl"]["Obj"]), Surroundings(Options()))
    return differs("replaces", None, info.replaces)


def _not_recorded(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str] | None:
    """What the client answered was not taken down."""
    return None


def _extracted(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """Numbers of pods by pod set."""
    pod_sets = args.get("podSets") or ((args.get("wl") or {}).get("spec") or {}).get("podSets") or []
    workload = _load({"metadata": {"name": "wl"}, "spec": {"podSets": pod_sets}})
    return differs("counts", run["checks"][0]["got"] or {}, slices.counts(workload))


def _applied(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """A Workload that gets other numbers of pods."""
    cluster, workload = cluster_of(), _load(args["wl"])
    plan = Plan(JobView(BatchJob(), decode(Job, {"metadata": {"name": "job"}}), [], cluster))
    plan.resize(workload, args["counts"] or {})
    (action,) = plan.actions
    assert isinstance(action, Patch)
    after = jsonpatch.apply_patch(args["wl"], [each for each in json.loads(action.body) if "spec" in each["path"]])
    return differs("applied", run["checks"][0]["got"], after)


def _fewer(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """Whether a slice that holds quota would grow in a pod set if it had other numbers."""
    running = _sized(args["in"], reserved=True)
    smaller = any(slices.change(running, {**args["in"], name: count}) == "numbers" for name, count in _both(args))
    return differs("fewer", results[0], smaller)


def _equal(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """Whether nothing has to change."""
    return differs("equal", results[0], slices.change(_sized(args["$recv"]), args["in"] or {}) == "nothing")


def _compared(case: Case, run: Json, args: Json, results: Json, built: list[Json]) -> list[str]:
    """Whether numbers of pods differ."""
    counts = {each["name"]: each["count"] for each in args["podSets"] or ()}
    return differs("changed", results[0], slices.change(_sized(args["referenceCounts"]), counts) != "nothing")


def _both(args: Json) -> list[tuple[str, int]]:
    return [(name, count) for name, count in args["$recv"].items() if name in args["in"]]


def _sized(counts: Json, *, reserved: bool = False) -> Workload:
    """A slice with these numbers of pods."""
    pod_sets = [{"name": name, "count": count, "template": {"spec": {}}} for name, count in (counts or {}).items()]
    held = {"type": "QuotaReserved", "status": "True", "reason": "", "message": ""}
    status = {"conditions": [held] if reserved else []}
    return _load({"metadata": {"name": "wl"}, "spec": {"podSets": pod_sets}, "status": status})


_CALLS = {
    "ExtractPodSetCounts": _extracted,
    "ExtractPodSetCountsFromWorkload": _extracted,
    "ApplyPodSetCounts": _applied,
    "HasFewerReplicasThan": _fewer,
    "EqualTo": _equal,
    "ComparePodSetCounts": _compared,
    "Enabled": _enabled,
    "ReplacementForKey": _replacement,
    "ScaledDown": _scaled_down,
    "FindLatestActiveWorkload": _latest_active,
    "normalizeActiveSlices": _normalized,
    "ReplacedWorkloadSlice": _without_snapshot,
    "EnsureWorkloadSlices": _not_recorded,
    "FindNotFinishedWorkloads": _not_recorded,
}


def ungated(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Looks at all slices of a job: which pods have no gate then, and what they got with that."""
    table = case.body["case"]
    if table["expectUIDs"]:
        return None  # the store shows a write as soon as it is answered
    workloads = [_counted(each) for each in table["workloads"] or ()]
    pods = {each["metadata"]["name"]: copy.deepcopy(each) for each in table["pods"] or ()}
    for name, each in pods.items():
        each["metadata"].setdefault("uid", name)
        if not table["skipDefaultPodSetLabels"]:
            each["metadata"].setdefault("labels", {}).setdefault("kueue.x-k8s.io/podset", "main")
    flavor = decode(ResourceFlavor, {"metadata": {"name": "flavor"}})
    for workload in workloads:
        known = [decode(Workload, each) for each in workloads]
        cluster = cluster_of(flavor, *known, *(decode(Pod, each) for each in pods.values()))
        decision = heldpods.lift(decode(Workload, workload), cluster)
        for action in decision.actions if decision is not None else ():
            if isinstance(action, Patch):
                pods[action.name] = apply_merge_patch(pods[action.name], json.loads(action.body))
    want = {each["metadata"]["name"]: each for each in table["wantPods"] or ()}
    return differs("pods", *({name: _seen(each) for name, each in given.items()} for given in (want, pods)))


def should_ungate(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether gates are lifted at all for a Workload: a gated pod of it shows that."""
    table = case.body["case"]
    workload = _counted(table["workload"])
    meta = {
        "name": "p",
        "namespace": "ns",
        "uid": "p",
        "annotations": {"kueue.x-k8s.io/workload": workload["metadata"]["name"]},
        "labels": {"kueue.x-k8s.io/podset": workload["spec"]["podSets"][0]["name"]},
    }
    pod = {"metadata": meta, "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}}
    known = decode(Workload, workload)
    flavor = decode(ResourceFlavor, {"metadata": {"name": "flavor"}})
    decision = heldpods.lift(known, cluster_of(flavor, known, decode(Pod, pod)))
    lifts = decision is not None and any(isinstance(each, Patch) for each in decision.actions)
    return differs("lifts", table["want"], lifts)


def _counted(workload: Json) -> Json:
    """The Workload as it is admitted: the recording leaves the number of pods of each assignment at 1."""
    workload = copy.deepcopy(workload)
    counts = {each["name"]: each["count"] for each in workload["spec"]["podSets"]}
    admission = (workload.get("status") or {}).get("admission")
    for each in admission["podSetAssignments"] if admission else ():
        each["count"] = counts[each["name"]]
    return workload


def _seen(pod: Json) -> Json:
    spec, meta = pod["spec"], pod["metadata"]
    gates = [each["name"] for each in spec.get("schedulingGates") or ()]
    return gates, spec.get("nodeSelector") or {}, meta.get("annotations") or {}


def gated(case: Case, run: dict[str, Json]) -> list[str]:
    """The gates of the template of a Job as the webhook leaves it."""
    table = case.body["case"]
    patch, enabled = JsonPatch(), table["featureGates"].get("ElasticJobsViaWorkloadSlices", True)
    decoded = decode(Job, without_nulls(table["args"]["job"]))
    if elastic(BatchJob(), decoded, JobOptions(elastic_jobs=enabled)):
        BatchJob().gate_growth(decoded, patch)
    gates = [each["value"] for each in json.loads(patch.encode()) if each["path"].endswith("/schedulingGates")]
    return differs("gates", [table["want"]] if table["want"] else [], gates)
