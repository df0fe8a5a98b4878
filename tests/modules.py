"""Writes docs/reference/modules.md, the list of modules: `python -m tests.modules`, which `make generate` does too."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.documents import ROOT

PACKAGE: Final = ROOT / "app" / "turnstile"
PAGE: Final = ROOT / "docs" / "reference" / "modules.md"
HEAD: Final = """\
# Modules

The modules of `app/turnstile`, each with the first sentence of its docstring. [Architecture](../architecture.md) says
how the folders fit together. Made by `make generate`: change the docstring, not this page.
"""


def modules() -> list[Path]:
    """Every module of the package, those of a folder before its folders."""
    return sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent.parts, path.name))


def first_sentence(module: Path) -> str:
    """The first sentence of a module's docstring, fit for a cell of a table."""
    paragraph = (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n\n")[0]
    sentence = re.split(r"(?<=\.)\s", " ".join(paragraph.split()), maxsplit=1)[0]
    return sentence.replace("|", r"\|")


def page() -> str:
    """The page: a section for each folder, with a row for each module."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD.rstrip("\n")
    for folder, inside in groupby(modules(), key=lambda path: path.parent):
        room, *others = sorted(inside, key=lambda path: path.name != "__init__.py")
        assert room.name == "__init__.py", f"{folder} has no __init__.py"
        yield from ("", f"## {folder.relative_to(PACKAGE.parent)}", "", first_sentence(room))
        if others:
            yield from ("", "| module | is |", "|---|---|")
        for module in others:
            yield f"| `{module.stem}` | {first_sentence(module)} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
