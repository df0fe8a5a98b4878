"""My jobs: whose, in which order, and what the list says of each."""

import re

import pytest

from tests.unit.engine import builders as b
from tests.unit.web.asking import page
from tests.unit.web.test_pages import busy, words
from tests.unit.web.test_sight import ONE_NAMESPACE, shared
from turnstile.api.workload import Workload
from turnstile.web.listing import Listing, state_of

pytestmark = pytest.mark.asyncio


def finished(name: str, second: int) -> Workload:
    """A Workload that ended."""
    ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": b.stamp(second)}
    return b.changed(b.workload(name, second=second), status={"conditions": [ended]})


def named(html: str) -> list[str]:
    """The jobs of a list, in order."""
    return re.findall(r'<a data-row href="[^"]*workloads/[^"]*" title="[^"]*">([^<]+)</a>', html)


async def test_what_waits_is_first_and_the_newest_first() -> None:
    """Then what runs, and what is over is last."""
    async with page(*busy(), finished("old", 0), finished("older", -9)) as shown:
        assert named((await shown.get("/workloads")).text) == ["later", "waits", "runs", "old", "older"]


async def test_a_job_is_called_by_its_own_name() -> None:
    """The Workload's name, which ends in a hash, is found by the search, and so is the name of the job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "Train", "uid": "j", "controller": True}
    mine = b.changed(b.workload("job-train-4f2a1", second=3), metadata={"ownerReferences": [owner]})
    async with page(*busy(), mine) as shown:
        assert named((await shown.get("/workloads?q=train")).text) == ["Train"]
        assert named((await shown.get("/workloads?q=4f2a1")).text) == ["Train"]
        assert "Train Job &middot; team &middot; main" in words((await shown.get("/workloads")).text)


async def test_one_namespace() -> None:
    """Those with queues may be chosen, as far as the reader may see them; of others the list is empty."""
    async with page(*shared()) as shown:
        html = (await shown.get("/workloads", sight=ONE_NAMESPACE)).text
        assert re.findall("<option[^>]*>([a-z]+)</option>", html.partition("in-state")[0]) == ["team"]
        assert "secret" not in html
        html = (await shown.get("/workloads?namespace=rival", sight=ONE_NAMESPACE)).text
        assert named(html) == []
        assert "secret" not in html
        assert all("secret" in each for each in named((await shown.get("/workloads?namespace=rival")).text))


async def test_states() -> None:
    """One, or all that does not run yet."""
    async with page(*busy(), finished("old", 0)) as shown:
        assert named((await shown.get("/workloads?state=waiting")).text) == ["later", "waits"]
        assert named((await shown.get("/workloads?state=admitted")).text) == ["runs"]
        assert named((await shown.get("/workloads?state=nonsense")).text) == []


async def test_pages_of_many() -> None:
    """Each Workload is on exactly one page, and a page that is no more leads to the first."""
    many = [b.workload(f"w{number:03}", second=number) for number in range(120)]
    async with page(b.flavor(), b.local("main", "main"), *many) as shown:
        seen = [name for at in (1, 2, 3) for name in named((await shown.get(f"/workloads?page={at}")).text)]
        assert seen == [f"w{number:03}" for number in reversed(range(120))]
        html = (await shown.get("/workloads?page=9&namespace=team")).text
        assert named(html)[0] == "w119"
        assert "Page 1 of 3" in html


async def test_an_address_with_markup_is_escaped() -> None:
    """Whatever the form was filled with comes back as text."""
    async with page(*busy()) as shown:
        html = (await shown.get("/workloads?q=<script>&namespace=<img>&state=<b>")).text
        assert "<script>&" not in html
        assert "<img>" not in html
        assert "<b>" not in html.partition("<main")[2]


async def test_the_order_is_kept_through_changes() -> None:
    """A list that was asked for once is as one that was sorted anew."""
    kept = Listing()
    kept.page((), states=(), namespaces=None, offset=0, limit=9)
    made: dict[str, Workload] = {}
    for number in range(200):
        name = f"w{number * 7919 % 31}"
        key = f"team/{name}"
        if key in made and number % 3 == 0:
            del made[key]
        else:
            made[key] = finished(name, number % 7) if number % 4 == 1 else b.workload(name, second=number % 5)
        kept.put(key, made.get(key))
    anew = Listing()
    for key, workload in made.items():
        anew.put(key, workload)
    whole = {"states": (), "namespaces": None, "offset": 0, "limit": 99}
    assert kept.page((), **whole) == anew.page((), **whole)  # type: ignore[arg-type]
    keys, count = kept.page(("w1",), states=("pending",), namespaces=frozenset(("team",)), offset=0, limit=99)
    assert count == len(keys)
    assert {*keys} == {key for key in made if "w1" in key and state_of(made[key]) == "pending"}
