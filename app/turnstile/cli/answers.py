"""Answers of commands for programs: `-o json` and `-o yaml`, the same for every command that answers in text."""

from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer

from turnstile.cli.say import escaped, say


class Output(StrEnum):
    """How an answer is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


Printed = Annotated[Output, typer.Option("--output", "-o", help="text for people, json or yaml for programs.")]


def say_document(plain: Any, output: Output) -> None:
    """Print a value as a document."""
    text = orjson.dumps(plain, option=orjson.OPT_INDENT_2)
    if output is Output.JSON:
        say(text.decode())
        return
    say(as_yaml(orjson.loads(text), sort_keys=False), nl=False)


def as_yaml(plain: Any, *, sort_keys: bool) -> str:
    """A value in YAML of which `say` changes nothing: characters that it would spell out are escaped in quotes."""
    import yaml  # for this output only

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(plain, Dumper=dumper, allow_unicode=True, sort_keys=sort_keys)
    if escaped(text) != text:
        text = yaml.dump(plain, Dumper=dumper, allow_unicode=False, sort_keys=sort_keys)
    return text
