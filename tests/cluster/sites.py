"""Clusters that send jobs to each other: a control plane each, with Turnstile on it; and teams with queues on all."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import yaml

from testbed import ControlPlane
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.installation import MANAGED, NAMESPACE, Installation
from testbed.processes import Process
from tests.cluster.command import turnstile
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, Scenario, job_path
from tests.cluster.versions import wait_served

CHECK: Final = "kueue.x-k8s.io/multikueue"
"""The controller of a check that sends Workloads to other clusters."""
POD: Final[Json] = {
    "containers": [{"name": "main", "image": "example.com/app", "resources": {"requests": {"cpu": "1"}}}]
}
"""The spec of a pod that asks for a CPU."""


class Place:
    """One cluster that sends jobs to others, or takes them; `namespace` is that of kubeconfigs."""

    namespace: ClassVar = NAMESPACE

    def __init__(self, cp: ControlPlane) -> None:
        self.cp = cp

    @property
    def api(self) -> Api:
        """A client with all rights."""
        return self.cp.api


class Site(Place):
    """One cluster with Turnstile, which is started with these flags; `values` are further ones for the chart. Those of
    its configuration file count if there is a directory for the file."""

    def __init__(
        self, cp: ControlPlane, *arguments: str, values: Sequence[str] = (), by_file: Path | None = None
    ) -> None:
        super().__init__(cp)
        self.installation = Installation(cp)
        self.installation.install("multiKueue.secrets={east,west}", *values)
        self.process: Process | None = None
        if by_file is not None:
            file = by_file / "configuration.yaml"
            file.write_text(self.installation.configuration())
            arguments = (*arguments, "--config", str(file))
        self.start(*arguments)
        wait_served(cp.api)

    def start(self, *arguments: str) -> None:
        """Start Turnstile, and wait until it is ready."""
        self.process = self.installation.start(arguments=arguments)
        self.installation.wait_ready(self.process)

    def crash(self) -> None:
        """Kill Turnstile."""
        assert self.process is not None
        self.installation.crash(self.process)


def desk(path: Path, **contexts: Path) -> Path:
    """Write a kubeconfig of a user of several clusters: a context for each kubeconfig, the first one current."""
    merged: dict[str, list[Json]] = {"clusters": [], "users": [], "contexts": []}
    for name, file in contexts.items():
        found = yaml.safe_load(file.read_text())
        for section, inner in (("clusters", "cluster"), ("users", "user")):
            merged[section].append({"name": name, inner: found[section][0][inner]})
        merged["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    path.write_text(yaml.safe_dump({"kind": "Config", "current-context": next(iter(contexts)), **merged}))
    return path


@dataclass
class Sites:
    """A manager and its workers. `page`: the administrator of the manager, who has connected one as the page says."""

    manager: Site
    workers: dict[str, Site]
    page: Reader | None = None


def connect(manager: Site, workers: dict[str, Site], *options: str) -> Sites:
    """Connect a manager to its workers; `options` are those of the workers' role."""
    for name, worker in workers.items():
        worker.cp.add_node("plain", cpu=64, memory="256Gi")
        register(manager, worker, name, *options)
    for name in workers:
        wait_active(manager.api, name)
    return Sites(manager, workers)


def printed(*arguments: str | Path) -> str:
    """The output of a command of `turnstile worker`."""
    code, text, error = turnstile("worker", *arguments)
    assert code == 0, error
    return text


def register(manager: Place, worker: Place, name: str, *options: str) -> None:
    """Make a MultiKueueCluster with a kubeconfig of an account that has only the rights a manager uses."""
    for each in yaml.safe_load_all(printed("role", *options)):
        worker.api.create(each)
    kubeconfig = printed("kubeconfig", "--kubeconfig", worker.cp.kubeconfig()).encode()
    manager.api.create({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": manager.namespace},
        "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()},
    })  # fmt: skip
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    manager.api.create({
        "apiVersion": GROUP,
        "kind": "MultiKueueCluster",
        "metadata": {"name": name},
        "spec": {"clusterSource": source},
    })  # fmt: skip


