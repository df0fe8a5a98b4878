"""Pods of jobs: whether they are still those of a Workload, what counts as the same, what tells them apart.

Every call is dispatched by its name; one that has no counterpart here is passed over.
"""

import json
from typing import Any

import msgspec

from tests.conformance import world
from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from turnstile.api.core import Pod
from turnstile.api.pods import Toleration
from turnstile.api.workload import PodSet, Workload
from turnstile.engine.options import Options
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.podsets import Directives, JobPodSet, PodSetInfo, equivalent, merge

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"]:
            case "util/equality.ComparePodSetSlices":
                have: Json = _same_pods(args)
            case "util/tolerations.Equal":
                a, b = (world.load(Toleration, args[name]) for name in ("a", "b"))
                both = merge(Directives(tolerations=(a,)), PodSetInfo("", 1, tolerations=(b,)))
                have = len(both.tolerations) == 1
            case "util/pod.SpecShape":
                spec = args["podSpec"]
                without = {name: part for name, part in spec.items() if name != "resources"}
                have, results = _hash(spec) != _hash(without), ["resources" in (results[0] or {})]
            case "util/pod.IsTerminated":
                have = PlainPod().finished(_pod(args["p"])) is not None
            case "util/pod.GetPodGroupName":
                have = PlainPod().groups.group_of(_pod(args["p"]))
            case _:
                continue
        compared = True
        found += differs(step["op"], results[0], have)
    return found if compared else None


def _pod(recorded: Json) -> Pod:
    return msgspec.json.decode(json.dumps(recorded), type=Pod, strict=False)


def _same_pods(args: Json) -> bool:
    """A job's pod sets against those of a Workload; once it is admitted, tolerations may differ."""
    job = [
        JobPodSet(
            item.get("name", ""), item.get("count", 1), json.dumps(item["template"]).encode(), item.get("minCount")
        )
        for item in args.get("a") or ()
    ]
    chosen = {name: on for option in args.get("options") or () for name, on in (option.get("sets") or {}).items()}
    if chosen.keys() - {"ignoreTolerations"}:
        raise NotRead(f"the runner does not know all of the options {sorted(chosen)}")
    conditions = [world.condition("Admitted")] if chosen.get("ignoreTolerations") else []
    body = {"spec": {"podSets": args.get("b") or []}, "status": {"conditions": conditions}}
    return equivalent(job, world.load(Workload, body), None)


def _hash(spec: Json) -> str:
    """What stands for all that the scheduler looks at."""
    pods = world.load(PodSet, {"name": "main", "count": 1, "template": {"spec": spec}})
    workload = Workload()
    workload.spec.pod_sets = [pods]
    return Info(workload, Surroundings(Options())).hash
