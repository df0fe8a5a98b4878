"""How `turnstile preflight` ends when it cannot begin."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnstile.cli import commands


def never(*_: Any) -> Any:
    """Called where no cluster may be asked."""
    raise AssertionError("a cluster was asked")


@pytest.mark.parametrize(
    ("content", "cure"),
    [(None, "cannot be read: No such file or directory"), (b"\xff\xfe", "is not UTF-8 text")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, cure: str) -> None:
    """One sentence with the option, the file and the reason, and exit code 2."""
    file = tmp_path / "rendered.yaml"
    if content is not None:
        file.write_bytes(content)
    app = commands.create(serving=never, run=never, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    done = CliRunner().invoke(app, ["preflight", "--file", str(file)])
    assert (done.exit_code, done.stderr.strip()) == (2, f"error: --file {file}: {cure}")
