"""Answers of commands for programs: `-o json` and `-o yaml`, the same for every command that answers in text."""

from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer

from turnstile.cli.say import say


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
    import yaml  # for this output only

    say(yaml.safe_dump(orjson.loads(text), allow_unicode=True, sort_keys=False), nl=False)
