"""A custom resource that the configuration file describes is queued like a Job; the test plays its operator.

What the administrator does, and the entry of the file, are those of docs/tasks/your-own-kind.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import ApiError
from testbed.installation import MANAGED, Installation
from testbed.processes import Process
from tests.cluster.configured import Configured, as_the_chart_wrote
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, QUEUE, Scenario
from tests.documents import ROOT

pytestmark = pytest.mark.cluster

KIND = "Simulation"
PAGE = "your-own-kind.md"


@dataclass
class Simulations:
    """Simulations of one namespace, and their operator."""

    world: Scenario

    def path(self, name: str) -> str:
        """URL path of one."""
        return resource_path("example.com/v1", "simulations", name, namespace=self.world.namespace)

    def create(self, name: str, *, workers: int = 2, labels: dict[str, str] | None = None) -> Json:
        """One of pods of a CPU each, in queue `team`."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        template = {"metadata": {"creationTimestamp": None}, "spec": {"containers": [container]}}
        meta = {"name": name, "namespace": self.world.namespace, "labels": {QUEUE: "team", **(labels or {})}}
        spec = {"workers": workers, "template": template}
        return self.world.create({"apiVersion": "example.com/v1", "kind": KIND, "metadata": meta, "spec": spec})

    def get(self, name: str) -> Json:
        """One as it is now."""
        found: Json = self.world.api.get(self.path(name))
        return found

    def report(self, name: str, **status: object) -> None:
        """The operator writes the status."""
        self.world.api.patch(f"{self.path(name)}/status", {"status": status})

    def wait_suspended(self, name: str, *, suspended: bool) -> Json:
        """Wait until one is suspended, or is not."""
        return self.world.api.wait_for(
            self.path(name), lambda seen: seen["spec"].get("suspend") is suspended, describe=f"suspend: {suspended}"
        )

    def run(self, name: str) -> Json:
        """Wait until one is started, and let the operator make its pods."""
        found = self.wait_suspended(name, suspended=False)
        self.report(name, active=found["spec"]["workers"])
        return found

    def reserved(self, name: str) -> str:
        """Whether the Workload of one holds quota, as its condition says."""
        workload = self.world.workload_of(name, kind=KIND)
        return str(condition(workload, "QuotaReserved").get("status", ""))


