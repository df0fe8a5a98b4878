"""Documents for programs mean the same after control characters in them are spelled out."""

import json

import pytest
import yaml

from turnstile.cli.answers import Output, as_yaml, say_document
from turnstile.cli.say import escaped

PLAIN = {"name": "a\u202eb", "message": "caf\u00e9 \x1b[2J", "rows": [{"amount": "2", "none": None}]}


@pytest.mark.parametrize(("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
def test_a_document_stays_what_it_was(capsys: pytest.CaptureFixture[str], output: Output, read: object) -> None:
    """Its reader gets every character, and the terminal none that moves its cursor or turns text."""
    say_document(PLAIN, output)
    printed = capsys.readouterr().out
    assert escaped(printed) == printed
    assert callable(read)
    assert read(printed) == PLAIN


def test_letters_stay_readable() -> None:
    """Only where it must be, text is escaped."""
    assert as_yaml({"name": "caf\u00e9"}, sort_keys=True) == "name: caf\u00e9\n"
