"""Recorded calls to the Ray kinds: their pod sets, what a start and a stop change, and what their status says."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jsonpatch
from msgspec.structs import replace

from tests.conformance import given, world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_framework import decoded
from tests.conformance.job_webhooks import topologies
from tests.conformance.workload_calls import bare
from turnstile.api.errors import PermanentError
from turnstile.api.meta import without_nulls
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.ray.base import RayKind
from turnstile.jobs.kinds.ray.cluster import RayClusters
from turnstile.jobs.kinds.ray.job import RayJobs
from turnstile.jobs.kinds.ray.owner import GENERATION, RayOwner
from turnstile.jobs.kinds.ray.service import RayServices

Json = Any
_KINDS: dict[str, RayKind[Any]] = {"RayCluster": RayClusters(), "RayJob": RayJobs(), "RayService": RayServices()}


class _AnySpec(RayServices):
    """The rules for the spec of a RayCluster, wherever it is."""

    cluster_field = "spec"


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] = []
    asked = topologies(case, run)
    compared = False
    calls = {"PodSets", "BuildPodSets", "RestorePodSetsInfo", "UpdateRayClusterSpecToRunWithPodSetsInfo"}
    calls |= {"RunWithPodSetsInfo", "Finished", "IsOnHold", "IsActive", "IsSuspended", "PodsReady", "ValidateCreate"}
    for step in run.get("trace") or ():
        call = step["op"].rpartition(".")[2]
        if call in calls:
            compared = True
            want, have = _compared(call, step.get("args") or {}, step.get("results") or [], run, asked, _made(case))
            found += differs(step["op"], want, have)
    return found if compared else None


def _made(case: Case) -> Json:
    """The RayCluster that the client has, if slices are on."""
    table = case.body.get("case") or {}
    off = (table.get("featureGates") or {}).get("ElasticJobsViaWorkloadSlices") is False
    return None if off else table.get("rayCluster")


def _compared(
    call: str, args: Json, results: list[Json], run: dict[str, Json], asked: bool, made: Json
) -> tuple[Json, Json]:
    """What is recorded, and the same of ours."""
    body = without_nulls(args.get("$recv") or _raycluster(args.get("rayClusterSpec"), args.get("annotations")))
    kind = _KINDS[body["kind"]]
    job = decoded(kind, body)
    if made is not None and isinstance(kind, RayOwner) and kind.sizes_name(job) == made["metadata"]["name"]:
        job = kind.sized(job, decoded(RayClusters(), without_nulls(made)))
    failed = next((True for each in results if isinstance(each, dict) and "$error" in each), False)
    match call:
        case "PodSets" | "BuildPodSets" if failed:
            return True, _refused(lambda: kind.pod_sets(job))
        case "RunWithPodSetsInfo" | "UpdateRayClusterSpecToRunWithPodSetsInfo" if failed:
            return True, _refused(lambda: _started(kind, body, args))
        case "PodSets" | "BuildPodSets":
            return bare(results[0]), bare([_without_wait(each.body(topologies=asked)) for each in kind.pod_sets(job)])
        case "UpdateRayClusterSpecToRunWithPodSetsInfo":
            return bare(_check(run, "tc.wantSpec")), _without_suspend(_started(kind, body, args)["spec"])
        case "RunWithPodSetsInfo":
            want = _check(run, "tc.wantAfterRun")
            return _without_suspend(want["spec"]), _without_suspend(_started(kind, body, args)["spec"])
        case "RestorePodSetsInfo":
            after = _stopped(kind, {**body, "spec": {**body["spec"], "suspend": False}}, args)
            return results[0], _without_suspend(after["spec"]) != _without_suspend(body["spec"])
        case "Finished":
            outcome = kind.finished(job)
            return results, [
                "" if outcome is None else outcome.message,
                bool(outcome and outcome.success),
                bool(outcome),
            ]
        case "ValidateCreate":
            spec = kind.cluster(job)
            assert spec is not None
            errors = _AnySpec().cluster_errors(decoded(RayClusters(), args["object"]), spec)
            return [each["message"] for each in (results or [None])[0] or ()], [str(each) for each in errors]
        case _:
            ask = {"IsOnHold": kind.exceptions.on_hold, "IsActive": kind.active, "IsSuspended": kind.suspended}
            return results[0], ask.get(call, kind.pods_ready)(job)


def _refused(do: Callable[[], object]) -> bool:
    """Whether a job that is not right is refused."""
    try:
        do()
    except PermanentError:
        return True
    return False


def _raycluster(spec: Json, annotations: Json) -> Json:
    return {"kind": "RayCluster", "metadata": {"name": "ray", "annotations": annotations or {}}, "spec": spec}


def _check(run: dict[str, Json], name: str) -> Json:
    return next(each["got"] for each in run["checks"] if each["want"] == name)


def _without_wait(pod_set: Json) -> Json:
    """Without what the init container of a worker requests, which Kueue does not charge for."""
    pod_set["template"]["spec"].pop("overhead", None)
    return pod_set


def _without_suspend(spec: Json) -> Json:
    return bare({key: value for key, value in spec.items() if key != "suspend"})


def _started(kind: RayKind[Any], body: Json, args: Json) -> Json:
    """The object after a start; pods of an earlier run are gone."""
    body = {**body, "status": {"state": "suspended"}}
    change = kind.start(decoded(kind, body), given.infos(args["podSetsInfo"]))
    assert isinstance(change, Change)
    return _applied(body, change)


def _stopped(kind: RayKind[Any], body: Json, args: Json) -> Json:
    """The object after a stop."""
    stop = kind.stop(
        decoded(kind, body),
        given.pod_sets(args["podSetsInfo"]),
        reason="",
        message="",
        now=datetime.fromisoformat(world.NOW),
    )
    for step in stop.steps:
        assert isinstance(step, Change)
        body = _applied(body, step)
    return body


def _applied(body: Json, change: Change) -> Json:
    assert not isinstance(change.body, dict)
    after: Json = jsonpatch.apply_patch(body, json.loads(change.body.encode()))
    return after


def sized(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The pod sets of a RayJob whose RayCluster has scaled itself."""
    table, found = case.body["case"], list[str]()
    body = _owner(table["object"], table["podSets"], autoscaling=bool(table["enableInTreeAutoscaling"]))
    job = decoded(RayJobs(), body)
    name = RayJobs().sizes_name(replace(job, status=replace(job.status, ray_cluster_name=table["rayClusterName"])))
    made = table["rayClusterInClient"]
    if name and made is not None and made["metadata"]["name"] == name:
        made = {**without_nulls(made), "spec": {**without_nulls(made["spec"]), "suspend": False}}
        job = RayJobs().sized(job, decoded(RayClusters(), made))
    elif name and table["wantErr"]:
        return None  # a RayCluster that cannot be read now is read again
    want = {each["name"]: each["count"] for each in table["wantPodSets"] or ()}
    found += differs("counts", want, {each.name: each.count for each in RayJobs().pod_sets(job)})
    return found


