"""The page of a Workload that runs names its pods and their nodes, to who may list them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from tests.unit.web.asking import page
from tests.unit.web.test_pages import words
from turnstile.api.errors import Forbidden
from turnstile.web.pods import READ, SHOWN

pytestmark = pytest.mark.asyncio

WORLD = (
    team(),
    b.flavor(),
    b.queue("main", {"default": {"cpu": 4}}),
    b.local("main", "main"),
    b.held("runs", "main", {"cpu": "2"}, flavor="default"),
)
PATH = "/workloads/team/runs"


def pod(name: str, node: str, *, of: str = "runs", phase: str = "Running") -> dict[str, Any]:
    """A pod as the API server lists it."""
    meta = {"name": name, "annotations": {"kueue.x-k8s.io/workload": of}}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}


@dataclass
class Listing:
    """An API server that lists these pods."""

    items: list[dict[str, Any]]
    more: str = ""
    asked: list[tuple[str, Mapping[str, str | int]]] = field(default_factory=list)

    async def __call__(self, method: str, path: str, *, params: Mapping[str, str | int], timeout: float) -> bytes:
        """Answer a list."""
        self.asked.append((f"{method} {path}", params))
        return json.dumps({"items": self.items, "metadata": {"continue": self.more}}).encode()


async def test_its_pods_and_their_nodes() -> None:
    """Those that run, and no others of the namespace."""
    listing = Listing([
        pod("runs-b", "node-2"), pod("runs-a", "node-1"), pod("other", "node-3", of="another"),
        pod("runs-c", "node-1", phase="Succeeded"),
    ])  # fmt: skip
    async with page(*WORLD, pods=listing) as shown:
        said = words((await shown.get(PATH)).text)
    assert "Its pods 2 pods on 2 nodes. Pod Node State runs-a node-1 Running runs-b node-2 Running" in said
    ((asked, params),) = listing.asked
    assert asked == "GET /api/v1/namespaces/team/pods"
    assert params["limit"] == READ


async def test_they_are_few_and_read_once_in_a_while() -> None:
    """However many there are, and however often the page is made."""
    listing = Listing([pod(f"runs-{number:03}", "node-1") for number in range(SHOWN + 5)], more="rest")
    async with page(*WORLD, pods=listing) as shown:
        html = (await shown.get(PATH)).text
        assert f"at least {SHOWN + 5} pods on 1 node; the first {SHOWN} by name." in words(html)
        assert html.count("runs-0") == SHOWN
        await shown.get(PATH)
    assert len(listing.asked) == 1


async def test_a_reader_who_may_not_list_pods() -> None:
    """Sees the rest of the page, and they are not read."""
    listing = Listing([pod("runs-a", "node-1")])

    async def never(_: str) -> bool:
        return False

    async with page(*WORLD, pods=listing) as shown:
        said = words((await shown.get(PATH, lists_pods=never)).text)
    assert "Has run for" in said
    assert "Its pods" not in said
    assert listing.asked == []


async def test_pods_that_cannot_be_read() -> None:
    """On the reader's own machine, with rights that do not suffice."""

    async def refuses(*_: object, **__: object) -> bytes:
        raise Forbidden(403, "Forbidden", "no")

    async with page(*WORLD, pods=refuses) as shown:
        answer = await shown.get(PATH)
    assert answer.status == 200
    assert "Its pods" not in words(answer.text)


async def test_one_that_waits_has_none() -> None:
    """Nothing is read for it."""
    listing = Listing([])
    async with page(*WORLD, b.workload("waits", cpu=3, second=1), pods=listing) as shown:
        await shown.get("/workloads/team/waits")
    assert listing.asked == []
