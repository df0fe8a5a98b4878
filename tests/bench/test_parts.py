"""A sample counts for the part of the innermost function of the package that has one."""

import sys
from types import FrameType

import pytest

from tests.bench.parts import LOOP, START, part_of


def frame(*modules: str, name: str = "work") -> FrameType:
    """The frame of a function of the last module, called by functions of the others, the outermost first."""
    found: list[FrameType] = []
    code = f"def {name}(rest):\n    (rest[0](rest[1:]) if rest else keep(at()))\n"
    calls = []
    for module in modules:
        space = {"__name__": module, "keep": found.append, "at": lambda: sys._getframe(1)}
        exec(code, space)
        calls.append(space[name])
    calls[0](calls[1:])
    return found[0]


@pytest.mark.parametrize(
    ("modules", "part"),
    [
        (("turnstile.main", "turnstile.engine.cycle.cycle"), "engine"),
        (("turnstile.engine.state", "turnstile.api.quantity"), "engine"),
        (("turnstile.kube.wire", "json.encoder"), "requests: encoding, sending, answers"),
        (("turnstile.kube.reflector", "turnstile.kube.store"), "stores and indexes"),
        (("turnstile.main", "asyncio.events"), LOOP),
        (("threading",), LOOP),
        (("turnstilelike.engine",), LOOP),
    ],
)
def test_a_function_counts_for_its_module_or_its_caller(modules: tuple[str, ...], part: str) -> None:
    """Of libraries, and of modules that serve all parts, the caller counts."""
    assert part_of(frame(*modules)) == part


def test_an_import_counts_for_the_start() -> None:
    """Whatever module is imported."""
    outermost = frame("turnstile.engine.state", name="work")
    assert part_of(outermost) != START
    assert part_of(_imported()) == START


def _imported() -> FrameType:
    found: list[FrameType] = []
    exec("keep(at())", {"__name__": "turnstile.engine.state", "keep": found.append, "at": lambda: sys._getframe(1)})
    return found[0]
