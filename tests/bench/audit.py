"""What one audit of running pods costs, and how long it holds the event loop. Run it: `python -m tests.bench.audit`.

The pods are as the controller caches them, of Jobs in 100 namespaces with a ClusterQueue each, in ten cohorts. A hold
is CPU time of the loop's thread between two of its callbacks, with the garbage collector as `turnstile serve` sets it.
"""

import argparse
import asyncio
import time
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from tests.bench.figures import HEADER, Figure
from tests.bench.turns import timed
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Job, Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight.audit import audit
from turnstile.insight.evidence import Evidence
from turnstile.jobs.registry import Registry
from turnstile.kube.slices import in_slices
from turnstile.process.memory import Collector

T = TypeVar("T", bound=Kind)

PODS, WORKLOADS, TEAMS = 10_000, 1_000, 100
TARGET_MS = 1.0
SINCE = "2026-01-02T03:04:05Z"


def _evidence(pods: int, workloads: int) -> Evidence:
    """Workloads that are all admitted, and their pods on nodes."""
    each = pods // workloads
    jobs = {f"team-{n % TEAMS}/job-{n}": _job(n) for n in range(workloads)}
    return Evidence(
        now=datetime(2026, 1, 2, 4, tzinfo=UTC),
        pods=[_pod(n, number) for n in range(workloads) for number in range(each)],
        workloads=[_workload(n, each) for n in range(workloads)],
        cluster_queues=[_cluster_queue(team, pods) for team in range(TEAMS)],
        cohorts=[],
        local_queues=[
            _of(LocalQueue, _meta("main", team), spec={"clusterQueue": f"queue-{team}"}) for team in range(TEAMS)
        ],
        flavors=[_of(ResourceFlavor, {"name": name}, spec={"nodeLabels": {"pool": name}}) for name in ("a", "b")],
        find=lambda _, key: jobs.get(key),
        managed=lambda _: True,
        manage_jobs_without_queue_name=False,
        registry=Registry(),
        options=Options(),
        grace_seconds=60.0,
    )


def _of(kind: type[T], metadata: dict[str, Any], **parts: Any) -> T:
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata, **parts}), type=kind)


def _meta(name: str, team: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": f"team-{team}", "uid": f"{team}-{name}", **more}


def _owner(number: int) -> list[dict[str, Any]]:
    uid = f"{number % TEAMS}-job-{number}"
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number}", "uid": uid, "controller": True}]


def _job(number: int) -> Job:
    return _of(Job, _meta(f"job-{number}", number % TEAMS, labels={"kueue.x-k8s.io/queue-name": "main"}))


def _pod(number: int, index: int) -> Pod:
    meta = _meta(
        f"job-{number}-{index}",
        number % TEAMS,
        labels={"kueue.x-k8s.io/podset": "main"},
        annotations={"kueue.x-k8s.io/workload": f"workload-{number}"},
        ownerReferences=_owner(number),
    )
    requests = {"cpu": "1000m", "memory": "1073741824"}
    spec = {
        "nodeName": f"node-{(number + index) % 500}",
        "nodeSelector": {"pool": "a"},
        "containers": [{"resources": {"requests": requests}}],
    }
    return _of(Pod, meta, spec=spec, status={"phase": "Running"})


def _workload(number: int, count: int) -> Workload:
    usage = {"cpu": str(count), "memory": f"{count}Gi"}
    assigned = {"name": "main", "flavors": dict.fromkeys(usage, "a"), "resourceUsage": usage, "count": count}
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": SINCE}
        for kind in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": f"queue-{number % TEAMS}", "podSetAssignments": [assigned]}
    return _of(
        Workload,
        _meta(f"workload-{number}", number % TEAMS, ownerReferences=_owner(number)),
        spec={"queueName": "main", "podSets": [{"name": "main", "count": count}]},
        status={"admission": admission, "conditions": conditions},
    )


def _cluster_queue(team: int, pods: int) -> ClusterQueue:
    quotas = [{"name": "cpu", "nominalQuota": pods}, {"name": "memory", "nominalQuota": f"{pods}Gi"}]
    flavors = [{"name": name, "resources": quotas} for name in ("a", "b")]
    group = {"coveredResources": ["cpu", "memory"], "flavors": flavors}
    return _of(
        ClusterQueue,
        {"name": f"queue-{team}"},
        spec={"cohortName": f"cohort-{team % 10}", "resourceGroups": [group]},
    )


async def _measure(pods: int, workloads: int) -> list[Figure]:
    evidence = _evidence(pods, workloads)
    collector = Collector()
    collector.begin()
    collector.settle()
    await in_slices(audit(evidence))
    with timed() as turns:
        began = time.thread_time()
        found = await in_slices(audit(evidence))
        milliseconds = (time.thread_time() - began) * 1e3
    assert not found, found[:3]
    what = f"{pods:,} pods of {workloads:,} Workloads"
    return [
        Figure(name=f"audit of {what}: CPU", value=milliseconds, unit="ms"),
        Figure(
            name="longest hold", value=turns.longest, unit="ms", target=TARGET_MS, note=f"p99 {turns.at(99):.2f} ms"
        ),
    ]


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS, help="pods that run")
    parser.add_argument("--workloads", type=int, default=WORKLOADS, help="Workloads that they belong to")
    chosen = parser.parse_args()
    rows = asyncio.run(_measure(chosen.pods, chosen.workloads))
    print(HEADER)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
