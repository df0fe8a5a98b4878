"""What is counted of the changes of Workloads."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from app.api.workload import Workload
from app.controllers.metrics import WorkloadMetrics
from tests.unit.controllers.worlds import ADMITTED, NOW, RESERVED, condition, workload

EVICTED = condition("Evicted", "True", "Preempted", since="2026-01-02T03:04:00Z")
FINISHED = condition("Finished", "True", "Succeeded", since="2026-01-02T03:03:00Z")


class Counts:
    """The metrics, and what a scrape would find."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = WorkloadMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        """One sample."""
        return self.registry.get_sample_value(f"kueue_{name}", {**labels, "replica_role": "leader"})


@pytest.fixture
def counts() -> Counts:
    """Nothing counted yet."""
    return Counts()


class TestEvictionLatency:
    def test_it_lasts_until_the_quota_is_free(self, counts: Counts) -> None:
        """From the condition to the change that takes the reservation back."""
        held = workload(RESERVED, ADMITTED, EVICTED, admission=True)
        counts.metrics.changed(held, workload(EVICTED), NOW)
        labels = {"cluster_queue": "cq", "reason": "Preempted"}
        assert counts.value("workload_eviction_latency_seconds_sum", **labels) == 5.0

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (workload(RESERVED, admission=True), workload(RESERVED, EVICTED, admission=True)),
            (workload(RESERVED, admission=True), workload()),
            (workload(EVICTED), workload(EVICTED)),
            (None, workload(EVICTED)),
            (workload(RESERVED, EVICTED, admission=True), None),
        ],
        ids=["still held", "not evicted", "nothing held", "first seen", "deleted"],
    )
    def test_no_other_change_counts(self, counts: Counts, old: Workload | None, new: Workload | None) -> None:
        """Only the one from holding quota to waiting after an eviction."""
        counts.metrics.changed(old, new, NOW)
        labels = {"cluster_queue": "cq", "reason": "Preempted"}
        assert counts.value("workload_eviction_latency_seconds_count", **labels) is None


class TestExecutionTime:
    def test_it_adds_up_over_all_runs(self, counts: Counts) -> None:
        """The last run and what was added up before."""
        ran = {"accumulatedPastExecutionTimeSeconds": 20}
        ended = workload(RESERVED, ADMITTED, FINISHED, admission=True, more_status=ran)
        counts.metrics.changed(workload(RESERVED, ADMITTED, admission=True), ended, NOW)
        counts.metrics.changed(ended, ended, NOW + timedelta(seconds=1))
        labels = {"cluster_queue": "cq", "priority_class": ""}
        assert counts.value("execution_time_seconds_sum", **labels) == 200.0
        assert counts.value("execution_time_seconds_count", **labels) == 1.0

    def test_one_that_never_ran_has_none(self, counts: Counts) -> None:
        """It finished while it waited."""
        counts.metrics.changed(workload(), workload(FINISHED), NOW)
        assert counts.value("execution_time_seconds_count", cluster_queue="", priority_class="") is None


def test_the_figures_of_a_cluster_queue_end_with_it(counts: Counts) -> None:
    """Else they would stay for as long as the process runs."""
    counts.metrics.changed(workload(RESERVED, EVICTED, admission=True), workload(EVICTED), NOW)
    counts.metrics.forget("cq")
    labels = {"cluster_queue": "cq", "reason": "Preempted"}
    assert counts.value("workload_eviction_latency_seconds_count", **labels) is None
