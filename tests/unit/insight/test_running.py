"""The run of an admitted Workload."""

from datetime import datetime

from tests.unit.recorder.lives import T0, admission, condition, evictions, version
from turnstile.insight.running import PodSetRun, Used, running

ADMITTED = (condition("QuotaReserved", "True", 10), condition("Admitted", "True", 10))


def test_a_run_that_goes_on() -> None:
    """Since when, on whose quota, with which pods, and how much until now."""
    found = running(version("w", *ADMITTED, admission=admission()), T0 + 10 + 1800)
    assert found is not None
    assert (found.cluster_queue, found.seconds, found.until, found.evicted) == ("a", 1800.0, "", 0)
    assert datetime.fromisoformat(found.since).timestamp() == T0 + 10
    assert found.pod_sets == (PodSetRun("main", 4, 0, ("default",)),)
    assert found.used == (Used("cpu", "4", 2.0, "core-hours"),)


def test_a_run_on_another_cluster() -> None:
    """The cluster that won is named, for as long as the Workload is there."""
    away = version("w", *ADMITTED, admission=admission(), clusterName="east")
    over = version("w", *ADMITTED, condition("Finished", "True", 46), admission=admission(), clusterName="east")
    found = [running(each, T0 + 60) for each in (version("w", *ADMITTED, admission=admission()), away, over)]
    assert [each.cluster for each in found if each is not None] == ["", "east", "east"]


def test_a_run_that_is_over() -> None:
    """It lasted until it finished, whatever the time is."""
    found = running(
        version("w", *ADMITTED, condition("Finished", "True", 46), admission=admission(), schedulingStats=evictions(2)),
        T0 + 9_000,
    )
    assert found is not None
    assert (found.seconds, found.evicted) == (36.0, 2)
    assert found.used[0].hours == 0.04


def test_pods_that_are_done() -> None:
    """Their number is told, for the amounts are those of all pods."""
    back = [{"name": "main", "count": 3}]
    found = running(version("w", *ADMITTED, admission=admission(), reclaimablePods=back), T0 + 20)
    assert found is not None
    assert found.pod_sets[0].done == 3


def test_a_workload_that_does_not_run() -> None:
    """One that waits, and one that holds quota until its checks are ready."""
    assert running(version("w"), T0) is None
    assert running(version("w", condition("QuotaReserved", "True", 10), admission=admission()), T0 + 20) is None


def test_a_clock_that_is_behind() -> None:
    """A run has never lasted less than nothing."""
    found = running(version("w", *ADMITTED, admission=admission()), T0)
    assert found is not None
    assert found.seconds == 0
