"""Reads YAML that others write, without aliases: nine lines of them can stand for more objects than memory holds."""

from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Aliased(yaml.YAMLError):
    """The text has an alias."""


def documents(text: str) -> list[Any]:
    """The documents of a text. Raises yaml.YAMLError; for aliases its subclass `Aliased`."""
    if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text, Loader=_LOADER)):
        raise Aliased("has an alias of YAML (*name): write out what it stands for")
    return list(yaml.load_all(text, Loader=_LOADER))
