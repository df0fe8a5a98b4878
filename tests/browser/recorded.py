"""The recorder's file of the small world: what happened to its Workloads, and to those of the week before."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.browser import demo
from tests.browser.demo import NOW, Json
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.workload import Workload
from turnstile.engine.causes import Cause
from turnstile.insight import documents
from turnstile.recorder.database import Database
from turnstile.recorder.facts import Record, of_change, of_quota
from turnstile.recorder.location import Location

DAYS = 8
_A100 = {"nvidia.com/gpu": "1", "cpu": "12", "memory": "96Gi"}
_TEAMS = (
    ("vision", "training", "a100", _A100, ("train", "distort", "label")),
    ("language", "training", "a100", _A100, ("pretrain", "finetune", "judge")),
    ("robotics", "simulation", "a100", _A100, ("rollout", "grasp", "plan")),
    ("platform", "batch", "any-node", {"cpu": "4", "memory": "8Gi"}, ("build", "backup", "report")),
)
VICTIM = "robotics/job-preempted-1f0c3"
"""A Workload that was preempted, started again, ended and was deleted."""


def write(folder: Path) -> Location:
    """Write the file."""
    place = Location(str(folder / "recorder.sqlite"))
    database = Database(place, now=NOW.timestamp() - DAYS * 86400)
    database.store([*_quotas(), *_now(), *_week()])
    database.close()
    return place


def _quotas() -> Iterator[Record]:
    snapshot = documents.parse(demo.as_list(demo.world()), "demo").snapshot
    for each in (*snapshot.of(ClusterQueue), *snapshot.of(Cohort)):
        yield from of_quota(None, each, NOW.timestamp())


def _now() -> Iterator[Record]:
    """What is there now, as a leader sees it that begins."""
    snapshot = documents.parse(demo.as_list(demo.world()), "demo").snapshot
    for each in snapshot.of(Workload):
        yield from of_change(None, each, NOW.timestamp())


def _week() -> Iterator[Record]:
    """Workloads of the last days, which are gone: more by day than by night, with the sizes that teams ask for."""
    chance = Random(20)
    for number, (namespace, line, flavor, asks, names) in enumerate(_TEAMS):
        minute = DAYS * 24 * 60.0
        while minute > 60 * 11:
            hour = (NOW.hour - minute / 60) % 24
            minute -= chance.expovariate(1 / (70 if 7 < hour < 20 else 240))
            lasts = min(chance.lognormvariate(5.0, 0.6), minute - 30)
            if lasts > 5:
                name = f"job-{names[int(minute) % len(names)]}-{number}{int(minute):04x}"
                asked = {"requests": asks, "pods": chance.choice((1, 1, 2, 3, 4))}
                yield from _life(namespace, name, line, flavor, asked, minute, lasts)
    namespace, name = VICTIM.split("/")
    yield from _life(namespace, name, "simulation", "a100", {"requests": _A100, "pods": 2}, 660, 90, preempted=40)


def _life(
    namespace: str, name: str, line: str, flavor: str, asked: Json, minute: float, lasts: float, preempted: float = 0
) -> Iterator[Record]:
    """Created so many minutes ago, it runs after a while, and is deleted some minutes after its end. `preempted` are
    the minutes after which it was, to run anew a while later."""
    given = (namespace, name, line)
    lack = Cause.QUOTA_IN_USE.says(resource="nvidia.com/gpu", flavor="a100", more=1)
    short = f"couldn't assign flavors to pod set main: {lack}"
    versions = [demo.waits(*given, short, minutes=minute, **asked)]
    begins = minute - 4
    if preempted:
        runs = demo.runs(*given, namespace, flavor, minutes=begins, **asked)
        runs["metadata"]["creationTimestamp"] = demo.at(minute)
        why = (
            "Preempted to accommodate a workload (UID: uid-vision-job-track-ab310, JobUID: of-job-track-ab310) due to "
            "reclamation within the cohort; preemptor path: /research/models/vision; preemptee path: /research/robotics"
        )
        out = demo.waits(*given, short, minutes=minute, **asked)
        out["status"]["conditions"] = [
            _condition("QuotaReserved", "False", "Pending", short, begins - preempted - 1),
            _condition("Evicted", "True", "Preempted", why, begins - preempted),
            _condition("Preempted", "True", "InCohortReclamation", why, begins - preempted),
        ]
        out["status"]["schedulingStats"] = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}
        evicted = {**runs, "status": {**runs["status"], "schedulingStats": out["status"]["schedulingStats"]}}
        evicted["status"]["conditions"] = [*runs["status"]["conditions"], *out["status"]["conditions"][1:]]
        versions += [runs, evicted, out]
        begins -= preempted + 20
    last = demo.runs(*given, namespace, flavor, minutes=begins, **asked)
    last["metadata"]["creationTimestamp"] = demo.at(minute)
    if preempted:
        last["status"]["schedulingStats"] = versions[-1]["status"]["schedulingStats"]
    versions += [last, demo.finished(_copy(last), begins - lasts)]
    seen: list[Workload | None] = [None, *map(_parsed, versions), None]
    for old, new in pairwise(seen):
        gone = begins - lasts - 5
        yield from of_change(old, new, NOW.timestamp() - 60 * (gone if new is None else minute))


def _condition(kind: str, status: str, reason: str, message: str, minutes: float) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": demo.at(minutes),
    }


def _copy(workload: Json) -> Json:
    return {**workload, "status": {**workload["status"], "conditions": [*workload["status"]["conditions"]]}}


def _parsed(plain: Json) -> Workload:
    (found,) = documents.parse(demo.as_list([plain]), "demo").snapshot.of(Workload)
    return found
