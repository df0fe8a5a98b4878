"""Each public function and class of the package is used by the package: nothing stands there for its tests alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
PACKAGE: Final = REPOSITORY / "app" / "turnstile"
WORD: Final = re.compile(r"[A-Za-z_]\w*")
LONGEST_NAME: Final = 300
"""Characters of a string that may name something (an attribute, a forward reference); longer ones are prose."""
FOR_USERS: Final = "app/turnstile/client/"
"""Called by users' programs; tests/cluster/test_client.py is one."""
EXCEPTIONS: Final = {
    "wait_closed": "called by uvicorn",
    "shut_down": "ends the workers of a queue in tests; a term of leadership cancels them",
}


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Public functions and classes of a module and their public methods, with their lines."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else ()
        for each in (node, *inner):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each.name[0] != "_":
                yield each.name, each.lineno


def uses(tree: ast.Module) -> Iterator[str]:
    """All names that a module reads: as a name, as an attribute, or in a short string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < LONGEST_NAME:
            yield from WORD.findall(node.value)


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The package, parsed, by path."""
    return {str(path.relative_to(REPOSITORY)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.fixture(scope="module")
def used(modules: dict[str, ast.Module]) -> set[str]:
    """Names that the package, its templates, its entry points and `make` use."""
    found = {name for tree in modules.values() for name in uses(tree)}
    for path in (*PACKAGE.rglob("*.html"), REPOSITORY / "pyproject.toml", REPOSITORY / "Makefile"):
        found.update(WORD.findall(path.read_text()))
    return found


def test_what_is_public_is_called(modules: dict[str, ast.Module], used: set[str]) -> None:
    """A definition that only a test names is deleted, with its test."""
    unused = [
        f"{path}:{line}: {name}"
        for path, tree in modules.items()
        if not path.startswith(FOR_USERS)
        for name, line in definitions(tree)
        if name not in used and name not in EXCEPTIONS
    ]
    assert not unused, "\n".join(unused)


def test_each_exception_is_needed(modules: dict[str, ast.Module], used: set[str]) -> None:
    """An exception that the package calls meanwhile, or that is gone, leaves the list."""
    defined = {name for tree in modules.values() for name, _ in definitions(tree)}
    assert sorted(EXCEPTIONS) == sorted(name for name in EXCEPTIONS if name in defined - used)
