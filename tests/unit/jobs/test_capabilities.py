"""Who handles jobs asks a kind what it can do, and never which kind it is."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.modules import PACKAGE

EXCEPTIONS: Final = {
    "insight/manifests.py": "makes the pods of a Deployment from its manifest, as its controllers would"
}
CAPABILITIES: Final = {
    each.name: sum(isinstance(member, ast.AnnAssign | ast.FunctionDef) for member in each.body)
    for each in ast.parse((PACKAGE / "jobs" / "capabilities.py").read_text()).body
    if isinstance(each, ast.ClassDef)
}
"""The number of members of each capability."""
INTEGRATIONS: Final = {"Integration", "GroupIntegration", "ServingSet", *CAPABILITIES}
OUTSIDE: Final = [path for path in sorted(PACKAGE.rglob("*.py")) if PACKAGE / "jobs" not in path.parents]


def asked_by_name(tree: ast.Module) -> Iterator[str]:
    """Where a module imports a kind or a base of kinds, asks for a class of integrations, or for a framework."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(
                ("turnstile.jobs.kinds", "turnstile.jobs.bases")
            ):
                yield f"{node.lineno}: imports {module}"
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, cls]):
                if INTEGRATIONS & {each.id for each in ast.walk(cls) if isinstance(each, ast.Name)}:
                    yield f"{node.lineno}: isinstance"
            case ast.Call(func=ast.Attribute(attr="by_framework"), args=[ast.Constant()]):
                yield f"{node.lineno}: asks for a framework"
            case ast.Compare(left=ast.Attribute(attr="framework"), comparators=[ast.Constant()]):
                yield f"{node.lineno}: compares a framework"


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_kind_is_asked_for_by_class_or_name(path: Path) -> None:
    """A new kind, or one that gains a capability, changes no module outside the package of jobs."""
    name = str(path.relative_to(PACKAGE))
    found = list(asked_by_name(ast.parse(path.read_text())))
    assert bool(found) == (name in EXCEPTIONS), found


def test_the_core_is_small() -> None:
    """Members that only some kinds need are capabilities, or values that all kinds declare alike."""
    tree = ast.parse((PACKAGE / "jobs" / "integration.py").read_text())
    core = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Integration")
    members = [each for each in core.body if isinstance(each, ast.AnnAssign | ast.FunctionDef)]
    assert 0 < len(members) <= 24


def test_a_capability_is_small() -> None:
    """What needs more members than these is an integration of its own."""
    assert CAPABILITIES
    assert all(size <= 6 for size in CAPABILITIES.values()), CAPABILITIES
