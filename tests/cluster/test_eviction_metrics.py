"""What /metrics tells of evictions and preemptions: each once, whatever happens to the writes of it."""

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.client import condition, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.scenario import GROUP, Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

PRIORITY = "kueue.x-k8s.io/priority-class"


class Scrape:
    """Samples of one installation as a scraper finds them."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._installation = turnstile.installation

    def value(self, metric: str, labels: Mapping[str, str]) -> float | None:
        """One sample of `kueue_<metric>` that has these labels and no others but the role."""
        text = self._installation.metrics()
        wanted = {**labels, "replica_role": "leader"}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"kueue_{metric}" and sample.labels == wanted:
                    return float(sample.value)
        return None

    def wait(self, metric: str, labels: Mapping[str, str], value: float) -> None:
        """Wait until the sample has the value."""
        wait_until(
            lambda: self.value(metric, labels) == value,
            timeout=10,
            describe=lambda: f"{metric} {dict(labels)}: {self.value(metric, labels)} and not {value}",
        )


def disturb(scenario: Scenario, workload: str) -> None:
    """Write the Workload of a Job until it is told to go, so that whoever tells it finds another version."""
    path = scenario.api.path_of(scenario.workload_of(workload))

    def told() -> bool:
        try:
            found = scenario.api.get(path)
            stamp = f"{int(found['metadata']['resourceVersion'])}"
            scenario.api.patch(path, {"metadata": {"annotations": {"example.com/seen": stamp}}})
        except ApiError:
            return False
        return condition(found, "Evicted").get("status") == "True"

    wait_until(told, timeout=15, describe=lambda: f"{workload} is not evicted")


def test_evictions_and_preemptions_are_counted_once(scenario: Scenario, turnstile: Turnstile) -> None:
    """By both queues, reason and priority class; the second one is not the first; a restart counts none again.
    The series of a deleted priority class end."""
    flavor = scenario.flavor("plain")
    queue = scenario.queue("team", {flavor: {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    scrape = Scrape(turnstile)
    cause = {"reason": "Preempted", "underlying_cause": "", "priority_class": low}
    by_queue, in_line = {"cluster_queue": queue, **cause}, {"name": "team", "namespace": scenario.namespace, **cause}
    preempted = {"preempting_cluster_queue": queue, "reason": "InClusterQueue"}
    scenario.job("low", queue="team", cpu="2", labels={PRIORITY: low})
    for turn in (1, 2):
        scenario.wait_started("low", timeout=15)
        scenario.job(f"high-{turn}", queue="team", cpu="2", labels={PRIORITY: high})
        disturb(scenario, "low")
        scenario.wait_started(f"high-{turn}", timeout=15)
        scrape.wait("evicted_workloads_total", by_queue, turn)
        assert scrape.value("evicted_workloads_once_total", by_queue) == 1
        assert scrape.value("local_queue_evicted_workloads_total", in_line) == turn
        assert scrape.value("preempted_workloads_total", preempted) == turn
        if turn == 1:
            scenario.delete_job("high-1")
    turnstile.crash()
    turnstile.start()
    stopped = {"cluster_queue": queue, "reason": "ClusterQueueStopped", "underlying_cause": "", "priority_class": high}
    scenario.patch_queue(queue, {"stopPolicy": "HoldAndDrain"})
    scrape.wait("evicted_workloads_total", stopped, 1)
    assert scrape.value("evicted_workloads_total", by_queue) is None
    assert scrape.value("preempted_workloads_total", preempted) is None
    scenario.api.delete(resource_path(GROUP, "workloadpriorityclasses", high))
    wait_until(
        lambda: scrape.value("evicted_workloads_total", stopped) is None,
        timeout=10,
        describe=lambda: "the priority class is gone, and its series are left",
    )
