"""What a reflector that starts anew has read so far. The store knows nothing of it until everything was read."""

from typing import Generic, TypeVar

from app.api.meta import Kind

T = TypeVar("T", bound=Kind)


class Initial(Generic[T]):
    """Objects by key, and in the end of which version they are."""

    __slots__ = ("bad", "found", "skipped", "version")

    def __init__(self) -> None:
        self.found: dict[str, T | None] = {}
        """By key; None for what stays as the store has it."""
        self.bad: set[str] = set()
        """Keys of what could not be decoded."""
        self.skipped = False
        """Whether anything was only recognised."""
        self.version = ""

    def put(self, key: str, value: T | None) -> None:
        """An object, or None for one that could not be decoded."""
        self.found[key] = value
        if value is None:
            self.bad.add(key)
        else:
            self.bad.discard(key)

    def skip(self, key: str) -> None:
        """An object that the store has as it is, or newer."""
        self.found[key] = None
        self.bad.discard(key)
        self.skipped = True

    def drop(self, key: str) -> None:
        """It is gone again."""
        self.found.pop(key, None)
        self.bad.discard(key)
