"""Quota that is held and not used, for a shorter time than the chart's half an hour."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed import ControlPlane, nodes
from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import Installation
from testbed.kubelet import KWOK_ARGUMENTS, OWN_NODE
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import Scenario, job_path

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, pod, statefulset]}
"""
SILENT = "silent"
"""A node whose pods get no further than bound: their images are pulled, or their init containers run, for ever."""

Act = Callable[[Scenario], None]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile that takes quota back after four seconds without a running pod; beside a node that runs all pods
    there is one that runs none."""
    with ControlPlane(extra_arguments={"kwok": KWOK_ARGUMENTS}) as cp:
        installation = Installation(cp)
        installation.install()
        cp.add_node("plain", cpu=64, memory="256Gi")
        silent = cp.api.create(nodes.node(SILENT, labels={OWN_NODE: "true"}, taints=[f"{SILENT}=true:NoSchedule"]))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        cp.api.patch(cp.api.path_of(silent) + "/status", {"status": {"conditions": [ready]}})
        with configured(installation, tmp_path_factory.mktemp("etc"), FILE, "--unused-after", "4") as found:
            found.start()
            yield found


@pytest.fixture
def world(started: Configured) -> Iterator[Scenario]:
    """An empty managed namespace."""
    with started.team() as scenario:
        yield scenario


def given_back(world: Scenario, name: str, *, kind: str = "Job") -> Json:
    """The Workload of a job whose quota was taken back because no pod of the job ran."""
    evicted = world.wait_workload(
        name, lambda w: condition(w, "Evicted").get("status") == "True", timeout=60, kind=kind
    )
    assert condition(evicted, "Evicted")["message"] == "None of its pods has run for 4s"
    return evicted


def _stuck_beside(world: Scenario) -> None:
    """A Job in another queue is admitted, and loses its quota because none of its pods runs."""
    world.queue("beside", {world.flavor("other"): {"cpu": 2}})
    world.job("stuck-later", queue="beside", cpu="2", template={"nodeSelector": {"there-is": "none"}})
    given_back(world, "stuck-later")


def test_a_job_whose_pods_find_no_node_gives_way(world: Scenario) -> None:
    """It waits again after a back-off; the next Job runs, and stays: nothing is written about it."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    world.job("stuck", queue="team", cpu="2", template={"nodeSelector": {"there-is": "none"}})
    world.wait_started("stuck", timeout=30)
    world.job("next", queue="team", cpu="2")
    assert given_back(world, "stuck")["status"]["requeueState"]["requeueAt"]
    world.wait_started("next", timeout=60)
    version = world.workload_of("next")["metadata"]["resourceVersion"]
    world.job("third", queue="team", cpu="2", template={"nodeSelector": {"there-is": "none"}})
    world.wait_pending("third", timeout=30)
    _stuck_beside(world)
    assert world.workload_of("next")["metadata"]["resourceVersion"] == version


# ------------------------------------------------------------------------- ways in which a tenant holds quota unused


def _pod(**spec: Any) -> Act:
    """A Job whose pod template has this besides."""
    return lambda world: _make(world, spec)


def _make(world: Scenario, template: Json, **spec: Any) -> None:
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "stuck", "namespace": world.namespace, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"backoffLimit": 1000, **spec, "template": {"spec": {"restartPolicy": "Never", **_main(), **template}}},
    }
    world.create(body)


def _main() -> Json:
    requests = {"requests": {"cpu": "2"}}
    return {"containers": [{"name": "main", "image": "registry.example/main:1", "resources": requests}]}


def _beside(obj: Json) -> Act:
    """A Job whose pods an object of the namespace refuses."""

    def act(world: Scenario) -> None:
        world.create({**obj, "metadata": {"name": "none", "namespace": world.namespace}})
        _make(world, {})

    return act


