"""Questions to a store for many who ask, over connections that are kept, while the store comes and goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from tests.postgres import PASSWORD, PostgresServer
from tests.unit.recorder.lives import T0, life, recorded
from turnstile.api.errors import InvalidValue
from turnstile.recorder.database import Database
from turnstile.recorder.location import Location
from turnstile.recorder.readers import AGAIN_SECONDS, IDLE_SECONDS, Readers
from turnstile.recorder.reading import Reader


@contextmanager
def readers_of(place: Location, clock: Callable[[], float] = lambda: 0.0) -> Iterator[Readers]:
    """Readers that are closed in the end."""
    readers = Readers(place, clock=clock)
    try:
        yield readers
    finally:
        readers.close()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def written(place: Location, name: str = "w") -> Location:
    """A place in which a Workload is recorded."""
    database = Database(place, now=T0)
    database.store(recorded(life(name)))
    database.close()
    return place


def known(reader: Reader) -> list[str]:
    """The Workloads that are recorded."""
    return [each.name for each in reader.newest()]


def backend(reader: Reader) -> int:
    """Which process of the server answers."""
    return int(reader._run("SELECT pg_backend_pid()")[0][0])


class TestPostgreSQL:
    def test_a_connection_is_used_again(self, postgres_server: PostgresServer) -> None:
        """Unless it was idle for long."""
        clock = Clock()
        with readers_of(written(Location.of(postgres_server.schema())), clock) as readers:
            first = readers.ask(backend)
            assert readers.ask(backend) == first
            clock.now += IDLE_SECONDS
            assert readers.ask(backend) != first

    def test_a_connection_that_the_server_has_closed(self, postgres_server: PostgresServer) -> None:
        """Another one answers, and who asks does not notice."""
        with readers_of(written(Location.of(postgres_server.schema()))) as readers:
            first = readers.ask(backend)
            postgres_server.execute(f"SELECT pg_terminate_backend({first})")
            assert readers.ask(known) == ["w"]

    def test_a_server_that_is_down(self, postgres_server: PostgresServer) -> None:
        """It is not asked again for a while, the log says why once, and then it is."""
        clock = Clock()
        with readers_of(written(Location.of(postgres_server.schema())), clock) as readers:
            readers.ask(known)
            with structlog.testing.capture_logs() as lines:
                postgres_server.kill()
                try:
                    for _ in range(2):
                        with pytest.raises(InvalidValue, match=r"cannot be read: .*(refused|closed)") as told:
                            readers.ask(known)
                        clock.now += AGAIN_SECONDS
                    clock.now -= AGAIN_SECONDS
                finally:
                    postgres_server.start()
                with pytest.raises(InvalidValue, match="cannot be read"):
                    readers.ask(known)
                clock.now += AGAIN_SECONDS
                assert readers.ask(known) == ["w"]
            assert [line["event"] for line in lines] == ["recorder.cannot_read"]
            assert PASSWORD not in f"{lines}{told.value}"

    def test_a_question_that_is_refused(self, postgres_server: PostgresServer) -> None:
        """Is the fault of who asked: others are answered."""
        with readers_of(written(Location.of(postgres_server.schema()))) as readers:
            with pytest.raises(InvalidValue, match="cannot be read"):
                readers.ask(lambda reader: reader.named("team", "a\0b"))
            assert readers.ask(known) == ["w"]


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    """The new one is read."""
    path = tmp_path / "recorder.db"
    with readers_of(written(Location.of(str(path)), "old")) as readers:
        assert readers.ask(known) == ["old"]
        path.rename(tmp_path / "recorder.db.damaged")
        written(Location.of(str(path)), "new")
        assert readers.ask(known) == ["new"]


def test_a_file_that_comes_later(tmp_path: Path) -> None:
    """It is looked for again after a while."""
    clock, place = Clock(), Location.of(str(tmp_path / "recorder.db"))
    with readers_of(place, clock) as readers:
        for _ in range(2):
            with pytest.raises(InvalidValue, match="there is no such file"):
                readers.ask(known)
        written(place)
        clock.now += AGAIN_SECONDS
        assert readers.ask(known) == ["w"]
