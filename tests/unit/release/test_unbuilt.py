"""What preflight names of Kueue's features that a cluster uses and Turnstile has not."""

from typing import Any

import msgspec
import pytest

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.workload import Workload
from turnstile.release.findings import Level
from turnstile.release.unbuilt import unbuilt

GATED = {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}


def queue(**spec: Any) -> ClusterQueue:
    """A ClusterQueue `q` with a flavor `f`."""
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": []}]}]
    return msgspec.convert({"metadata": {"name": "q"}, "spec": {"resourceGroups": groups, **spec}}, ClusterQueue)


def workload(spec: dict[str, Any], *, reserved: bool = False, annotations: Any = None) -> Workload:
    """A Workload `ns/w`."""
    told = [
        {
            "type": "QuotaReserved",
            "status": "True",
            "reason": "QuotaReserved",
            "lastTransitionTime": "2026-01-02T03:00:00Z",
        }
    ]
    status: dict[str, Any] = {"conditions": told if reserved else []}
    if reserved:
        status["admission"] = {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]}
    body = {
        "metadata": {"name": "w", "namespace": "ns", "annotations": annotations or {}},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}]},
        "status": status,
    }
    return msgspec.convert(body, Workload)


def found(*workloads: Workload, queue: ClusterQueue | None = None) -> list[tuple[Level, str]]:
    """Level and first words of each finding."""
    queues = [queue] if queue else []
    said = unbuilt(queues, workloads)
    return [(each.level, each.says.partition(":")[0]) for each in said]


def test_nothing_is_said_of_a_cluster_that_uses_none() -> None:
    """Plain queues, flavors and Workloads."""
    assert found(workload({}), queue=queue()) == []


def test_a_policy_that_decides_nothing() -> None:
    """Concurrent admission."""
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    ((level, said),) = found(queue=queue(concurrentAdmissionPolicy=policy))
    assert (level, said.partition(",")[0]) == (Level.WARNING, "concurrentAdmissionPolicy decides nothing here")


@pytest.mark.parametrize(
    ("given", "level", "said"),
    [
        (workload(GATED), Level.WARNING, "elastic jobs keep the number of pods that they are charged for"),
        (
            workload({}, annotations={"kueue.x-k8s.io/elastic-job": "true"}),
            Level.WARNING,
            "elastic jobs keep the number of pods that they are charged for",
        ),
    ],
)
def test_jobs_that_wait_or_run(given: Workload, level: Level, said: str) -> None:
    """Each is named, with what becomes of it."""
    assert found(given) == [(level, said)]
