"""Recorded questions to one Job, JobSet or Pod: what it asks for, whether its pods are ready, which it is done with.

Every call is dispatched by its name; one that has no counterpart here is passed over.
"""

import json
from datetime import datetime
from typing import Any

import msgspec

from tests.conformance import given, world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_webhooks import topologies
from tests.conformance.workload_calls import bare, merged
from turnstile.api.core import Job, Pod
from turnstile.api.errors import PermanentError
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.jobset import JobSet, JobSets
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.roles import role_hash

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] = []
    compared = False
    asked = topologies(case, run)
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"]:
            case "controller/jobs/job.Job.PodSets":
                have: Json = bare([each.body(topologies=asked) for each in _pod_sets(args["$recv"])])
                results = [bare(results[0])]
            case "controller/jobs/jobset.JobSet.PodSets":
                have = bare([each.body(topologies=asked) for each in JobSets().pod_sets(_jobset(args["$recv"]))])
                results = [bare(results[0])]
            case "controller/jobs/jobset.JobSet.PodsReady":
                have = JobSets().pods_ready(_jobset(args["$recv"]))
            case "controller/jobs/jobset.JobSet.ReclaimablePods":
                have = JobSets().reclaimable(_jobset(args["$recv"]))
                results = [{each["name"]: each["count"] for each in results[0] or ()}]
            case "controller/jobs/jobset.JobSet.RestorePodSetsInfo":
                have = _restored(args)
            case "controller/jobs/pod.Pod.PodSets" if "pod" in case.body["case"]["pod"]:
                found_sets = PlainPod().pod_sets(_pod(case.body["case"]["pod"]["pod"]))
                have = bare([each.body(topologies=asked) for each in found_sets])
                results = [bare(results[0])]
            case "controller/jobs/pod.Pod.Run":
                have, results = _run_refused(case.body["case"]), [bool(results[0])]
            case "controller/jobs/job.Job.PodsReady":
                have = BatchJob().pods_ready(_job(args["$recv"]))
            case "controller/jobs/job.Job.ReclaimablePods":
                have = BatchJob().reclaimable(_job(args["$recv"]))
                results = [{each["name"]: each["count"] for each in results[0] or ()}]
            case "controller/jobs/job.terminalIndexesCount":
                have = _through(args)
            case "controller/jobs/job.Job.RunWithPodSetsInfo":
                have, results = _started(args), [_want_started(run, results)]
            case "controller/jobs/pod.getRoleHash":
                have = role_hash(msgspec.Raw(json.dumps(world.with_empty_requests(args["p"])["spec"]).encode()))
            case _:
                continue
        compared = True
        found += differs(step["op"], results[0], have)
    return found if compared else None


def _job(recorded: Json) -> Job:
    template = {"template": {"spec": {"containers": []}}}
    return msgspec.json.decode(json.dumps({**recorded, "spec": template | recorded["spec"]}), type=Job, strict=False)


def _jobset(recorded: Json) -> JobSet:
    return JobSet.decoder()(json.dumps(recorded).encode())


def _pod(recorded: Json) -> Pod:
    return Pod.decoder()(json.dumps(recorded).encode())


def _restored(args: Json) -> bool:
    """Whether a stop changes the templates of a JobSet that runs."""
    recorded = args["$recv"]
    running = _jobset({**recorded, "spec": {**recorded["spec"], "suspend": False}})
    stop = JobSets().stop(
        running, given.pod_sets(args["podSetsInfo"]), reason="", message="", now=datetime.fromisoformat(world.NOW)
    )
    patch = json.loads(stop.steps[0].body.encode())  # type: ignore[union-attr]
    return any(each["path"] != "/spec/suspend" for each in patch)


def _run_refused(table: Json) -> bool:
    """Whether the pod cannot start with what it is given."""
    (pod,) = table["pods"]
    try:
        PlainPod().start(_pod(pod), given.infos(table["runInfo"]))
    except PermanentError:
        return True
    return False


def _pod_sets(recorded: Json) -> list[Any]:
    return BatchJob().pod_sets(_job(recorded))


def _through(args: Json) -> int:
    """Indexes that are through, by what such a Job gives back."""
    spec = {"completionMode": "Indexed", "completions": args["completions"], "parallelism": args["completions"]}
    status = {name: args.get(name) or "" for name in ("completedIndexes", "failedIndexes")}
    counts = BatchJob().reclaimable(_job({"spec": spec, "status": status}))
    return sum(counts.values())


def _started(args: Json) -> Json:
    """The spec after a start, or that it is refused."""
    recorded = args["$recv"]
    try:
        change = BatchJob().start(_job(recorded), given.infos(args["podSetsInfo"], name="main"))
    except PermanentError:
        return "refused"
    assert change is not None
    return bare(merged(recorded["spec"], change.body["spec"]))


def _want_started(run: Json, results: Json) -> Json:
    if results[0]:
        return "refused"
    return bare(next(each["got"] for each in run["checks"] if each["of"] == "tc.wantUnsuspended.Spec"))
