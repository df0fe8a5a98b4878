"""What the page shows of the flight recorder's records to readers who may see some namespaces only."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import msgspec
import pytest

from tests.unit.recorder.lives import T0
from tests.unit.recorder.tenants import MADE, tenants
from tests.unit.web.asking import AtOnce, Page, page
from tests.unit.web.test_pages import words
from tests.unit.web.test_questions import Asking
from tests.unit.web.test_sight import BY_NAMESPACE, NOBODY, ONE_NAMESPACE, TENANT
from turnstile.api.core import Namespace
from turnstile.recorder import timelines
from turnstile.recorder.database import Database
from turnstile.recorder.location import Location
from turnstile.web import history
from turnstile.web.application import ASKED_OF_ONE
from turnstile.web.sight import EVERYTHING, Sight

T = TypeVar("T")
pytestmark = pytest.mark.asyncio

EVERYWHERE = Sight(TENANT.unlisted - BY_NAMESPACE)
"""All Workloads, and no queues."""
HERS = Sight(BY_NAMESPACE, frozenset({"rival"}))
"""The other tenant."""


@pytest.fixture
def place(tmp_path: Path) -> Location:
    """A file with the records of both tenants."""
    found = Location.of(str(tmp_path / "recorder.db"))
    database = Database(found, now=T0 - 200)
    database.store(tenants())
    database.close()
    return found


def namespaces() -> Iterator[Namespace]:
    """The two that exist."""
    for name, made in (("team", MADE), ("rival", T0)):
        at = history.stamp(made)
        yield msgspec.convert({"metadata": {"name": name, "creationTimestamp": at}}, Namespace)


@asynccontextmanager
async def past(place: Location) -> AsyncIterator[Page]:
    """A page that shows what is recorded at a place, an hour later."""
    async with page(*namespaces(), recorder=place) as shown:
        shown.now = datetime.fromtimestamp(T0 + 3600, UTC)
        yield shown


PATHS = (
    "/workloads?q=mine", "/workloads?q=vic", "/workloads?q=e", "/workloads?state=gone", "/workloads/team/mine",
    "/workloads/team/mine/uid-mine", "/usage", "/usage?by=queue,flavor", "/usage?by=namespace", "/usage?by=localqueue",
    "/usage?by=user&label=user", "/usage.csv", "/usage.csv?by=namespace,flavor",
    "/usage.csv?by=user&label=user",
)  # fmt: skip


@pytest.mark.parametrize("sight", [ONE_NAMESPACE, TENANT])
async def test_nothing_names_what_a_tenant_may_not_see(place: Location, sight: Sight) -> None:
    """No page and no table, whatever is asked; a page of another tenant's Workload is a page that does not exist."""
    async with past(place) as shown:
        for path in PATHS:
            answer = await shown.get(path, sight=sight)
            assert answer.status == 200
            assert "secret" not in answer.text, path
            assert "rival" not in answer.text, path
        for path in ("rival/secret-victim", "rival/secret-victim/uid-secret-victim", "ghost/secret-ghost",
                     "team/secret-before", "team/mine/uid-secret-before"):  # fmt: skip
            await until_absent(shown, f"/workloads/{path}", sight)


async def test_each_tenant_sees_its_own(place: Location) -> None:
    """The Workload, what happened to it, and what it used."""
    async with past(place) as shown:
        said = words((await shown.get("/workloads?state=gone", sight=TENANT)).text)
        assert "1 job that the flight recorder has kept" in said
        said = words((await shown.get("/workloads/team/mine", sight=TENANT)).text)
        assert "Preempted by a Workload of another namespace of ClusterQueue shared" in said
        assert "Preempts 2 Workloads of other namespaces" in said
        assert "asks 3, 1 free" not in said
        said = words((await shown.get("/usage?span=24h&by=namespace", sight=TENANT)).text)
        assert "team 0.03 0.03 0 – – 0.03" in said
        assert "Workload, LocalQueue: you may list them in namespace team only. Usage is of what you may list." in said
        said = words((await shown.get("/usage?span=24h&by=user&label=user", sight=HERS)).text)
        assert "secret-user" in said
        assert "me 0.03" not in said


