"""Recorded decisions about TrainJobs. Trainer, which makes the JobSet of a TrainJob from its runtime, is played here.

Kueue computes that JobSet itself, from the runtime that the recording put into the API.
"""

import copy
import json
from typing import Any

import jsonpatch

from tests.conformance import given, world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import bare
from turnstile.api.errors import PermanentError
from turnstile.api.meta import without_nulls
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.trainjob import TrainJob, TrainJobs

Json = Any
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def job_set(train_job: Json, runtime: Json) -> Json:
    """The JobSet that Trainer makes: the template of the runtime, and as many nodes as the TrainJob asks for."""
    made = copy.deepcopy(without_nulls(runtime["spec"]["template"]))
    for job in made["spec"].get("replicatedJobs", ()):
        spec = job["template"]["spec"]
        nodes = (train_job["spec"].get("trainer") or {}).get("numNodes")
        if nodes is not None and (job["template"]["metadata"].get("labels") or {}).get(_STEP) == "trainer":
            spec |= {"parallelism": nodes, "completions": nodes}
    meta = train_job["metadata"]
    owner = {"apiVersion": train_job["apiVersion"], "kind": "TrainJob", "name": meta["name"], "controller": True}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "ownerReferences": [{**owner, "uid": meta.get("uid", "")}],
        },
        "spec": {**made["spec"], "suspend": bool(train_job["spec"].get("suspend"))},
    }


def made_by_trainer(objects: list[Json]) -> list[Json]:
    """The JobSets of the TrainJobs among these objects, as far as their runtimes are among them too."""
    runtimes = {each["metadata"]["name"]: each for each in objects if each["kind"].endswith("TrainingRuntime")}
    present = {world.key_of(each) for each in objects if each["kind"] == "JobSet"}
    return [
        job_set(each, runtime)
        for each in objects
        if each["kind"] == "TrainJob" and world.key_of(each) not in present
        if (runtime := runtimes.get((each["spec"].get("runtimeRef") or {}).get("name", ""))) is not None
    ]


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Starts: the spec of the TrainJob after them, or that they are refused."""
    found: list[str] = []
    objects: list[Json] = []
    compared = False
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"].rpartition(".")[2]:
            case "build":
                objects += args.get("objects") or []
            case "RunWithPodSetsInfo":
                compared = True
                found += _started(objects, run, args, step.get("results") or [None])
    return found if compared else None


def _started(objects: list[Json], run: dict[str, Json], args: Json, results: Json) -> list[str]:
    recorded = next(each for each in objects if each["kind"] == "TrainJob")
    made = next(iter(made_by_trainer(objects)), None)
    if made is None:  # Trainer makes no JobSet of a runtime that is not there: nothing is to be started
        return differs("refused", bool(results[0]), True)
    templates = {each["name"]: each for each in made["spec"]["replicatedJobs"]}
    some = next(iter(templates.values()))
    named = [info["Name"] for info in args["podSetsInfo"] or ()]
    made["spec"]["replicatedJobs"] = [templates.get(name, {**some, "name": name}) for name in named]
    made["spec"]["suspend"] = True
    job = TrainJobs().joined(_decoded(TrainJob, recorded), _decoded(JobSet, made))
    try:
        change = TrainJobs().start(job, given.infos(args["podSetsInfo"]))
    except PermanentError:
        return differs("refused", bool(results[0]), True)
    if results[0]:
        return differs("refused", True, False)
    assert isinstance(change, Change)
    after = jsonpatch.apply_patch(recorded, json.loads(change.body.encode()))  # type: ignore[union-attr]
    want = next(each for each in run["finalObjects"] if each["kind"] == "TrainJob")
    # Kueue resumes the TrainJob in a second write, which is not part of the recorded call.
    resumed = {**want["spec"], "suspend": False}
    return differs("spec", bare(resumed), bare(after["spec"]))


def _decoded(kind: Any, recorded: Json) -> Any:
    return kind.decoder()(json.dumps(without_nulls(recorded)).encode())
