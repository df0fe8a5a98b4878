"""Recorded questions to one AppWrapper or SparkApplication: its pod sets, and what a start and a stop write.

Every call is dispatched by its name; one that has no counterpart here is passed over. Turnstile charges Spark's pods
for their memory overhead too, as the pods' `overhead`; pod sets are compared without it.
"""

import copy
import json
from datetime import datetime
from typing import Any

import jsonpatch

from tests.conformance import given, world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_webhooks import topologies
from tests.conformance.workload_calls import bare
from turnstile.api.errors import PermanentError
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrapper
from turnstile.jobs.kinds.spark.application import ROLES, SparkApplication, SparkApplications
from turnstile.jobs.registry import ALL

Json = Any
_SPARK = SparkApplications()


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    table = case.body["case"]
    found: list[str] = []
    compared = False
    want: Json
    have: Json
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"].rpartition("controller/jobs/")[2]:
            case "appwrapper.AppWrapper.PodSets":
                wrappers = next(each for each in ALL if each.kind is AppWrapper)
                want, have = bare(results[0]), _pod_sets(wrappers, args["$recv"], topologies(case, run))
            case "sparkapplication.SparkApplication.PodSets":
                want, have = bare(results[0]), _pod_sets(_SPARK, args["$recv"], topologies(case, run))
            case "sparkapplication.addVolumes":
                want, have = _mounted(table), _volumes(args)
            case "sparkapplication.SparkApplication.RunWithPodSetsInfo":
                want = _assigned(table["wantSparkApp"]) if table["wantSparkApp"] else "refused"
                have = _started(table)
            case "sparkapplication.SparkApplication.RestorePodSetsInfo":
                want, have = _assigned(table["wantSparkApp"]), _stopped(table)
                found += differs("changed", table["wantChanged"], have != _assigned(table["sparkApp"]))
            case _:
                continue
        compared = True
        found += differs(step["op"], want, have)
    return found if compared else None


def _pod_sets(integration: Integration[Any], recorded: Json, asked: bool) -> Json:
    found = []
    for each in integration.pod_sets(integration.kind.decoder()(json.dumps(recorded).encode())):
        body = each.body(topologies=asked)
        body["template"]["spec"].pop("overhead", None)
        found.append(body)
    return bare(found)


def _spark(recorded: Json) -> SparkApplication:
    return SparkApplication.decoder()(json.dumps(recorded).encode())


def _mounted(table: Json) -> Json:
    return {"volumes": table["wantVolumes"] or [], "mounts": table["wantVolumeMount"] or []}


def _volumes(args: Json) -> Json:
    """Volumes and mounts of the role whose pod was given to the recorded call."""
    role = args["pod"]["metadata"]["labels"]["spark-role"]
    sets = {each.name: json.loads(bytes(each.template))["spec"] for each in _SPARK.pod_sets(_spark(args["app"]))}
    spec = sets[role]
    return {
        "volumes": [each["name"] for each in spec.get("volumes", [])],
        "mounts": [each["name"] for each in spec["containers"][0].get("volumeMounts", [])],
    }


def _started(table: Json) -> Json:
    try:
        change = _SPARK.start(_spark(table["sparkApp"]), given.infos(table["podsetsInfo"]))
    except PermanentError:
        return "refused"
    assert change is not None
    return _assigned(jsonpatch.apply_patch(copy.deepcopy(table["sparkApp"]), json.loads(change.body.encode())))  # type: ignore[union-attr]


def _stopped(table: Json) -> Json:
    """The application after a stop with the directives of these pod sets, as if it ran until now."""
    now = datetime.fromisoformat(world.NOW)
    stop = _SPARK.stop(_spark(table["sparkApp"]), given.pod_sets(table["podsetsInfo"]), reason="", message="", now=now)
    app = copy.deepcopy(table["sparkApp"])
    for step in stop.steps:
        app = jsonpatch.apply_patch(app, json.loads(step.body.encode()))  # type: ignore[union-attr]
    return _assigned(app)


def _assigned(app: Json) -> Json:
    """What a start and a stop may write."""
    spec = app["spec"]
    return {"nodeSelector": spec.get("nodeSelector"), "instances": spec["executor"].get("instances")} | {
        role: bare(
            {name: spec[role].get(name) for name in ("labels", "annotations", "nodeSelector", "tolerations")}
            | {"gates": ((spec[role].get("template") or {}).get("spec") or {}).get("schedulingGates")}
        )
        for role in ROLES
    }