async def test_amounts_of_quotas_are_for_who_may_list_queues(place: Location) -> None:
    """In a timeline, and what was borrowed; links to ClusterQueues too."""
    async with past(place) as shown:
        assert "asks 3, 1 free" in (await shown.get("/workloads/team/mine", sight=ONE_NAMESPACE)).text
        assert "asks 3, 1 free" not in (await shown.get("/workloads/team/mine", sight=EVERYWHERE)).text
        html = (await shown.get("/usage?span=24h", sight=ONE_NAMESPACE)).text
        assert "shared 0.03 0.03 0 0.01 – 0.03" in words(html)
        assert "clusterqueues/shared" in html
        html = (await shown.get("/usage?span=24h", sight=EVERYWHERE)).text
        assert "– –" in words(html)
        assert "clusterqueues/shared" not in html
        assert "secret-lender" in html  # of a Workload that the reader may list


async def test_who_sees_everything(place: Location) -> None:
    """Namespaces that are gone too."""
    async with past(place) as shown:
        assert (await shown.get("/workloads/ghost/secret-ghost")).status == 200
        said = words((await shown.get("/workloads?state=gone")).text)
        assert "5 jobs that the flight recorder has kept" in said
        said = words((await shown.get("/workloads/team/mine")).text)
        assert "Preempts rival/secret-victim" in said


async def test_who_sees_nothing(place: Location) -> None:
    """An empty page, which says why."""
    async with past(place) as shown:
        assert (await shown.get("/workloads/team/mine", sight=NOBODY)).status == 404
        assert "No longer there" not in (await shown.get("/workloads?state=gone", sight=NOBODY)).text
        said = words((await shown.get("/usage?span=24h", sight=NOBODY)).text)
        assert "you may not list and watch them" in said
        assert "0.03" not in said


async def test_usage_of_one_namespace(place: Location) -> None:
    """Also for who sees all."""
    async with past(place) as shown:
        for sight in (EVERYTHING, HERS):
            said = words((await shown.get("/usage?span=24h&by=namespace&namespace=rival", sight=sight)).text)
            assert "rival 0.02 0.02 0 0.01 –" in said
            assert "team 0" not in said
        table = (await shown.get("/usage.csv?span=24h&by=namespace&namespace=team", sight=HERS)).text
        assert table.splitlines() == ["since,until,namespace,resource,unit,reserved,used,idle,borrowed,lent,preempted"]


