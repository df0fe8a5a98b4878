"""No node and no quota ever has more than it takes, and at rest all that is admitted runs."""

import os
from collections import Counter

import pytest

from tests.faults.virtual_history import play

HISTORIES = max(1, int(os.environ.get("HISTORIES", "200")) // 10)
SEEN = ("bound", "killed", "rested", "seen evicted: NodeFailures", "seen evicted: Preempted", "seen with failed nodes")
"""What every twenty histories have some of, so that a verdict that finds nothing wrong says something."""


@pytest.mark.timeout(3600)
def test_no_node_over_what_it_takes_and_no_pod_gated_for_ever() -> None:
    """Nodes go down, are cordoned, tainted, deleted and come back; leaders that are behind are killed and followed by
    others, which find nothing that was left undone."""
    figures = Counter[str]()
    for seed in range(HISTORIES):
        judge = play(seed).judge
        assert not judge.wrong, "\n".join([*judge.wrong, f"python -m tests.faults.virtual_history {seed}"])
        figures += judge.figures
    if HISTORIES >= 20:
        assert not [what for what in SEEN if not figures[what]], figures


def test_a_seed_is_one_history() -> None:
    """Played again, a seed leads to the same changes of the same objects."""
    once, again = (play(3, steps=20).judge.changes for _ in range(2))
    assert once == again
