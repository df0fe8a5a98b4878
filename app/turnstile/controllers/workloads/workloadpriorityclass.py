"""Decides about one WorkloadPriorityClass: writes its value to the Workloads that name the class.

Kueue rewrites `spec.priority` of every Workload of the class when its value changes, running or not.
"""

from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.runtime.actions import ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Watch, every, itself
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import WORKLOADS_BY_PRIORITY_CLASS, ClusterView


def decide(name: str, cluster: ClusterView) -> ReconcileResult:
    """One patch for each unfinished Workload whose priority is not the value of its class."""
    priority_class = cluster.workload_priority_classes.get(name)
    if priority_class is None:
        return ReconcileResult(why="gone: its Workloads keep the priority they have")
    decision = ReconcileResult(why=f"value {priority_class.value}")
    for workload in cluster.workloads.by_index(WORKLOADS_BY_PRIORITY_CLASS, name):
        if workload.finished or workload.spec.priority == priority_class.value:
            continue
        decision.actions.append(fresh_patch(workload, {"spec": {"priority": priority_class.value}}))
    return decision


def controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles WorkloadPriorityClasses when they change."""
    classes = cluster.workload_priority_classes
    return Controller(
        name=WorkloadPriorityClass.KIND,
        kind=WorkloadPriorityClass,
        decide=lambda name: decide(name, cluster),
        watches=[Watch(classes, itself)],
        initial=lambda: every(classes),
    )