@pytest.fixture(scope="module")
def page(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The page, read up to the upgrade of the chart; its last command takes the kind away again in the end."""
    directory = tmp_path_factory.mktemp("page")
    (directory / "charts").symlink_to(ROOT / "charts")
    reader = Reader(PAGE, idle_installation.control_plane, directory=directory)
    reader.do()
    reader.do()
    reader.do()
    yield reader
    reader.do()
    reader.end()
    idle_installation.control_plane.api.delete(
        resource_path("apiextensions.k8s.io/v1", "customresourcedefinitions", "simulations.example.com")
    )


@pytest.fixture(scope="module")
def installed(
    page: Reader, idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Configured]:
    """Turnstile with the file that the chart wrote."""
    with as_the_chart_wrote(idle_installation, tmp_path_factory.mktemp("etc")) as found:
        yield found


@pytest.fixture(scope="module")
def process(installed: Configured) -> Process:
    """It runs."""
    return installed.start()


@pytest.fixture
def simulations(installed: Configured, process: Process) -> Iterator[Simulations]:
    """A managed namespace with a queue for four CPUs of a flavor with a node label."""
    installed.started[-1].require_running()
    with installed.team() as world:
        flavor = world.flavor("plain", labels={"pool": "plain"})
        world.queue("team", {flavor: {"cpu": "4"}}, preemption={"withinClusterQueue": "LowerPriority"})
        yield Simulations(world)


def test_it_waits_and_is_admitted(simulations: Simulations) -> None:
    """Held when it is made; admitted it is resumed, with the nodes of the flavor in its template."""
    assert simulations.create("first", workers=3)["spec"]["suspend"] is True
    assert simulations.run("first")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "plain"}
    assert simulations.create("second")["spec"]["suspend"] is True
    assert "insufficient" in simulations.world.wait_pending("second", kind=KIND)["message"]
    (pod_set,) = simulations.world.wait_admitted("first", kind=KIND)["podSetAssignments"]
    assert (pod_set["count"], pod_set["resourceUsage"]) == (3, {"cpu": "3"})


def test_what_makes_no_sense_is_refused(simulations: Simulations) -> None:
    """By the webhook, with the field."""
    meta = {"name": "wrong", "namespace": simulations.world.namespace, "labels": {QUEUE: "team"}}
    body = {"apiVersion": "example.com/v1", "kind": KIND, "metadata": meta, "spec": {"workers": 1}}
    with pytest.raises(ApiError, match=r"spec\.template: Required value: a pod template is needed"):
        simulations.world.create(body)


def test_deactivated_it_gives_its_quota_back_when_no_pod_is_left(simulations: Simulations) -> None:
    """Not before its status says so; and its template is as its user wrote it."""
    simulations.create("first", workers=3)
    simulations.run("first")
    simulations.create("second")
    simulations.world.wait_pending("second", kind=KIND)
    workload = simulations.world.workload_of("first", kind=KIND)["metadata"]
    path = resource_path(GROUP, "workloads", workload["name"], namespace=workload["namespace"])
    simulations.world.api.patch(path, {"spec": {"active": False}})
    stopped = simulations.wait_suspended("first", suspended=True)
    assert "nodeSelector" not in stopped["spec"]["template"]["spec"]
    simulations.world.wait_event("first", reason="Stopped")
    assert simulations.reserved("first") == "True"
    assert simulations.get("second")["spec"]["suspend"] is True
    simulations.report("first", active=0)
    simulations.run("second")
    assert simulations.reserved("first") == "False"


def test_preempted_it_makes_room_once_its_pods_are_gone(simulations: Simulations) -> None:
    """And comes back when the preemptor has ended."""
    simulations.create("victim", workers=4)
    simulations.run("victim")
    urgent = {"kueue.x-k8s.io/priority-class": simulations.world.priority_class("urgent", 1)}
    simulations.create("urgent", labels=urgent)
    simulations.wait_suspended("victim", suspended=True)
    assert simulations.get("urgent")["spec"]["suspend"] is True
    simulations.report("victim", active=0)
    simulations.run("urgent")
    done = {"type": "Succeeded", "status": "True", "message": "all done"}
    simulations.report("urgent", active=0, conditions=[done])
    simulations.run("victim")
    finished = condition(simulations.world.workload_of("urgent", kind=KIND), "Finished")
    assert (finished["reason"], finished["message"]) == ("Succeeded", "all done")


def test_deleted_it_leaves_nothing(simulations: Simulations) -> None:
    """Its quota is free once its pods would be known; its Workload goes when the garbage collector knows the kind,
    within half a minute."""
    simulations.create("first", workers=4)
    simulations.run("first")
    simulations.create("second", workers=4)
    simulations.world.wait_pending("second", kind=KIND)
    simulations.world.api.delete(simulations.path("first"))
    simulations.run("second")
    path = resource_path(GROUP, "workloads", namespace=simulations.world.namespace)

    def owners() -> list[str]:
        return [each["metadata"]["ownerReferences"][0]["name"] for each in simulations.world.api.items(path)]

    wait_until(lambda: owners() == ["second"], timeout=60, describe=lambda: f"Workloads of {owners()}")


def test_a_restart_in_the_middle_changes_nothing(simulations: Simulations, installed: Configured) -> None:
    """Killed after it suspended a Simulation whose pods still run, Turnstile goes on from what it sees."""
    simulations.create("victim", workers=4)
    simulations.run("victim")
    urgent = {"kueue.x-k8s.io/priority-class": simulations.world.priority_class("urgent", 1)}
    simulations.create("urgent", labels=urgent)
    simulations.wait_suspended("victim", suspended=True)
    installed.installation.crash(installed.started[-1])
    installed.start()
    assert simulations.reserved("victim") == "True"
    assert simulations.get("urgent")["spec"]["suspend"] is True
    simulations.report("victim", active=0)
    simulations.run("urgent")
    assert simulations.reserved("victim") == "False"


def test_your_own_kind(installed: Configured, process: Process, page: Reader) -> None:
    """The rest of the page: a Simulation of the namespace team-a, in its queue `default`."""
    api = installed.cp.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": MANAGED}})
    world = Scenario(api, "team-a")
    try:
        full = world.cluster_queue("team", {world.flavor("plain"): {"cpu": "4", "memory": "4Gi"}})
        world.local_queue("default", full, stopPolicy="Hold")
        page.do()
        page.see(r"^true\n", r"simulation-wing-\w+ +default")
        api.patch(resource_path(GROUP, "localqueues", "default", namespace="team-a"), {"spec": {"stopPolicy": "None"}})
        Simulations(world).run("wing")
    finally:
        api.delete(resource_path("example.com/v1", "simulations", "wing", namespace="team-a"))
        world.remove()
