"""The writer stores records in its file whatever happens to the file, and never holds up who puts records in."""

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from testbed.client import wait_until
from tests.unit.recorder.lives import T0, life, recorded
from turnstile.api.errors import InvalidValue
from turnstile.recorder.facts import Fact, Quota, Record
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, reading
from turnstile.recorder.writer import Retention, Settled, Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is to be."""
    return tmp_path / "recorder.db"


@contextmanager
def writing(
    place: Location | Path, *, now: float = T0, retention: Retention | None = None, **options: Any
) -> Iterator[Writer]:
    """A writer that runs, and is closed in the end."""
    quick = {"gather_seconds": 0.01, "again_seconds": (0.02, 0.05), "trim_seconds": 0.05} | options
    location = Location.of(str(place)) if isinstance(place, Path) else place
    writer = Writer(location, retention=retention or Retention(days=None, mib=None), clock=lambda: now, **quick)
    writer.start()
    try:
        yield writer
    finally:
        writer.close()


def store(place: Location | Path, records: list[Record], **options: Any) -> None:
    """Have records written by a process that ends in order, once all are written: its end waits for a moment only."""
    with writing(place, **options) as writer:
        for record in records:
            writer.put(record)
        until(lambda: not len(writer))


def opened(place: Location | Path) -> AbstractContextManager[Reader]:
    """A reader."""
    return reading(Location.of(str(place)) if isinstance(place, Path) else place)


def read(place: Location | Path, name: str = "w") -> list[str]:
    """What happened to a Workload, of all that had the name."""
    with opened(place) as reader:
        return [entry.what for workload in reader.named("team", name) for entry in reader.timeline(workload.uid)]


def url(place: Location) -> str:
    """As a command takes it."""
    return place.url or str(place)


def until(condition: Callable[[], bool]) -> None:
    """Wait for the thread."""
    wait_until(condition, timeout=20, describe=lambda: "the writer did not get there")


TOLD = [
    "created", "waiting", "reserved", "admitted", "evicted", "released", "waiting", "reserved", "admitted", "usage",
    "finished", "deleted",
]  # fmt: skip


class TestWhatIsStored:
    def test_is_read_back(self, place: Location) -> None:
        """After the Workload and the process are gone."""
        store(place, recorded(life()))
        assert read(place) == TOLD
        with opened(place) as reader:
            (workload,) = reader.of_owner("team", "job", "job-w")
            assert (workload.name, workload.over, workload.gone) == ("w", T0 + 60, T0 + 64)

    @pytest.mark.parametrize("cut", range(1, 9))
    def test_is_stored_once_by_leaders_that_follow_each_other(
        self, place: Location, places: Callable[[], Location], cut: int
    ) -> None:
        """The second one begins with what the last version shows, and goes on from there."""
        store(place, recorded(life()[:cut]))
        store(place, recorded(life()[cut - 1 :], start=T0 + 8 * (cut - 1)))
        with_one = places()
        store(with_one, recorded(life()))
        assert read(place) == read(with_one)

    def test_by_two_leaders_at_once(self, place: Location, places: Callable[[], Location]) -> None:
        """A leader that has just lost the Lease may still write."""
        with writing(place) as first, writing(place) as second:
            for record in recorded(life()):
                first.put(record)
                second.put(record)
            until(lambda: not len(first) and not len(second))
        with_one = places()
        store(with_one, recorded(life()))
        assert read(place) == read(with_one)

    def test_what_is_missing_is_recorded_as_deleted(self, place: Location) -> None:
        """Workloads that were deleted while no leader recorded hold nothing from when that is noticed."""
        store(place, [*recorded(life("a")[:4]), *recorded(life("b")[:4]), Quota("Cohort", "all", T0, "", ())])
        with writing(place) as writer:
            writer.put(Settled(["uid-b"], ["Cohort/all"], T0 + 99))
            writer.put(Settled(["uid-b"], [], T0 + 100))
            until(lambda: not len(writer))
        assert read(place, "a")[-1] == "deleted"
        assert "deleted" not in read(place, "b")
        with opened(place) as reader:
            assert [workload.over for workload in reader.named("team", "a")] == [T0 + 99]
            assert [(quota.at, quota.gone) for quota in reader.quotas()] == [(T0, False), (T0 + 100, True)]

    def test_survives_a_kill_in_the_middle_of_writing(self, place: Location) -> None:
        """Of each transaction all is there or nothing, and the next process, which begins with what objects show, makes
        the rest up."""
        program = """
