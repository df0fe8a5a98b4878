"""One word for one thing: classes, functions and constants have the words of Kueue and Kubernetes."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.modules import PACKAGE

INSTEAD: Final = {
    **dict.fromkeys(("look", "looks", "looked"), "reconcile, check or read"),
    **dict.fromkeys(("tell", "tells", "told"), "report, or the noun of the result"),
    **dict.fromkeys(("somebody", "someone"), "preemptor, victim or head"),
    "parked": "inadmissible",
}
FOLDERS: Final = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


def defined(tree: ast.Module) -> Iterator[str]:
    """The classes and functions that a module defines anywhere, and its own constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (each.id for each in targets if isinstance(each, ast.Name))


def inadmissible(name: str) -> list[str]:
    """The words of a name that have a better one."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return [word for word in words if word in INSTEAD]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_has_a_word_of_our_own(folder: str) -> None:
    """A name that has one should say what `INSTEAD` has for it."""
    found = [
        f"{path.relative_to(PACKAGE)}: {name}: {INSTEAD[word]}"
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for name in defined(ast.parse(path.read_text()))
        for word in inadmissible(name)
    ]
    assert found == []


def test_a_word_is_found_in_any_spelling() -> None:
    """The check above sees what it is for."""
    names = list(defined(ast.parse("LOOK_SECONDS = 1\nclass TellTale:\n    def _told_at(self): ...\n")))
    assert [inadmissible(each) for each in names] == [["tell"], ["told"], ["look"]]
