"""Shows the tour to people: a live table on a terminal, one line a change elsewhere.

Never looks at the cluster itself.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from testbed.promises import Invariant, Promise
from testbed.snapshot import Row, Snapshot

_COLOURS = {
    "Waiting": "yellow",
    "Admitted": "cyan",
    "Running": "green",
    "Finished": "dim",
    "Failed": "bold red",
    "Unmanaged": "magenta",
}


class Board:
    """`with Board() as board:` then `say` what happens and `show` what is seen."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._rows: dict[str, Row] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def say(self, line: str, *, style: str = "") -> None:
        """One line that stays, with the time since the start."""
        text = Text(f"{time.monotonic() - self._started:6.1f} s  ", style="dim").append(line, style=style or "default")
        self.console.print(text)

    def show(self, snapshot: Snapshot) -> None:
        """Bring the table up to date; elsewhere print the rows that changed."""
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(_table(list(snapshot.rows.values())), refresh=True)
        else:
            for key, row in snapshot.rows.items():
                if self._rows.get(key) != row:
                    self.say(_line(row))
            for key in self._rows.keys() - snapshot.rows.keys():
                self.say(f"{key} is gone")
        self._rows = dict(snapshot.rows)

    def kept(self, promise: Promise) -> None:
        """A promise has come true."""
        self.say(f"✓ {promise.sentence}", style="green")

    def broken(self, promise: Promise) -> None:
        """A promise has run out of time."""
        self.say(f"✗ {promise.sentence}: {promise.missing}", style="bold red")

    def check_list(self, promises: Sequence[Promise], invariants: Sequence[Invariant]) -> None:
        """The table for the last time, and how each promise went."""
        self._stop()
        if self.console.is_terminal:
            self.console.print(_table(list(self._rows.values())))
        self.console.print(Rule("What was promised"))
        for promise in promises:
            if promise.kept_after is not None:
                self.console.print(Text(f" ✓ {promise.sentence} ({promise.kept_after:.1f} s)", style="green"))
            else:
                self.console.print(Text(f" ✗ {promise.sentence}: {promise.missing}", style="bold red"))
        for invariant in invariants:
            if invariant.holds:
                note = f" ✓ {invariant.sentence} (at all {invariant.looks} looks)"
                self.console.print(Text(note, style="green"))
            else:
                note = f" ✗ {invariant.sentence}: {invariant.breach or 'never looked at'}"
                self.console.print(Text(note, style="bold red"))

    def invite(self, commands: Sequence[str], *, log: Path) -> None:
        """Tell people how to try things themselves."""
        self.console.print(Rule("Yours to try, in another terminal"))
        for command in commands:
            self.console.print(f"  {command}", markup=False)
        self.console.print(Text(f"Turnstile's log is {log}. Ctrl-C ends everything.", style="dim"))

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _table(rows: Sequence[Row]) -> Table:
    table = Table(expand=True, title="Jobs and Pods", title_justify="left")
    for heading, options in (
        ("what", {"no_wrap": True}),
        ("queue", {"no_wrap": True}),
        ("cpu", {"justify": "right"}),
        ("state", {"no_wrap": True}),
        ("flavor", {"no_wrap": True}),
        ("nodes", {}),
        ("why", {"ratio": 1}),
    ):
        table.add_column(heading, **options)
    for row in rows:
        table.add_row(
            f"{row.kind} {row.key}",
            row.queue or "–",
            f"{float(row.cpu):g}",
            Text(row.state, style=_COLOURS[row.state]),
            ", ".join(row.flavors) or "–",
            ", ".join(row.nodes) or "–",
            row.why,
        )
    return table


def _line(row: Row) -> str:
    parts = [f"{row.kind} {row.key}: {row.state}", f"queue {row.queue or '–'}"]
    if row.flavors:
        parts.append(f"flavor {', '.join(row.flavors)}")
    if row.nodes:
        parts.append(f"on {', '.join(row.nodes)}")
    return f"{', '.join(parts)}: {row.why}" if row.why else ", ".join(parts)
