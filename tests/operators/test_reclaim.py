"""Replicas of a JobSet that have succeeded give their quota to a Job that waits, while the other replicas run on."""

import pytest

from testbed import ControlPlane
from testbed.client import resource_path, wait_until
from tests.attacks.sentry import Sentry
from tests.cluster.scenario import GROUP, Scenario
from tests.operators.jobsets import REPLICATED_JOB_LABEL, jobset, replicated_job
from tests.operators.pods import wait_running

pytestmark = pytest.mark.operator("jobset")


def test_a_job_starts_beside_the_rest_of_a_jobset(control_plane: ControlPlane, scenario: Scenario) -> None:
    """At no time do pods of more than the quota run."""
    sentry = Sentry(scenario.api, scenario.namespace)
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}})
    training = jobset(
        "training",
        replicated_job("leader"),
        replicated_job("workers", replicas=2),
        namespace=scenario.namespace,
        queue="team",
    )
    scenario.create(training)
    wait_running(scenario.api, scenario.namespace, {"leader": 1, "workers": 2}, by=REPLICATED_JOB_LABEL)
    scenario.job("waits", queue="team")
    scenario.wait_pending("waits", reason="WaitingForQuota")
    control_plane.end_pods(scenario.namespace, labels=f"{REPLICATED_JOB_LABEL}=leader")
    scenario.wait_started("waits", timeout=30)
    workloads = scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))
    reclaimed = [each["status"]["reclaimablePods"] for each in workloads if each["status"].get("reclaimablePods")]
    assert reclaimed == [[{"name": "leader", "count": 1}]]
    wait_until(lambda: sentry.runs == 3, timeout=30, describe=lambda: f"{sentry.runs} CPUs run: {sentry.story}")
    assert sentry.most == 3, sentry.story
    sentry.end()
