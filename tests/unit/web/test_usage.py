"""Usage over time, as the page shows it from the recorder's file."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.engine import builders as b
from tests.unit.recorder.lives import life
from tests.unit.web.asking import page
from tests.unit.web.test_history import written
from tests.unit.web.test_pages import busy, words
from turnstile.api.errors import InvalidValue
from turnstile.recorder.location import Location
from turnstile.web import usage

NOW = datetime.fromtimestamp(b.NOW + 3600, UTC)


def form(**given: str) -> dict[str, str]:
    """A form with these fields filled in."""
    return {name: given.get(name, "") for name in usage.FIELDS}


@pytest.mark.parametrize("span", usage.SPANS)
def test_steps_begin_on_full_hours_or_days(span: str) -> None:
    """Few of them, all of one length but the first and the last."""
    edges = usage.asked(form(span=span), NOW).edges
    steps = {after - before for before, after in pairwise(edges[1:-1])}
    assert (edges[0], edges[-1]) == ((NOW - usage.SPANS[span]).timestamp(), NOW.timestamp())
    (step,) = steps
    assert edges[1] % min(step, 86400) == 0
    assert len(edges) <= usage.MOST_STEPS + 2


def test_days() -> None:
    """The last day is counted, as far as it is over."""
    given = usage.asked(form(since="2026-01-01", until="2026-01-01"), NOW)
    assert (given.since, given.until) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert usage.asked(form(since="2026-01-01", until="2026-01-31"), NOW).until == NOW


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"by": "colour"}, "by"),
        ({"by": "user"}, "label"),
        ({"span": "1y"}, "span"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-02-30"}, "since"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, "since"),
        ({"since": "2030-01-01"}, "since"),
    ],
)
def test_a_form_that_is_wrong(given: dict[str, str], field: str) -> None:
    """The field is named."""
    with pytest.raises(InvalidValue) as found:
        usage.asked(form(**given), NOW)
    assert found.value.field == field


@pytest.mark.asyncio
class TestThePage:
    """A Workload held four CPUs for 15 seconds, was preempted, and then held four for 8 and three for 12."""

    async def test_the_sums(self, tmp_path: Path) -> None:
        """In core-hours, and the most that was held."""
        async with page(*busy(), recorder=written(tmp_path, *life())) as shown:
            shown.now = NOW
            said = words((await shown.get("/usage?span=24h")).text)
            assert "cpu held over time" in said
            assert f"a {128 / 3600:.2f} {128 / 3600:.2f} 0 0 0 {60 / 3600:.2f}" in said

    async def test_as_csv(self, tmp_path: Path) -> None:
        """A row for each step in which something was held; they add up."""
        async with page(*busy(), recorder=written(tmp_path, *life())) as shown:
            shown.now = NOW
            answer = await shown.get("/usage.csv?span=24h&resource=cpu")
            header, *rows = answer.text.splitlines()
            assert answer.headers["content-disposition"] == 'attachment; filename="usage.csv"'
            assert header == "since,until,queue,resource,unit,reserved,used,idle,borrowed,lent,preempted"
            assert sum(float(row.split(",")[5]) for row in rows) == pytest.approx(128 / 3600, abs=1e-5)
            assert (await shown.get("/usage.csv?by=colour")).status == 400

    async def test_without_a_recorder(self) -> None:
        """The page says how there would be one."""
        async with page(*busy()) as shown:
            assert "turnstile web --recorder FILE" in words((await shown.get("/usage")).text)
            assert (await shown.get("/usage.csv")).status == 404

    async def test_nothing_is_recorded(self, tmp_path: Path) -> None:
        """A file without Workloads."""
        async with page(*busy(), recorder=written(tmp_path)) as shown:
            assert "No quota was held from" in words((await shown.get("/usage")).text)

    async def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        """The reason."""
        async with page(*busy(), recorder=Location(str(tmp_path / "none"))) as shown:
            answer = await shown.get("/usage")
            assert answer.status == 503
            assert "there is no such file" in words(answer.text)


def test_the_time_that_is_recorded() -> None:
    """A fresh recorder is not shown as a week of nothing; one that begins later, or long before, changes nothing."""
    given = usage.asked(form(span="7d"), NOW)
    assert given.recorded(NOW.timestamp() - 1800).edges[0] == NOW.timestamp() - 1800
    for since in (None, given.since.timestamp() - 1, NOW.timestamp() + 1):
        assert given.recorded(since) == given
