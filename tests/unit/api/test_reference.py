"""The reference page says what the CRDs say."""

from pathlib import Path

import pytest

from turnstile.api import reference
from turnstile.api.kinds import KINDS, Definition

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"


def section(kind: str) -> str:
    """What the page says of a kind."""
    return reference.page().partition(f"\n## {kind}\n")[2].partition("\n## ")[0]


def test_current() -> None:
    """The page in the tree is what the generator writes."""
    assert PAGE.read_text(encoding="utf-8") == reference.page()


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: kinds.stored.KIND)
def test_every_kind_in_every_version(kinds: Definition) -> None:
    """Each kind has its fields, its short names, and a word on each older version."""
    text = section(kinds.stored.KIND)
    assert "| `spec" in text or "| `value`" in text
    assert all(f"`{name}`" in text for name in kinds.stored.SHORT_NAMES)
    assert all(f"{kinds.stored.KIND} in {version}" in text for version in kinds.older)
    assert ("_deprecated_" in text) == kinds.deprecated


def test_a_field() -> None:
    """A row has the path, the type, the default, the limits and what it means."""
    row = "| `spec.podSets[].count` | int32 | `1` | at least 0 | Number of pods. |"
    assert row in section("Workload")


def test_what_an_older_version_says_otherwise() -> None:
    """What is gone, what is there besides, and rules of its own; what is the same is not said again."""
    older = section("Workload").partition("in v1beta1")[2]
    assert "`spec.priorityClassRef`, `spec.preemptionGates`, `status" in older.partition("Has not: ")[2]
    assert "| `spec.priorityClassSource` |" in older
    assert "priority should not be nil when priorityClassName is set" in older
    assert "`spec.queueName`" not in older


def test_same_schema() -> None:
    """Kinds whose versions share a schema say so."""
    assert "Says the same." in section("ResourceFlavor")


def test_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It writes the file it is given; without one it says what it wants."""
    assert reference.main([]) == 2
    assert "usage" in capsys.readouterr().err
    assert reference.main([str(tmp_path / "deep" / "api.md")]) == 0
    assert (tmp_path / "deep" / "api.md").read_text(encoding="utf-8") == reference.page()
