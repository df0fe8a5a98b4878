"""Patches as data: a JSON Patch of few ordered operations, and the merge patch between two plain values.

Webhooks answer with the first, reconcilers send either. Plain values in, plain values or bytes out; never touches the
network and never compares whole objects for a JSON Patch, because its caller knows what it changes.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self, TypedDict

import msgspec

Operation = Literal["add", "remove", "replace", "test"]


class _Written(TypedDict, total=False):
    op: Operation
    path: str
    value: Any


def escape(token: str) -> str:
    """A key as one token of a JSON Pointer (RFC 6901): `~` is `~0`, `/` is `~1`."""
    return token.replace("~", "~0").replace("/", "~1")


def pointer(*tokens: str | int) -> str:
    """A JSON Pointer: `pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`."""
    return "".join(f"/{escape(str(token))}" for token in tokens)


class JsonPatch:
    """An RFC 6902 patch in the order it was written. Empty ones are falsy: nothing has to be sent.

    Paths are given as tokens and escaped here. Every method returns the patch.
    """

    __slots__ = ("operations",)

    def __init__(self) -> None:
        self.operations: list[_Written] = []

    def __bool__(self) -> bool:
        return bool(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, *tokens: str | int, value: object) -> Self:
        """Set a member of an object (there or not), or insert into a list; the token `-` appends."""
        return self._write("add", tokens, value)

    def replace(self, *tokens: str | int, value: object) -> Self:
        """Set what is there; refused by the server if nothing is."""
        return self._write("replace", tokens, value)

    def remove(self, *tokens: str | int) -> Self:
        """Take out what is there; refused by the server if nothing is."""
        self.operations.append({"op": "remove", "path": pointer(*tokens)})
        return self

    def test(self, *tokens: str | int, value: object) -> Self:
        """Refuse the whole patch unless this value is there."""
        return self._write("test", tokens, value)

    def put(self, parents: Mapping[str, Any] | None, *tokens: str, key: str, value: object) -> Self:
        """Set one key of a map that may be absent, as labels and annotations may.

        `parents` is the map as the object has it now (None or empty if it has none) and `tokens` the way to it. Writes
        nothing if the value is there already. The server drops empty maps, so an empty one counts as absent; the maps
        made by an earlier `put` of the same patch are known.
        """
        if parents and key in parents and parents[key] == value:
            return self
        path = pointer(*tokens)
        if not parents:
            for operation in self.operations:
                if operation["op"] == "add" and operation["path"] == path and isinstance(operation["value"], dict):
                    operation["value"][key] = value
                    return self
            return self.add(*tokens, value={key: value})
        return self.add(*tokens, key, value=value)

    def encode(self) -> bytes:
        """The patch as JSON."""
        return msgspec.json.encode(self.operations)

    def _write(self, operation: Operation, tokens: tuple[str | int, ...], value: object) -> Self:
        self.operations.append({"op": operation, "path": pointer(*tokens), "value": msgspec.to_builtins(value)})
        return self


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The RFC 7386 merge patch that makes `new` of `old`; empty if they are equal. Keys as in `new`, then removals.

    Lists are replaced as a whole. Raises ValueError where `new` holds a null, which a merge patch cannot set.
    """
    patch: dict[str, Any] = {}
    for key, value in new.items():
        if value is None:
            raise ValueError(f"{key}: a merge patch cannot set null; leave the key out to remove it")
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in old or not _same(before, value):
            patch[key] = _without_nulls(key, value)
    for key in sorted(old.keys() - new.keys()):
        patch[key] = None
    return patch


def apply_merge_patch(old: Any, patch: Any) -> Any:
    """The server's result for a value and a merge patch (RFC 7386); neither is changed."""
    if not isinstance(patch, Mapping):
        return patch
    result: dict[str, Any] = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def _same(old: Any, new: Any) -> bool:
    """Equality of JSON values: unlike Python's, true is not 1."""
    if isinstance(old, bool) != isinstance(new, bool):
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return bool(old == new)


def _without_nulls(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            if inner is None:
                raise ValueError(f"{key}.{inner_key}: a merge patch cannot set null; leave it out to remove it")
            _without_nulls(f"{key}.{inner_key}", inner)
    return value
