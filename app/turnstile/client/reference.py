"""Writes the reference of the client from its docstrings: `python -m turnstile.client.reference FILE`."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from turnstile import client

_HEAD: Final = """# The Python client

<!-- Generated from app/turnstile/client by `make generate`; do not edit. -->

All of this is imported from `turnstile`. [Submit from Python](../tasks/python.md) shows it. `AsyncClient` has the
same methods, to be awaited; `watch` and `logs` are iterated by `async for`. `turnstile.api.errors` has the errors:
`InvalidValue` for a wrong argument, `ApiError` for a refusal of the API server, `WireError` when no answer came.
"""
_WIDTH: Final = 90
"""Characters of a signature that stays in one line."""
_MODULES: Final = re.compile(r"turnstile\.client\.\w+\.|collections\.abc\.|typing\.")


def page() -> str:
    """The page."""
    parts = [_HEAD, f"## container_job\n\n{_described('container_job', client.container_job)}"]
    parts += [_class(each) for each in (client.Client, client.Submitted, client.Standing)]
    states = ", ".join(f"`{state.name}`" for state in client.State)
    parts.append(f"## State\n\n{inspect.getdoc(client.State)} {states}.\n")
    return "\n".join(parts)


def _class(kind: type[Any]) -> str:
    """A class: for what it is, its parameters, and its public methods and properties."""
    lines = [
        f"## {kind.__name__}\n",
        f"```python\n{kind.__name__}{_signature(kind)}\n```\n",
        f"{inspect.getdoc(kind)}\n",
    ]
    lines += [f"### {kind.__name__}.{name}\n\n{_described(name, member)}" for name, member in _members(kind)]
    return "\n".join(lines)


def _members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        documented = isinstance(member, property) or inspect.isfunction(member)
        if documented and not name.startswith("_"):
            yield name, member


def _described(name: str, member: Any) -> str:
    call = "" if isinstance(member, property) else f"```python\n{name}{_signature(member)}\n```\n\n"
    return f"{call}{inspect.getdoc(member)}\n"


def _signature(of: Callable[..., Any]) -> str:
    """The parameters as a program writes them, one a line where they are many."""
    found = inspect.signature(of)
    own = [each for name, each in found.parameters.items() if name != "self"]
    whole = str(found.replace(parameters=own))
    if len(whole) > _WIDTH:
        result = whole.rpartition(") ->")[2] if ") ->" in whole else ""
        lines = [str(each) for each in own]
        keywords = [at for at, each in enumerate(own) if each.kind is each.KEYWORD_ONLY]
        if keywords:
            lines.insert(keywords[0], "*")
        whole = "(\n    " + ",\n    ".join(lines) + ",\n)" + (f" ->{result}" if result else "")
    return _MODULES.sub("", whole)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
