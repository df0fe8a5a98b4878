"""A term begins with what the process knows, once it is shown to be all that was written before."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed import ControlPlane
from testbed.client import Json
from tests.cluster.schema_server import CRDS
from tests.faults.proxy import Proxy, Request, deafened, held, passed
from tests.faults.wire.world import until
from turnstile.kube import auth
from turnstile.kube.reflector import FEW

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

ROOT = Path(__file__).parents[2]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/turnstile-controller"
GROUP = "kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    """An API server of the module's own: a leader changes the definitions of Turnstile's kinds."""
    with ControlPlane(components=("etcd", "kube-apiserver")) as cp:
        for path in sorted(CRDS.glob("*.yaml")):
            for applied in cp.api.apply_yaml(path):
                name = applied["metadata"]["name"]
                cp.api.wait_for(
                    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}",
                    lambda crd: any(
                        each["type"] == "Established" and each["status"] == "True"
                        for each in crd["status"].get("conditions") or ()
                    ),
                    describe="Established",
                )
        yield cp


class World:
    """A namespace with a queue that has room for one Workload, and a Lease that a former leader holds."""

    def __init__(self, server: ControlPlane) -> None:
        self.api = server.api
        self.namespace = server.namespace("term", labels={"kueue-managed": "true"})
        self.queue = self.namespace
        self._create("ResourceFlavor", self.queue, {}, namespaced=False)
        resources = [{"name": "cpu", "nominalQuota": "1"}]
        flavors = [{"name": self.queue, "resources": resources}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        self._create("ClusterQueue", self.queue, {"namespaceSelector": {}, "resourceGroups": groups}, namespaced=False)
        self._create("LocalQueue", "main", {"clusterQueue": self.queue})
        spec = {"holderIdentity": "former", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
        meta = {"name": "turnstile-controller", "namespace": self.namespace}
        self.api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    def _create(self, kind: str, name: str, spec: Json, *, namespaced: bool = True, **metadata: Any) -> Json:
        meta = {"name": name, **metadata, **({"namespace": self.namespace} if namespaced else {})}
        return self.api.create({"apiVersion": GROUP, "kind": kind, "metadata": meta, "spec": spec})

    def workload(self, name: str, *, queue: str = "main", owner: Json | None = None) -> None:
        """Create a Workload that requests all that the queue has."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec = {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]}
        self._create("Workload", name, spec, ownerReferences=[owner] if owner is not None else [])

    def job(self, name: str) -> Json:
        """Create a suspended Job without a queue; the owner reference of its Workload."""
        container = {"name": "c", "image": "i"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        meta = {"name": name, "namespace": self.namespace}
        spec = {"suspend": True, "template": template}
        made = self.api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
        uid = made["metadata"]["uid"]
        return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}

    def path(self, name: str) -> str:
        """The path of a Workload."""
        return f"/apis/{GROUP}/namespaces/{self.namespace}/workloads/{name}"

    def condition(self, name: str, kind: str) -> str:
        """The status of a condition of a Workload; empty without the condition."""
        conditions = self.api.get(self.path(name)).get("status", {}).get("conditions") or ()
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def admit(self, name: str) -> None:
        """The former leader's write."""
        assigned = {"name": "main", "flavors": {"cpu": self.queue}, "resourceUsage": {"cpu": "1"}, "count": 1}
        admission = {"clusterQueue": self.queue, "podSetAssignments": [assigned]}
        conditions = [
            {
                "type": kind,
                "status": "True",
                "reason": kind,
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind in ("QuotaReserved", "Admitted")
        ]
        self.api.patch(f"{self.path(name)}/status", {"status": {"admission": admission, "conditions": conditions}})

    def release(self) -> None:
        """The former leader gives its Lease up."""
        self.api.patch(LEASE.format(self.namespace), {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})

    def holder(self) -> str:
        """Who holds the Lease."""
        return str(self.api.get(LEASE.format(self.namespace))["spec"].get("holderIdentity") or "")

    def remove(self) -> None:
        """Leave nothing that the leader of another test would admit."""
        self.api.request("DELETE", f"/apis/{GROUP}/namespaces/{self.namespace}/workloads")
        self.api.request("DELETE", f"/apis/batch/v1/namespaces/{self.namespace}/jobs")


class Candidate:
    """`turnstile serve --role controller` behind a proxy, and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[Json] = []

    async def listen(self) -> None:
        """Collect the lines of its log."""
        assert self._process.stderr is not None
        assert self._process.stdout is not None

        async def collect(stream: asyncio.StreamReader) -> None:
            async for line in stream:
                if line.startswith(b"{"):
                    self.lines.append(json.loads(line))

        await asyncio.gather(collect(self._process.stdout), collect(self._process.stderr))

    def said(self, event: str) -> list[Json]:
        """The lines of an event."""
        return [each for each in self.lines if each.get("event") == event]


@asynccontextmanager
async def candidate(world: World, proxy: Proxy, directory: Path) -> AsyncIterator[Candidate]:
    """A process that has filled its caches and waits for the Lease."""
    path = directory / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": proxy.access.server}}],
                "users": [{"name": "c", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            }
        )
    )
    command = [sys.executable, "-m", "turnstile", "serve", "--role", "controller", "--kubeconfig", str(path)]
    command += ["--namespace", world.namespace, "--managed-namespace-label", "kueue-managed=true"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    made = Candidate(process)
    listening = asyncio.create_task(made.listen())
    try:
        await until(lambda: bool(made.said("caches.synced") and made.said("lease.holder")), within=40)
        yield made
    finally:
        process.terminate()
        await process.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await asyncio.to_thread(world.remove)


@pytest.fixture
def world(server: ControlPlane) -> World:
    """A world of the test's own."""
    return World(server)


def of(plural: str, *, watch: bool) -> Callable[[Request], bool]:
    """Applies a fault to watches, or to lists, of a kind in all namespaces."""
    return lambda request: request.method == "GET" and request.path.endswith(f"/{plural}") and request.watch is watch


def decides(proxy: Proxy, name: str) -> bool:
    """Whether the status of a Workload was written through the proxy."""
    return any(each.method == "PATCH" and each.path.endswith(f"/workloads/{name}/status") for each in proxy.requests)


@pytest.mark.parametrize("others", [0, FEW + 5], ids=["few", "many"])
async def test_a_last_admission_that_no_watch_has_delivered_is_counted(
    server: ControlPlane, world: World, tmp_path: Path, others: int
) -> None:
    """The former leader's write arrives when another process has the Lease already, and that process's watch is silent:
    nothing is admitted until the write is known, and its quota is not given to another Workload."""
    for name in ("first", "second"):
        await asyncio.to_thread(world.workload, name)
    for number in range(others):
        await asyncio.to_thread(world.workload, f"other-{number}", queue="none")
    silence, asked, caught_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
    lists, watches = of("workloads", watch=False), of("workloads", watch=True)
    async with Proxy(await auth.connect(str(server.kubeconfig()))) as proxy:
        proxy.plan(deafened(silence), applies=watches)
        async with candidate(world, proxy, tmp_path) as process:
            silence.set()
            proxy.plan(held(asked, passed), applies=lists)
            proxy.plan(held(caught_up, passed), applies=watches)
            await asyncio.to_thread(world.release)
            await until(lambda: any(map(lists, proxy.requests)))
            assert world.holder() not in ("", "former")
            await asyncio.to_thread(world.admit, "second")  # not the one that would be next
            asked.set()
            if others:
                await until(
                    lambda: any(watches(each) and each.query["timeoutSeconds"] == "3" for each in proxy.requests)
                )
                assert not process.said("leading")
                assert not decides(proxy, "first")
                caught_up.set()
            await until(lambda: bool(process.said("leading")), within=30)
            await until(lambda: world.condition("first", "QuotaReserved") == "False", within=30)
            assert world.condition("second", "QuotaReserved") == "True"
            caught_up.set()
    assert len(list(filter(lists, proxy.requests))) == 1, "Workloads were read again"


async def test_a_slow_kind_of_jobs_delays_its_own_jobs_only(server: ControlPlane, world: World, tmp_path: Path) -> None:
    """Workloads are admitted meanwhile. That a Job is gone is not believed until its kind is up to date."""
    owner = await asyncio.to_thread(world.job, "train")
    await asyncio.to_thread(world.workload, "of-job", queue="none", owner=owner)
    gate = asyncio.Event()
    access = await auth.connect(str(server.kubeconfig()))
    async with Proxy(access) as proxy, candidate(world, proxy, tmp_path) as process:
        proxy.plan(held(gate, passed), applies=of("jobs", watch=False), times=float("inf"))
        await asyncio.to_thread(world.release)
        await until(lambda: bool(process.said("leading")), within=30)
        assert "jobs.batch" in process.said("leading")[0]["behind"]
        path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs/train"
        await asyncio.to_thread(server.api.delete, path)
        await asyncio.to_thread(world.workload, "alone")
        await until(lambda: world.condition("alone", "Admitted") == "True", within=30)
        assert world.condition("of-job", "Finished") == ""
        await until(lambda: bool(process.said("cache.not_renewed")), within=30)
        (said,) = process.said("cache.not_renewed")
        assert (said["kind"], said["delays"]) == ("jobs.batch", "decisions about this kind")
        gate.set()
        await until(lambda: world.condition("of-job", "Finished") == "True", within=30)
        await until(lambda: bool(process.said("caches.caught_up")), within=30)
        assert list(process.said("caches.caught_up")[0]["slow"]) == ["jobs.batch"]
