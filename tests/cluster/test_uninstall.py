"""`helm uninstall` leaves nothing of Turnstile on the objects of others, whatever state they are in.

A control plane of its own, because the release goes. No kubelet runs the pod of the chart's hook: what its Job says is
run as a process, with the hook's own account.
"""

import base64
import contextlib
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import Api, ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import MANAGED, NAMESPACE, RELEASE, Installation
from testbed.processes import Process
from tests.cluster.scenario import GROUP, QUEUE, RUN_FOR, Scenario, job_path
from tests.cluster.versions import wait_served

pytestmark = pytest.mark.cluster

TURNSTILE = Path(sys.executable).with_name("turnstile")
HOOK = f"{RELEASE}-uninstall"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{HOOK}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-controller"


class Release:
    """A release with its Deployments, of which a process of this machine does the work."""

    def __init__(self, cp: ControlPlane) -> None:
        self.cp = cp
        self.api: Api = cp.api
        self._installation = Installation(cp)
        self._process: Process | None = None

    def install(self, *values: str) -> None:
        """Install it and start it."""
        self._installation.install("controller.enabled=true", "visibility.enabled=false", *values)
        self._process = self._installation.start()
        self._installation.wait_ready(self._process)
        wait_served(self.api)

    def stop(self) -> None:
        """End the process, as the kubelet would that of the Deployment."""
        assert self._process is not None
        self._process.terminate()

    def command(self, *arguments: str, user: str = "admin") -> "subprocess.CompletedProcess[str]":
        """Run `turnstile uninstall`."""
        line = [TURNSTILE, "uninstall", *arguments, "--kubeconfig", self.cp.kubeconfig(user)]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)

    def uninstall(self) -> str:
        """`helm uninstall`, with what its hook says run here; what the hook printed."""
        helm = threading.Thread(target=self.cp.helm, args=("uninstall", RELEASE, "-n", NAMESPACE))
        helm.start()
        (container,) = self.api.wait_for(JOB, bool, timeout=20)["spec"]["template"]["spec"]["containers"]
        kubeconfig = self.cp.service_account_kubeconfig(NAMESPACE, HOOK)
        hook = self.cp.start_process("hook", [TURNSTILE, *container["args"], "--kubeconfig", kubeconfig])
        wait_until(
            lambda: (hook.poll() is not None) or self.api.get(DEPLOYMENT)["spec"]["replicas"] == 0,
            timeout=20,
            describe=lambda: f"the controller is not stopped\n{hook.tail(20)}",
        )
        self.stop()
        wait_until(lambda: hook.poll() is not None, timeout=30, describe=lambda: f"it goes on\n{hook.tail(20)}")
        assert hook.poll() == 0, hook.tail(40)
        self.cp.end_pods(NAMESPACE, labels=f"batch.kubernetes.io/job-name={HOOK}")
        helm.join(timeout=40)
        assert not helm.is_alive()
        return self.cp.log("hook").read_text()


@pytest.fixture
def release() -> Iterator[Release]:
    """A control plane with one node; the test installs."""
    with ControlPlane() as cp:
        cp.add_node("node", cpu=64, memory="256Gi")
        yield Release(cp)


