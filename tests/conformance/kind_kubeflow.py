"""Recorded questions to jobs of Kubeflow's training operators: their pod sets, their priority, the faults of new ones.

Tables of the training operator's kinds record only that the job was read; what it was asked for is in the table. Of
MPIJobs each call is recorded.
"""

import json
from datetime import datetime
from typing import Any

from tests.conformance import given, world
from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from tests.conformance.job_webhooks import faults_of, topologies
from tests.conformance.workload_calls import bare
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, without_nulls
from turnstile.jobs.integration import Change, Integration
from turnstile.jobs.registry import ALL

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """A table of a kind of the training operator, by what it expects."""
    integration, table = _integration(case), case.body["case"]
    job = _job(integration, table["job"])
    match case.suite.rpartition(".")[2]:
        case "TestOrderedReplicaTypes":
            have = [template.pod_set for template in integration.templates(job)]
            return differs("replica types", table["wantReplicaTypes"], have)
        case "TestPodSets":
            want = _recorded(run, "tc.wantPodSets(tc.job)")
            return differs("pod sets", bare(want), _pod_sets(integration, job, topologies(case, run)))
        case "TestPriorityClass":
            return differs("class", table["wantPriorityClassName"], integration.priority_class_name(job) or "")
        case "TestRestorePodSetsInfo":
            args = {"$recv": table["job"], "podSetsInfo": table["podSetsInfo"]}
            return differs("changed", table["wantChanged"], _restored(integration, args))
        case "TestValidate":
            want = sorted(faults_of(_recorded(run, "tc.wantValidationErrs") or ()))
            return differs("faults", want, sorted(map(str, integration.create_errors(job))))
    raise NotRead("the runner does not know the table")


def check_mpi(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    integration = _integration(case)
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        job = _job(integration, args["$recv"])
        match step["op"].rpartition(".")[2]:
            case "PriorityClass":
                want, have = results[0], integration.priority_class_name(job) or ""
            case "PodSets":
                want, have = bare(results[0]), _pod_sets(integration, job, topologies(case, run))
            case "RestorePodSetsInfo":
                want, have = results[0], _restored(integration, args)
            case "RunWithPodSetsInfo":
                want, have = _want_started(case, results), _started(integration, job, args["podSetsInfo"])
            case other:
                raise NotRead(f"the runner does not know the call {other}")
        compared = True
        found += differs(step["op"], want, have)
    return found if compared else None


def _integration(case: Case) -> Any:
    return next(each for each in ALL if each.framework.rpartition("/")[2] == case.suite.split(".")[-2])


def _job(integration: Integration[Any], recorded: Json) -> Kind:
    return integration.kind.decoder()(json.dumps(without_nulls(recorded)).encode())


def _recorded(run: dict[str, Json], name: str) -> Json:
    """What the code that was recorded answered."""
    return next(each["got"] for each in run["checks"] if each["want"] == name)


def _pod_sets(integration: Integration[Any], job: Kind, asked: bool) -> Json:
    return bare([each.body(topologies=asked) for each in integration.pod_sets(job)])


def _restored(integration: Integration[Any], args: Json) -> bool:
    """Whether a stop of the running job changes its templates."""
    recorded = without_nulls(args["$recv"])
    running = {**recorded, "spec": {**recorded["spec"], "runPolicy": {"suspend": False}}}
    now = datetime.fromisoformat(world.NOW)
    stop = integration.stop(
        _job(integration, running), given.pod_sets(args["podSetsInfo"]), reason="", message="", now=now
    )
    return any("ReplicaSpecs/" in each["path"] for each in json.loads(stop.steps[0].body.encode()))  # type: ignore[union-attr]


def _started(integration: Integration[Any], job: Kind, infos: Json) -> Json:
    """Replica types whose template gets a node selector; whether the start is refused."""
    try:
        change = integration.start(job, given.infos(infos))
    except PermanentError:
        return "refused"
    assert isinstance(change, Change)
    paths = [each["path"] for each in json.loads(change.body.encode())]
    return sorted({path.split("/")[3] for path in paths if path.startswith("/spec/mpiReplicaSpecs/")})


def _want_started(case: Case, results: Json) -> Json:
    table = case.body["case"]
    present = sorted(without_nulls(table["job"]["spec"]["mpiReplicaSpecs"]))
    return "refused" if results[0] else [table["wantAssignedTo"]] if table["wantAssignedTo"] else present
