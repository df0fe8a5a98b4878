"""Collects the objects of a full read. The store is not changed before the read is complete."""

from typing import Generic, TypeVar

from turnstile.api.meta import Kind

T = TypeVar("T", bound=Kind)


class Initial(Generic[T]):
    """Objects by key, and the resourceVersion of the whole read once it is complete."""

    __slots__ = ("bad", "found", "skipped", "version")

    def __init__(self) -> None:
        self.found: dict[str, T | None] = {}
        """By key; None where the stored object stays."""
        self.bad: set[str] = set()
        """Keys of objects that could not be decoded."""
        self.skipped = False
        """Whether any object was skipped because the store has it already."""
        self.version = ""

    def put(self, key: str, value: T | None) -> None:
        """Add an object, or None if it could not be decoded."""
        self.found[key] = value
        if value is None:
            self.bad.add(key)
        else:
            self.bad.discard(key)

    def skip(self, key: str) -> None:
        """Add the key of an object that the store has in this version or a newer version."""
        self.found[key] = None
        self.bad.discard(key)
        self.skipped = True

    def drop(self, key: str) -> None:
        """Remove an object that was deleted during the read."""
        self.found.pop(key, None)
        self.bad.discard(key)
