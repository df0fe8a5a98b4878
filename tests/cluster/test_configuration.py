"""Turnstile under a configuration file: which jobs it looks at, what it counts, what it does when the file changes."""

from collections.abc import Iterator

import pytest

from testbed.client import Json, wait_until
from testbed.installation import NAMESPACE, Installation
from testbed.processes import Process
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import Scenario, job

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
resources:
  excludeResourcePrefixes: [example.com/]
  transformations:
    - {input: cpu, strategy: Replace, outputs: {credits: 2}}
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
"""


@pytest.fixture(scope="module")
def installed(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile with batch Jobs alone enabled and CPUs counted as credits."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        yield found


@pytest.fixture(scope="module")
def process(installed: Configured) -> Process:
    """It runs."""
    return installed.start()


@pytest.fixture
def world(installed: Configured, process: Process) -> Iterator[Scenario]:
    """An empty managed namespace."""
    process.require_running()
    with installed.team() as scenario:
        yield scenario


def test_resources_are_counted_as_the_file_says(world: Scenario) -> None:
    """CPUs become credits, two each; a resource with an excluded prefix counts for nothing."""
    world.queue("team", {world.flavor("plain"): {"credits": "5"}})
    container = {"name": "main", "image": "busybox", "resources": {
        "requests": {"cpu": "2", "example.com/widget": "1"}, "limits": {"example.com/widget": "1"},
    }}  # fmt: skip
    first = job("first", namespace=world.namespace, queue="team")
    first["spec"]["template"]["spec"]["containers"] = [container]
    world.create(first)
    (pod_set,) = world.wait_admitted("first")["podSetAssignments"]
    assert pod_set["resourceUsage"] == {"credits": "4"}
    world.job("second", queue="team", cpu="1")
    assert "insufficient" in world.wait_pending("second")["message"]


def test_jobs_of_a_kind_that_is_not_enabled_pass_untouched(world: Scenario) -> None:
    """A Pod with a queue name is neither gated nor labelled, and gets no Workload."""
    world.queue("team", {world.flavor("plain"): {"credits": "5"}})
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "free", "namespace": world.namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    created = world.create(pod)
    assert created["metadata"]["labels"] == labels
    assert not created["spec"].get("schedulingGates")
    world.job("queued", queue="team")
    world.wait_admitted("queued")
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{world.namespace}/workloads"
    owners = [owner["kind"] for found in world.api.items(path) for owner in found["metadata"]["ownerReferences"]]
    assert owners == ["Job"]


@pytest.mark.usefixtures("process")
def test_the_lease_has_the_times_of_the_file(installed: Configured) -> None:
    """Others wait as long for a silent leader as the file says."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/turnstile-controller"
    lease = installed.cp.api.get(path)
    assert lease["spec"]["leaseDurationSeconds"] == 6


def test_a_change_is_heeded_or_spoken_of(installed: Configured, process: Process, world: Scenario) -> None:
    """Jobs without a queue name are held from then on, those that run are stopped; the rest waits for a restart."""
    world.job("before", queue=None)
    assert not world.suspended("before")
    installed.file.write_text(FILE.replace("credits: 2", "credits: 3") + "manageJobsWithoutQueueName: true\n")
    try:
        world.wait_suspended("before", timeout=30)
        world.job("after", queue=None)
        assert world.suspended("after")
        log = process.tail(200)
        assert "config.reloaded" in log
        assert "config.restart_needed" in log
        assert "resources.transformations" in log
    finally:
        installed.file.write_text(FILE)
        wait_until(
            lambda: process.tail(20).count("config.reloaded") >= 1 and _free_again(world),
            timeout=30,
            describe=lambda: process.tail(20),
        )


def _free_again(world: Scenario) -> bool:
    """Whether a new Job without a queue name is left alone, by a dry run."""
    again = job("again", namespace=world.namespace, queue=None)
    return not world.api.create(again, dry_run=True)["spec"].get("suspend")
