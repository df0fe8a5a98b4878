"""The cluster that benches run on: a control plane, Turnstile installed from its chart and running (or Kueue in its
place, see `tests.bench.peer`), nodes, queues.

Every bench gets an empty namespace of its own and its own queues. kube-controller-manager and kube-scheduler may call
as often as they like: with their default limits they would be what is measured.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

from testbed import ControlPlane, resource_path
from testbed.client import condition, wait_until
from testbed.errors import ApiError
from testbed.installation import MANAGED, NAMESPACE, Installation
from testbed.processes import Process
from tests.bench.client import Client, Seen, paced
from tests.bench.figures import Gauge
from tests.cluster.scenario import GROUP, Scenario, job

KUBE_API_QPS = 2000
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:turnstile-controller"
NODES = 8


class Program(Protocol):
    """What manages the jobs of a bed, in one process; it is installed already."""

    @property
    def name(self) -> str:
        """Its name among the processes of the bed."""

    def launch(self) -> Process:
        """Start it."""

    def wait_ready(self, process: Process) -> None:
        """Wait until it is ready."""


@dataclass(frozen=True, slots=True)
class Turnstile:
    """Turnstile, with further flags of `turnstile serve`; `module` is what is run."""

    installation: Installation
    arguments: tuple[str, ...] = ()
    module: str = "turnstile"
    name: str = "turnstile"

    def launch(self) -> Process:
        """Start it with all roles."""
        return self.installation.start(arguments=self.arguments, program=(self.module,))

    def wait_ready(self, process: Process) -> None:
        """Wait until its webhook is ready."""
        self.installation.wait_ready(process, timeout=40)


class Bed:
    """A running control plane with a program on it that manages its jobs."""

    def __init__(self, control_plane: ControlPlane, program: Program) -> None:
        self.control_plane = control_plane
        self.program = program
        self.process: Process | None = None
        self.beside: dict[str, Process] = {}
        """Further processes that belong to what is measured."""

    @property
    def manager(self) -> Process:
        """The process that serves the webhook and leads."""
        if self.process is None:
            raise RuntimeError(f"{self.program.name}: it was stopped")
        return self.process

    def start(self) -> None:
        """Start the program and wait until it is ready."""
        self.program.wait_ready(self.launch())

    def launch(self) -> Process:
        """Start the program."""
        self.process = self.program.launch()
        return self.process

    def stop(self) -> None:
        """End the program in order."""
        self.manager.terminate()
        self.process = None

    def pids(self) -> dict[str, int]:
        """Process ids by name, for a `Gauge`."""
        cp = self.control_plane
        found = {name: cp.process(name).pid for name in cp.settings.components}
        found |= {name: process.pid for name, process in self.beside.items()}
        return {**found, **({self.program.name: self.process.pid} if self.process is not None else {})}

    def gauge(self) -> Gauge:
        """CPU from now on."""
        return Gauge(self.pids())

    @contextmanager
    def world(self) -> Iterator[Scenario]:
        """An empty managed namespace; all of it is removed at the end."""
        scenario = self.lasting_world()
        try:
            yield scenario
        finally:
            wait_until(lambda: _removed(scenario), timeout=600, describe=lambda: f"{scenario.namespace} is not empty")

    def lasting_world(self) -> Scenario:
        """An empty managed namespace that is left to the end of the bed: to remove thousands of Jobs takes minutes."""
        return Scenario(self.control_plane.api, self.control_plane.namespace("bench", labels=MANAGED))

    @asynccontextmanager
    async def client(self, *, as_controller: bool = False) -> AsyncIterator[Client]:
        """A client for load, as administrator or under the controller's own account."""
        cp = self.control_plane
        kubeconfig = (
            cp.service_account_kubeconfig(NAMESPACE, "turnstile-controller") if as_controller else cp.kubeconfig()
        )
        async with Client(kubeconfig) as client:
            yield client


def _removed(scenario: Scenario) -> bool:
    """Remove what was made; False if the server did not delete so many objects within the time of one request."""
    try:
        scenario.remove()
    except ApiError as error:
        if error.code != HTTPStatus.GATEWAY_TIMEOUT:
            raise
        return False
    except OSError:
        return False
    return True