def _owner(given: Json, pod_sets: Json, *, autoscaling: bool) -> Json:
    """A RayJob with these pod sets, whose pods the gates of elastic jobs hold."""

    def group(each: Json) -> Json:
        spec = {**each["template"]["spec"], "schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}
        return {"groupName": each["name"], "replicas": each["count"], "template": {"spec": spec}}

    groups = [group(each) for each in pod_sets]
    spec = {"enableInTreeAutoscaling": autoscaling, "headGroupSpec": groups[0], "workerGroupSpecs": groups[1:]}
    meta = {"name": "job", "namespace": "ns", "annotations": given["metadata"].get("annotations") or {}}
    return {"kind": "RayJob", "metadata": meta, "spec": {"rayClusterSpec": spec}}


def generation(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The generation of the RayCluster by which slices of its owner are named: Kueue writes it into an annotation."""
    table = case.body["case"]
    if table["wantErr"] or table["standalone"]:
        return None  # the kind is read by a watch; a RayCluster by itself is named by its own generation
    body = _owner({"metadata": {"annotations": table["annotations"]}}, table["podSets"], autoscaling=True)
    job = decoded(RayJobs(), body)
    name = RayJobs().sizes_name(replace(job, status=replace(job.status, ray_cluster_name=table["rayClusterName"])))
    made = next((each for step in run["trace"] for each in (step.get("args") or {}).get("objects") or ()), None)
    found: Json = None
    if name and made is not None:
        made = {**without_nulls(made), "spec": {**without_nulls(made["spec"]), "suspend": False}}
        meta = RayJobs().sized(job, decoded(RayClusters(), made)).metadata
        found = {GENERATION: meta.annotations[GENERATION]}
    return differs("annotations", table["wantAnnotation"] or None, found)
