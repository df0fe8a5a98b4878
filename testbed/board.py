"""Shows the tour to people: a live table on a terminal, one line a change elsewhere.

Never looks at the cluster itself.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from testbed.promises import Invariant, Promise, Question
from testbed.snapshot import Row, Snapshot

WIDE = 120
"""Columns of a terminal from which the table has room for the nodes."""
_COLOURS = {
    "Waiting": "yellow",
    "Admitted": "cyan",
    "Running": "green",
    "Stopping": "yellow",
    "Finished": "dim",
    "Failed": "bold red",
    "Unmanaged": "magenta",
}


class Board:
    """`with Board() as board:` then `say` what happens and `show` what is seen."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._started = time.monotonic()
        self._last = Snapshot()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def say(self, line: str, *, style: str = "") -> None:
        """One line that stays, with the time since the start."""
        seconds = Text(f"{time.monotonic() - self._started:6.1f} s", style="dim")
        if self.console.is_terminal:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_row(seconds, Text(line, style=style or "default"))
            self.console.print(grid)
        else:
            self._print(seconds.append(f"  {line}"))

    def show(self, snapshot: Snapshot) -> None:
        """Bring the table up to date; elsewhere print the rows that changed."""
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(self._picture(snapshot), refresh=True)
        else:
            for key, row in snapshot.rows.items():
                if self._last.row(key) != row:
                    self.say(_line(row))
            for key in self._last.rows.keys() - snapshot.rows.keys():
                self.say(f"{key} is gone")
        self._last = snapshot

    def answer(self, command: str, answer: str) -> None:
        """A command and what it printed."""
        self._print(Text(f"\n$ {command}", style="bold"))
        self._print(Text(f"{answer.rstrip()}\n"))

    def kept(self, promise: Promise | Question) -> None:
        """A promise has come true."""
        self.say(f"✓ {promise.sentence}", style="green")

    def broken(self, promise: Promise | Question) -> None:
        """A promise has run out of time."""
        self.say(f"✗ {promise.sentence}: {promise.missing}", style="bold red")

    def check_list(
        self, promises: Sequence[Promise | Question], invariants: Sequence[Invariant], *, details: bool = False
    ) -> None:
        """The table for the last time, how many promises were kept, and those that were not; with `details` each."""
        self._stop()
        if self.console.is_terminal:
            self.console.print(self._picture(self._last))
        lines = []
        for promise in promises:
            if promise.kept_after is not None:
                lines.append((True, f"{promise.sentence} ({promise.kept_after:.1f} s)"))
            else:
                lines.append((False, f"{promise.sentence}: {promise.missing}"))
        for invariant in invariants:
            if invariant.holds:
                lines.append((True, f"{invariant.sentence} (at all {invariant.looks} looks)"))
            else:
                lines.append((False, f"{invariant.sentence}: {invariant.breach or 'never looked at'}"))
        for holds, line in lines:
            if details or not holds:
                self._print(Text(f" {'✓' if holds else '✗'} {line}", style="green" if holds else "bold red"))
        kept = sum(holds for holds, _ in lines)
        hint = "" if details else " (--promises lists them)"
        style = "green" if kept == len(lines) else "bold red"
        self.say(f"{kept} of {len(lines)} promises kept{hint}", style=style)

    def invite(self, commands: Sequence[str], *, page: str, log: Path) -> None:
        """Tell people how to try things themselves."""
        self.console.print(Rule("Yours to try, in another terminal"))
        for command in commands:
            self.console.print(
                Text(f"  {command}"), soft_wrap=True
            )  # to be copied: the terminal breaks it, and no word
        self.console.print(Rule("Yours to look at, in a browser"))
        self._print(Text(f"  {page}"))
        self._print(Text("  Nodes, on it, draws the three racks: what is free, and whose pods are where"))
        self._print(Text(f"Turnstile's log is {log}. Ctrl-C ends everything.", style="dim"))

    def _print(self, text: Text) -> None:
        """One line, broken by words on a terminal and nowhere elsewhere."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def _picture(self, snapshot: Snapshot) -> RenderableType:
        """The table; where it has no room for sentences they stand below it."""
        wide = self.console.width >= WIDE
        parts: list[RenderableType] = [_table(snapshot, wide=wide), _reserved(snapshot)]
        return Group(*parts) if wide else Group(*parts, _sentences(snapshot))

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _table(snapshot: Snapshot, *, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    table.add_column("job", no_wrap=True)
    table.add_column("queue", no_wrap=True)
    table.add_column("asks", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=len("Unmanaged"))
    table.add_column("flavor", no_wrap=True)
    if wide:
        table.add_column("nodes", no_wrap=True)
        table.add_column("why")
    for row in snapshot.rows.values():
        why = Text("" if row.state == "Finished" else brief(row.why))
        placed: list[RenderableType] = [_together(row.nodes), why] if wide else []
        table.add_row(
            row.key if row.kind == "Job" else f"{row.key} ({row.kind})",
            row.queue or "–",
            f"{float(row.amount):g} {'GPU' if row.gpus else 'CPU'}" if row.amount else "–",
            Text(row.state, style=_COLOURS[row.state]),
            ", ".join(row.flavors) or "–",
            *placed,
        )
    return table


def _sentences(snapshot: Snapshot) -> Table:
    """Why each one waits, in the full width."""
    grid = Table.grid(padding=(0, 1))
    for row in snapshot.rows.values():
        if row.state in ("Waiting", "Stopping", "Failed"):
            grid.add_row(Text(f" {row.name}", style=_COLOURS[row.state]), Text(brief(row.why)))
    return grid


def _reserved(snapshot: Snapshot) -> Text:
    """The GPUs or CPUs that every ClusterQueue has reserved, and how many of them are borrowed."""
    queues: dict[str, list[str]] = {}
    for (queue, flavor), amount in sorted(snapshot.reserved.items()):
        borrowed = snapshot.borrowed.get((queue, flavor))
        note = f" ({float(borrowed):g} borrowed)" if borrowed else ""
        queues.setdefault(queue, []).append(f"{float(amount):g} {flavor}{note}")
    sentence = "; ".join(f"{queue} {', '.join(amounts)}" for queue, amounts in queues.items())
    return Text(f" Reserved: {sentence or 'nothing'}", style="dim")


def _together(nodes: Sequence[str]) -> str:
    """Node names with what they share said once: `spot-1, 2`."""
    prefix = nodes[0].rpartition("-")[0] if nodes else ""
    if len(nodes) > 1 and all(name.rpartition("-")[0] == prefix for name in nodes):
        return f"{prefix}-{', '.join(name.rpartition('-')[2] for name in nodes)}"
    return ", ".join(nodes) or "–"


def brief(why: str) -> str:
    """The sentence for a narrow column: why flavors cannot be assigned, without the words that say that they cannot."""
    before, assigning, after = why.partition("couldn't assign flavors to pod set ")
    _, _, reason = after.partition(": ")
    return f"{before}{reason}" if assigning and reason else why


def _line(row: Row) -> str:
    parts = [f"{row.kind} {row.key}: {row.state}", f"queue {row.queue or '–'}"]
    if row.flavors:
        parts.append(f"flavor {', '.join(row.flavors)}")
    if row.nodes:
        parts.append(f"on {', '.join(row.nodes)}")
    return f"{', '.join(parts)}: {row.why}" if row.why else ", ".join(parts)