@contextmanager
def bed(
    *, audit: bool = False, page: bool = False, arguments: tuple[str, ...] = (), module: str = "turnstile"
) -> Iterator[Bed]:
    """A control plane with Turnstile (`arguments` of `turnstile serve`) and simulated nodes, gone at the end. With
    `page` the page in the cluster is registered, which the bench serves."""
    with ControlPlane(kube_api_qps=KUBE_API_QPS, audit=audit) as control_plane:
        add_nodes(control_plane)
        installation = Installation(control_plane, page=page)
        installation.install()
        made = Bed(control_plane, Turnstile(installation, arguments, module=module))
        made.start()
        yield made


def add_nodes(control_plane: ControlPlane) -> None:
    """Simulated nodes with more room than a bench needs."""
    for number in range(NODES):
        control_plane.add_node(f"node-{number}", cpu=256, memory="1024Gi", pods=1000, wait=False)


def room(scenario: Scenario, *, cpu: int | str) -> str:
    """A LocalQueue `main` with so much quota; its name."""
    flavor = scenario.flavor("default")
    scenario.queue("main", {flavor: {"cpu": cpu}})
    path = resource_path(GROUP, "clusterqueues", scenario.named("main"))
    scenario.api.wait_for(path, lambda found: condition(found, "Active").get("status") == "True", describe="Active")
    return "main"


@dataclass
class Run:
    """What became of the Jobs of one run, by name: moments of `perf_counter`."""

    sent: dict[str, float] = field(default_factory=dict)
    answered: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)

    def saw(self, _: str, seen: Seen, at: float) -> None:
        """Take in one event of the watch."""
        name = seen.metadata.name
        if name not in self.sent:
            return  # of an earlier run
        if not seen.spec.suspend:
            self.started.setdefault(name, at)
        if seen.has("Complete"):
            self.finished.setdefault(name, at)

    @property
    def waits(self) -> list[float]:
        """Seconds from just before the create call to the event that shows `suspend: false`."""
        return [at - self.sent[name] for name, at in self.started.items()]

    @property
    def calls(self) -> list[float]:
        """Seconds that each create call took."""
        return [at - self.sent[name] for name, at in self.answered.items()]

    @property
    def last_started(self) -> float:
        """Seconds from the first create call until the last Job was unsuspended."""
        return max(self.started.values()) - min(self.sent.values())


def job_body(name: str, *, namespace: str, queue: str | None, run_for: str, suspend: bool = False) -> bytes:
    """A Job of one pod as JSON."""
    made = job(name, namespace=namespace, queue=queue, run_for=run_for)
    if suspend:
        made["spec"]["suspend"] = True
    return json.dumps(made, separators=(",", ":")).encode()


async def run_jobs(
    client: Client,
    namespace: str,
    *,
    count: int,
    rate: float,
    prefix: str = "job",
    queue: str | None = "main",
    patience: float = 180,
) -> Run:
    """Create Jobs of one pod that runs 1 or 2 seconds, `rate` a second, and wait until all have completed."""
    run = Run()
    collection = resource_path("batch/v1", "jobs", namespace=namespace)

    async def one(number: int) -> None:
        name = f"{prefix}-{number:05}"
        body = job_body(name, namespace=namespace, queue=queue, run_for=f"{1 + number % 2}s")
        run.sent[name] = time.perf_counter()
        await client.create(collection, body)
        run.answered[name] = time.perf_counter()

    async with client.watching(collection, run.saw):
        await paced(count, rate=rate, one=one)
        deadline = time.monotonic() + patience
        while len(run.finished) < count:
            if time.monotonic() > deadline:
                state = f"{len(run.started)} of {count} Jobs had started, {len(run.finished)} completed"
                raise TimeoutError(f"after {patience:g} s only {state}")
            await asyncio.sleep(0.02)
    return run


async def workloads_done(client: Client, namespace: str, *, patience: float = 60) -> None:
    """Wait until every Workload of the namespace is finished and rid of its finalizer: nothing is left to write."""
    path = resource_path(GROUP, "workloads", namespace=namespace)
    deadline = time.monotonic() + patience
    while True:
        items = json.loads(await client.call("GET", path))["items"]
        left = [w for w in items if w["metadata"].get("finalizers")]
        if not left:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {patience:g} s {len(left)} of {len(items)} Workloads still have their finalizer")
        await asyncio.sleep(0.5)
