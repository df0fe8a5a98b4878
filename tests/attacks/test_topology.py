"""Racks and nodes are counted from pods, so nobody gets a place that others hold, nor hides what runs on a node."""

from collections.abc import Callable, Iterator

import pytest

from testbed.client import Json, resource_path
from tests.attacks.conftest import Tenant, leaves_alone, pod_spec
from tests.cluster.racks import Racks
from tests.cluster.scenario import Scenario
from turnstile.api import names

pytestmark = leaves_alone  # the API server refuses a pod that has both a node and Turnstile's gate
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"


@pytest.fixture
def add_node(tenant: Tenant) -> Iterator[Callable[..., str]]:
    """Adds nodes, which go with the test."""
    control_plane, added = tenant.turnstile.installation.control_plane, list[str]()

    def add(name: str, **options: object) -> str:
        added.append(name)
        control_plane.add_node(name, **options)  # type: ignore[arg-type]
        return name

    yield add
    for name in added:
        control_plane.remove_node(name)


@pytest.fixture
def neighbour(tenant: Tenant, add_node: Callable[..., str]) -> Iterator[Racks]:
    """Another namespace, whose queue has one rack with a node of four CPUs.

    Controllers of other attacks still make pods, which kube-scheduler would put onto an empty node.
    """
    control_plane = tenant.turnstile.installation.control_plane
    world = Scenario(control_plane.api, control_plane.namespace("racks", labels={"kueue-managed": "true"}))
    racks = Racks(world, add_node, {"r1": [4]}, tainted=True)
    racks.queue(100)
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
