"""What the documentation says about the features of kinds."""

import pytest

from tests.operators.rows import ROWS
from turnstile.api.config.kinds import FRAMEWORKS
from turnstile.jobs.generate import table
from turnstile.jobs.registry import ALL, Registry
from turnstile.jobs.supports import KUEUE


def test_kueues_side_names_kinds_of_the_configuration() -> None:
    """And groups of Pods, which are one framework with Pods."""
    assert KUEUE.keys() - FRAMEWORKS.keys() == {"pod, group"}


def test_every_kind_is_compared() -> None:
    """A kind of Kueue stands beside what Kueue supports; Jobs are admitted in part in both."""
    lines = table(ALL).splitlines()
    for each in ALL:
        name = each.kind.KIND if each.framework in KUEUE else f"*{each.kind.KIND}*"
        assert any(line.startswith(f"| {name} | ") for line in lines)
    assert any(line.startswith("| Job | yes = |") for line in lines)


@pytest.mark.parametrize("framework", sorted({row.framework for row in ROWS}))
def test_what_serves_never_ends_in_the_table_of_kinds_either(framework: str) -> None:
    """The rows, which know nothing of Turnstile, say the same of their kind as its declaration."""
    integration = Registry().by_framework(framework)
    assert integration is not None
    assert integration.handling.serves == all(row.end is None for row in ROWS if row.framework == framework)
