"""Templates of `-o jsonpath=`, as kubectl has them: text, and in braces paths, quoted text and ranges. Pure.

{.metadata.name}{"\\n"}          {range .items[*]}{.metadata.name}{" "}{end}
{.items[?(@.status=="True")]}    {..name}    {.spec['node labels']}    {.items[-1:]}
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from turnstile.api.errors import InvalidValue

_FIELD: Final = r"(?:\\.|[^\s.\[\]{}()|,'\"\\])+"
_STEP: Final = re.compile(
    rf"""
      \.\.(?P<deep>{_FIELD}|\*)
    | \.?\[\?\(\s*@(?P<left>.*?)\s*(?:(?P<is>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?\)\]
    | \.?\[(?P<start>-?\d*):(?P<stop>-?\d*)(?::(?P<step>\d*))?\]
    | \.?\[(?P<numbers>-?\d+(?:\s*,\s*-?\d+)*)\]
    | \.?\[(?P<keys>(?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*)\]
    | (?P<all>\.\*|\.?\[\*\])
    | \.(?P<field>{_FIELD})
    """,
    re.VERBOSE,
)
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*\"""")
_BLOCK: Final = re.compile(r"""\{((?:"(?:\\.|[^"\\])*"|'[^']*'|[^{}"'])*)\}""")


@dataclass(slots=True)
class _Range:
    path: str
    body: list[Any] = field(default_factory=list)


class Template:
    """A template, read once. Raises InvalidValue where it cannot be read."""

    def __init__(self, text: str) -> None:
        self._text = text
        if "{" not in text:  # kubectl takes a bare path too
            text = "{" + (text if text.startswith((".", "[", "$", "@")) else f".{text}") + "}"
        self._body: list[Any] = []
        stack = [self._body]
        at = 0
        for block in _BLOCK.finditer(text):
            stack[-1].append(self._literal(text[at : block.start()]))
            at = block.end()
            self._take(block[1].strip(), stack)
        stack[-1].append(self._literal(text[at:]))
        if len(stack) > 1:
            raise self._wrong("a {range ...} has no {end}")

    def render(self, value: Any) -> str:
        """The text for an object. A field that is not there is nothing."""
        return "".join(self._rendered(self._body, value, value))

    def _literal(self, text: str) -> str:
        if "{" in text or "}" in text:
            raise self._wrong("a brace is not closed")
        return text

    def _take(self, block: str, stack: list[list[Any]]) -> None:
        if block.startswith("range "):
            inner = _Range(self._checked(block.removeprefix("range ").strip()))
            stack[-1].append(inner)
            stack.append(inner.body)
        elif block == "end":
            if len(stack) == 1:
                raise self._wrong("an {end} is without a {range ...}")
            stack.pop()
        elif block.startswith('"'):
            stack[-1].append(json.loads(block))
        elif block.startswith("'"):
            stack[-1].append(block[1:-1].encode().decode("unicode_escape"))
        else:
            stack[-1].append((self._checked(block),))

    def _checked(self, path: str) -> str:
        """The path without its root; refused unless every step can be read."""
        path = path.removeprefix("$").removeprefix("@")
        if path and not path.startswith((".", "[")):
            path = f".{path}"
        at = 0
        while at < len(path) and path != ".":
            step = _STEP.match(path, at)
            if step is None:
                raise self._wrong(f"{path[at:]!r} is no step of a path")
            at = step.end()
        return "" if path == "." else path

    def _wrong(self, what: str) -> InvalidValue:
        return InvalidValue("--output", f"jsonpath={self._text}", f"{what}; for example {{.items[*].metadata.name}}")

    def _rendered(self, body: list[Any], root: Any, here: Any) -> Iterator[str]:
        for part in body:
            if isinstance(part, str):
                yield part
            elif isinstance(part, _Range):
                for each in found(part.path, here):
                    yield from self._rendered(part.body, root, each)
            else:
                yield " ".join(_text(each) for each in found(part[0], here))


def found(path: str, value: Any) -> list[Any]:
    """All that a path leads to, from a value."""
    values = [value]
    for step in _STEP.finditer(path):
        values = [after for each in values for after in _after(step, each)]
    return values


def _after(step: re.Match[str], value: Any) -> Iterator[Any]:
    """The values that one step leads to."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if step["field"] is not None:
        yield from _fields(value, [re.sub(r"\\(.)", r"\1", step["field"])])
    elif step["all"] is not None:
        yield from inner
    elif step["keys"] is not None:
        yield from _fields(value, [each[1:-1] for each in _QUOTED.findall(step["keys"])])
    elif step["deep"] is not None:
        name = re.sub(r"\\(.)", r"\1", step["deep"])
        yield from inner if name == "*" else _fields(value, [name])
        for each in inner:
            yield from _after(step, each)
    elif isinstance(value, list):
        if step["numbers"] is not None:
            numbers = [int(each) for each in step["numbers"].split(",")]
            yield from (value[number] for number in numbers if -len(value) <= number < len(value))
        elif step["start"] is not None:
            start, stop, by = (int(step[name]) if step[name] else None for name in ("start", "stop", "step"))
            yield from value[start:stop:by]
        else:
            yield from (each for each in value if _passes(step, each))


def _fields(value: Any, names: list[str]) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (value[name] for name in names if name in value)


def _passes(step: re.Match[str], value: Any) -> bool:
    """Whether a value passes a filter."""
    left = found(step["left"], value)
    if step["is"] is None:
        return bool(left)
    text = step["right"]
    right = (
        found(text.removeprefix("@"), value)
        if text.startswith("@")
        else [text[1:-1] if text[0] in "'\"" else {"true": True, "false": False}.get(text, _number(text))]
    )
    if not left or not right:
        return False
    one: Any = left[0]
    other: Any = right[0]
    if step["is"] in ("==", "!="):
        return bool((one == other) == (step["is"] == "=="))
    if not isinstance(one, type(other)) and not (isinstance(one, int | float) and isinstance(other, int | float)):
        return False
    compared = {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}
    return bool(compared[step["is"]])


def _number(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    """A value as kubectl prints it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "<nil>" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
