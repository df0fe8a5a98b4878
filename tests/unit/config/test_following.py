"""A configuration file that changes is heeded where that is safe, and spoken of where it is not."""

import asyncio
import os
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.config.files import BUILT, HEAD, INSTALLATION
from turnstile.api.config import Loaded, load
from turnstile.process.follow import Follower

Log = list[MutableMapping[str, Any]]


async def following(path: Path, change: Callable[[], None], log: Log) -> list[Loaded]:
    """What was applied after a change of the file; returns once the change was spoken of."""

    def read() -> Loaded:
        return load(path.read_text(), installation=INSTALLATION, frameworks=BUILT)

    applied: list[Loaded] = []
    follower = Follower(path, read, read(), applied.append, interval=0.01)
    task = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.05)
            change()
            while not log:  # noqa: ASYNC110 -- the log has no event to wait for
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
    return applied


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as a ConfigMap volume has it: a link to a link to a directory that is swapped."""
    (tmp_path / "..1").mkdir()
    (tmp_path / "..1" / "config.yaml").write_text(HEAD)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    return tmp_path / "config.yaml"


def swap(file: Path, text: str) -> None:
    """Change the file as the kubelet does."""
    folder = file.parent / "..2"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    (file.parent / "..next").symlink_to("..2")
    os.replace(file.parent / "..next", file.parent / "..data")


@pytest.mark.asyncio
async def test_what_is_safe_is_heeded(file: Path) -> None:
    """Which jobs are managed changes at once."""
    with capture_logs() as log:
        applied = await following(file, lambda: swap(file, HEAD + "manageJobsWithoutQueueName: true\n"), log)
    assert [each.configuration.manage_jobs_without_queue_name for each in applied] == [True]
    assert log[0] == {"event": "config.reloaded", "fields": ["manageJobsWithoutQueueName"], "log_level": "info"}


@pytest.mark.asyncio
async def test_what_needs_a_restart_is_named(file: Path) -> None:
    """Nothing is applied; the fields are in the log."""
    text = HEAD + "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\nwebhook: {port: 9444}\n"
    with capture_logs() as log:
        assert await following(file, lambda: swap(file, text), log) == []
    assert log == [{
        "event": "config.restart_needed", "fields": ["fairSharing", "webhook.port"], "log_level": "warning",
    }]  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("text", [HEAD + "wrong: 1\n", "{"])
async def test_a_file_with_faults_changes_nothing(file: Path, text: str) -> None:
    """The faults are told and the old file stays in force."""
    with capture_logs() as log:
        assert await following(file, lambda: swap(file, text), log) == []
    assert log[0]["event"] == "config.fault"
