"""Recorded tables of the priorities that jobs give to their Workloads, replayed on a Job in a cluster of plain objects.

What one call does there the reconciler does here: it makes a Workload with the priority of the job, or gives it another
one when the class of the job's label changes.
"""

import copy
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.job_cluster import Cluster
from turnstile.api.core import Job, Namespace, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.selectors import LabelSelector
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.runtime.actions import Emit
from turnstile.jobs.options import JobOptions

Json = Any
_CLASSES: dict[str, type[Kind]] = {kind.KIND: kind for kind in (PriorityClass, WorkloadPriorityClass)}


def of_a_job(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The priority of a new Workload; or the event about a class that is missing, and no Workload."""
    found: list[str] = []
    compared = False
    cluster = _cluster(())
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        if step["op"] == "client.build":
            cluster = _cluster(args.get("objects") or ())
        elif step["op"].endswith(".ExtractPriority"):
            compared = True
            job = copy.deepcopy(args["obj"])
            job["spec"]["template"] = args["podSets"][0]["template"]
            _put_job(cluster, job)
            cluster.settle(_key(job))
            recorded = {(each["reason"], each["message"]) for each in run.get("recordedEvents") or ()}
            told = {event for event in cluster.events if event[0] == "WorkloadPriorityClassNotFound"}
            found += differs("events", sorted(recorded), sorted(told))
            ref, value, error = step["results"]
            made = [(each["spec"].get("priorityClassRef"), each["spec"]["priority"]) for each in cluster.workloads]
            found += differs("priority", [] if error else [(ref, value)], made)
    return found if compared else None


def changed(case: Case, run: dict[str, Json]) -> list[str]:
    """What becomes of each Workload of a Job when the class of its label changes, over all recorded calls.

    Kueue calls once for all Workloads of an elastic job; a Job here has one, so each is tried by itself. Where a write
    of the recorded call failed, all that was decided is lost.
    """
    found: list[str] = []
    final = {world.key_of(each): each for each in run.get("finalObjects") or () if each["kind"] == "Workload"}
    recorded = {(each["reason"], each["message"]) for each in run.get("recordedEvents") or ()}
    keys = [world.key_of(each) for each in case.body["case"]["workloads"]]
    for key, workload in zip(keys, case.body["case"]["workloads"], strict=True):
        cluster = Cluster()
        told: set[tuple[str, str]] = set()
        for step in run.get("trace") or ():
            args = step.get("args") or {}
            match step["op"].rpartition(".")[2]:
                case "build":
                    cluster = _cluster(args["objects"])
                    _put_workload(cluster, workload)
                case "update" if args["object"]["kind"] in _CLASSES:
                    cluster.put(_CLASSES[args["object"]["kind"]], args["object"])
                case "UpdateWorkloadPriority" if step.get("results"):
                    emitted = (each for each in cluster.decide(_KEY).actions if isinstance(each, Emit))
                    told |= {(each.reason, each.note) for each in emitted}
                case "UpdateWorkloadPriority":
                    cluster.settle(_KEY)
        want, have = (each["spec"] for each in (final.get(key, workload), cluster.workload))
        for name in ("priority", "priorityClassRef"):
            found += differs(f"{key} {name}", want.get(name), have.get(name))
        mine = {event for event in recorded if not any(event[1].endswith(f": {each}") for each in keys if each != key)}
        found += differs(f"{key} events", sorted(mine), sorted(told | set(cluster.events)))
    return found


_KEY = "batch/job:ns/job"


def _key(job: Json) -> str:
    return f"batch/job:{world.key_of(job)}"


def _cluster(objects: Json) -> Cluster:
    options = JobOptions(manage_jobs_without_queue_name=True, managed_jobs_namespace_selector=LabelSelector())
    cluster = Cluster(options=options)
    for each in objects:
        if each["kind"] in _CLASSES:
            cluster.put(_CLASSES[each["kind"]], each)
        elif each["kind"] == "Job":
            _put_job(cluster, each)
    return cluster


def _put_job(cluster: Cluster, job: Json) -> None:
    meta = {"uid": job["metadata"]["name"], **job["metadata"]}
    cluster.put(Namespace, {"metadata": {"name": meta["namespace"]}})
    cluster.put(Job, {**job, "metadata": meta})


def _put_workload(cluster: Cluster, workload: Json) -> None:
    """As one of the Job, with its pods."""
    job = cluster.get(Job, "ns/job")
    assert job is not None
    pod_set = workload["spec"]["podSets"][0]
    job["spec"] |= {"parallelism": pod_set["count"], "template": pod_set["template"]}
    cluster.put(Job, job)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
    cluster.put(Workload, {**workload, "metadata": {**workload["metadata"], "ownerReferences": [owner]}})
