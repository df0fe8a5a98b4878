"""Only the room of quota reads the parts of a usage, and the amounts of the tree by which it judges what fits.

So a second part of a usage, places in a topology, is added in one room: to count it, to take it off, to try it, and to
ask whether it fits.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[3] / "app" / "turnstile"
ROOM: Final = PACKAGE / "engine" / "quota"
AMOUNTS: Final = {"nominal", "subtree", "guaranteed", "lendable", "borrowing_limit", "lending_limit"}
"""Attributes of a node of the tree; `usage` is one too, and a dict there."""
OF_A_DICT: Final = {"get", "items", "keys", "values"}
OTHER_QUOTA: Final = {
    "cli/queues/board.py": "the board's own sums",
    "web/supposing.py": "a function of `engine.quota.amounts`",
}
"""Modules in which `.quota` is another attribute than that of a usage."""


def reads(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Attributes that a module reads or sets, but for those of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node


def dicts(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions that a module uses as a dict."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in OF_A_DICT):
            yield node.value


def modules(below: Path, words: Collection[str]) -> Iterator[tuple[str, ast.Module]]:
    """Modules outside the room of quota that have one of the words, parsed, by path."""
    for path in sorted(below.rglob("*.py")):
        text = path.read_text()
        if ROOM not in path.parents and any(word in text for word in words):
            yield str(path.relative_to(PACKAGE)), ast.parse(text)


def test_no_other_room_reads_the_quota_of_a_usage() -> None:
    """Whoever wants to know something of a usage asks the usage."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules(PACKAGE, ["quota"])
        if path not in OTHER_QUOTA
        for node in reads(tree)
        if node.attr == "quota"
    ]
    assert not found, "\n".join(found)


def test_no_other_room_of_the_engine_reads_amounts_of_the_tree() -> None:
    """Whoever wants to know whether something fits asks a usage or the tree."""
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in modules(PACKAGE / "engine", {*AMOUNTS, "usage"})
        for node in (*(each for each in reads(tree) if each.attr in AMOUNTS), *dicts(tree))
        if isinstance(node, ast.Attribute) and (node.attr in AMOUNTS or node.attr == "usage")
    ]
    assert not found, "\n".join(found)
