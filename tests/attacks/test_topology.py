"""Racks and nodes are counted from pods, so no tenant gets a place that others hold, nor hides what runs on a node. A
rank that a tenant writes is a claim, and no rack is held for longer than the quota for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from testbed.client import Json, resource_path
from tests.attacks.conftest import QUOTA, Tenant, leaves_alone, pod_spec
from tests.attacks.test_victims import STUBBORN, YEAR
from tests.cluster.racks import TOPOLOGY, Racks
from tests.cluster.scenario import QUEUE, Scenario, adding_nodes
from turnstile.api import names

pytestmark = leaves_alone  # the API server refuses a pod that has both a node and Turnstile's gate
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"


@pytest.fixture
def add_node(tenant: Tenant) -> Iterator[Callable[..., str]]:
    """Adds nodes, which go with the test."""
    with adding_nodes(tenant.turnstile.installation.control_plane) as add:
        yield add


@pytest.fixture
def neighbour(tenant: Tenant, add_node: Callable[..., str]) -> Iterator[Racks]:
    """Another namespace, whose queue has one rack with a node of four CPUs.

    Controllers of other attacks still make pods, which kube-scheduler would put onto an empty node.
    """
    with racks_of(tenant, add_node, 4) as racks:
        yield racks


@contextmanager
def racks_of(tenant: Tenant, add_node: Callable[..., str], *hosts: int) -> Iterator[Racks]:
    """A namespace with one rack of nodes with so many CPUs. The tenant's LocalQueue `racked` gets as much of it as the
    tenant's quota is."""
    control_plane = tenant.turnstile.installation.control_plane
    world = Scenario(control_plane.api, control_plane.namespace("racks", labels={"kueue-managed": "true"}))
    racks = Racks(world, add_node, {"r1": hosts}, tainted=True)
    racks.queue(100)
    tenant.world.local_queue("racked", tenant.world.cluster_queue("racked", {racks.flavor: {"cpu": QUOTA}}))
    yield racks
    world.remove()


def waits_for(racks: Racks, fit: int) -> None:
    """Assert that a gang of four waits, because only so many of its pods fit."""
    racks.job("gang", 4, required=racks.rack)
    found = racks.scenario.wait_pending("gang", timeout=20)
    assert f"allows to fit only {fit} out of 4 pod(s)" in found["message"]


def on_its_node(tenant: Tenant, racks: Racks, name: str, **metadata: object) -> Json:
    """A Pod of one CPU that names a node of the rack, past kube-scheduler."""
    spec = {"nodeName": racks.scenario.named("r1-0")}
    return tenant.pod(name, spec=spec, **{"labels": {}, **metadata})


def test_a_pod_that_says_topology_placed_it(tenant: Tenant, neighbour: Racks) -> None:
    """Create a Pod without a queue that names a node of another tenant, with an annotation by which Kueue takes it for
    one that topology placed."""
    on_its_node(tenant, neighbour, "hidden", annotations={UNCONSTRAINED: "true"})
    waits_for(neighbour, 3)
    tenant.delete("v1", "pods", "hidden", grace_seconds=0)
    assert neighbour.bound("gang", 4) == {"r1-0": 4}


def test_a_pod_that_names_the_workload_of_others(tenant: Tenant, neighbour: Racks) -> None:
    """Create a Pod that names a Workload which holds the node, of another namespace and of its own."""
    neighbour.job("holder", 2, required=neighbour.rack)
    neighbour.bound("holder", 2)
    name = neighbour.scenario.workload_of("holder")["metadata"]["name"]
    on_its_node(tenant, neighbour, "hidden", annotations={names.WORKLOAD: name})
    waits_for(neighbour, 1)
    tenant.delete("v1", "pods", "hidden", grace_seconds=0)


def test_pods_that_take_the_places_of_a_workload(tenant: Tenant, neighbour: Racks) -> None:
    """In the namespace of a Workload that holds places for two pods, create a third Pod that names it, on its node."""
    neighbour.job("holder", 2, required=neighbour.rack)
    neighbour.bound("holder", 2)
    name = neighbour.scenario.workload_of("holder")["metadata"]["name"]
    meta = {"name": "third", "namespace": neighbour.scenario.namespace, "annotations": {names.WORKLOAD: name}}
    spec = {**pod_spec("1"), "nodeName": neighbour.scenario.named("r1-0")}
    neighbour.scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    waits_for(neighbour, 1)
    path = resource_path("v1", "pods", "third", namespace=neighbour.scenario.namespace)
    neighbour.scenario.api.delete(path, grace_seconds=0)


LIES: dict[str, tuple[list[str], dict[str, str]]] = {
    "the same twice": (["0", "0"], {}),
    "beyond the last": (["0", "7"], {}),
    "huge": (["0", "9" * 40], {}),
    "no number": (["0", "first"], {}),
    "none": (["0", ""], {}),
    "offset below zero": (["0", "1"], {names.POD_INDEX_OFFSET: "-7"}),
    "huge offset": (["0", "1"], {names.POD_INDEX_OFFSET: "9" * 40}),
    "offset without a number": (["0", "1"], {names.POD_INDEX_OFFSET: "first"}),
}


