"""Durations in a configuration file: text there, nanoseconds in memory. Must never parse one itself."""

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from turnstile.api.durations import LIMIT, parse, render


def _read(value: object) -> object:
    if isinstance(value, str):
        return parse(value)
    raise ValueError("must be a duration in text, for example 30s or 5m")


Duration = Annotated[int, BeforeValidator(_read), PlainSerializer(render, return_type=str)]
"""Nanoseconds in memory, text in the file."""


def _read_either(value: object) -> object:
    return value if isinstance(value, int) and not isinstance(value, bool) else _read(value)


Nanoseconds = Annotated[int, Field(ge=-LIMIT, lt=LIMIT), BeforeValidator(_read_either)]
"""The same where Kueue has a bare number of nanoseconds; text is read too."""
