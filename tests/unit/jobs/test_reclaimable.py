"""How many pods of a job need their quota no longer."""

from app.api.workload import PodSet, Workload
from app.jobs.workload import limited_reclaimable


def test_counts_are_limited_to_the_pod_sets_of_the_workload() -> None:
    """A Job that was made smaller may have more pods through than its Workload has; of a pod set that the Workload does
    not have nothing is known that could limit it."""
    workload = Workload()
    workload.spec.pod_sets = [PodSet(name="driver", count=1), PodSet(name="worker", count=5)]
    counts = {"driver": 3, "worker": 2, "other": 10}
    assert limited_reclaimable(workload, counts) == {"driver": 1, "worker": 2, "other": 10}
