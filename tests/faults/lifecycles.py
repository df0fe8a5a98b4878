"""Lifecycles as data: what a user, an administrator and an autoscaler do to jobs, from submission to the end.

Each one is a function of an empty namespace; it returns when nothing is left to be done but by Turnstile and
Kubernetes. Its steps wait for what is visible in the cluster, so they go on whichever controller leads, and none of
them is a matter of seconds. Must never judge: that is done by comparison with a run in which no controller dies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from testbed.autoscaler import Autoscaler
from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster import test_admission_checks as checks
from tests.cluster import test_limits_edited as limits
from tests.cluster.scenario import GROUP, Scenario, job_path
from tests.cluster.serving import PRIORITY, stateful_set
from tests.cluster.test_deployments import deployment
from tests.faults.extended import CLAIMING, claimed_devices, gang_on_a_rack, growing_job, rack_freed_by_preemption
from tests.faults.readiness import pod_not_ready, pods_lost, pods_not_ready, pods_recovered, set_not_ready
from tests.faults.steps import (
    WAIT,
    becomes,
    create_pod,
    end_pod,
    gone,
    queue,
    running,
    started,
    wait_phases,
    waits,
)

PATIENT: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, pod, deployment, statefulset]}
managedJobsNamespaceSelector: {matchLabels: {kueue-managed: "true"}}
"""
IMPATIENT: Final = (
    PATIENT
    + """
waitForPodsReady:
  timeout: 2s
  requeuingStrategy: {backoffBaseSeconds: 1, backoffLimitCount: 1}
"""
)
FORGETFUL: Final = (
    PATIENT
    + """
objectRetentionPolicies:
  workloads: {afterFinished: 1s, afterDeactivatedByKueue: 1s}
"""
)
LOSING: Final = (
    PATIENT
    + """
waitForPodsReady:
  timeout: 10m
  recoveryTimeout: 1s
  requeuingStrategy: {backoffBaseSeconds: 1}
"""
)
RECOVERING: Final = PATIENT + "waitForPodsReady: {timeout: 10m}\n"
EXPLICIT: Final = PATIENT + "featureGates: {UnadmittedWorkloadsExplicitStatus: true}\n"


@dataclass(frozen=True)
class Lifecycle:
    """What is done, under which configuration; `always` also in continuous integration."""

    act: Callable[[Scenario], None]
    configuration: str = PATIENT
    always: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return self.act.__name__.replace("_", "-")


def finish(scenario: Scenario) -> None:
    """A Job waits for quota, runs and ends."""
    queue(scenario, 1)
    scenario.job("first", queue="team")
    started(scenario, "first")
    scenario.job("second", queue="team", run_for="100ms")
    waits(scenario, "second")
    scenario.delete_job("first")
    becomes(scenario, "second", "Finished")
    gone(scenario, "first")


def check_ready(scenario: Scenario) -> None:
    """An admission check is pending, then ready with labels for the pods."""
    full = checks.check(scenario, "budget")
    queue(scenario, admissionChecksStrategy={"admissionChecks": [{"name": full}]})
    scenario.job("asks", queue="team")
    _answer(scenario, full, "Ready", podSetUpdates=[{"name": "main", "labels": {"budget": "granted"}}])
    started(scenario, "asks")
    running(scenario, 1)


def check_retry(scenario: Scenario) -> None:
    """An admission check wants to be asked again, and is ready then."""
    full = checks.check(scenario, "budget")
    queue(scenario, admissionChecksStrategy={"admissionChecks": [{"name": full}]})
    scenario.job("asks", queue="team")
    _answer(scenario, full, "Retry", requeueAfterSeconds=1)
    scenario.wait_workload("asks", lambda w: checks.states(w)[full].get("retryCount") == 1, timeout=WAIT)
    _answer(scenario, full, "Ready")
    started(scenario, "asks")
    running(scenario, 1)


def check_rejected(scenario: Scenario) -> None:
    """An admission check rejects a Job."""
    full = checks.check(scenario, "budget")
    queue(scenario, admissionChecksStrategy={"admissionChecks": [{"name": full}]})
    scenario.job("asks", queue="team")
    _answer(scenario, full, "Rejected", message="no money")
    becomes(scenario, "asks", "Evicted", reason="Deactivated")


def _answer(scenario: Scenario, full: str, state: str, **more: object) -> None:
    """As `checks.answer`, with the patience of a test that kills controllers."""

    def waiting(workload: Json) -> bool:
        reserved = condition(workload, "QuotaReserved").get("status") == "True"
        return reserved and checks.states(workload).get(full, {}).get("state") == "Pending"

    scenario.wait_workload("asks", waiting, timeout=WAIT)
    checks.answer(scenario, "asks", full, state, **more)


