"""A namespace with a queue for one job of a row at a time, its jobs, and what runs there as counted from pods alone.

Nothing here depends on how Turnstile handles a kind: it reads pods, Workloads and the status of the ClusterQueue.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Final

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.installation import MANAGED
from tests.attacks.sentry import Sentry
from tests.cluster.scenario import GROUP, Scenario
from tests.operators.rows import Row

NODE: Final = "operators"
POOL: Final = {"pool": NODE}
"""The labels of the nodes of the flavor; there are other nodes too."""
QUEUE: Final = "main"
TIMEOUT: Final = 40.0
COLLECTED: Final = 90.0
"""Seconds in which the garbage collector has deleted what belonged to a job; it learns of a new kind within 30."""


class Trial:
    """One row in one namespace. Its ClusterQueue has quota for `jobs` jobs of the row, in the named flavor or else in
    that of the operators' nodes."""

    def __init__(self, row: Row, scenario: Scenario, sentry: Sentry, *, jobs: int, flavor: str = "") -> None:
        self.row = row
        self.scenario = scenario
        self.sentry = sentry
        self.quota = jobs * row.pods
        self.created: dict[str, list[Json]] = {}
        self._played: list[str] = []
        flavor = flavor or scenario.flavor("pool", labels=POOL)
        scenario.queue(
            QUEUE, {flavor: {"cpu": self.quota, **dict(row.beside)}}, preemption={"withinClusterQueue": "LowerPriority"}
        )

    # ------------------------------------------------------------ jobs

    def create(self, name: str, *, priority: str = "") -> None:
        """Create a job of the row."""
        self.created[name] = self.row.create(self.scenario, name, QUEUE, priority=priority)

    def dry_run(self, name: str) -> None:
        """Send a job with `dryRun=All`: the API server and all webhooks take part. What a job refers to is created."""
        for each in self.row.objects(self.scenario, name, QUEUE):
            if each["kind"] == self.row.kind:
                self.scenario.api.create(each, dry_run=True)
            else:
                self.scenario.create(each)

    def delete(self, name: str) -> None:
        """Delete all objects of a job in the background, without waiting."""
        created = self.created[name]
        self.gone(name)
        for each in created:
            self.scenario.api.delete(self.scenario.api.path_of(each))

    def end(self, name: str) -> None:
        """Let a job that runs finish; a job of a kind that never finishes is deleted."""
        if self.row.end is None:
            self.delete(name)
        else:
            self.row.end(self.scenario, name)

    def gone(self, name: str) -> None:
        """A job was deleted otherwise: play its processes no more."""
        self._played = [each for each in self._played if each != name]
        del self.created[name]

    def activate(self, name: str, *, active: bool) -> None:
        """Set `spec.active` of all Workloads of a job."""
        for each in self.workloads(name):
            self.scenario.api.patch(self.scenario.api.path_of(each), {"spec": {"active": active}})

    def slow_to_stop(self, name: str, *, seconds: float) -> None:
        """Let the pods of a job that run now take so long to terminate."""
        for pod in self.row.running(self.scenario, name):
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=self.scenario.namespace)
            self.scenario.api.patch(path, {"metadata": {"annotations": {STOP_FOR: f"{seconds}s"}}})

    # ------------------------------------------------------------ questions

    def pods(self, name: str) -> list[Json]:
        """The pods of a job that are bound to a node and have not ended."""
        return [pod for pod in self.row.pods_of(self.scenario, name) if self.sentry.is_running(pod)]

    def workloads(self, name: str) -> list[Json]:
        """The Workloads of a job."""
        return self.row.workloads_of(self.scenario, name)

    def written(self, name: str) -> list[object]:
        """What the user wrote of each object of a job, as it is now."""
        api = self.scenario.api
        return [self.row.written(api.get(api.path_of(each))) for each in self.created[name]]

    @property
    def reserved(self) -> Fraction:
        """CPUs that are reserved in the ClusterQueue, by its status."""
        queue = self.scenario.api.get(resource_path(GROUP, "clusterqueues", self.scenario.named(QUEUE)))
        flavors = queue.get("status", {}).get("flavorsReservation", ())
        resources = (each for flavor in flavors for each in flavor["resources"] if each["name"] == "cpu")
        return sum((_number(each["total"]) for each in resources), Fraction(0))

    def story(self) -> str:
        """What happened to the pods, and the Workloads as they are now."""
        lines = [*self.sentry.story, f"{float(self.reserved):g} CPUs of {self.quota} are reserved"]
        for each in self.scenario.api.items(resource_path(GROUP, "workloads", namespace=self.scenario.namespace)):
            conditions = each.get("status", {}).get("conditions", ())
            states = ", ".join(f"{found['type']}={found['status']} ({found['message']})" for found in conditions)
            lines.append(f"Workload {each['metadata']['name']}: {states}")
        return "\n".join(lines)

    # ------------------------------------------------------------ waits

    def wait(self, look: Callable[[], object], *, timeout: float = TIMEOUT, describe: Callable[[], str]) -> None:
        """Wait for a condition; at no time may pods of more than the quota have run."""

        def looked() -> bool:
            assert self.sentry.most <= self.quota, f"{float(self.sentry.most):g} CPUs of {self.quota}\n{self.story()}"
            return bool(look())

        self.wait_after_attack(looked, timeout=timeout, describe=describe)

    def wait_after_attack(self, look: Callable[[], object], *, timeout: float, describe: Callable[[], str]) -> None:
        """Wait for a condition while the processes of the admitted jobs are played, whatever has run so far."""

        def looked() -> bool:
            for each in self._played:
                self.row.play(self.scenario, each)
            return bool(look())

        wait_until(looked, timeout=timeout, describe=lambda: f"{describe()}\n{self.story()}")

    def wait_runs(self, name: str, *, timeout: float = TIMEOUT) -> None:
        """Until all pods of a job run."""
        self._wait_admitted(name, timeout=timeout)
        if name not in self._played:
            self._played.append(name)
        self.wait(
            lambda: len(self.row.running(self.scenario, name)) == self.row.pods,
            timeout=timeout,
            describe=lambda: f"{len(self.row.running(self.scenario, name))} pods of {name} run, not {self.row.pods}",
        )

    def _wait_admitted(self, name: str, *, timeout: float) -> None:
        def admitted() -> bool:
            found = [each for each in self.workloads(name) if condition(each, "Admitted").get("status") == "True"]
            return len(found) >= self.row.workloads

        self.wait(admitted, timeout=timeout, describe=lambda: f"{name} is not admitted")

    def wait_ready(self, name: str) -> None:
        """Until every Workload of a job that runs says that its pods are ready."""

        def ready() -> bool:
            return all(condition(each, "PodsReady").get("status") == "True" for each in self.workloads(name))

        self.wait(ready, describe=lambda: f"the pods of {name} are not said to be ready")

    def wait_waits(self, name: str) -> None:
        """Until a job has been considered and has got no quota; then no pod of it runs."""

        def waits() -> bool:
            found = [condition(each, "QuotaReserved") for each in self.workloads(name)]
            return len(found) >= self.row.workloads and all(each.get("status") == "False" for each in found)

        self.wait(waits, describe=lambda: f"{name} does not wait")
        assert not self.pods(name), f"pods of {name} run without quota\n{self.story()}"

    def wait_stopped(self, name: str, pods: list[Json]) -> None:
        """Until these pods of a job have ended, and none is left that runs unless the job makes new ones."""
        before = {pod["metadata"]["uid"] for pod in pods}

        def stopped() -> bool:
            now = {pod["metadata"]["uid"] for pod in self.pods(name)}
            return not now & before and (self.row.queued_by_pod or not now)

        self.wait(stopped, describe=lambda: f"{name} still runs")

    def wait_reserved(self, cpus: int) -> None:
        """Until so many CPUs are reserved."""
        self.wait(
            lambda: self.reserved == cpus, describe=lambda: f"{float(self.reserved):g} CPUs are reserved, not {cpus}"
        )

    def wait_nothing_left(self) -> None:
        """Until the namespace has no pod and no Workload, and nothing is reserved."""
        self.wait(
            lambda: not self.everything() and self.reserved == 0,
            timeout=COLLECTED,
            describe=lambda: f"left: {self.everything()}",
        )

    def everything(self) -> list[str]:
        """The pods and Workloads of the namespace, with their finalizers."""
        api, namespace = self.scenario.api, self.scenario.namespace
        return [
            f"{plural} {each['metadata']['name']} {each['metadata'].get('finalizers', [])}"
            for version, plural in (("v1", "pods"), (GROUP, "workloads"))
            for each in api.items(resource_path(version, plural, namespace=namespace))
        ]


@contextmanager
def trial_of(row: Row, control_plane: ControlPlane, *, jobs: int = 1) -> Iterator[Trial]:
    """A trial in an empty managed namespace, which is emptied at the end."""
    scenario = Scenario(control_plane.api, control_plane.namespace("kinds", labels=MANAGED))
    sentry = Sentry(scenario.api, scenario.namespace)
    try:
        yield Trial(row, scenario, sentry, jobs=jobs)
    finally:
        sentry.end()
        scenario.remove()


def _number(quantity: str) -> Fraction:
    return Fraction(quantity[:-1]) / 1000 if quantity.endswith("m") else Fraction(quantity)