def pod(name: str, namespace: str, queue: str, run_for: str | None = None) -> Json:
    """A Pod of half a CPU."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "500m"}}}
    annotations = {RUN_FOR: run_for} if run_for else {}
    metadata = {"name": name, "namespace": namespace, "labels": {QUEUE: queue}, "annotations": annotations}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(name: str, namespace: str, queue: str) -> Json:
    """A Deployment of two pods of half a CPU."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": pod("x", "x", "x")["spec"]["containers"]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": namespace, "labels": {QUEUE: queue}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def test_nothing_is_left_of_it(release: Release) -> None:
    """Jobs, Pods and a Deployment that are pending, running and finished: afterwards what waited runs, and everything
    can be created and deleted; a Job that was deactivated stays suspended."""
    release.install()
    world = populated(release)
    api, namespace = release.api, world.namespace
    running = {each["metadata"]["uid"] for each in world.pods_of("runs")}

    assert stored(release.cp, "multikueueclusters", "worker").endswith("/v1beta1")
    seen = marks(api)
    shown = release.command("--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "1 jobs.batch would be resumed" in shown.stdout
    assert release.command("--helm-release", "another").returncode == 0
    refused = release.command("--name", "another")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"jobs are managed with MutatingWebhookConfiguration {RELEASE}-" in refused.stderr
    assert marks(api) == seen

    printed = release.uninstall()
    assert "1 jobs.batch resumed" in printed
    assert not world.suspended("waits")
    assert world.suspended("deactivated")
    assert {each["metadata"]["uid"] for each in world.pods_of("runs")} == running
    assert_no_trace(api)
    assert stored(release.cp, "multikueueclusters", "worker") == GROUP

    pods = resource_path("v1", "pods", namespace=namespace)
    for each in api.items(pods):
        if "ended" not in each["metadata"]["name"]:
            path = f"{pods}/{each['metadata']['name']}"
            api.wait_for(path, lambda found: found["status"].get("phase") == "Running", timeout=20, describe="running")
    created = world.job("created-afterwards", queue="main", cpu="2")
    assert not created["spec"].get("suspend")
    wait_until(lambda: world.pods_of("created-afterwards"), timeout=10, describe=lambda: "it has no pod")
    for path in (pods, resource_path("batch/v1", "jobs", namespace=namespace)):
        api.delete(path, grace_seconds=0)
        wait_until(
            lambda path=path: not [each for each in api.items(path) if "web" not in each["metadata"]["name"]],
            timeout=20,
            describe=lambda path=path: f"{path} still has objects",
        )
    for kind in ("clusterqueues", "resourceflavors", "workloads"):
        definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.{GROUP.partition('/')[0]}"
        api.delete(definition)
        api.wait_gone(definition, timeout=20)


def populated(release: Release) -> Scenario:
    """A managed namespace with objects of each kind, pending, running and finished."""
    api = release.api
    world = Scenario(api, release.cp.namespace("team", labels=MANAGED))
    namespace = world.namespace
    with stored_as_v1beta1(api, "multikueueclusters"):  # a kind that the webhook converts, and Turnstile writes once
        source = {"kubeConfig": {"location": "secret", "locationType": "Secret"}}
        worker: Json = {"metadata": {"name": "worker"}, "spec": {"clusterSource": source}}
        api.create({"apiVersion": GROUP, "kind": "MultiKueueCluster", **worker})
        path = resource_path(GROUP, "multikueueclusters", "worker")
        api.wait_for(
            path,
            lambda each: condition(each, "Active").get("reason") == "BadKubeConfig",
            timeout=20,
            describe="without its Secret",
        )
    world.queue("main", {world.flavor("plain"): {"cpu": "2500m"}})
    world.job("ended", queue="main", run_for="0s")
    api.create(pod("pod-ended", namespace, "main", "0s"))
    api.wait_for(job_path(namespace, "ended"), lambda each: condition(each, "Complete"), describe="complete")
    world.job("runs", queue="main")
    api.create(pod("pod-runs", namespace, "main"))
    api.create(deployment("web", namespace, "main"))
    web = resource_path("apps/v1", "deployments", "web", namespace=namespace)
    api.wait_for(web, lambda each: each.get("status", {}).get("readyReplicas") == 2, timeout=20, describe="ready")
    world.wait_started("runs")
    world.job("waits", queue="main", cpu="3")
    world.job("deactivated", queue="main", cpu="3")
    api.create(pod("pod-waits", namespace, "main"))
    world.wait_pending("waits")
    world.wait_pending("pod-waits", kind="Pod")
    workload = world.workload_of("deactivated")
    api.patch(api.path_of(workload), {"spec": {"active": False}})
    for name, kind in (("ended", "Job"), ("pod-ended", "Pod")):  # whose finalizers the controller removes by itself
        path = api.path_of(world.workload_of(name, kind=kind))
        api.wait_for(path, lambda each: not each["metadata"].get("finalizers"), describe="without finalizer")
    path = resource_path("v1", "pods", "pod-ended", namespace=namespace)
    api.wait_for(path, lambda each: not each["metadata"].get("finalizers"), describe="without finalizer")
    return world


@contextlib.contextmanager
def stored_as_v1beta1(api: Api, plural: str) -> Iterator[None]:
    """As with a definition of an older Kueue: what is written meanwhile is stored in the older version."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.kueue.x-k8s.io"
    versions = [each["name"] for each in api.get(path)["spec"]["versions"]]

    def store(version: str) -> None:
        patch = [
            {"op": "replace", "path": f"/spec/versions/{index}/storage", "value": name == version}
            for index, name in enumerate(versions)
        ]
        api.patch(path, patch, kind="json")
        stored = api.wait_for(path, lambda each: version in each["status"]["storedVersions"], describe="stored so")
        assert stored

    store("v1beta1")
    yield
    store("v1beta2")


def stored(cp: ControlPlane, plural: str, key: str) -> str:
    """The version in which etcd has an object."""
    where = base64.b64encode(f"/registry/kueue.x-k8s.io/{plural}/{key}".encode()).decode()
    request = urllib.request.Request(f"{cp.etcd}/v3/kv/range", json.dumps({"key": where}).encode())
    with urllib.request.urlopen(request, timeout=5) as answer:
        (found,) = json.loads(answer.read())["kvs"]
    return str(json.loads(base64.b64decode(found["value"]))["apiVersion"])


def marks(api: Api) -> Json:
    """What is looked for afterwards: webhooks and policies, and suspensions, gates and finalizers of each object."""
    return {
        "registered": [each["metadata"]["name"] for path in REGISTERED for each in api.items(path)],
        "objects": [
            (
                each["metadata"]["name"],
                each["spec"].get("suspend"),
                each["spec"].get("schedulingGates"),
                ours(each),
            )
            for path in ("/apis/batch/v1/jobs", "/api/v1/pods", *FINALIZED)
            for each in api.items(path)
        ],
    }


def ours(obj: Json) -> list[str]:
    """Turnstile's finalizers of an object."""
    return [each for each in obj["metadata"].get("finalizers", ()) if "kueue" in each]


REGISTERED = [
    f"/apis/admissionregistration.k8s.io/v1/{plural}"
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies")
]
FINALIZED = [f"/apis/{GROUP}/{plural}" for plural in ("workloads", "clusterqueues", "resourceflavors")]


def assert_no_trace(api: Api) -> None:
    """No webhook, policy, gate or finalizer, no Lease and no role; each definition serves its stored version alone."""
    found = marks(api)
    assert found["registered"] == []
    assert [each for each in found["objects"] if each[2] or each[3]] == []
    for each in api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
        assert each["status"]["storedVersions"] == ["v1beta2"]
        assert each["spec"]["conversion"]["strategy"] == "None"
        assert [version["name"] for version in each["spec"]["versions"] if version["served"]] == ["v1beta2"]
    assert api.find(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}-controller") is None
    roles = api.items("/apis/rbac.authorization.k8s.io/v1/clusterroles")
    assert not [each["metadata"]["name"] for each in roles if each["metadata"]["name"].startswith(RELEASE)]
