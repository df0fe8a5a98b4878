"""A ClusterQueue that waits for room on nodes: on a real control plane with simulated nodes and no Topology."""

from collections.abc import Callable

import pytest

from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario
from turnstile.api.waitforroom import WAIT_FOR_ROOM

pytestmark = pytest.mark.cluster


def bound(scenario: Scenario, name: str) -> list[str]:
    """The nodes of the pods of a Job that are bound."""
    return sorted(node for each in scenario.pods_of(name) if (node := each["spec"].get("nodeName", "")))


def test_a_job_with_quota_waits_for_a_node(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Its message says how many pods fit. It starts when a node comes, and the next one when its pods have gone; pods
    of a namespace that is not managed count, which were there before the queue asked for room."""
    pool: Json = {"pool": scenario.named("room")}
    small = add_node(scenario.named("small"), labels=pool, cpu=3)
    meta = {"name": f"apart-{scenario.namespace}"}
    scenario.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "nodeName": small}
    pod_meta = {"name": "alien", "namespace": meta["name"]}
    scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": spec})
    flavor = scenario.flavor("pool", labels=pool)
    queue = scenario.queue("team", {flavor: {"cpu": 100}})
    path = resource_path(GROUP, "clusterqueues", queue)
    scenario.api.patch(path, {"metadata": {"annotations": {WAIT_FOR_ROOM: "true"}}})

    scenario.job("wide", queue="team", pods=2, cpu="2")
    found = scenario.wait_pending("wide", timeout=20)
    wait_until(
        lambda: f"nodes of flavor {flavor} have room for 1 out of 2 pod(s)" in message(scenario, "wide"),
        timeout=20,
        describe=lambda: message(scenario, "wide"),
    )
    assert found["status"] == "False"
    assert scenario.suspended("wide")

    large = add_node(scenario.named("large"), labels=pool, cpu=2)
    scenario.wait_started("wide", timeout=20)
    wait_until(
        lambda: bound(scenario, "wide") == sorted([small, large]), timeout=30, describe=lambda: bound(scenario, "wide")
    )

    scenario.job("next", queue="team", cpu="2")
    found = scenario.wait_pending("next", timeout=20)
    assert 'room for 0 out of 1 pod(s). Total nodes: 2; excluded: resource "cpu": 2' in found["message"]
    scenario.finish("wide")
    scenario.wait_started("next", timeout=20)


def message(scenario: Scenario, name: str) -> str:
    """Why the Workload of a Job waits."""
    return str(scenario.wait_pending(name, timeout=20)["message"])