class TestRecordsThatCannotBeRead:
    async def test_only_an_administrator_is_told_where_they_are(self, tmp_path: Path) -> None:
        """The page goes on."""
        async with past(Location.of(str(tmp_path / "none"))) as shown:
            for path in ("/workloads?q=mine", "/workloads/team/mine", "/usage", "/usage.csv"):
                assert str(tmp_path) in (await shown.get(path)).text
                told = (await shown.get(path, sight=TENANT)).text
                assert "cannot be read" in told
                assert str(tmp_path) not in told, path

    async def test_a_page_does_not_wait_for_them(self, place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
        """It says that they are being read, and what they tell comes as an event."""
        go = Event()
        monkeypatch.setattr(history, "SOON_SECONDS", 0.05)
        monkeypatch.setattr(history, "_lives", waiting(go, history._lives))
        monkeypatch.setattr(history, "_gone", waiting(go, history._gone))
        async with past(place) as shown:
            try:
                answer = await shown.get("/workloads/team/mine")
                assert answer.status == 200
                assert "The flight recorder is being asked" in answer.text
                assert "data-follow" in answer.text
                assert "are being looked for" in (await shown.get("/workloads?q=mine")).text
            finally:
                go.set()
            await until_says(shown, "/workloads/team/mine", "Quota reserved")
            await until_says(shown, "/workloads?q=mine", "No longer there")


class Held(AtOnce):
    """Works answers out when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def answers(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """What `work` yields, later."""
        self.asked.release()
        await self.go.wait()
        for found in work():
            yield found


@pytest.mark.parametrize("path", ["/usage", "/what-if?drain=pool%3Da"])
async def test_one_user_does_not_use_up_the_turns_of_others(place: Location, path: str) -> None:
    """Who asks for usage or what if again and again is told to wait."""
    held = Held()
    async with page(*namespaces(), recorder=place, beside=held) as shown, asyncio.TaskGroup() as group:
        first = [group.create_task(shown.get(path, sight=ONE_NAMESPACE, user="eve")) for _ in range(ASKED_OF_ONE)]
        for _ in first:
            await held.asked.acquire()
        for again in ("/usage", "/what-if?drain=pool%3Da"):
            answer = await shown.get(again, sight=ONE_NAMESPACE, user="eve")
            assert answer.status == 503
            assert "2 of your questions are still being answered" in answer.text
        assert (await shown.get("/usage.csv", sight=TENANT, user="eve")).status == 503
        other = group.create_task(shown.get("/usage.csv", sight=TENANT, user="bob"))
        await held.asked.acquire()
        held.go.set()
        assert (await other).status == 200
        assert 503 not in [(await each).status for each in first]
        assert (await shown.get("/usage", sight=TENANT, user="eve")).status == 200


def waiting(go: Event, question: Callable[..., Any]) -> Callable[..., Any]:
    """A question that is answered when the test says so."""

    def wait(*given: Any) -> Any:
        assert go.wait(30)
        return question(*given)

    return wait


async def until_absent(shown: Page, path: str, sight: Sight) -> None:
    """Wait until a page is one that does not exist: records that take long to read are waited for by its reader."""
    async with asyncio.timeout(60):
        while True:
            news = shown.world.news
            if (await shown.get(path, sight=sight)).status == 404:
                return
            await shown.world.changed(news)


async def until_says(shown: Page, path: str, sentence: str) -> None:
    """Wait for news after which a page says something."""
    async with asyncio.timeout(60):
        while True:
            news = shown.world.news
            if sentence in (await shown.get(path)).text:
                return
            await shown.world.changed(news)


@pytest.mark.parametrize("sight", [ONE_NAMESPACE, TENANT])
async def test_a_timeline_for_commands_names_no_other_tenant(place: Location, sight: Sight) -> None:
    """`turnstile timeline` without a file gets the same words as the page, and usage without what others lent."""
    async with past(place) as shown:
        asking = Asking(shown, place)
        told = msgspec.convert(await asking("timeline", "of=mine", sight=sight), list[timelines.Timeline])
        said = [line for entry in told[0].entries for line in timelines.words(entry, told[0])]
        assert [each.workload.name for each in told] == ["mine"]
        assert any("team/mine-too" in line for line in said)
        assert any("2 Workloads of other namespaces" in line for line in said)
        assert not [line for line in said if "secret" in line]
        assert any("asks 3, 1 free" in line for line in said) is sight.tree
        at = f"since={history.stamp(T0)}&until={history.stamp(T0 + 60)}".replace("+", "%2B")
        usage = await asking("usage", f"{at}&by=namespace", sight=sight)
        assert {row["keys"]["namespace"] for row in usage["rows"]} == {"team"}


async def test_a_page_without_a_recorder_says_so(place: Location) -> None:
    """The command then asks for a file or a database."""
    async with past(place) as shown:
        assert (await Asking(shown).refused("timeline", "of=mine"))[0] == 404
        code, said = await Asking(shown, place).refused("timeline", "of=nothing")
        assert (code, "no Workload of it is recorded" in said) == (400, True)
