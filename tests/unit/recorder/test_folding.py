"""Attempts that failed one after the other are one entry of a timeline."""

from typing import Any

from turnstile.recorder.folding import attempted, folded
from turnstile.recorder.reading import Entry

SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for {} in flavor a, {} more needed"


def entry(what: str, at: float, message: str = "", **detail: Any) -> Entry:
    """An entry of a timeline."""
    return Entry("uid", what, at, 0, "Pending", message, detail)


def test_attempts_in_a_row() -> None:
    """How often, in what time, and how much was short, from the least to the most."""
    attempts = [
        entry("tried", 0, SHORT.format("cpu", 2)),
        entry("waiting", 0, SHORT.format("cpu", 2)),
        entry("tried", 7, SHORT.format("cpu", 1)),
        entry("tried", 14, "untolerated taint {spot  NoSchedule } in flavor b"),
        entry("tried", 21, SHORT.format("cpu", 2)),
    ]
    (group,) = folded(attempts)
    assert attempted(group) == "Tried 4 times in 21 s, 1 to 2 CPUs short"


def test_accelerators_are_first() -> None:
    """As people think of them; an amount that is always the same is one."""
    message = SHORT.format("cpu", 4) + ", insufficient unused quota for nvidia.com/gpu in flavor a, 2 more needed"
    (group,) = folded([entry("tried", 0, message), entry("tried", 300, message)])
    assert attempted(group) == "Tried 2 times in 5 min, 2 GPUs and 4 CPUs short"


def test_what_else_happens_is_told_alone() -> None:
    """An attempt that preempts is news, and so is everything else; attempts around it are not put together."""
    entries = [
        entry("created", 0),
        entry("tried", 1, SHORT.format("cpu", 1)),
        entry("tried", 2, SHORT.format("cpu", 1), preempts=[["u", "team/v", "why"]]),
        entry("tried", 3, SHORT.format("cpu", 1)),
        entry("reserved", 4),
    ]
    groups = list(folded(entries))
    assert [[each.at for each in group] for group in groups] == [[0], [1], [2], [3], [4]]
    assert [attempted(group) for group in groups] == [""] * 5


def test_messages_that_are_no_sentences_of_ours() -> None:
    """Whatever they hold, the attempts are counted."""
    (group,) = folded([entry("tried", 0, SHORT.format("cpu", "lots")), entry("tried", 3, "<script>")])
    assert attempted(group) == "Tried 2 times in 3 s"
