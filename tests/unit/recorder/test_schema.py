"""The tables of both databases: older ones become today's, newer ones are left alone, no question reads them all."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.postgres import PostgresServer
from tests.unit.recorder.lives import T0, life, recorded
from tests.unit.recorder.test_writer import TOLD, read, store, until, writing
from turnstile.api.errors import InvalidValue
from turnstile.recorder import schema
from turnstile.recorder.database import Database
from turnstile.recorder.facts import Quota, Record
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, reading
from turnstile.recorder.sqlite import Sqlite


def make_first(place: Location) -> None:
    """The tables of version 1, with a Workload as a Turnstile of that version wrote it."""
    connection = place.open(write=True)
    with connection.transaction():
        for statement in schema._STEPS[0].split(";"):
            connection.run(statement)
        connection.set_version(1)
    old = "'uid-old', 'team', 'old', 'Job', 'job-old', 'main', 0, ?, '{{}}', NULL, NULL"
    connection.run("INSERT INTO workloads VALUES (" + old + ")", T0 - 60)
    fact = "(uid, what, at, attempt, mark, reason, message) VALUES ('uid-old', 'created', ?, 0, '', '', '')"
    connection.run(f"INSERT INTO facts {fact}", T0 - 60)
    connection.close()


class TestTablesOfAnotherVersion:
    def test_older_ones_are_read_as_they_are(self, place: Location) -> None:
        """By a user who may not change them, before the leader does."""
        make_first(place)
        with reading(place) as reader:
            assert (read(place, "old"), reader.since()) == (["created"], T0 - 60)

    def test_older_ones_become_todays(self, place: Location) -> None:
        """What they have stays."""
        make_first(place)
        store(place, recorded(life()))
        assert (read(place, "old"), read(place)) == (["created"], TOLD)
        connection = place.open(write=False)
        assert connection.version == schema.VERSION
        connection.close()
        with reading(place) as reader:
            assert reader.since() == T0 - 60

    def test_by_two_processes_at_once(self, place: Location) -> None:
        """Each step is done once."""
        make_first(place)
        with writing(place) as first, writing(place) as second:
            for writer in (first, second):
                writer.put(recorded(life())[0])
            until(lambda: bool(first.stats.written and second.stats.written))
            assert not first.stats.failures + second.stats.failures

    def test_newer_ones_are_left_alone(self, place: Location) -> None:
        """After a downgrade: neither written nor read."""
        store(place, recorded(life()))
        connection = place.open(write=True)
        connection.set_version(99)
        connection.close()
        with writing(place) as writer:
            until(lambda: writer.stats.failures > 0)
            assert "written by a newer Turnstile" in writer.stats.failing
        with pytest.raises(InvalidValue, match="written by a newer Turnstile"), reading(place):
            pass


class TestSinceWhen:
    def test_there_are_records(self, place: Location) -> None:
        """Since the store was made, although the first object is older."""
        store(place, recorded(life(), start=T0 - 3600), now=T0)
        with reading(place) as reader:
            assert reader.since() == T0

    def test_all_is_kept_after_some_was_deleted(self, place: Location) -> None:
        """Since the end of the last Workload that was deleted."""
        database = Database(place, now=T0)
        database.store([*recorded(life("a")), *recorded(life("b")[:4])])
        assert database.forget_before(T0 + 1000, at_most=10) == 1
        database.close()
        with reading(place) as reader:
            assert (reader.since(), read(place, "a"), read(place, "b")) == (T0 + 60, [], TOLD[:5])


RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=6)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=RECORDS, missing=st.booleans(), horizon=st.integers(0, 100))
def test_both_databases_answer_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    drawn: list[tuple[str, int, bool]],
    missing: bool,
    horizon: int,
) -> None:
    """Whatever is stored in whichever batches, and after what is missing was noticed and what is old deleted."""
    folder = tmp_path_factory.mktemp("same")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    answers = []
    for place in (Location.of(str(folder / "recorder.db")), Location.of(server.schema())):
        database = Database(place, now=T0)
        for name, cut, whole in drawn:
            batch: list[Record] = [*recorded(life(name)[:cut])]
            limit = (("default", "cpu", cut, None, 2),)
            database.store(
                [*batch, Quota("ClusterQueue", name, T0 + cut, "all" if whole else "", limit, not whole, T0)]
            )
        if missing:
            database.settle(["uid-a"], ["ClusterQueue/a"], T0 + 70)
        database.forget_before(T0 + horizon, at_most=10)
        database.close()
        with reading(place) as reader:
            answers.append(msgspec.to_builtins(all_of(reader)))
    assert answers[0] == answers[1]


def all_of(reader: Reader) -> list[object]:
    """What a store knows."""
    names = [each for name in "abc" for each in reader.named("team", name)]
    return [
        reader.since(),
        names,
        sorted(each.uid for each in reader.newest()),
        [reader.timeline(each.uid) for each in names],
        reader.of_owner("team", "JOB", "job-a"),
        list(reader.changes_of_usage(T0, T0 + 50)),
        reader.quotas(),
    ]


class Explained(Sqlite):
    """Notes how SQLite goes about each question."""

    plans: list[str]

    def _run(self, statement: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        if statement.startswith("SELECT"):
            self.plans += [str(row[3]) for row in super()._run(f"EXPLAIN QUERY PLAN {statement}", values)]
        return super()._run(statement, values)


def test_no_question_reads_all_records(tmp_path: Path) -> None:
    """A file of years answers as fast as one of a day, but for the newest Workloads of all namespaces."""
    place = Location.of(str(tmp_path / "recorder.db"))
    store(place, recorded(life()))
    connection = Explained.to_read(tmp_path / "recorder.db")
    assert isinstance(connection, Explained)
    connection.plans = []
    reader = Reader(connection)
    reader.since()
    reader.workload("uid-w")
    reader.named("team", "w")
    reader.of_owner("team", "job", "job-w")
    reader.newest(namespace="team")
    reader.timeline("uid-w")
    list(reader.changes_of_usage(T0, T0 + 50))
    scans = [plan for plan in connection.plans if plan.startswith("SCAN") and ("facts" in plan or "workloads" in plan)]
    connection.close()
    assert scans == []
    assert len(connection.plans) > 6
