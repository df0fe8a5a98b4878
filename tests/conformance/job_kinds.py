"""Recorded questions to one batch Job or Pod: what it asks for, whether its pods are ready, which it is done with.

Every call is dispatched by its name; one that has no counterpart here is passed over.
"""

import json
from typing import Any

import msgspec

from app.api.core import Job
from app.api.errors import PermanentError
from app.jobs.bases.roles import role_hash
from app.jobs.kinds.batch_job import BatchJob
from app.jobs.podsets import PodSetInfo
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import bare, merged

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"]:
            case "controller/jobs/job.Job.PodSets":
                have: Json = bare([_plain(each) for each in _pod_sets(args["$recv"])])
                results = [bare(results[0])]
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
                have = role_hash(msgspec.Raw(json.dumps(args["p"]["spec"]).encode()))
            case _:
                continue
        compared = True
        found += differs(step["op"], results[0], have)
    return found if compared else None


def _job(recorded: Json) -> Job:
    template = {"template": {"spec": {"containers": []}}}
    return msgspec.json.decode(json.dumps({**recorded, "spec": template | recorded["spec"]}), type=Job, strict=False)


def _pod_sets(recorded: Json) -> list[Any]:
    return BatchJob().pod_sets(_job(recorded))


def _plain(pod_set: Any) -> Json:
    return {
        "name": pod_set.name,
        "count": pod_set.count,
        "minCount": pod_set.min_count,
        "template": json.loads(bytes(pod_set.template)),
    }


def _through(args: Json) -> int:
    """Indexes that are through, by what such a Job gives back."""
    spec = {"completionMode": "Indexed", "completions": args["completions"], "parallelism": args["completions"]}
    status = {name: args.get(name) or "" for name in ("completedIndexes", "failedIndexes")}
    counts = BatchJob().reclaimable(_job({"spec": spec, "status": status}))
    return sum(counts.values())


def _started(args: Json) -> Json:
    """The spec after a start, or the text of the error."""
    recorded = args["$recv"]
    infos = [
        PodSetInfo("main", info.get("Count", 0), node_selector=info.get("NodeSelector") or {})
        for info in args["podSetsInfo"]
    ]
    try:
        change = BatchJob().start(_job(recorded), infos)
    except PermanentError as error:
        return str(error)
    assert change is not None
    return bare(merged(recorded["spec"], change.body["spec"]))


def _want_started(run: Json, results: Json) -> Json:
    if results[0]:
        return results[0]["message"]
    return bare(next(each["got"] for each in run["checks"] if each["of"] == "tc.wantUnsuspended.Spec"))
