"""The raw parts of a decoded object: fields of type `msgspec.Raw`, such as pod templates, wherever they are in it.

They are by far the largest part of a job. A decoder copies them out of the message, or strips an object of them that
nobody reads yet. Never parses one.
"""

import functools
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec

Change = Callable[[msgspec.Raw], msgspec.Raw]
_Walk = Callable[[Any, Change], Any]
"""Puts `change(raw)` in the place of each Raw inside a value; returns the value to keep."""

STRIPPED: Final = msgspec.Raw(b"")
"""What a stripped object has in place of each raw part. No JSON is empty, so no server sends it."""


def detacher(struct: type[msgspec.Struct]) -> Callable[[Any], object] | None:
    """What copies every Raw of such an object out of the message, for it is a view that would keep the whole message in
    memory. None if there is no Raw to copy.
    """
    walk = _of_struct(struct)
    return None if walk is None else lambda value: walk(value, msgspec.Raw.copy)


def stripper(struct: type[msgspec.Struct]) -> Callable[[Any], object] | None:
    """What leaves every Raw of such an object out. None if there is no Raw in it."""
    walk = _of_struct(struct)
    return None if walk is None else lambda value: walk(value, lambda raw: STRIPPED)


def stripped(value: msgspec.Struct) -> bool:
    """Whether an object was stripped, so that its raw parts say nothing about it."""
    if (walk := _of_struct(type(value))) is None:
        return False
    found = False

    def look(raw: msgspec.Raw) -> msgspec.Raw:
        nonlocal found
        found = found or not len(memoryview(raw))
        return raw

    walk(value, look)
    return found


@functools.cache
def _of_struct(struct: type[msgspec.Struct]) -> _Walk | None:
    """The walk of a struct's fields, or None if there is no Raw in it."""
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
    """The walk of a field of that type, or None if there is no Raw in it."""
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
        if origin is not list:
            return walk
        in_list = walk
        return lambda items, change: [in_list(item, change) for item in items]
    return None
