"""What a WorkloadPriorityClass changes in the Workloads that name it."""

from typing import Any

import pytest

from tests.unit.controllers.job_cluster import NOW, Cluster
from turnstile.api.conditions import timestamp
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.view.clusterview import index_stores
from turnstile.controllers.workloads.workloadpriorityclass import decide

STATES: dict[str, tuple[str, ...]] = {
    "waits": (),
    "has quota": ("QuotaReserved",),
    "runs": ("QuotaReserved", "Admitted"),
    "is evicted": ("QuotaReserved", "Admitted", "Evicted"),
}


def workload(name: str, *, of: str, value: int, true: tuple[str, ...] = (), kind: str = "WorkloadPriorityClass") -> Any:
    """A Workload of a class, with conditions that are True."""
    group = "kueue.x-k8s.io" if kind == "WorkloadPriorityClass" else "scheduling.k8s.io"
    conditions = [
        {"type": each, "status": "True", "reason": "R", "lastTransitionTime": timestamp(NOW)} for each in true
    ]
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"priority": value, "priorityClassRef": {"group": group, "kind": kind, "name": of}},
        "status": {"conditions": conditions},
    }


@pytest.fixture
def cluster() -> Cluster:
    """The class `high` of value 7."""
    made = Cluster()
    world = made.world
    index_stores(world.workloads, world.local_queues, world.cluster_queues, world.flavors)
    made.put(WorkloadPriorityClass, {"metadata": {"name": "high"}, "value": 7})
    return made


@pytest.mark.parametrize("state", STATES)
def test_its_value_becomes_the_priority_of_its_workloads(cluster: Cluster, state: str) -> None:
    """Those that wait, and those that are victims of others while they run."""
    cluster.put(Workload, workload("a", of="high", value=3, true=STATES[state]))
    for action in decide("high", cluster.world).actions:
        cluster.act(action)
    assert cluster.workload["spec"]["priority"] == 7
    assert decide("high", cluster.world).actions == []


@pytest.mark.parametrize(
    "other",
    [
        workload("a", of="high", value=3, true=("Finished",)),
        workload("a", of="low", value=3),
        workload("a", of="high", value=3, kind="PriorityClass"),
    ],
    ids=["that has ended", "of another class", "of a PriorityClass of that name"],
)
def test_another_workload_stays_as_it_is(cluster: Cluster, other: Any) -> None:
    """Nothing is written."""
    cluster.put(Workload, other)
    assert decide("high", cluster.world).actions == []


def test_the_workloads_of_a_class_that_is_gone_keep_their_priority(cluster: Cluster) -> None:
    """Also those that run."""
    cluster.put(Workload, workload("a", of="low", value=3, true=STATES["runs"]))
    assert decide("low", cluster.world).actions == []
