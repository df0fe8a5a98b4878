"""The week before the tour: queues that are a week old, and Workloads that ran on their GPUs and have finished.

They are written into etcd as a restored backup would be, because no API server takes a creationTimestamp of the past.
The controller then finds what it would find after a week: usage, run times and arrivals. Everything but `restore` is
pure.
"""

import base64
import json
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

Json = dict[str, Any]

DAYS = 7
GPUS = 8
"""GPUs of all teams together: never more were in use."""
_EVERY = timedelta(hours=5)
"""Time between two Workloads of a team, on average."""
_TEAMS = {"vision": ("pretrain", "distill"), "language": ("finetune", "translate"), "speech": ("transcribe", "align")}
_FLAVOR = "a100"


def aged(queue: Json, now: datetime) -> Json:
    """A ClusterQueue or LocalQueue as if it had been created at the beginning of the week."""
    return _object(queue, now - timedelta(days=DAYS))


def finished(now: datetime, *, seed: int = 7) -> Iterator[Json]:
    """Workloads that finished before `now`: each started when enough GPUs were free."""
    chance = Random(seed)
    begin = now - timedelta(days=DAYS)
    asked = sorted(
        (begin + (_EVERY * chance.expovariate(1) + _EVERY * number), team)
        for team in _TEAMS
        for number in range(int(timedelta(days=DAYS) / _EVERY))
    )
    runs: list[tuple[datetime, int]] = []
    for number, (created, team) in enumerate(asked):
        gpus = chance.choice((1, 2, 2, 4))
        lasts = timedelta(hours=min(9.0, chance.lognormvariate(1.0, 0.6)))
        starts = created + timedelta(seconds=2)
        while sum(held for end, held in runs if end > starts) + gpus > GPUS:
            starts = min(end for end, _ in runs if end > starts)
        if starts + lasts < now:
            runs.append((starts + lasts, gpus))
            name = f"job-{chance.choice(_TEAMS[team])}-{number:05x}"
            yield _workload(team, name, gpus, created, starts, starts + lasts)


def _workload(team: str, name: str, gpus: int, created: datetime, starts: datetime, ends: datetime) -> Json:
    requests = {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "busybox:1.37", "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    assigned = {
        "name": "main",
        "count": gpus,
        "flavors": dict.fromkeys(requests, _FLAVOR),
        "resourceUsage": {"cpu": str(4 * gpus), "memory": f"{32 * gpus}Gi", "nvidia.com/gpu": str(gpus)},
    }
    return _object(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"namespace": team, "name": name},
            "spec": {
                "active": True,
                "queueName": "default",
                "podSets": [{"name": "main", "count": gpus, "template": template}],
            },
            "status": {
                "admission": {"clusterQueue": team, "podSetAssignments": [assigned]},
                "conditions": [
                    _condition("QuotaReserved", starts),
                    _condition("Admitted", starts),
                    _condition("Finished", ends, reason="Succeeded"),
                ],
            },
        },
        created,
    )


def _condition(kind: str, since: datetime, *, reason: str = "") -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": reason or kind,
        "message": "",
        "lastTransitionTime": _stamp(since),
    }


def _object(obj: Json, created: datetime) -> Json:
    """The object with what an API server adds when it is created."""
    place = f"{obj['kind']}/{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
    added = {"uid": str(uuid.uuid5(uuid.NAMESPACE_URL, place)), "creationTimestamp": _stamp(created), "generation": 1}
    return {**obj, "metadata": {**obj["metadata"], **added}}


def _stamp(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def restore(etcd: str, objects: Iterable[Json]) -> None:
    """Write objects of Kueue's kinds into etcd, in the form in which an API server stores them."""
    for obj in objects:
        group = obj["apiVersion"].partition("/")[0]
        meta = obj["metadata"]
        parts = ("/registry", group, f"{obj['kind'].lower()}s", meta.get("namespace", ""), meta["name"])
        put = {"key": _encoded("/".join(filter(None, parts))), "value": _encoded(json.dumps(obj))}
        request = urllib.request.Request(f"{etcd}/v3/kv/put", data=json.dumps(put).encode(), method="POST")  # noqa: S310 -- etcd of the test bed
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 -- the same
            answer.read()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