import os, sys, time
from turnstile.recorder import writer
from turnstile.recorder.location import Location
from tests.unit.recorder.lives import life, recorded
writer.BATCH = 7
made = writer.Writer(Location.of(sys.argv[1]), retention=writer.Retention(days=None), clock=time.time, gather_seconds=0)
made.start()
parent = os.getppid()
print("begins", flush=True)
for number in range(10_000):
    if os.getppid() != parent:
        break
    for record in recorded(life(f"w-{number}")[:4]):
        made.put(record)
        while len(made) > 1000 and os.getppid() == parent:
            time.sleep(0.001)
"""
        command = [sys.executable, "-c", program, url(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                process.stdout.readline()
                until(lambda: self._written(place) > 20)
            finally:
                process.kill()
        names = [f"w-{number}" for number in range(60)]
        assert all(told == TOLD[: len(told)] for told in self._told(place, names))
        store(place, [record for each in names for record in recorded(life(each))])
        assert all(told == TOLD for told in self._told(place, names))
        if place.file is not None:
            with closing(sqlite3.connect(place.file)) as other:
                assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    def _told(self, place: Location, names: list[str]) -> list[list[str]]:
        with opened(place) as reader:
            found = [workload.uid for name in names for workload in reader.named("team", name)]
            return [[entry.what for entry in reader.timeline(uid)] for uid in found]

    def _written(self, place: Location) -> int:
        try:
            with opened(place) as reader:
                return len(reader.newest(at_most=1000))
        except InvalidValue:
            return 0

    def test_a_record_that_is_refused_costs_no_other(self, place: Location) -> None:
        """The batch is written without it, and the log tells which it is."""
        bad = Fact("uid-w", "waiting", T0, 2**40, "bad", True, "Pending", "the attempt is too large for PostgreSQL")
        with structlog.testing.capture_logs() as lines, writing(place) as writer:
            records = recorded(life())
            for record in (*records[:3], bad, *records[3:]):
                writer.put(record)
            until(lambda: writer.stats.written + writer.stats.dropped == writer.stats.put)
        assert [line for line in read(place) if line != "waiting"] == [line for line in TOLD if line != "waiting"]
        if place.url:  # SQLite takes any number
            assert writer.stats.dropped == 1
            assert ["bad" in line["record"] for line in lines if line["event"] == "recorder.record_refused"] == [True]


class TestAFileThatFails:
    def test_that_is_locked_is_waited_for(self, path: Path) -> None:
        """Records wait, and are written when the lock is gone."""
        store(path, recorded(life("a")))
        with writing(path) as writer, closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            before = time.perf_counter()
            for record in recorded(life("b")):
                writer.put(record)
            assert time.perf_counter() - before < 5  # the writer waits that long for a lock, who puts does not
            assert writer.stats.written == 0
            other.execute("COMMIT")
            until(lambda: writer.stats.written == writer.stats.put)
        assert read(path, "b") == read(path, "a")

    def test_whose_folder_comes_late_is_made_then(self, path: Path) -> None:
        """A volume that is mounted late."""
        late = path.parent / "late" / "recorder.db"
        with writing(late) as writer:
            for record in recorded(life()):
                writer.put(record)
            until(lambda: writer.stats.failures > 2)
            assert "unable to open" in writer.stats.failing
            late.parent.mkdir()
            until(lambda: not writer.stats.failing)
        assert read(late) == TOLD

    def test_that_is_damaged_is_set_aside(self, path: Path) -> None:
        """The new file has what is recorded from then on."""
        store(path, recorded(life("a")))
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with writing(path) as writer:
            for record in recorded(life("b")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
        assert read(path, "b") == TOLD
        assert path.with_name("recorder.db.damaged").exists()

    @pytest.mark.parametrize("head", [bytes(16), b"SQLite format 3\x00"])
    def test_whose_beginning_is_lost_is_set_aside(self, path: Path, head: bytes) -> None:
        """A loss of power may leave zeros, or pages of another time; the log says what was done."""
        store(path, recorded(life("a")))
        with path.open("r+b") as file:
            file.write(head + bytes(200))
        with structlog.testing.capture_logs() as lines, writing(path) as writer:
            for record in recorded(life("b")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
        assert read(path, "b") == TOLD
        (told,) = [line for line in lines if line["event"] == "recorder.damaged"]
        assert (told["store"], told["set_aside"]) == (str(path), f"{path}.damaged")
        assert Path(told["set_aside"]).exists()

    def test_that_is_deleted_is_made_anew(self, path: Path) -> None:
        """And the leader is told to record all again, by the count of files that were opened."""
        with writing(path) as writer:
            for record in recorded(life("a")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
            path.unlink()
            for record in recorded(life("b")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
            assert writer.stats.opened == 2
        assert read(path, "b") == TOLD

    @pytest.mark.parametrize("content", [b"", b"PRAGMA", b"notes about quotas\n" * 500])
    def test_that_is_no_database_is_left_as_it_is(self, path: Path, content: bytes) -> None:
        """Somebody may have named a wrong file; an empty one is ours to fill."""
        path.write_bytes(content)
        with writing(path) as writer:
            for record in recorded(life()):
                writer.put(record)
            until(lambda: bool(writer.stats.failures or writer.stats.written))
            if content:
                assert "is no SQLite file" in writer.stats.failing
        assert path.read_bytes()[:16] == (content[:16] or b"SQLite format 3\x00")

    def test_of_another_program_is_left_as_it_is(self, path: Path) -> None:
        """Its tables are not ours."""
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE facts (a)")
        with writing(path) as writer:
            until(lambda: writer.stats.failures > 0)
            assert "another program's database" in writer.stats.failing
        with pytest.raises(InvalidValue, match="is no recorder's file"), opened(path):
            pass

    def test_of_a_newer_version_is_left_as_it_is(self, path: Path) -> None:
        """After a downgrade."""
        store(path, [])
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA user_version = 99")
        with writing(path) as writer:
            until(lambda: writer.stats.failures > 0)
            assert "written by a newer Turnstile" in writer.stats.failing

    def test_on_a_full_disk_goes_on_when_there_is_room(self, path: Path) -> None:
        """A process that may write no file larger than a limit, until the limit is raised."""
        program = """