def group_member(tenant: Tenant, racks: Racks, name: str, index: str, **more: str) -> Json:
    """One of the two Pods of a group that has to be on one rack, with this rank; `more` are annotations."""
    labels = {QUEUE: "racked", names.POD_GROUP_NAME: "g", names.POD_GROUP_POD_INDEX: index}
    asked = {names.POD_GROUP_TOTAL_COUNT: "2", TOPOLOGY.format("required"): racks.rack}
    return tenant.pod(name, labels=labels, annotations={**asked, **more})


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_ranks_that_lie(tenant: Tenant, add_node: Callable[..., str], lie: tuple[list[str], dict[str, str]]) -> None:
    """Give the Pods of a group ranks that cannot be right: the same twice, beyond the last, huge, below zero, or no
    number. Each node gets as many of them as the Workload has places there, and none waits for ever."""
    ranks, annotations = lie
    with racks_of(tenant, add_node, 1, 1) as racks:
        for number, rank in enumerate(ranks):
            group_member(tenant, racks, f"g-{number}", rank, **annotations)
        tenant.wait_runs(2)
        assert sorted(racks.short(each["spec"]["nodeName"]) for each in tenant.pods()) == ["r1-0", "r1-1"]
        tenant.within_quota()


def test_a_pod_that_takes_the_rank_of_another(tenant: Tenant, neighbour: Racks) -> None:
    """Create a Pod that names the own running Workload, and carries the topology gate and the rank of one of its
    pods: it stays gated, for all places are taken."""
    tenant.api.create(racked_job(tenant, neighbour, "holder"))
    tenant.wait_runs(2)
    workload = tenant.world.workload_of("holder")["metadata"]["name"]
    labels = {names.PODSET_LABEL: "main", "batch.kubernetes.io/job-completion-index": "0"}
    gates = [{"name": names.TOPOLOGY_GATE}]
    tenant.pod("a", labels=labels, annotations={names.WORKLOAD: workload}, spec={"schedulingGates": gates})
    tenant.within_quota()
    assert not tenant.pod_runs("a")


def racked_job(tenant: Tenant, racks: Racks, name: str, **spec: object) -> Json:
    """The manifest of an Indexed Job of two pods that have to be on one rack; `spec` is more of that of its pods."""
    body = tenant.job_body(name, labels={QUEUE: "racked"})
    template = body["spec"]["template"]
    body["spec"] |= {"completionMode": "Indexed", "backoffLimit": 9}
    template["metadata"] = {"annotations": {TOPOLOGY.format("required"): racks.rack}}
    template["spec"] |= spec
    return body


def test_a_rack_that_is_held_by_pods_that_never_start(tenant: Tenant, neighbour: Racks) -> None:
    """Give the pods of a Job a scheduling gate of the own, so that they have places on a rack and never run: what runs
    no pod for as long as `controller.unusedAfter` says gives its places back with its quota."""
    tenant.turnstile.restart("--unused-after", "4")
    tenant.api.create(racked_job(tenant, neighbour, "holder", schedulingGates=[{"name": "example.com/never"}]))
    tenant.world.wait_admitted("holder")
    waits_for(neighbour, 2)
    assert neighbour.bound("gang", 4) == {"r1-0": 4}
    tenant.within_quota()
    tenant.turnstile.stop()


def stubborn(tenant: Tenant, racks: Racks, name: str) -> Json:
    """The manifest of such a Job, whose pods have a year to stop and use all of it."""
    body = racked_job(tenant, racks, name, terminationGracePeriodSeconds=YEAR)
    body["spec"]["template"]["metadata"]["annotations"] |= STUBBORN
    return body


@pytest.fixture
def impatient(tenant: Tenant) -> Iterator[None]:
    """Whoever has to give quota up has four seconds for it."""
    tenant.turnstile.restart("--victim-patience", "4")
    yield
    tenant.turnstile.stop()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_rack_that_is_held_by_the_pods_of_a_deleted_job(tenant: Tenant, neighbour: Racks, propagation: str) -> None:
    """Give the pods of a Job a year to stop, and delete the Job. No Workload that waits for its rack may preempt it,
    and its pods have the patience of a preemptor all the same."""
    tenant.api.create(stubborn(tenant, neighbour, "holder"))
    tenant.wait_runs(2)
    waits_for(neighbour, 2)
    tenant.delete("batch/v1", "jobs", "holder", propagation=propagation)
    assert neighbour.bound("gang", 4) == {"r1-0": 4}
    tenant.within_quota()


@pytest.mark.usefixtures("impatient")
def test_a_rack_that_is_held_by_deleted_pods_of_a_running_job(tenant: Tenant, neighbour: Racks) -> None:
    """Give the pods of a Job a year to stop, and delete the pods one by one. They are charged as long as the Job is, as
    if they ran; the pods that the Job controller makes wait for their places, so no more run than before. When the Job
    goes, they go."""
    tenant.api.create(stubborn(tenant, neighbour, "holder"))
    tenant.wait_runs(2)
    for pod in tenant.pods():
        tenant.delete("v1", "pods", pod["metadata"]["name"])
    waits_for(neighbour, 2)
    tenant.within_quota()
    assert tenant.sentry.runs == 2
    tenant.delete("batch/v1", "jobs", "holder", propagation="Background")
    assert neighbour.bound("gang", 4) == {"r1-0": 4}
    tenant.within_quota()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
def test_a_rack_that_is_held_by_a_deleted_pod(tenant: Tenant, neighbour: Racks, *, group: bool) -> None:
    """Create Pods with a year to stop, each by itself or as a group, and delete them."""
    annotations = {TOPOLOGY.format("required"): neighbour.rack, **STUBBORN}
    for name in "ab":
        labels = {QUEUE: "racked", **({names.POD_GROUP_NAME: "g"} if group else {})}
        total = {names.POD_GROUP_TOTAL_COUNT: "2"} if group else {}
        spec = {"terminationGracePeriodSeconds": YEAR}
        tenant.pod(name, labels=labels, annotations={**annotations, **total}, spec=spec)
    tenant.wait_runs(2)
    waits_for(neighbour, 2)
    for name in "ab":
        tenant.delete("v1", "pods", name)
    assert neighbour.bound("gang", 4) == {"r1-0": 4}
    tenant.within_quota()
