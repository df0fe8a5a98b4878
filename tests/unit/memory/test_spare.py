"""How much memory the container has left."""

from pathlib import Path

import pytest

from turnstile.process.memory import spare


def cgroup(folder: Path, **files: str) -> None:
    """The files of a control group."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("memory_", "memory.")).write_text(text + "\n")


@pytest.mark.parametrize(("limit", "left"), [("1000", 1000 - 700 + 200), ("max", None)])
def test_of_version_two(tmp_path: Path, limit: str, left: int | None) -> None:
    """What caches of files take can be had back."""
    cgroup(tmp_path, memory_max=limit, memory_current="700", memory_stat="anon 400\ninactive_file 200\nslab 7")
    assert spare(tmp_path) == left


@pytest.mark.parametrize(("limit", "left"), [("1000", 1000 - 700 + 200), ("9223372036854771712", None)])
def test_of_version_one(tmp_path: Path, limit: str, left: int | None) -> None:
    """In a folder of its own."""
    cgroup(
        tmp_path / "memory",
        memory_limit_in_bytes=limit,
        memory_usage_in_bytes="700",
        memory_stat="inactive_file 1\ntotal_inactive_file 200",
    )
    assert spare(tmp_path) == left


def test_without_any(tmp_path: Path) -> None:
    """On another system there is no limit."""
    assert spare(tmp_path) is None
