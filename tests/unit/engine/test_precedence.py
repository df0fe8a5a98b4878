"""Nobody is looked at before the one it was preempted for, however many have had others preempted."""

from collections.abc import Iterable

import pytest

from tests.unit.engine import builders as b
from turnstile.engine.cycle.entries import Entry
from turnstile.engine.cycle.precedence import after_their_preemptors
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.pace import Pace
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.progress import LastAssignment


def order(*heads: str, victims: dict[str, str], borrowing: Iterable[str] = ()) -> str:
    """In which order heads, each of its own queue, are looked at: `victims` by preemptor."""
    state = b.world(*(b.queue(name, cohort="org") for name in heads))
    entries = []
    for name in heads:
        state.put_workload(b.workload(name, name), b.NOW)
        queue = state.cluster_queues[name]
        if name in victims:
            gone = {f"team/{key}": "" for key in victims[name]}
            queue.pending.nomination = Nomination(f"team/{name}", sticky=True, victims=gone)
        entry = Entry(state.queues.waiting[f"team/{name}"], queue)
        entry.assignment = Assignment(LastAssignment([], 0, 0, ""))
        entry.assignment.borrowing = int(name in borrowing)
        entries.append(entry)
    return "".join(entry.queue.name for entry in after_their_preemptors(entries, entries, Pace()) if entry is not None)


@pytest.mark.parametrize(
    ("heads", "victims", "expected"),
    [
        ("abc", {}, "abc"),
        ("vp", {"p": "v"}, "pv"),
        ("pv", {"p": "v"}, "pv"),
        ("vqp", {"p": "q", "q": "v"}, "pqv"),
        ("qvp", {"p": "q", "q": "v"}, "pqv"),
        ("qvpw", {"p": "qw", "q": "v"}, "pqvw"),
        ("vqxp", {"p": "q", "q": "v"}, "xpqv"),
    ],
)
def test_victims_come_behind(heads: str, victims: dict[str, str], expected: str) -> None:
    """Also victims of a victim; all others as they stand."""
    assert order(*heads, victims=victims) == expected


@pytest.mark.parametrize(
    ("heads", "victims", "expected"),
    [
        ("pq", {"p": "q", "q": "p"}, "pq"),
        ("vpq", {"p": "q", "q": "pv"}, "pqv"),
        ("vrqp", {"p": "q", "q": "r", "r": "pv"}, "rvpq"),
    ],
)
def test_of_those_who_made_way_for_each_other_the_first_goes(
    heads: str, victims: dict[str, str], expected: str
) -> None:
    """Then all others, behind whoever they made way for."""
    assert order(*heads, victims=victims) == expected


def test_borrowers_come_behind_all_preemptors() -> None:
    """Of the same tree, if their priority is no higher."""
    assert order("x", "q", "v", "p", victims={"p": "q", "q": "v"}, borrowing="xv") == "pqxv"