def wait_active(api: Api, name: str, status: str = "True", *, timeout: float = 30) -> Json:
    """Wait until a cluster is reached, or is not."""
    return api.wait_for(
        resource_path(GROUP, "multikueueclusters", name),
        lambda found: condition(found, "Active").get("status") == status,
        timeout=timeout,
        describe=f"Active {status}",
    )


@dataclass
class Team:
    """A namespace on all clusters, with a queue on the manager that sends to some workers."""

    here: Scenario
    there: dict[str, Scenario]

    def wait_on(self, job: str, worker: str) -> None:
        """Wait until a Job's copy runs on a worker, and the manager says so."""
        self.here.wait_workload(job, lambda w: w.get("status", {}).get("clusterName") == worker, timeout=30)
        self.there[worker].api.wait_for(
            job_path(self.here.namespace, job),
            lambda found: found and not found["spec"].get("suspend") and found.get("status", {}).get("active"),
            timeout=30,
            describe=f"runs on {worker}",
        )

    def left(self, worker: str) -> list[str]:
        """Names of the Workloads, jobs and pods that the namespace has on a worker."""
        found = []
        kinds = ((GROUP, "workloads"), ("batch/v1", "jobs"), ("apps/v1", "statefulsets"), ("v1", "pods"))
        for version, plural in kinds:
            path = resource_path(version, plural, namespace=self.here.namespace)
            found += [each["metadata"]["name"] for each in self.there[worker].api.items(path)]
        return found

    def wait_pod(self, name: str, holds: Callable[[Json], bool], *, on: str = "") -> None:
        """Wait until something holds for a pod on a worker; by default on the manager."""
        api = self.there[on].api if on else self.here.api
        path = resource_path("v1", "pods", name, namespace=self.here.namespace)
        api.wait_for(path, lambda p: bool(p) and holds(p), timeout=60, describe=f"pod {name} on {on or 'the manager'}")

    def wait_gone(self, name: str, *, on: str) -> None:
        """Wait until a worker does not have a pod or Workload of that name."""
        wait_until(lambda: name not in self.left(on), timeout=60, describe=lambda: f"{on} has {self.left(on)}")

    def wait_clean(self, *workers: str) -> None:
        """Wait until nothing is left on these workers."""
        for worker in workers:
            wait_until(
                lambda w=worker: not self.left(w), timeout=40, describe=lambda w=worker: f"{w} has {self.left(w)}"
            )


@contextmanager
def a_team(manager: Place, workers: Mapping[str, Place], *, sends: int = 8, takes: int = 4) -> Iterator[Team]:
    """The namespace, which is removed again. The manager's queue has a quota of `sends` CPUs, each worker's of
    `takes`."""
    namespace = manager.cp.namespace("team", labels=MANAGED)
    here = Scenario(manager.api, namespace)
    there = {}
    for name, worker in workers.items():
        metadata = {"name": namespace, "labels": MANAGED}
        worker.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        scenario = there[name] = Scenario(worker.api, namespace)
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": takes}})
    config, check = here.named("config"), here.named("elsewhere")
    spec: Json = {"clusters": sorted(workers)}
    here.create({"apiVersion": GROUP, "kind": "MultiKueueConfig", "metadata": {"name": config}, "spec": spec})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config}
    spec = {"controllerName": CHECK, "parameters": parameters}
    here.create({"apiVersion": GROUP, "kind": "AdmissionCheck", "metadata": {"name": check}, "spec": spec})
    here.queue(
        "team",
        {here.flavor("any", labels={"site": "manager"}): {"cpu": sends}},
        admissionChecksStrategy={"admissionChecks": [{"name": check}]},
    )
    # The webhook of a manager leaves a Job to MultiKueue if it knows that the queue sends its Jobs away.
    here.api.wait_for(
        resource_path(GROUP, "localqueues", "team", namespace=namespace),
        lambda queue: condition(queue, "Active").get("status") == "True",
        timeout=60,
        describe="is active",
    )
    yield Team(here, there)
    here.remove()
    for scenario in there.values():
        scenario.remove()
