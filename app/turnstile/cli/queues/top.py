"""`kubectl turnstile top`: cohorts and ClusterQueues with their quota and usage, anew every few seconds."""

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnstile.api.errors import Forbidden, InvalidValue, NotServed, TurnstileError
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where
from turnstile.cli.options import command
from turnstile.cli.queues import board, names
from turnstile.cli.queues.paths import VERSION, path_of
from turnstile.cli.queues.session import Session, session
from turnstile.cli.queues.tables import Table
from turnstile.cli.say import escaped, say

if TYPE_CHECKING:
    from rich.console import RenderableType

FULL: Final = 1.0
NEARLY_FULL: Final = 0.8
"""Shares of a quota from which on it is shown in red, and in yellow."""
BAR: Final = 20
"""Characters of the bar of a full quota."""


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "top")
    def _top(
        *,
        cohort: Annotated[
            str, typer.Option(help="Only this cohort and what is below it.", autocompletion=names.cohorts)
        ] = "",
        interval: Annotated[float, typer.Option(help="Seconds between two reads.", min=0.2)] = 2.0,
        once: Annotated[
            bool, typer.Option("--once", help="Print one table and end, as where there is no terminal.")
        ] = False,
        where: Where,
    ) -> None:
        """Show quota and usage of cohorts and ClusterQueues.

        At a terminal the table is live until Ctrl-C. Used is what Workloads with quota reserve; a cohort's figures
        include all that is below it.
        """

        async def print_once() -> None:
            async with session(where, "top") as at:
                table = Table(board.HEADINGS)
                for line in table.lines(each.cells for each in await _read(at, cohort)):
                    say(line)

        async def follow() -> None:
            from rich.console import Console
            from rich.live import Live

            async with session(where, "top") as at:
                lines = await _read(at, cohort)
                with Live(_shown(lines, clock(), ""), console=Console(), screen=True, auto_refresh=False) as live:
                    while True:
                        await asyncio.sleep(interval)
                        trouble = ""
                        try:
                            lines = await _read(at, cohort)
                        except TurnstileError as error:  # as before, until the API server answers again
                            trouble = str(error)
                        live.update(_shown(lines, clock(), trouble), refresh=True)

        run(print_once() if once or not sys.stdout.isatty() else follow())


async def _read(at: Session, cohort: str) -> list[board.Line]:
    """The lines of the tree as it is now. Raises InvalidValue if there is no such cohort."""

    async def cohorts() -> list[dict[str, Any]]:
        try:
            return (await at.list_all(path_of(VERSION, "cohorts"), {}))[0]
        except (Forbidden, NotServed):  # those that ClusterQueues name are shown all the same
            return []

    (queues, _), found = await asyncio.gather(at.list_all(path_of(VERSION, "clusterqueues"), {}), cohorts())
    tree = board.tree(queues, found)
    if cohort:
        chosen = board.below(tree, cohort)
        if chosen is None:
            raise InvalidValue("--cohort", cohort, "neither a Cohort nor a ClusterQueue names it")
        tree = [chosen]
    return list(board.lines(tree))


def _shown(lines: list[board.Line], now: datetime, trouble: str) -> "RenderableType":
    """The table for a terminal: a bar for each quota, red where it is used up."""
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, header_style="bold", expand=False)
    for heading in (*board.HEADINGS, ""):
        right = heading in ("Used", "Quota", "Borrowed", "Use", "Pending", "Admitted")
        grid.add_column(heading.upper(), justify="right" if right else "left", no_wrap=True)
    for line in lines:
        share = line.share or 0.0
        colour = "red" if share >= FULL else "yellow" if share >= NEARLY_FULL else "green"
        bar = Text("█" * min(BAR, round(share * BAR)), style=colour) if line.share is not None else Text()
        style = "dim" if not line.active else "bold" if line.is_cohort else ""
        grid.add_row(*(Text(escaped(cell)) for cell in line.cells), bar, style=style)
    title = Text(f"{now.astimezone():%H:%M:%S}   Ctrl-C ends")
    return Group(title, Text(escaped(trouble), style="red") if trouble else Text(), grid)
