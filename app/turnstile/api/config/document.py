"""A YAML file as plain values, with the line of each: what stands where, before anything is known of its meaning.

Strict as Kueue's reader is: one document, no key twice. JSON is YAML, so it is read too. Must never read a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

Path = tuple[str | int, ...]

MAX_BYTES: Final = 1 << 20
"""As much as a ConfigMap holds."""
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a file: where (path and line, 1 for the first; 0 if it has none), what, and what would do."""

    path: str
    line: int
    message: str
    cure: str = ""

    def __str__(self) -> str:
        parts = [f"line {self.line}" if self.line else "", self.path, self.message]
        return ": ".join(part for part in parts if part) + (f" ({self.cure})" if self.cure else "")


class Unreadable(Exception):
    """The text is no YAML document of the kind wanted."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(slots=True)
class Document:
    """Values by path. A null counts as absent, as it does for Kubernetes."""

    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Sequence[str | int]) -> int:
        """The line of a path or of what is nearest above it; 1 for an empty document."""
        at = tuple(path)
        while at and at not in self.lines:
            at = at[:-1]
        return self.lines.get(at, 1)

    def given(self, *path: str) -> bool:
        """Whether the file itself says something at this path."""
        at: Any = self.data
        for key in path:
            if not isinstance(at, dict) or key not in at:
                return False
            at = at[key]
        return True


def dotted(path: Sequence[str | int]) -> str:
    """A path as Kubernetes writes it: `a.b[0].c`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def split(path: str) -> Path:
    """The parts of a path that `dotted`, or a field error with `map[key]`, wrote."""
    parts: list[str | int] = []
    for piece in path.replace("]", "").split("."):
        name, *keys = piece.split("[")
        parts.append(name)
        parts.extend(int(key) if key.isdigit() else key for key in keys)
    return tuple(parts)


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(text: str) -> Document:
    """The document in `text`. Raises Unreadable if it is no YAML mapping; keys given twice are in `problems`."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise Unreadable(Problem("", 0, "is larger than 1 MiB", "a configuration has to fit into a ConfigMap"))
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            document = Document()
            if root is None:
                return document
            if not isinstance(root, yaml.MappingNode):
                raise Unreadable(Problem("", _line(root), "is no mapping", "start with apiVersion and kind"))
            document.data = _Builder(loader, document).mapping(root, ())
            return document
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable(Problem("", mark.line + 1 if mark else 0, f"is no YAML: {message}")) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(Problem("", 0, f"is no YAML: {str(error) or type(error).__name__}")) from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Builder:
    """Turns nodes into values and notes their lines."""

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._count = 0

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        own = {id(key) for key, _ in node.value}
        self._loader.flatten_mapping(node)  # merge keys (<<) put the keys of others in front
        values: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            at = (*path, key)
            if key in seen and id(key_node) in own and seen[key]:
                problem = Problem(dotted(at), _line(key_node), f"is given twice, first on line {seen[key]}", "keep one")
                self._document.problems.append(problem)
            seen[key] = _line(key_node) if id(key_node) in own else 0
            self._document.lines[at] = _line(key_node)
            value = self.value(value_node, at)
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return values

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
        if self._count > MAX_VALUES or len(path) > MAX_DEPTH:
            raise Unreadable(Problem(dotted(path[:8]), _line(node), "holds too much, or an alias of itself"))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._document.lines[*path, index] = _line(item)
                items.append(self.value(item, (*path, index)))
            return items
        return self._loader.construct_object(node)

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        raise Unreadable(Problem("", _line(node), "a key is no text", "write key: value"))
