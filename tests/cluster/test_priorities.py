"""Priorities that are edited while Workloads wait and run: another one is admitted next, or becomes a victim."""

import pytest

from testbed.client import Json, condition, resource_path
from tests.cluster.scenario import GROUP, Scenario, job_path

pytestmark = pytest.mark.cluster

PRIORITY = "kueue.x-k8s.io/priority-class"


def queue(scenario: Scenario, **spec: Json) -> None:
    """A queue of one CPU."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}}, **spec)


def of(scenario: Scenario, name: str, *, priority: str) -> None:
    """A Job of one CPU, of a priority class."""
    scenario.job(name, queue="team", labels={PRIORITY: priority})


def edit(scenario: Scenario, priority: str, value: int) -> None:
    """Change the value of a priority class."""
    scenario.api.patch(resource_path(GROUP, "workloadpriorityclasses", priority), {"value": value})


def name(scenario: Scenario, job: str, *, priority: str) -> None:
    """Give a Job another priority class."""
    scenario.api.patch(job_path(scenario.namespace, job), {"metadata": {"labels": {PRIORITY: priority}}})


@pytest.mark.parametrize("by", ["value", "label"])
def test_a_workload_whose_priority_rises_while_it_waits_is_the_next(scenario: Scenario, by: str) -> None:
    """By an edit of its class, or by the label of another class: it is admitted before a Job that was before it."""
    queue(scenario)
    high, low = scenario.priority_class("high", 10), scenario.priority_class("low", 5)
    top = scenario.priority_class("top", 20)
    of(scenario, "holder", priority=top)
    scenario.wait_started("holder")
    of(scenario, "first", priority=high)
    of(scenario, "second", priority=low)
    scenario.wait_pending("first", reason="WaitingForQuota")
    scenario.wait_pending("second", reason="WaitingForQuota")
    if by == "value":
        edit(scenario, low, 15)
    else:
        name(scenario, "second", priority=top)
    scenario.wait_workload("second", lambda found: found["spec"]["priority"] > 10)
    scenario.delete_job("holder")
    scenario.wait_started("second")
    assert scenario.suspended("first")


@pytest.mark.parametrize("by", ["value", "label"])
def test_a_workload_whose_priority_falls_while_it_runs_is_a_victim(scenario: Scenario, by: str) -> None:
    """A Job of the priority that it had preempts it at once."""
    queue(scenario, preemption={"withinClusterQueue": "LowerPriority"})
    one, other = scenario.priority_class("one", 10), scenario.priority_class("other", 10)
    low = scenario.priority_class("low", 5)
    of(scenario, "runs", priority=one)
    scenario.wait_started("runs")
    of(scenario, "waits", priority=other)
    scenario.wait_pending("waits")
    if by == "value":
        edit(scenario, one, 5)
    else:
        name(scenario, "runs", priority=low)
    scenario.wait_started("waits", timeout=20)
    preempted = scenario.wait_workload("runs", lambda found: condition(found, "Preempted").get("status") == "True")
    assert (preempted["spec"]["priority"], condition(preempted, "Preempted")["reason"]) == (5, "InClusterQueue")


def test_the_label_comes_before_a_priority_class_of_the_pods(scenario: Scenario) -> None:
    """A Job whose pods name a PriorityClass, as all do in a cluster with a default, gets the label while it waits: its
    Workload has the label's priority, and preempts."""
    queue(scenario, preemption={"withinClusterQueue": "LowerPriority"})
    ordinary = scenario.named("ordinary")
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": ordinary}, "value": 5}
    scenario.create(body)
    first = scenario.priority_class("first", 5000)
    for job in ("running", "urgent"):
        scenario.job(job, queue="team", template={"priorityClassName": ordinary})
        if job == "running":
            scenario.wait_started(job)
    scenario.wait_pending("urgent", reason="WaitingForQuota")
    assert scenario.workload_of("urgent")["spec"]["priority"] == 5
    name(scenario, "urgent", priority=first)
    scenario.wait_started("urgent", timeout=15)
    assert scenario.workload_of("urgent")["spec"]["priority"] == 5000
    assert scenario.suspended("running")
