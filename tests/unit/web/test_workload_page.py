"""The head of a job's page: state, likely start, place and reason; and of one that runs, its run."""

import html
import re

import pytest

from tests.unit.engine import builders as b
from tests.unit.web.asking import page
from tests.unit.web.test_pages import busy, words
from turnstile.web.queues import LONGEST, in_words

pytestmark = pytest.mark.asyncio


def job(name: str) -> dict[str, object]:
    """The metadata of a Workload that a Job owns."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"j-{name}", "controller": True}
    return {"ownerReferences": [owner]}


async def test_it_is_headed_by_the_name_of_the_job() -> None:
    """Title and first heading; the Workload's own name is among the details."""
    async with page(*busy(), b.changed(b.workload("job-train-4f2a1", second=3), metadata=job("train"))) as shown:
        html = (await shown.get("/workloads/team/job-train-4f2a1")).text
        assert "<title>Job train &middot; Turnstile</title>" in html
        assert re.search(r"<h1>.*Job.*train</h1>", html)
        assert "Details Workload job-train-4f2a1 Namespace team" in words(html)


async def test_the_place_and_the_commands() -> None:
    """Who is first, how many are before it, and what the terminal would say of the same job."""
    async with page(*busy()) as shown:
        assert "Place first in ClusterQueue main" in words((await shown.get("/workloads/team/waits")).text)
        html = (await shown.get("/workloads/team/later")).text
        assert "Place 1 job before it in ClusterQueue main" in words(html)
        assert "<code>kubectl turnstile explain workload/later -n team</code>" in html


async def test_a_job_that_runs() -> None:
    """Since when, on which quota, with which pods, and how much it has used."""
    runs = b.held("ran", "main", {"cpu": "2"}, flavor="default")
    admitted = {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": b.stamp(-115)}
    conditions = [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}, admitted]
    runs = b.changed(runs, metadata=job("train"), status={"conditions": conditions})
    async with page(*busy(), runs) as shown:
        html = (await shown.get("/workloads/team/ran")).text
        said = words(html)
        assert re.search("Running Has run for .* on quota of ClusterQueue main", said)
        assert re.search("Pods 1 on default Has used 0.0[0-9] core-hours", said), said
        assert "<code>kubectl turnstile list pods --for job/train -n team</code>" in html
        assert "What would start it now" not in said


async def test_a_job_that_runs_on_another_cluster() -> None:
    """The page says on which, whether the job runs or waits there."""
    at, since = {"status": "True", "reason": "x", "message": ""}, b.stamp(-115)
    conditions = [{"type": name, "lastTransitionTime": since, **at} for name in ("QuotaReserved", "Admitted")]
    check = {"name": "elsewhere", "state": "Pending", "message": "east: couldn't assign flavors; west: no queue"}
    runs = b.changed(b.held("ran", "main", {"cpu": "1"}, flavor="default"), metadata=job("train"))
    waits = b.changed(b.held("sent", "main", {"cpu": "1"}, flavor="default"), metadata=job("eval"))
    runs = b.changed(runs, status={"conditions": conditions, "clusterName": "east"})
    waits = b.changed(waits, status={"conditions": conditions[:1], "admissionChecks": [check]})
    async with page(*busy(), runs, waits) as shown:
        assert "Cluster east" in words((await shown.get("/workloads/team/ran")).text)
        said = words((await shown.get("/workloads/team/sent")).text)
        assert "east: couldn't assign flavors; west: no queue" in html.unescape(said)


async def test_a_command_cannot_be_broken_out_of() -> None:
    """A name from a dump, copied into a shell, stays one word."""
    evil = b.changed(b.workload("w", second=3), metadata=job("x; rm -rf ~"))
    async with page(*busy(), evil) as shown:
        assert "explain &#39;job/x; rm -rf ~&#39; -n team" in (await shown.get("/workloads/team/w")).text


async def test_a_long_message_is_not_searched_to_its_end() -> None:
    """A list shows many messages, each of which may have 32 KiB."""
    waits = b.workload("long", second=3)
    said = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "x y, " * 6000}
    async with page(*busy(), b.changed(waits, status={"conditions": [said]})) as shown:
        html = (await shown.get("/workloads?q=long")).text
        assert len(html) < 20_000
    assert in_words.cache_info().maxsize is not None
    assert LONGEST <= 2000
