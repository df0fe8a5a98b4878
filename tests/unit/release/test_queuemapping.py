"""Rules of `turnstile import`: options and files as Kueue's importer has them."""

import pytest

from turnstile.api.errors import InvalidValue
from turnstile.release.queuemapping import Mapped, QueueMapping

FILE = """
- match:
    labels: {src.lbl: a}
  toLocalQueue: first
- match:
    priorityClassName: high
    labels: {src.lbl: b, other: c}
    resources: [nvidia.com/gpu]
  toLocalQueue: second
- match: {labels: {src.lbl: b}}
  skip: true
"""


def test_the_first_rule_that_matches_decides() -> None:
    """All that a rule names must hold; a rule without a PriorityClass holds for all."""
    rules = QueueMapping.parse(FILE, "f")
    both = {"src.lbl": "b", "other": "c"}
    assert rules.of({"src.lbl": "a"}, "high", ()) == Mapped("first")
    assert rules.of(both, "high", {"nvidia.com/gpu", "cpu"}) == Mapped("second")
    for labels, priority, requested in (
        (both, "low", {"nvidia.com/gpu"}),
        (both, "high", {"cpu"}),
        ({"src.lbl": "b"}, "high", {"nvidia.com/gpu"}),
    ):
        assert rules.of(labels, priority, requested) == Mapped(skip=True)
    assert rules.of({"src.lbl": "d"}, "high", ()) is None


def test_pairs_are_rules_by_one_label() -> None:
    """Several options, and several pairs in one."""
    rules = QueueMapping.of_pairs("src.lbl", ["a=first,b=second", "c=first"])
    assert [rules.of({"src.lbl": value}, "", ()) for value in "abcd"] == [
        Mapped("first"),
        Mapped("second"),
        Mapped("first"),
        None,
    ]
    assert QueueMapping.to("all").of({}, "", ()) == Mapped("all")


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("- match: {label: {a: b}}\n  toLocalQueue: q", "Object contains unknown field `label`"),
        ("- toLocalQueue: q\n  skip: true", "rule 1 needs either `toLocalQueue` or `skip: true`"),
        ("- match: {}", "rule 1 needs either `toLocalQueue` or `skip: true`"),
        ("match: {}", "give a list of rules"),
        ("- &a {skip: true}\n- *a", "alias"),
        ("- {", "is not YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_cure(text: str, cure: str) -> None:
    """Unknown fields too: a rule that is misspelt would match every job."""
    with pytest.raises(InvalidValue, match=r"--queuemapping-file: 'f':") as refused:
        QueueMapping.parse(text, "f")
    assert cure in str(refused.value)


@pytest.mark.parametrize("pair", ["a", "a=", "=="[:1]])
def test_a_pair_without_a_queue_is_refused(pair: str) -> None:
    """The value may be empty, the queue may not."""
    with pytest.raises(InvalidValue, match="give LABEL-VALUE=LOCAL-QUEUE"):
        QueueMapping.of_pairs("src.lbl", [pair])