import resource, sys, time
from turnstile.recorder.location import Location
from turnstile.recorder.writer import Retention, Writer
from tests.unit.recorder.lives import life, recorded
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
writer = Writer(Location.of(sys.argv[1]), retention=Retention(days=None), clock=time.time, again_seconds=(0.05, 0.1))
writer.start()
for number in range(200):
    for record in recorded(life(f"w-{number}")):
        writer.put(record)
deadline = time.monotonic() + 30
failing = False  # for moments: a smaller batch may find room
while not failing and time.monotonic() < deadline:
    time.sleep(0.001)
    failing = bool(writer.stats.failing)
sys.stdout.write(f"failing {failing}\\n")  # at once: the writer logs meanwhile
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
while writer.stats.written < writer.stats.put and time.monotonic() < deadline:
    time.sleep(0.01)
writer.close()
sys.stdout.write(f"dropped {writer.stats.dropped}\\n")
"""
        done = subprocess.run(
            [sys.executable, "-c", program, path], check=True, timeout=60, capture_output=True, text=True
        )
        said = re.findall(r"failing (?:True|False)\b|dropped \d+\b", done.stdout)  # also behind what the writer logged
        assert said == ["failing True", "dropped 0"]
        assert read(path, "w-199") == TOLD


class TestAQueueThatIsFull:
    def test_drops_and_counts(self, path: Path) -> None:
        """The code that puts records in is not held up; what is written later is what fitted."""
        late = path.parent / "late" / "recorder.db"
        with writing(late, waiting=10) as writer:
            until(lambda: writer.stats.failures > 0)
            for record in recorded(life()) * 3:
                writer.put(record)
            stats = writer.stats
            assert (stats.put, stats.dropped) == (10, len(recorded(life())) * 3 - 10)
            writer.put(Settled([], [], T0))
            assert len(writer) <= 10
            late.parent.mkdir()
            until(lambda: stats.written == 10)


class TestWhatIsOld:
    def test_is_deleted_after_some_days(self, place: Location) -> None:
        """Counted from the end of the Workload; one that is not over stays, however old."""
        done, runs = recorded(life("done")), recorded(life("runs")[:4])
        day = 86400.0
        with writing(place, now=T0 + 10 * day, retention=Retention(days=3, mib=None)) as writer:
            for record in [*done, *runs]:
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
            until(lambda: read(place, "done") == [])
        assert read(place, "runs") == TOLD[:5]

    def test_quotas_that_held_since_stay(self, place: Location) -> None:
        """The last one before the horizon holds until the next one."""
        day = 86400.0
        amounts = [(("x", "cpu", number, None, None),) for number in range(3)]
        quotas = [Quota("ClusterQueue", "a", T0 + at * day, "", amounts[at]) for at in range(3)]
        with writing(place, now=T0 + 4.5 * day, retention=Retention(days=3, mib=None)) as writer:
            for quota in quotas:
                writer.put(quota)
            until(lambda: writer.stats.written == writer.stats.put)
            with opened(place) as reader:
                until(lambda: [quota.amounts for quota in reader.quotas()] == amounts[1:])

    def test_is_deleted_when_the_file_is_too_large(self, path: Path) -> None:
        """Those that were over first go first, and the file gets smaller."""
        with writing(path, retention=Retention(days=None, mib=0.5), trim_seconds=3600) as writer:
            for number in range(1000):
                for record in recorded(life(f"w-{number}"), start=T0 + number):
                    writer.put(record)
        size = path.stat().st_size
        assert size > 2**20
        with writing(path, retention=Retention(days=None, mib=0.5)) as writer:
            until(lambda: 0 < writer.stats.bytes < 2**19)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < size
        with opened(path) as reader:
            left = {workload.name for workload in reader.newest(at_most=2000)}
        assert "w-0" not in left


class TestAReader:
    def test_of_a_file_that_is_not_there(self, path: Path) -> None:
        """A sentence that says what to name."""
        with pytest.raises(InvalidValue, match="no such file"), opened(path):
            pass

    def test_while_a_leader_writes(self, place: Location) -> None:
        """It sees what was committed, and holds up no write."""
        with writing(place) as writer:
            for record in recorded(life("a")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
            with opened(place) as reader:
                assert self._names(reader) == ["a"]
                for record in recorded(life("b")):
                    writer.put(record)
                until(lambda: writer.stats.written == writer.stats.put)
                assert sorted(self._names(reader)) == ["a", "b"]

    def _names(self, reader: Reader) -> list[str]:
        return [workload.name for workload in reader.newest(namespace="team")]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_that_may_not_write_the_folder(self, path: Path) -> None:
        """A copy of the file for somebody else."""
        store(path, recorded(life()))
        path.parent.chmod(0o555)
        try:
            assert read(path) == TOLD
        finally:
            path.parent.chmod(0o755)


def test_records_of_a_life() -> None:
    """The words of these tests see what they are for."""
    assert sorted(each.what for each in recorded(life()) if isinstance(each, Fact)) == sorted(TOLD)