def _refused_by_pod_security(world: Scenario) -> None:
    path = resource_path("v1", "namespaces", world.namespace)
    world.api.patch(path, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    _make(world, {})


def _nobody_runs_it(world: Scenario) -> None:
    _make(world, {}, managedBy="example.com/nobody")


def _whose_other_pods_are_refused(world: Scenario) -> None:
    """Its first pods succeed, so that as many have succeeded as may run at a time; then no more are made."""
    spec = {"serviceAccountName": "first"}
    meta = {"name": "first", "namespace": world.namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    world.create(account)
    _make(world, spec, parallelism=1, completions=10)
    wait_until(lambda: world.pods_of("stuck"), timeout=30, describe=lambda: "no pod")
    world.api.delete(world.api.path_of(account))
    world.end_pods("stuck")
    world.api.wait_for(
        job_path(world.namespace, "stuck"), lambda job: job.get("status", {}).get("succeeded"), timeout=30
    )


ON_SILENT = {"nodeSelector": {OWN_NODE: "true"}, "tolerations": [{"key": SILENT, "operator": "Exists"}]}
WAYS: dict[str, Act] = {
    "a service account that does not exist": _pod(serviceAccountName="nobody"),
    "a volume claim that does not exist": _pod(
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "none"}}]
    ),
    "a scheduling gate of the tenant's own": _pod(schedulingGates=[{"name": "example.com/never"}]),
    "a scheduler that does not exist": _pod(schedulerName="nobody"),
    "a node selector that no node has": _pod(nodeSelector={"there-is": "none"}),
    "a runtime class that does not exist": _pod(runtimeClassName="none"),
    "an image that is never pulled": _pod(**ON_SILENT),
    "an init container that never ends": _pod(
        initContainers=[{"name": "first", "image": "registry.example/sleep:1"}], **ON_SILENT
    ),
    "a ResourceQuota": _beside({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "0"}}}),
    "the pod security of the namespace": _refused_by_pod_security,
    "a controller that does not exist": _nobody_runs_it,
    "pods that are refused after the first": _whose_other_pods_are_refused,
}


@pytest.mark.parametrize("hold", WAYS.values(), ids=WAYS)
def test_quota_that_a_tenant_keeps_unused_is_given_back(world: Scenario, hold: Act) -> None:
    """A Job is admitted and none of its pods runs: it is evicted."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    hold(world)
    given_back(world, "stuck")


def test_quota_of_a_job_whose_pods_are_deleted_before_they_run_is_given_back(world: Scenario) -> None:
    """A tenant deletes each pod of a Job before it runs; the Job controller replaces it after its own back-off."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    _make(world, ON_SILENT)
    deleted: set[str] = set()

    def evicted() -> bool:
        for pod in world.pods_of("stuck"):
            world.api.delete(
                resource_path("v1", "pods", pod["metadata"]["name"], namespace=world.namespace), grace_seconds=0
            )
            deleted.add(pod["metadata"]["uid"])
        return bool(condition(world.workload_of("stuck"), "Evicted"))

    wait_until(evicted, timeout=60, describe=lambda: f"{len(deleted)} pods were deleted")
    assert deleted
    given_back(world, "stuck")


def test_quota_of_a_stateful_set_none_of_whose_pods_is_made_is_given_back(world: Scenario) -> None:
    """A StatefulSet in a namespace in which nobody may have pods is admitted, and evicted."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    labels = {"app": "stuck"}
    template = {"metadata": {"labels": labels}, "spec": {**_main(), "serviceAccountName": "nobody"}}
    world.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": "stuck",
                "namespace": world.namespace,
                "labels": {"kueue.x-k8s.io/queue-name": "team"},
            },
            "spec": {"replicas": 1, "serviceName": "stuck", "selector": {"matchLabels": labels}, "template": template},
        }
    )
    given_back(world, "stuck", kind="StatefulSet")


def test_quota_of_a_pod_with_a_gate_of_its_own_is_given_back(world: Scenario) -> None:
    """A Pod that is admitted and that a gate of its tenant holds is deleted, as by each eviction."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    meta = {"name": "stuck", "namespace": world.namespace, "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    spec = {"restartPolicy": "Never", **_main(), "schedulingGates": [{"name": "example.com/never"}]}
    world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    world.wait_admitted("stuck", timeout=30, kind="Pod")
    world.api.wait_gone(resource_path("v1", "pods", "stuck", namespace=world.namespace), timeout=60)


def test_a_job_that_asks_for_no_pods_is_left_alone(world: Scenario) -> None:
    """A Job that its user has paused with a parallelism of zero holds no quota that it could give back."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    _make(world, {}, parallelism=0)
    world.wait_started("stuck", timeout=30)
    _stuck_beside(world)
    assert not condition(world.workload_of("stuck"), "Evicted")
