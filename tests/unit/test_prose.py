"""Docstrings and pages begin no sentence with "What" or "Of": such a sentence hides its noun from the reader."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import FENCE, ROOT, pages
from tests.modules import PACKAGE

FOLDERS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
LONGEST = 42
"""Words of a sentence on a page at most."""
GENERATED = ("reference/api.md", "reference/cli.md", "reference/kinds.md", "reference/modules.md")


def docstrings(module: Path) -> Iterator[str]:
    """The docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(ast.parse(module.read_text())):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield each.value.value


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text: those of each paragraph, item and cell of a table."""
    for part in re.split(r"\n\s*\n|\n\s*[-*|] |\| ", text):
        yield from re.split(r"(?<=[.!?])[\"”)*]*\s+", " ".join(part.split()))


def hidden(text: str) -> list[str]:
    """Sentences that begin with "What" or "Of", but for questions and the name of the page *What if*."""
    found = (each.lstrip("*_ ") for each in sentences(text))
    return [each for each in found if re.match(r"(What|Of)\b(?! if\b)", each) and not each.rstrip("*").endswith("?")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_their_noun(folder: str) -> None:
    """No sentence of a docstring begins with "What" or "Of"."""
    modules = (PACKAGE / folder).rglob("*.py")
    assert [sentence for module in modules for text in docstrings(module) for sentence in hidden(text)] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()])
def test_pages_begin_with_their_noun(page: Path) -> None:
    """No sentence of five words or more on a page that is written by hand begins with "What" or "Of"."""
    if str(page).endswith(GENERATED) or "attacks -->" in page.read_text():
        return
    found = hidden(FENCE.sub("", page.read_text()))
    assert [each for each in found if len(each.split()) > 4] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()])
def test_sentences_of_pages_are_short(page: Path) -> None:
    """No sentence on a page that is written by hand, outside of tables, has more than 42 words."""
    if str(page).endswith((*GENERATED, "CHANGELOG.md")) or "attacks -->" in page.read_text():
        return
    text = "\n".join(line for line in FENCE.sub("", page.read_text()).splitlines() if not line.startswith("|"))
    assert [each for each in sentences(text) if len(each.split()) > LONGEST] == []


def test_a_hidden_noun_is_found() -> None:
    """The checks above see what they are for."""
    assert hidden("A queue. What waits in it.\n\nOf these, the first. What is it?") == [
        "What waits in it.",
        "Of these, the first.",
    ]
