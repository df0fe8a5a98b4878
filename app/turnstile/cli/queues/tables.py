"""Tables in the shape of kubectl's: column names in capitals, three spaces between columns. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

PADDING: Final = 3
LEAST: Final = 6
"""Characters of a column at least, with its padding."""


@dataclass(slots=True)
class Table:
    """Lines of a table. Rows that come later are aligned with those before them, as far as they are not wider."""

    headings: Sequence[str]
    header: bool = True
    _widths: list[int] = field(default_factory=list)

    def lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """The rows as lines; the column names come before the first of them."""
        shown = [[_one_line(cell) for cell in row] for row in rows]
        if self.header:
            shown.insert(0, [heading.upper() for heading in self.headings])
            self.header = False
        widths = self._widths or [0] * len(self.headings)
        self._widths = [
            max([LEAST - PADDING, least, *(len(row[column]) for row in shown)]) for column, least in enumerate(widths)
        ]
        for *cells, last in shown:
            padded = (cell.ljust(width + PADDING) for cell, width in zip(cells, self._widths, strict=False))
            yield "".join(padded) + last


def _one_line(cell: str) -> str:
    return cell.replace("\n", "\\n") if "\n" in cell else cell


def span(seconds: float) -> str:
    """A span of time as kubectl shows ages: the two largest units while the larger is small."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    minutes, hours, days, years = whole // 60, whole // 3600, whole // 86400, whole // (86400 * 365)
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _pair(years, "y", days % 365, "d")
    return f"{years}y"


def _pair(large: int, unit: str, small: int, smaller: str) -> str:
    return f"{large}{unit}{small}{smaller}" if small else f"{large}{unit}"


def since(timestamp: str | None, now: datetime) -> str:
    """How long ago a timestamp of an object was."""
    return span((now - datetime.fromisoformat(timestamp)).total_seconds()) if timestamp else "<unknown>"
