"""Places for records: files, and schemas in PostgreSQL. A test that asks for `place` is done with both."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from turnstile.recorder.location import Location


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Location]:
    """Makes one place after the other."""
    if request.param == "sqlite":
        numbers = count()
        return lambda: Location.of(str(tmp_path / f"recorder-{next(numbers)}.db"))
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: Location.of(server.schema())


@pytest.fixture
def place(places: Callable[[], Location]) -> Location:
    """Where records are to be."""
    return places()
