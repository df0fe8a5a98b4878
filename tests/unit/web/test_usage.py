"""The page of usage: the figures of the command, a form that keeps what was asked, and what is wrong with it."""

import re
from pathlib import Path

import pytest

from app.recorder.database import Database
from app.recorder.facts import Fact, Subject
from app.recorder.location import Location
from tests.unit.recorder.lives import T0
from tests.unit.web.asking import Answer, page

pytestmark = pytest.mark.asyncio


def words(answer: Answer) -> str:
    """The text of a page, without tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


@pytest.fixture
def recorder(tmp_path: Path) -> Location:
    """A file with a Workload that held 4 CPUs for an hour."""
    place = Location.of(str(tmp_path / "recorder.db"))
    database = Database(place, now=T0 - 7000)
    held = {"cluster_queue": "a", "usage": [["default", "cpu", 4000]]}
    database.store(
        [
            Subject("u", "team", "w", "Job", "job-w", "main", 0, T0 - 7000, {}),
            Fact("u", "reserved", T0 - 5000, 0, "1", False, detail=held),
            Fact("u", "released", T0 - 1400, 0, "2", False),
        ]
    )
    database.close()
    return place


async def test_the_figures_are_those_of_the_command(recorder: Location) -> None:
    """A row for each ClusterQueue, and since when there are records."""
    async with page(recorder=recorder) as shown:
        said = words(await shown.get("/usage?since=2h&by=queue,flavor"))
    assert "queue flavor Resource Unit Reserved Used Borrowed Lent Preempted" in said
    assert "a default cpu core-hours 4.00 0.00 0.00 0.00 0.00" in said
    assert "is not recorded" in said
    assert "turnstile usage --recorder ... --by queue,flavor --since 2h --until now -o csv" in said


@pytest.mark.parametrize(
    ("asked", "field", "says"),
    [
        ("by=team", "by", "give one or several of queue"),
        ("by=user", "by", "a user is known by a label"),
        ("since=yesterday", "since", "give now, so long ago"),
        ("since=1h&until=2h", "since", "is not before --until"),
    ],
)
async def test_what_is_wrong_is_said_beside_its_field(recorder: Location, asked: str, field: str, says: str) -> None:
    """And the form keeps what was written."""
    async with page(recorder=recorder) as shown:
        answer = await shown.get(f"/usage?{asked}")
    assert answer.status == 400
    assert re.search(rf'id="h-{field}">[^<]*{re.escape(says)}', answer.text)
    assert f'value="{asked.partition("=")[2].partition("&")[0]}"' in answer.text


async def test_a_store_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Once, above the place of the figures."""
    async with page(recorder=Location.of(str(tmp_path / "absent.db"))) as shown:
        answer = await shown.get("/usage")
    assert (answer.status, "there is no such file" in words(answer)) == (400, True)


async def test_without_a_recorder_there_is_no_such_page() -> None:
    """Nor a way to it."""
    async with page() as shown:
        assert (await shown.get("/usage")).status == 404
        assert "Usage" not in words(await shown.get("/"))


async def test_names_are_escaped(recorder: Location) -> None:
    """As everywhere."""
    async with page(recorder=recorder) as shown:
        assert "<b>" not in (await shown.get("/usage?namespace=<b>x")).text
