"""Writes the attacks into docs/reference/attacks.md: `python -m tests.attacks.page`.

Those of `tests/attacks` from the docstrings of the tests, those of each job kind from the table of kinds.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.documents import ROOT, with_tables
from tests.operators.rows import ROWS, Row

PAGE = ROOT / "docs" / "reference" / "attacks.md"
REFUSALS = {"forbidden", "raises", "refused"}
"""What a test calls to assert that the API server refuses a request."""
APART = "stays_apart"
"""What a test calls that ends with the objects of another cluster, not with a quota."""
REACTION = "comes_back_within_quota"
"""What a test calls instead of `tenant.within_quota()` where pods may run until Turnstile has stopped them."""


def tables() -> str:
    """A section for each module of attacks, with a line for each test."""
    return "\n".join(_section(path) for path in sorted(Path(__file__).parent.glob("test_*.py")))


def _section(path: Path) -> str:
    module = ast.parse(path.read_text())
    lines = [f"### {path.stem.removeprefix('test_').replace('_', ' ').capitalize()}", "", _sentence(module), ""]
    lines += ["| attack | what happens |", "|---|---|"]
    lines += [f"| {_sentence(test)} | {_outcome(test)} |" for test in _tests(module)]
    return "\n".join(lines) + "\n"


def _tests(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for each in node.body:
        if isinstance(each, ast.ClassDef):
            yield from _tests(each)
        elif isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            yield each


def _sentence(node: ast.Module | ast.FunctionDef) -> str:
    found = ast.get_docstring(node)
    assert found, f"{node} states no attack"
    return " ".join(found.split()).replace("|", "\\|")


def _outcome(test: ast.FunctionDef) -> str:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and _name(decorator.func) == "xfail":
            (reason,) = (each.value for each in decorator.keywords if each.arg == "reason")
            return f"not prevented: {ast.literal_eval(reason)}"
    called = {_name(each.func) for each in ast.walk(test) if isinstance(each, ast.Call)}
    if REACTION in called:
        return "refused; stopped where no policy holds" if called & REFUSALS else "stopped"
    if called & REFUSALS:
        return "refused"
    return "without effect" if APART in called else "charged"


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def kinds() -> str:
    """A table of all attacks on jobs of each kind."""
    lines = ["| kind | attack | what happens |", "|---|---|---|"]
    lines += [line for row in ROWS for line in _attacks(row)]
    return "\n".join(lines) + "\n"


def _attacks(row: Row) -> Iterator[str]:
    for attack in row.attacks:
        yield f"| {row.title} | {attack.sentence} | {attack.ends} |"


TABLES: Final = {"attacks": tables, "attacks on kinds": kinds}


def renewed(text: str) -> str:
    """The page with the tables as they are now."""
    return with_tables(text, TABLES)


def main() -> None:
    """Replace the tables on the page."""
    PAGE.write_text(renewed(PAGE.read_text()))


if __name__ == "__main__":
    main()
