"""What people see of the tour: a table that fits their terminal, and plain lines where there is none."""

import io
import re
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from testbed.board import Board, brief
from testbed.promises import Promise
from testbed.snapshot import Row, Snapshot, State

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
NO_ROOM = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor spot, 1 more needed"


def row(name: str, state: State, *, why: str = "", nodes: tuple[str, ...] = ()) -> Row:
    """A Job's row."""
    return Row("Job", "team", name, "batch", state, Fraction(2), ("spot",) if nodes else (), nodes, why)


SEEN = Snapshot(
    rows={
        each.key: each
        for each in (row("runs", "Running", nodes=("spot-1", "spot-2")), row("waits", "Waiting", why=NO_ROOM))
    },
    reserved={("team", "spot"): Fraction(3)},
    borrowed={("team", "spot"): Fraction(1)},
)


def shown(width: int, *, terminal: bool) -> str:
    """What a board prints for one snapshot."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, highlight=False, legacy_windows=False)
    with Board(console) as board:
        board.say("it begins", style="bold")
        board.show(SEEN)
        board.check_list([], [])
    return out.getvalue()


def test_the_reason_stands_for_the_whole_sentence() -> None:
    """In the table only what is missing is shown; any other sentence is shown as it is."""
    reason = "insufficient unused quota for cpu in flavor spot, 1 more needed"
    assert brief(NO_ROOM) == reason
    assert brief(f"Preempted; since then: {NO_ROOM}") == f"Preempted; since then: {reason}"
    for other in ("couldn't assign flavors to pod set main", "in line", ""):
        assert brief(other) == other


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(width: int) -> None:
    """No line is longer than the terminal, and the reason for waiting is there in full."""
    plain = CURSOR.sub("\n", COLOUR.sub("", shown(width, terminal=True)))
    assert max(len(line) for line in plain.splitlines()) <= width
    assert "1 borrowed" in plain
    assert "1 more needed" in " ".join(plain.split())


def test_nodes_are_shown_where_there_is_room() -> None:
    """What they share is said once."""
    assert "spot-1, 2" in shown(120, terminal=True)
    assert "spot-1" not in shown(80, terminal=True)


def test_elsewhere_there_are_no_colours_and_no_broken_lines() -> None:
    """A log gets one whole line a change."""
    printed = shown(80, terminal=False)
    assert "\x1b" not in printed
    assert f"Job team/waits: Waiting, queue batch: {NO_ROOM}\n" in printed


def test_the_promises_are_one_line() -> None:
    """How many were kept, and the others with what is missing; each one on request."""
    kept, broken = Promise("it runs", judge=lambda _: ""), Promise("it ends", judge=lambda _: "it runs still")
    for promise in (kept, broken):
        promise.look(SEEN, 0)
    for details, also in ((False, []), (True, [" ✓ it runs (0.0 s)"])):
        out = io.StringIO()
        Board(Console(file=out, width=80)).check_list([kept, broken], [], details=details)
        *listed, last = out.getvalue().splitlines()
        assert listed == [*also, " ✗ it ends: it runs still"]
        assert "1 of 2 promises kept" in last


def test_commands_can_be_copied_in_a_narrow_terminal() -> None:
    """A command that is longer than the terminal is wide stays one line: it is the terminal that shows it in two."""
    out = io.StringIO()
    console = Console(file=out, width=60, force_terminal=True, highlight=False, legacy_windows=False)
    command = f"export KUBECONFIG=/home/{'x' * 40}/admin.kubeconfig and words beyond the edge"
    Board(console).invite([command], page="http://localhost", log=Path("turnstile.log"))
    assert command in out.getvalue()
