"""The page of nodes: racks as a picture, for readers who may list Nodes."""

import re

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import node, workload
from tests.unit.insight.racks import pod, racks, runs
from tests.unit.web.asking import page
from tests.unit.web.test_pages import words
from turnstile.api.core import Node
from turnstile.insight.snapshot import Snapshot
from turnstile.process.aside import Aside
from turnstile.web.sight import Sight

pytestmark = pytest.mark.asyncio


def world() -> Snapshot:
    """Two racks of two nodes with four CPUs; a team uses three of one, a pod of others two of another."""
    snapshot = racks({"r1": [4, 4], "r2": [4, 4]})
    runs(snapshot, "train", {"r1-0": 3})
    snapshot.put(pod("agent", "r2-0", cpu=2))
    return snapshot


def away(name: str, rack: str, *, cordoned: bool) -> Node:
    """A node that takes no pods, cordoned or not ready."""
    body = msgspec.to_builtins(node(name, rack, 4))
    if cordoned:
        body["spec"] = {"unschedulable": True}
    else:
        body["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    return msgspec.convert(body, Node)


async def test_what_is_free_and_who_uses_what() -> None:
    """In figures, for those who do not see the picture too."""
    async with page(*world().all()) as shown:
        said = words((await shown.get("/nodes")).text)
        assert "CPUs free 11 of 16" in said
        assert "Largest free rack 6 on r2" in said
        assert "team 3 other pods 2" in said
        assert "r1 5 free CPUs on 2 nodes" in said


async def test_cells_are_filled_by_the_part_in_use() -> None:
    """Three quarters of the first node, from below; half of the third."""
    async with page(*world().all()) as shown:
        html = (await shown.get("/nodes")).text
        assert re.findall(r'class="(team-1|other)" d="([^"]+)"', html) == [
            ("team-1", "M1 7h24v18h-24z"),
            ("other", "M1 13h24v12h-24z"),
        ]


async def test_nodes_that_take_no_pods() -> None:
    """They stay in the picture, and what they have is not free."""
    gone = away("r1-0", "r1", cordoned=False), away("r2-1", "r2", cordoned=True)
    async with page(*racks({"r1": [4, 4], "r2": [4, 4]}).changed(gone).all()) as shown:
        html = (await shown.get("/nodes")).text
        assert "Nodes 4 1 failed 1 cordoned" in words(html)
        assert "CPUs free 8 of 8" in words(html)
        assert 'class="failed"' in html
        assert 'class="cordoned"' in html
        rack = words((await shown.get("/nodes?rack=r1")).text)
        assert "r1-0 failed" in rack


async def test_a_rack_has_its_nodes_by_name() -> None:
    """With the jobs that have places there."""
    async with page(*world().all()) as shown:
        html = (await shown.get("/nodes?rack=r1")).text
        assert "r1-0 ready 1 / 4" in words(html)
        assert 'href="./workloads/team/train"' in html
        assert "r2-0" not in html


async def test_the_picture_follows() -> None:
    """A node that comes, and a Workload that goes."""
    snapshot = world()
    async with page(*snapshot.all()) as shown:
        assert "Nodes 4" in words((await shown.get("/nodes")).text)
        await shown.put(node("r3-0", "r3", 8))
        said = words((await shown.get("/nodes")).text)
        assert "Nodes 5" in said
        assert "Largest free rack 8 on r3" in said


async def test_names_of_other_namespaces_are_left_out() -> None:
    """Their amounts are shown, without a name."""
    async with page(*world().all()) as shown:
        html = (await shown.get("/nodes?rack=r1", sight=Sight(namespaces=frozenset({"mine"})))).text
        assert "team/train" not in html
        assert "others 3" in words(html)


async def test_a_reader_who_may_not_list_nodes() -> None:
    """Sees none, and no link to the page."""
    async with page(*world().all()) as shown:
        html = (await shown.get("/nodes", sight=Sight(frozenset({Node})))).text
        assert "Nodes cannot be shown" in html
        assert "r1" not in html
        assert 'data-key="n"' not in html


async def test_without_a_topology_there_is_no_such_page() -> None:
    """It says which flavors have one."""
    async with page(b.flavor(), b.queue("main")) as shown:
        assert "There is no such picture" in (await shown.get("/nodes")).text
        assert 'data-key="n"' not in (await shown.get("/")).text


async def test_many_nodes_without_racks_are_drawn_in_blocks() -> None:
    """So that the picture fits on a telephone."""
    async with page(*racks({"r1": [1] * 200}).all()) as shown:
        html = (await shown.get("/nodes")).text
        assert html.count("<svg width=") - html.count('<svg width="14"') == 4


async def test_a_job_that_waits_shows_the_room_at_each_level() -> None:
    """Beside what is short of quota."""
    snapshot = world()
    snapshot.put(workload("waits", 7, second=2))
    async with page(*snapshot.all(), beside=Aside()) as shown:
        said = words((await shown.get("/workloads/team/waits")).text)
        assert "Waits for room for 7 pods on one rack: the largest hole is on rack r2, for 6." in said
        assert "main 7 gpu rack asked for 6 r2" in said


async def test_a_job_that_runs_leads_to_its_nodes() -> None:
    """They are outlined there."""
    async with page(*world().all()) as shown:
        assert (
            'href="../../nodes?flavor=gpu&amp;workload=team%2Ftrain"' in (await shown.get("/workloads/team/train")).text
        )
        assert 'class="mine"' in (await shown.get("/nodes?workload=team/train")).text
