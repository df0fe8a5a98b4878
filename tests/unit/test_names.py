"""One word for one thing: classes, functions, arguments and variables have the words of Kueue and Kubernetes."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.modules import PACKAGE

INSTEAD: Final = {
    **dict.fromkeys(("look", "looks", "looked"), "reconcile, check or read"),
    **dict.fromkeys(("tell", "tells", "told"), "report, or the noun of the result"),
    **dict.fromkeys(("somebody", "someone"), "preemptor, victim or head"),
    "parked": "inadmissible",
}
"""Words that no name has."""
IN_ENGINE: Final = {**INSTEAD, "line": "LocalQueue, or what is in order"}
"""The same of the engine, in which no text has lines."""
TEXTS: Final = frozenset(("logformat.py",))
"""Modules of the engine that write lines."""
FOLDERS: Final = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


def defined(tree: ast.Module) -> Iterator[str]:
    """What a module gives a name to: classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def inadmissible(name: str, instead: Mapping[str, str] = INSTEAD) -> list[str]:
    """The words of a name that have a better one."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return [word for word in words if word in instead]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_has_a_word_of_our_own(folder: str) -> None:
    """A name that has one should say what `INSTEAD` and `IN_ENGINE` have for it."""
    instead = IN_ENGINE if folder == "engine" else INSTEAD
    found = [
        f"{path.relative_to(PACKAGE)}: {name}: {instead[word]}"
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        if path.name not in TEXTS
        for name in defined(ast.parse(path.read_text()))
        for word in inadmissible(name, instead)
    ]
    assert found == []


def test_a_word_is_found_in_any_spelling() -> None:
    """The check above sees what it is for."""
    module = "LOOK_SECONDS = 1\nclass TellTale:\n    def _told_at(self, look):\n        self.parked = told = 1\n"
    found = [word for each in defined(ast.parse(module)) for word in inadmissible(each)]
    assert sorted(found) == ["look", "look", "parked", "tell", "told", "told"]
