"""What a reader is shown of records who may see some namespaces only, from a file and from PostgreSQL."""

from itertools import pairwise

import pytest

from tests.unit.recorder.lives import T0
from tests.unit.recorder.tenants import BLIND, TENANT, tenants
from turnstile.recorder.database import Database
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, reading
from turnstile.recorder.reports import Row, as_csv, reports
from turnstile.recorder.scope import EVERYTHING, Scope
from turnstile.recorder.timelines import others, timeline_of, words

SHORT = "Waits for 2 more CPUs on default nodes: asks 3, 1 free."


@pytest.fixture
def written(place: Location) -> Location:
    """A place with the records of both tenants."""
    database = Database(place, now=T0)
    database.store(tenants())
    database.close()
    return place


def names(found: tuple[int, list[object]]) -> tuple[int, list[str]]:
    """How many, and their names."""
    count, lives = found
    return count, [getattr(each, "name", "") for each in lives]


class TestWorkloadsThatAreGone:
    def test_are_counted_in_the_namespaces_of_the_scope(self, written: Location) -> None:
        """However few are shown; without one of a namespace that had the name before."""
        with reading(written) as reader:
            assert names(reader.gone([], scope=TENANT)) == (1, ["mine"])
            assert names(reader.gone(["e"], scope=TENANT, at_most=0)) == (1, [])
            assert names(reader.gone(["secret"], scope=TENANT)) == (0, [])
            assert names(reader.gone(["team/"], scope=TENANT)) == (1, ["mine"])

    def test_of_no_namespace(self, written: Location) -> None:
        """There are none."""
        with reading(written) as reader:
            assert reader.gone([], scope=Scope({})) == (0, [])

    def test_of_all(self, written: Location) -> None:
        """The latest first, also of namespaces that are gone."""
        with reading(written) as reader:
            assert names(reader.gone([])) == (
                5, ["secret-before", "secret-preemptor", "mine", "secret-ghost", "secret-victim"],
            )  # fmt: skip


def told(reader: Reader, scope: Scope) -> tuple[list[str], list[str]]:
    """All lines of a Workload's timeline, and the Workloads that they name."""
    timeline = timeline_of(reader, next(iter(reader.named("team", "mine"))))
    lines = [line for entry in timeline.entries for line in words(entry, timeline, scope)]
    return lines, [key for entry in timeline.entries for key in others(entry, timeline, scope)]


class TestATimeline:
    def test_names_no_workload_of_another_tenant(self, written: Location) -> None:
        """Neither victims nor the preemptor: they are counted."""
        with reading(written) as reader:
            lines, links = told(reader, TENANT)
        assert "secret" not in str((lines, links))
        assert "rival" not in str(lines)
        assert "Preempts 2 Workloads of other namespaces." in lines
        assert "Preempts team/mine-too." in lines
        assert (
            "Preempted by a Workload of another namespace of ClusterQueue shared, which comes first in the same queue."
            in lines
        )
        assert links == ["team/mine-too"]

    def test_has_no_amounts_of_quotas_for_who_sees_no_queue(self, written: Location) -> None:
        """What others use, and what there is."""
        with reading(written) as reader:
            assert SHORT in told(reader, TENANT)[0]
            assert SHORT not in told(reader, BLIND)[0]

    def test_names_all_to_who_sees_all(self, written: Location) -> None:
        """As for the command."""
        with reading(written) as reader:
            lines, links = told(reader, EVERYTHING)
        assert (
            "Preempted by rival/secret-preemptor of ClusterQueue shared, which comes first in the same queue." in lines
        )
        assert links == ["rival/secret-victim", "rival/secret-other", "team/mine-too", "rival/secret-preemptor"]

    def test_does_not_name_who_had_a_namespace_before(self, written: Location) -> None:
        """A victim of a namespace that was deleted, and made again later with its name."""
        with reading(written) as reader:
            lines, _ = told(reader, Scope({"team": T0, "rival": T0 + 30}))
        assert "Preempts 2 Workloads of other namespaces." in lines
        assert (
            "Preempted by rival/secret-preemptor of ClusterQueue shared, which comes first in the same queue." in lines
        )


def rows(reader: Reader, scope: Scope, *by: str) -> list[Row]:
    """The usage of the first hundred seconds."""
    (report,) = reports(reader, by, (T0, T0 + 100), user_label="user", scope=scope)
    return report.rows


def core_seconds(*hours: float | None) -> list[float | None]:
    """Core-hours in the unit of the records."""
    return [None if each is None else round(each * 3600, 6) for each in hours]


class TestUsage:
    def test_of_the_namespaces_of_the_scope(self, written: Location) -> None:
        """Three CPUs for 40 seconds: whoever else held quota of the queue."""
        with reading(written) as reader:
            (row,) = rows(reader, TENANT, "queue")
            assert (row.keys, row.lent) == ({"queue": "shared"}, None)
            assert core_seconds(row.reserved, row.used) == [120, 120]
            (row,) = rows(reader, TENANT, "namespace", "user")
            assert row.keys == {"namespace": "team", "user": "me"}

    def test_what_others_hold_decides_what_is_borrowed(self, written: Location) -> None:
        """Of 3 + 3 + 1 CPUs three are above the quota of 4 for 20 seconds, and of 3 + 1 none: 3/7 of the three."""
        with reading(written) as reader:
            (row,) = rows(reader, TENANT, "queue")
        assert core_seconds(row.borrowed) == [pytest.approx(20 * 3 * 3 / 7, abs=1e-5)]

    def test_who_sees_no_queue_is_not_told_what_is_borrowed(self, written: Location) -> None:
        """It follows from quotas, and from what others hold. In CSV the field is empty."""
        with reading(written) as reader:
            (row,) = rows(reader, BLIND, "queue")
            assert core_seconds(row.reserved, row.borrowed, row.lent) == [120, None, None]
            table = as_csv(reports(reader, ["queue"], (T0, T0 + 100), scope=BLIND), ["queue"])
        assert table.splitlines()[1].endswith(",shared,cpu,core-hours,0.033333,0.033333,0.000000,,,0.033333")

    def test_lenders_are_for_who_sees_everything(self, written: Location) -> None:
        """Their rows tell what others borrowed."""
        with reading(written) as reader:
            everything = {row.keys["queue"]: row for row in rows(reader, EVERYTHING, "queue")}
            assert core_seconds(everything["secret-lender"].lent) == [60]
            assert "secret" not in str(rows(reader, TENANT, "queue", "localqueue", "namespace", "user", "flavor"))
            for scope in (Scope(quotas=False), EVERYTHING.within("team")):
                assert {row.lent for row in rows(reader, scope, "queue")} == {None}

    def test_the_parts_add_up(self, written: Location) -> None:
        """Step by step as in one."""
        edges = [T0, T0 + 15, T0 + 30, T0 + 100]
        with reading(written) as reader:
            parts = reports(reader, ["queue"], edges, scope=TENANT)
            (whole,) = rows(reader, TENANT, "queue")
        assert len(parts) == len([*pairwise(edges)])
        assert sum(row.borrowed or 0.0 for each in parts for row in each.rows) == pytest.approx(whole.borrowed)
