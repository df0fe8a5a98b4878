"""The picture of nodes: axe-core finds no fault, nothing is wider than the screen, and it follows the cluster."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import demo
from tests.browser.conftest import Served, serve
from turnstile.api.core import Node
from turnstile.api.topology import HOSTNAME

pytest.importorskip("playwright", reason="make test-browser installs it")
from tests.browser.test_accessibility import STANDARDS, Axe

BLOCK, RACK = "example.com/block", "example.com/rack"


def node(number: int, *, ready: bool = True, cordoned: bool = False) -> demo.Json:
    """A node with eight GPUs, four to a rack and four racks to a block."""
    name = f"node-{number:03}"
    labels = {"pool": "racked", BLOCK: f"b{number // 16}", RACK: f"r{number // 4}", HOSTNAME: name}
    has = {"cpu": "96", "memory": "1900Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "resourceVersion": "1"},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": has, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def placed(namespace: str, name: str, pods: int, hosts: list[int]) -> demo.Json:
    """A Workload that runs with so many pods of one GPU on each of these nodes."""
    made = demo.runs(
        namespace, f"job-{name}-0a1b2", "training", namespace, "racked", pods=pods * len(hosts),
        requests={"nvidia.com/gpu": "1", "cpu": "8"},
    )  # fmt: skip
    (assigned,) = made["status"]["admission"]["podSetAssignments"]
    roots = {"individual": {"prefix": "node-", "roots": [f"{host:03}" for host in hosts]}}
    part = {"domainCount": len(hosts), "valuesPerLevel": [roots], "podCounts": {"universal": pods}}
    assigned["topologyAssignment"] = {"levels": [HOSTNAME], "slices": [part]}
    return made


def world() -> list[demo.Json]:
    """Two blocks of racks that two teams share; one node has failed, and one is cordoned."""
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOSTNAME)]
    teams = ("vision", "language")
    return demo.with_statuses(
        [
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in teams),
            demo.named("Topology", "racks", spec={"levels": levels}),
            demo.named("ResourceFlavor", "racked", spec={"nodeLabels": {"pool": "racked"}, "topologyName": "racks"}),
            *(demo.queue(name, demo.quotas(racked={"nvidia.com/gpu": "128", "cpu": "2000"})) for name in teams),
            *(demo.named("LocalQueue", "training", name, spec={"clusterQueue": name}) for name in teams),
            *(node(number, ready=number != 9, cordoned=number == 20) for number in range(32)),
            placed("vision", "segment", 8, [0, 1, 2]),
            placed("language", "pretrain", 3, [4, 5, 6, 7, 16]),
        ]
    )


@pytest.fixture(scope="module")
def racks() -> Iterator[Served]:
    """The page over them."""
    yield from serve(world())


@pytest.mark.parametrize("width", [1280, 390, 768, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/nodes", "/nodes?rack=b0/r1&team=vision", "/nodes?flavor=none"])
def test_axe(racks: Served, chromium: Any, path: str, scheme: str, width: int) -> None:
    """No violation; and nothing is wider than the screen."""
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 850})
    page = context.new_page()
    page.goto(racks.address + path)
    found = Axe().run(page, options=STANDARDS)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_it_follows(racks: Served, chromium: Any) -> None:
    """A node that goes leaves the picture without a reload; and `g n` leads here."""
    page = chromium.new_context().new_page()
    from playwright.sync_api import expect

    page.goto(racks.address + "/workloads")
    page.keyboard.press("g")
    page.keyboard.press("n")
    nodes = page.locator(".counts dd").first
    expect(nodes).to_contain_text("32")
    racks.drop(Node, "node-031")
    expect(nodes).to_contain_text("31")
    racks.put(node(31))