def preemption(scenario: Scenario) -> None:
    """A Job of a higher priority takes the quota of two others."""
    queue(scenario, 3, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    # Of two that ask for the same one would be told that it is like the other, which depends on their order.
    for name, cpu in (("low-a", "1"), ("low-b", "2")):
        scenario.job(name, queue="team", cpu=cpu, labels={PRIORITY: low})
        started(scenario, name)
    running(scenario, 2)
    scenario.job("high", queue="team", cpu="3", labels={PRIORITY: high})
    started(scenario, "high")
    for name in ("low-a", "low-b"):
        becomes(scenario, name, "Evicted", reason="Preempted")
    running(scenario, 1)


def time_limit(scenario: Scenario) -> None:
    """A Job runs for longer than it may."""
    queue(scenario)
    scenario.job("long", queue="team", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    becomes(scenario, "long", "Evicted", reason="Deactivated")
    scenario.wait_suspended("long", timeout=WAIT)


def drain(scenario: Scenario) -> None:
    """A ClusterQueue is drained, and opened again."""
    full = queue(scenario)
    scenario.job("drained", queue="team")
    started(scenario, "drained")
    running(scenario, 1)
    scenario.patch_queue(full, {"stopPolicy": "HoldAndDrain"})
    becomes(scenario, "drained", "Evicted", reason="ClusterQueueStopped")
    waits(scenario, "drained")
    scenario.patch_queue(full, {"stopPolicy": "None"})
    started(scenario, "drained")
    running(scenario, 1)


def provisioning(scenario: Scenario) -> None:
    """The first ProvisioningRequest of a Job fails, the second is provisioned."""
    autoscaler = Autoscaler(scenario.api)
    retries = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
    config, check = scenario.named("config"), scenario.named("capacity")
    wanted = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "retryStrategy": retries}
    meta = {"name": config}
    scenario.create({"apiVersion": GROUP, "kind": "ProvisioningRequestConfig", "metadata": meta, "spec": wanted})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    scenario.create({"apiVersion": GROUP, "kind": "AdmissionCheck", "metadata": {"name": check}, "spec": spec})
    queue(scenario, admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    scenario.job("asks", queue="team")
    for attempt, answer in ((1, "Failed"), (2, "Provisioned")):
        name = f"{scenario.workload_of('asks', timeout=WAIT)['metadata']['name']}-{check}-{attempt}"
        wait_until(
            lambda name=name: name in autoscaler.requests(scenario.namespace),  # type: ignore[misc]
            timeout=WAIT,
            describe=lambda name=name: f"no request {name}",  # type: ignore[misc]
        )
        autoscaler.answer(scenario.namespace, name, answer)
    started(scenario, "asks")
    running(scenario, 1)


def forgotten(scenario: Scenario) -> None:
    """The Workload of a finished Job is deleted after a while; a Job that Turnstile deactivated is deleted too."""
    queue(scenario)
    scenario.job("short", queue="team", run_for="100ms")
    scenario.job("long", queue="team", labels={"kueue.x-k8s.io/max-exec-time-seconds": "1"})
    scenario.api.wait_gone(job_path(scenario.namespace, "long"), timeout=WAIT)
    path = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    wait_until(lambda: not scenario.api.items(path), timeout=WAIT, describe=lambda: "Workloads are left")


def deletion(scenario: Scenario) -> None:
    """A Job is deleted while it runs, another one while it waits."""
    queue(scenario, 1)
    scenario.job("runs", queue="team")
    started(scenario, "runs")
    running(scenario, 1)
    scenario.job("waits", queue="team")
    waits(scenario, "waits")
    for name in ("waits", "runs"):
        scenario.delete_job(name)
        gone(scenario, name)


def priority_change(scenario: Scenario) -> None:
    """Of two Jobs that wait the later one gets a higher priority, and so the quota."""
    queue(scenario, 1)
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    scenario.job("first", queue="team", labels={PRIORITY: low})
    started(scenario, "first")
    for name in ("second", "third"):
        scenario.job(name, queue="team", labels={PRIORITY: low})
        waits(scenario, name)
    scenario.api.patch(job_path(scenario.namespace, "third"), {"metadata": {"labels": {PRIORITY: high}}})
    scenario.wait_workload("third", lambda w: w["spec"]["priority"] == 100, timeout=WAIT)
    scenario.finish("first")
    started(scenario, "third")
    running(scenario, 1)


def deactivation(scenario: Scenario) -> None:
    """A user deactivates the Workload of a Job that runs, and activates it again."""
    queue(scenario)
    scenario.job("mine", queue="team")
    started(scenario, "mine")
    running(scenario, 1)
    path = scenario.api.path_of(scenario.workload_of("mine"))
    scenario.api.patch(path, {"spec": {"active": False}})
    becomes(scenario, "mine", "Evicted", reason="Deactivated")
    waits(scenario, "mine")
    scenario.api.patch(path, {"spec": {"active": True}})
    started(scenario, "mine")
    running(scenario, 1)


def pod_alone(scenario: Scenario) -> None:
    """A Pod waits, runs and ends."""
    queue(scenario, 1)
    create_pod(scenario, "only")
    running(scenario, 1)
    end_pod(scenario, "only")
    becomes(scenario, "only", "Finished", owner="Pod")


def pod_group(scenario: Scenario) -> None:
    """A group of two Pods waits until it is complete, runs and ends."""
    queue(scenario)
    for name in ("one", "two"):
        create_pod(scenario, name, **{"kueue.x-k8s.io/pod-group-total-count": "2"})
    running(scenario, 2)
    path = resource_path(GROUP, "workloads", "ring", namespace=scenario.namespace)
    end_pod(scenario, "one")
    scenario.api.wait_for(path, lambda w: w["status"].get("reclaimablePods"), timeout=WAIT)
    end_pod(scenario, "two")
    scenario.api.wait_for(path, lambda w: condition(w, "Finished").get("status") == "True", timeout=WAIT)


def scaled_deployment(scenario: Scenario) -> None:
    """A Deployment is scaled up beyond the quota, and down again."""
    queue(scenario)
    deployment(scenario, "web", replicas=1)
    running(scenario, 1)
    path = resource_path("apps/v1", "deployments", "web", namespace=scenario.namespace)
    for replicas, expected in ((3, (2, 1)), (1, (1, 0))):
        scenario.api.patch(path, {"spec": {"replicas": replicas}})
        wait_phases(scenario, "web", expected)


def scaled_stateful_set(scenario: Scenario) -> None:
    """A StatefulSet is scaled down to nothing, and up again."""
    queue(scenario)
    stateful_set(scenario, "db", replicas=2)
    wait_phases(scenario, "db", (2, 0))
    path = resource_path("apps/v1", "statefulsets", "db", namespace=scenario.namespace)
    for replicas in (0, 2):
        scenario.api.patch(path, {"spec": {"replicas": replicas}})
        wait_phases(scenario, "db", (replicas, 0))
        # Until then it is still being scaled, and may not be scaled again.
        scenario.api.wait_for(path, lambda s, n=replicas: s["status"].get("replicas", 0) == n, timeout=WAIT)  # type: ignore[misc]


def limit_edited(scenario: Scenario) -> None:
    """A LimitRange refuses a Job by the ratio of its limit to its request, until an administrator allows it."""
    queue(scenario)
    path = limits.limit(scenario, maxLimitRequestRatio={"cpu": "2"})
    template = limits.container(requests={"cpu": "1"}, limits={"cpu": "4"})
    scenario.job("wide", queue="team", template=template)
    _refused(scenario, "wide", limits.OUTSIDE)
    limits.edit(scenario, path, maxLimitRequestRatio={"cpu": "4"})
    started(scenario, "wide")
    running(scenario, 1)


def overhead_edited(scenario: Scenario) -> None:
    """With the overhead of its RuntimeClass a Job does not fit, until an administrator lowers that."""
    queue(scenario)
    heavy = limits.runtime_class(scenario, "20")
    template = {**limits.container(requests={"cpu": "1"}), "runtimeClassName": heavy}
    scenario.job("heavy", queue="team", template=template)
    _refused(scenario, "heavy", "insufficient quota")
    path = resource_path("node.k8s.io/v1", "runtimeclasses", heavy)
    scenario.api.patch(path, {"overhead": {"podFixed": {"cpu": "1"}}})
    started(scenario, "heavy")
    running(scenario, 1)


def _refused(scenario: Scenario, name: str, text: str) -> None:
    scenario.wait_workload(name, lambda w: text in condition(w, "QuotaReserved").get("message", ""), timeout=WAIT)


def priority_class_edited(scenario: Scenario) -> None:
    """The class of a Job that runs is lowered, so that a Job preempts it; the class of a Job that waits is raised."""
    queue(scenario, 1, preemption={"withinClusterQueue": "LowerPriority"})
    one, other = scenario.priority_class("one", 10), scenario.priority_class("other", 10)
    late = scenario.priority_class("late", 1)
    scenario.job("runs", queue="team", labels={PRIORITY: one})
    started(scenario, "runs")
    running(scenario, 1)
    scenario.job("waits", queue="team", labels={PRIORITY: other})
    waits(scenario, "waits")
    scenario.api.patch(resource_path(GROUP, "workloadpriorityclasses", one), {"value": 5})
    started(scenario, "waits")
    becomes(scenario, "runs", "Evicted", reason="Preempted")
    scenario.job("late", queue="team", labels={PRIORITY: late})
    waits(scenario, "late")
    scenario.api.patch(resource_path(GROUP, "workloadpriorityclasses", late), {"value": 20})
    started(scenario, "late")
    becomes(scenario, "waits", "Evicted", reason="Preempted")
    running(scenario, 1)


def namespace_deletion(scenario: Scenario) -> None:
    """A namespace is deleted with a Job that runs, one that waits, and a Pod of its own."""
    queue(scenario, 2)
    scenario.job("runs", queue="team")
    started(scenario, "runs")
    create_pod(scenario, "only")
    running(scenario, 2)
    scenario.job("waits", queue="team")
    waits(scenario, "waits")
    path = resource_path("v1", "namespaces", scenario.namespace)
    scenario.api.delete(path)
    scenario.api.wait_gone(path, timeout=WAIT)


def orphans(scenario: Scenario) -> None:
    """A Job is deleted without its pod, which keeps its quota until it ends; then a Job that waits gets that."""
    queue(scenario, 1)
    scenario.job("parent", queue="team")
    started(scenario, "parent")
    running(scenario, 1)
    scenario.job("heir", queue="team")
    waits(scenario, "heir")
    scenario.api.delete(job_path(scenario.namespace, "parent"), propagation="Orphan")
    scenario.api.wait_gone(job_path(scenario.namespace, "parent"), timeout=WAIT)
    waits(scenario, "heir")
    (pod,) = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
    scenario.api.delete(resource_path("v1", "pods", pod["metadata"]["name"], namespace=scenario.namespace))
    started(scenario, "heir")
    running(scenario, 1)


def reclaim(scenario: Scenario) -> None:
    """One of two pods of a Job ends, and a Job that waits gets its quota."""
    queue(scenario)
    scenario.job("wide", queue="team", pods=2)
    started(scenario, "wide")
    running(scenario, 2)
    scenario.job("heir", queue="team")
    waits(scenario, "heir")
    (pod, _) = scenario.pods_of("wide")
    end_pod(scenario, pod["metadata"]["name"])
    started(scenario, "heir")
    running(scenario, 2)


def told_from_the_start(scenario: Scenario) -> None:
    """A Job says that it waits before its queue is opened, runs then, and ends."""
    full = queue(scenario, stopPolicy="Hold")
    scenario.job("waits", queue="team", run_for="100ms")
    for kind in ("QuotaReserved", "Admitted"):
        becomes(scenario, "waits", kind, status="False")
    scenario.patch_queue(full, {"stopPolicy": "None"})
    becomes(scenario, "waits", "Finished")


LIFECYCLES: Final = (
    Lifecycle(check_retry, always=True),
    Lifecycle(preemption, always=True),
    Lifecycle(time_limit, always=True),
    Lifecycle(drain),
    Lifecycle(pod_group, always=True),
    Lifecycle(finish),
    Lifecycle(check_ready),
    Lifecycle(check_rejected),
    Lifecycle(provisioning),
    Lifecycle(deletion),
    Lifecycle(priority_change),
    Lifecycle(deactivation),
    Lifecycle(pod_alone),
    Lifecycle(scaled_deployment),
    Lifecycle(scaled_stateful_set),
    Lifecycle(pods_not_ready, IMPATIENT),
    Lifecycle(forgotten, FORGETFUL),
    Lifecycle(limit_edited),
    Lifecycle(overhead_edited),
    Lifecycle(priority_class_edited),
    Lifecycle(namespace_deletion),
    Lifecycle(orphans),
    Lifecycle(reclaim),
    Lifecycle(pods_lost, LOSING),
    Lifecycle(pods_recovered, RECOVERING),
    Lifecycle(pod_not_ready, IMPATIENT),
    Lifecycle(set_not_ready, IMPATIENT),
    Lifecycle(told_from_the_start, EXPLICIT),
    Lifecycle(gang_on_a_rack, always=True),
    Lifecycle(rack_freed_by_preemption),
    Lifecycle(growing_job, always=True),
    Lifecycle(claimed_devices, PATIENT + CLAIMING),
)
