"""What the documentation says about the features of kinds."""

from app.api.config.frameworks import FRAMEWORKS
from app.jobs.generate import table
from app.jobs.registry import ALL
from app.jobs.supports import KUEUE


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
