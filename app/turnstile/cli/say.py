"""Prints what a command says: the only way out. Text from a cluster or a file cannot move a reader's cursor,
colour or hide text, or turn its direction.

A terminal obeys control characters in names, messages and annotations that others write. They are printed as JSON
writes them (`\\u001b`), so that JSON stays what it was. Lines and tabs stay.
"""

import re
from typing import Final

import typer

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
)
"""C0 and C1, marks and overrides of direction, invisible characters, other ends of lines, and halves of pairs."""


def escaped(text: str) -> str:
    """The text with each control character spelled out."""
    return _CONTROLS.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text, on standard error if it is no answer but about one."""
    typer.echo(escaped(text), err=err, nl=nl)
