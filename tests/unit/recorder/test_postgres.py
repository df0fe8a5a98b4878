"""Records in PostgreSQL when the server, the connection, the rights or the URL are not as they should be."""

import socket

import pytest
import structlog

from tests.postgres import ENCODED, PASSWORD, PostgresServer
from tests.unit.recorder.lives import life, recorded
from tests.unit.recorder.test_writer import TOLD, read, store, until, writing
from turnstile.api.errors import InvalidValue
from turnstile.recorder import postgres
from turnstile.recorder.connection import Unavailable
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """Of a fresh database."""
    return postgres_server.database()


def name_of(url: str) -> str:
    """The database's name."""
    return url.rpartition("/")[2]


class TestAServerThatIsDown:
    def test_at_the_start_is_waited_for(self, postgres_server: PostgresServer, url: str) -> None:
        """Records wait, and one line of the log says why, without the password."""
        postgres_server.kill()
        with structlog.testing.capture_logs() as lines, writing(Location.of(url)) as writer:
            try:
                for record in recorded(life()):
                    writer.put(record)
                until(lambda: writer.stats.failures > 3)
                assert writer.stats.written == 0
            finally:
                postgres_server.start()
            until(lambda: writer.stats.written == writer.stats.put)
        assert read(Location.of(url)) == TOLD
        refused = [line for line in lines if line["event"] == "recorder.cannot_write" and "refused" in line["error"]]
        assert len(refused) == 1, lines
        assert refused[0]["store"] == f"postgresql://127.0.0.1:{postgres_server.port}/{name_of(url)}"
        assert PASSWORD not in str(lines)
        assert ENCODED not in str(lines)

    def test_in_between_loses_nothing(self, postgres_server: PostgresServer, url: str) -> None:
        """The records of the batch that was under way are written when the server is back, and not twice."""
        with writing(Location.of(url)) as writer:
            for number in range(100):
                for record in recorded(life(f"w-{number}")):
                    writer.put(record)
            postgres_server.kill()
            until(lambda: writer.stats.failures > 0)
            for number in range(100, 200):
                for record in recorded(life(f"w-{number}")):
                    writer.put(record)
            postgres_server.start()
            until(lambda: len(writer) == 0 and not writer.stats.failing)
        assert {name: read(Location.of(url), name) for name in ("w-0", "w-99", "w-199")} == dict.fromkeys(
            ("w-0", "w-99", "w-199"), TOLD
        )

    def test_whose_administrator_ends_the_connection_is_asked_again(
        self, postgres_server: PostgresServer, url: str
    ) -> None:
        """The leader is told to record all again, by the count of connections."""
        with writing(Location.of(url)) as writer:
            for record in recorded(life("a")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
            own = "pid <> pg_backend_pid()"
            postgres_server.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own} AND datname = '{name_of(url)}'"
            )
            for record in recorded(life("b")):
                writer.put(record)
            until(lambda: writer.stats.written == writer.stats.put)
            assert writer.stats.opened == 2
        assert read(Location.of(url), "b") == TOLD

    def test_cannot_be_read(self, postgres_server: PostgresServer, url: str) -> None:
        """A sentence for the user of a command."""
        gone = url.replace(str(postgres_server.port), "1")
        with (
            pytest.raises(InvalidValue, match=r"--recorder.*cannot be read.*refused") as told,
            reading(Location.of(gone)),
        ):
            pass
        assert PASSWORD not in str(told.value)


class TestWhoMayRead:
    def test_a_database_in_which_nothing_is_recorded(self, url: str) -> None:
        """It may be the wrong one."""
        with (
            pytest.raises(InvalidValue, match="nothing is recorded in its schema turnstile yet"),
            reading(Location.of(url)),
        ):
            pass

    def test_a_user_who_was_granted_it(self, postgres_server: PostgresServer, url: str) -> None:
        """With the rights of that user; writing is refused."""
        store(Location.of(url), recorded(life()))
        database, user = name_of(url), f"reader_{name_of(url)}"
        postgres_server.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'", database=database)
        theirs = postgres_server.url(database, user=user)
        with (
            pytest.raises(InvalidValue, match="you may not read it: have USAGE on schema turnstile"),
            reading(Location.of(theirs)),
        ):
            pass
        granted = f"GRANT USAGE ON SCHEMA turnstile TO {user}; GRANT SELECT ON ALL TABLES IN SCHEMA turnstile TO {user}"
        postgres_server.execute(granted, database=database)
        assert read(Location.of(theirs)) == TOLD
        with writing(Location.of(theirs)) as writer:
            writer.put(recorded(life("b"))[0])
            until(lambda: "permission denied" in writer.stats.failing)

    def test_a_user_whose_password_is_in_the_environment(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It need not be in a URL, and so not in the history of a shell."""
        store(Location.of(url), recorded(life()))
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        assert read(Location.of(url.replace(f":{ENCODED}", ""))) == TOLD

    def test_a_wrong_password(self, url: str) -> None:
        """The server's words."""
        wrong = Location.of(url.replace(ENCODED, "wrong"))
        with pytest.raises(InvalidValue, match="password authentication failed"), reading(wrong):
            pass


class TestTheSchema:
    def test_that_the_url_names_is_used(self, postgres_server: PostgresServer, url: str) -> None:
        """Two clusters may share a database."""
        one, other = (Location.of(f"{url}?search_path={name}") for name in ("east", "My West"))
        store(one, recorded(life("a")))
        store(other, recorded(life("b")))
        assert (read(one, "a"), read(one, "b"), read(other, "b")) == (TOLD, [], TOLD)

    def test_that_an_administrator_has_made_is_enough(self, postgres_server: PostgresServer, url: str) -> None:
        """The recorder's user need not be allowed to make schemas."""
        database, user = name_of(url), f"writer_{name_of(url)}"
        postgres_server.execute(
            f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'",
            f"CREATE SCHEMA turnstile AUTHORIZATION {user}",
            database=database,
        )
        theirs = Location.of(postgres_server.url(database, user=user))
        store(theirs, recorded(life()))
        assert read(theirs) == TOLD


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:pa/ss@host/db",
        "postgresql://user:pa#ss@host/db",
        "postgresql://user:12#ss@host/db",
        "postgresql://user:12?ss@host/db",
        "postgresql://user:secret@host:port/db",
        "postgresql://user:se[cret@host/db",
    ],
)
def test_a_url_that_is_not_understood_is_not_shown(url: str) -> None:
    """It may hold parts of a password."""
    with pytest.raises(InvalidValue, match="percent-encoded") as told:
        Location.of(url)
    assert str(told.value).count("ss@") == str(told.value).count("secret") == 0
    assert told.value.value == "postgresql://..."


def test_a_location_never_tells_its_password() -> None:
    """Neither as text nor as a representation."""
    place = Location.of("postgres://me:secret@db.example.com:5433/turnstile?sslmode=verify-full")
    assert str(place) == "postgresql://db.example.com:5433/turnstile"
    assert "secret" not in repr(place)


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is taken, and nothing is said on it."""
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = Location.of(f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/d")
        with pytest.raises(Unavailable, match="does not answer"):
            place.open(write=True)
