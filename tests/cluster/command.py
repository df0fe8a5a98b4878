"""Commands of `turnstile`, run in the process of the test: a new process imports for a second before it asks anything.

That the programs start and end as processes is shown where pages of docs/ are followed.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from turnstile.cli import commands


def turnstile(*arguments: str | Path, text: str = "") -> tuple[int, str, str]:
    """Exit code, output and errors of a command, with `text` as its standard input."""
    app = commands.create(run=asyncio.run, clock=lambda: datetime.now(UTC), serving=_never)
    done = CliRunner().invoke(app, [str(each) for each in arguments], input=text, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def _never(*_: Any) -> Any:
    raise AssertionError("processes are not served here")
