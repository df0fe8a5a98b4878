"""What the recorder's file tells, on the pages of Workloads that are there, and of those that are gone."""

from pathlib import Path

import pytest

from tests.unit.recorder.lives import T0, life, recorded
from tests.unit.web.asking import page
from tests.unit.web.test_pages import busy, words
from turnstile.api.workload import Workload
from turnstile.recorder.database import Database
from turnstile.recorder.location import Location

pytestmark = pytest.mark.asyncio


def written(folder: Path, *versions: Workload | None) -> Location:
    """The file of a leader that saw these versions."""
    place = Location(str(folder / "recorder.sqlite"))
    database = Database(place, now=T0)
    database.store(recorded(versions))
    database.close()
    return place


async def test_a_workload_that_is_there(tmp_path: Path) -> None:
    """All that happened to it, not only what its conditions say."""
    versions = life("waits")[:5]
    async with page(*busy(), recorder=written(tmp_path, *versions)) as shown:
        said = words((await shown.get("/workloads/team/waits")).text)
    assert "This is what its conditions say" not in said
    assert said.index("Quota released") < said.index("Evicted") < said.index("Quota reserved in ClusterQueue a")


async def test_a_workload_that_is_gone(tmp_path: Path) -> None:
    """Its page is where it was, and so it is by its uid."""
    async with page(*busy(), recorder=written(tmp_path, *life("w"))) as shown:
        for path in ("/workloads/team/w", "/workloads/team/w/uid-w"):
            answer = await shown.get(path)
            said = words(answer.text)
            assert answer.status == 200
            assert "It is not there any more." in said
            assert said.index("Deleted") < said.index("Evicted Preempted by")
        assert (await shown.get("/workloads/team/w/another")).status == 404


async def test_search_finds_what_is_gone(tmp_path: Path) -> None:
    """Beside what is there, or alone."""
    async with page(*busy(), recorder=written(tmp_path, *life("waits-no-more"))) as shown:
        said = words((await shown.get("/workloads?q=waits")).text)
        assert said.index("waits Workload") < said.index("No longer there 1 job") < said.index("job-waits-no-more Job")
        assert "waits-no-more" in words((await shown.get("/workloads?q=&state=gone")).text)
        assert "waits-no-more" not in words((await shown.get("/workloads?q=waits&state=pending")).text)


async def test_health_says_from_when_to_when_it_tells(tmp_path: Path) -> None:
    """Also that nothing is recorded yet, that the records cannot be read, or that none are read."""
    empty, full, none = tmp_path / "empty", tmp_path / "full", tmp_path / "none"
    empty.mkdir()
    full.mkdir()
    for recorder, says in (
        (written(full, *life()), "State read Records since 2026-01-02 03:04:00 UTC Last event 2026-01-02 03:05:04 UTC"),
        (written(empty), "It can be read, and has recorded nothing yet."),
        (Location(str(none)), f"The flight recorder cannot be read. {none}: there is no such file"),
        (None, "This page reads no flight recorder."),
    ):
        async with page(*busy(), recorder=recorder) as shown:
            assert f"Flight recorder {says}" in words((await shown.get("/health")).text)


async def test_without_a_recorder() -> None:
    """One sentence says how there would be more, and the conditions are told."""
    async with page(*busy()) as shown:
        said = words((await shown.get("/workloads/team/waits")).text)
        assert "This is what its conditions say. With turnstile web --recorder FILE the flight recorder" in said
        assert "gone, and recorded" not in words((await shown.get("/workloads")).text)
        assert (await shown.get("/workloads/team/none")).status == 404


async def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The pages say so and go on."""
    async with page(*busy(), recorder=Location(str(tmp_path / "none"))) as shown:
        said = words((await shown.get("/workloads/team/waits")).text)
        assert f"the flight recorder cannot be read. {tmp_path / 'none'}: there is no such file" in said
        assert "there is no such file" in words((await shown.get("/workloads?q=waits")).text)
        answer = await shown.get("/workloads/team/none")
        assert answer.status == 404
        assert "There is no Workload team/none in the cluster now." in words(answer.text)
