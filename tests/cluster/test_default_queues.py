"""docs/tasks/default-queues.md read from top to bottom, and what its table promises, with the rights of the chart."""

from collections.abc import Iterator

import pytest

from testbed.client import Api, Json, resource_path
from testbed.installation import MANAGED, Installation
from tests.cluster.configured import Configured, as_the_chart_wrote
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, QUEUE, Scenario, job
from tests.documents import ROOT

pytestmark = pytest.mark.cluster

LABEL = "example.com/cluster-queue"


@pytest.fixture(scope="module")
def page(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The page, read up to the upgrade of the chart, whose values are as before in the end."""
    directory = tmp_path_factory.mktemp("page")
    (directory / "charts").symlink_to(ROOT / "charts")
    reader = Reader("default-queues.md", idle_installation.control_plane, directory=directory)
    reader.do()
    reader.do()
    yield reader
    idle_installation.install()


@pytest.fixture(scope="module")
def installed(
    page: Reader, idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Configured]:
    """Turnstile runs with the file that the chart wrote."""
    with as_the_chart_wrote(idle_installation, tmp_path_factory.mktemp("etc")) as found:
        found.start()
        yield found


@pytest.fixture
def lab(installed: Configured) -> Iterator[Scenario]:
    """A managed namespace; ClusterQueues of one and two CPUs are there."""
    installed.started[-1].require_running()
    with installed.team() as world:
        flavor = world.flavor("plain")
        for name, cpu in (("first", "1"), ("second", "2")):
            world.cluster_queue(name, {flavor: {"cpu": cpu}})
        yield world


def path(namespace: str) -> str:
    """URL path of the LocalQueue `default`."""
    return resource_path(GROUP, "localqueues", "default", namespace=namespace)


def label(api: Api, namespace: str, **labels: str | None) -> None:
    """Label a namespace; `queue` is the label that names a ClusterQueue."""
    found = {LABEL if key == "queue" else key: value for key, value in labels.items()}
    api.patch(resource_path("v1", "namespaces", namespace), {"metadata": {"labels": found}})


def wait_queue(world: Scenario, cluster_queue: str, *, but: str = "") -> Json:
    """Wait until the LocalQueue leads there, and has another uid than `but`."""
    return world.api.wait_for(
        path(world.namespace),
        lambda found: found["spec"]["clusterQueue"] == cluster_queue and found["metadata"]["uid"] != but,
        describe=f"LocalQueue default to {cluster_queue}",
    )


def test_the_page(page: Reader, installed: Configured) -> None:
    """The label of the namespace, and the queue that follows."""
    with installed.team() as world:
        lab = f"{world.namespace}-lab"
        page.do(lab=lab)
        page.see("^research$", lab=lab)
        page.end()
        world.api.delete(resource_path("v1", "namespaces", lab))


def test_a_job_without_a_queue_name_is_queued(lab: Scenario) -> None:
    """The webhook gives it the queue that was made."""
    label(lab.api, lab.namespace, queue=lab.named("first"))
    wait_queue(lab, lab.named("first"))
    lab.api.create(job("seen", namespace=lab.namespace, queue="default", cpu="100m"))
    lab.wait_started("seen")  # so the webhook knows the queue too
    created = lab.job("plain", queue=None, cpu="100m")
    assert created["metadata"]["labels"][QUEUE] == "default"
    lab.wait_started("plain")


def test_a_deleted_queue_is_made_again(lab: Scenario) -> None:
    """As it was."""
    label(lab.api, lab.namespace, queue=lab.named("first"))
    uid = wait_queue(lab, lab.named("first"))["metadata"]["uid"]
    lab.api.delete(path(lab.namespace))
    wait_queue(lab, lab.named("first"), but=uid)


def test_a_queue_in_use_moves_when_the_last_workload_gives_its_quota_back(lab: Scenario) -> None:
    """The Job that waits goes to the new ClusterQueue with it."""
    label(lab.api, lab.namespace, queue=lab.named("first"))
    uid = wait_queue(lab, lab.named("first"))["metadata"]["uid"]
    lab.job("running", queue="default")
    lab.wait_started("running")
    lab.job("waiting", queue="default", cpu="2")
    lab.wait_pending("waiting")
    label(lab.api, lab.namespace, queue=lab.named("second"), tier="research")
    witness = lab.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": lab.named("witness"), "labels": {**MANAGED, LABEL: "any"}}})  # fmt: skip
    try:
        lab.api.wait_for(path(lab.named("witness")), bool, describe="the queue of a later namespace")
    finally:
        lab.api.delete(lab.api.path_of(witness))
    assert lab.api.get(path(lab.namespace))["metadata"]["uid"] == uid
    lab.api.delete(resource_path("batch/v1", "jobs", "running", namespace=lab.namespace), propagation="Background")
    wait_queue(lab, lab.named("second"), but=uid)
    assert lab.wait_admitted("waiting")["clusterQueue"] == lab.named("second")


def test_an_empty_queue_goes_when_the_namespace_leaves(lab: Scenario) -> None:
    """The queue of an administrator stays."""
    label(lab.api, lab.namespace, queue=lab.named("first"))
    wait_queue(lab, lab.named("first"))
    label(lab.api, lab.namespace, queue=None)
    lab.api.wait_gone(path(lab.namespace))
    lab.local_queue("default", lab.named("second"))
    label(lab.api, lab.namespace, queue=lab.named("first"))
    witness = lab.named("witness")
    made = lab.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": witness, "labels": {**MANAGED, "tier": "research"}}})  # fmt: skip
    try:
        lab.api.wait_for(path(witness), bool, describe="the queue of a later namespace")
    finally:
        lab.api.delete(lab.api.path_of(made))
    assert lab.api.get(path(lab.namespace))["spec"]["clusterQueue"] == lab.named("second")
