"""Copies or strips the raw parts of a decoded object: fields of type `msgspec.Raw` at any depth, such as pod templates.

Raw parts are by far the largest part of a job. A decoder copies them out of the message, or strips them from an object
whose raw parts no component needs yet. Parses no raw part but large pod templates, of which little is held.
"""

import functools
import typing
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final

import msgspec

from turnstile.api import podshape
from turnstile.api.meta import Kind

Change = Callable[[msgspec.Raw], msgspec.Raw]
_Walk = Callable[[Any, Change], Any]
"""Replaces each Raw inside a value by `change(raw)`; returns the changed value."""

STRIPPED: Final = msgspec.Raw(b"")
"""Replaces each raw part of a stripped object. JSON is never empty, so no server sends this value."""


class Keep(Enum):
    """How much of a decoded object a store holds: all of it, all but its raw parts, or nothing."""

    WHOLE = auto()
    STRIPPED = auto()
    NOTHING = auto()


def detacher(struct: type[msgspec.Struct], *, whole: bool = False) -> Callable[[Any], object] | None:
    """The function that copies every Raw of such an object out of the message; None if the type has no Raw.

    A Raw is a view that would keep the whole message in memory. Only the deciding part of a large pod template is
    copied, unless the object is wanted `whole`.
    """
    walk = _of_struct(struct)
    reduces = not whole and issubclass(struct, Kind) and struct.HAS_TEMPLATES
    copy = podshape.held if reduces else msgspec.Raw.copy
    return None if walk is None else lambda value: walk(value, copy)


def stripper(struct: type[msgspec.Struct]) -> Callable[[Any], object] | None:
    """The function that replaces every Raw of such an object by `STRIPPED`; None if the type has no Raw."""
    walk = _of_struct(struct)
    return None if walk is None else lambda value: walk(value, lambda raw: STRIPPED)


def stripped(value: msgspec.Struct) -> bool:
    """Whether an object was stripped, so that its raw parts are missing."""
    if (walk := _of_struct(type(value))) is None:
        return False
    found = False

    def inspect(raw: msgspec.Raw) -> msgspec.Raw:
        nonlocal found
        found = found or not len(memoryview(raw))
        return raw

    walk(value, inspect)
    return found


@functools.cache
def _of_struct(struct: type[msgspec.Struct]) -> _Walk | None:
    """The walk of a struct's fields; None if the struct has no Raw."""
    fields: list[tuple[str, _Walk]] = []
    for name, hint in typing.get_type_hints(struct).items():
        if name in struct.__struct_fields__ and (walk := _of_hint(hint)) is not None:
            fields.append((name, walk))
    if not fields:
        return None

    def walk_fields(value: Any, change: Change) -> Any:
        for name, walk in fields:
            inner = getattr(value, name)
            if inner is not None:
                setattr(value, name, walk(inner, change))
        return value

    return walk_fields


def _of_hint(hint: Any) -> _Walk | None:
    """The walk of a field of that type; None if the type has no Raw."""
    if hint is msgspec.Raw:
        return lambda raw, change: change(raw)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _of_struct(hint)
    arguments = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    origin = typing.get_origin(hint)
    if origin is dict and (walk := _of_hint(arguments[1])) is not None:
        in_dict = walk
        return lambda items, change: {key: in_dict(item, change) for key, item in items.items()}
    if len(arguments) == 1 and (walk := _of_hint(arguments[0])) is not None:
        if origin not in {list, Sequence}:
            return walk
        in_list = walk
        return lambda items, change: [in_list(item, change) for item in items]
    return None
