"""Writes the table of kinds into docs/testing.md: `python -m tests.operators.page`, which `make generate` does too."""

from typing import Final

from tests.documents import ROOT, with_tables
from tests.operators.rows import ROWS

PAGE: Final = ROOT / "docs" / "testing.md"


def table() -> str:
    """A line for each row: its name, its kind, what runs it, and what is played."""
    lines = ["| row | kind | run by | what is played |", "|---|---|---|---|"]
    for row in ROWS:
        run_by = ", ".join(f"`{name}`" for name in row.operators) or "Kubernetes"
        lines.append(f"| `{row.name}` | {row.title} | {run_by} | {row.stand_in or 'the pods, by kwok'} |")
    return "\n".join(lines) + "\n"


def renewed(text: str) -> str:
    """The page with the table as it is now."""
    return with_tables(text, {"rows": table})


def main() -> None:
    """Replace the table on the page."""
    PAGE.write_text(renewed(PAGE.read_text()))


if __name__ == "__main__":
    main()
