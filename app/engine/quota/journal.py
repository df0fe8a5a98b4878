"""The undo log that makes a fork of the state cost microseconds.

While a fork is open, the code that is about to change a container or a record says so first; its contents are kept once
and put back when the fork is discarded. Without an open fork it costs one comparison. Must never know what it keeps.
"""

from collections.abc import Callable
from typing import Any


class Journal:
    """What was changed since the fork, and how it was."""

    __slots__ = ("_kept", "_undo")

    def __init__(self) -> None:
        self._kept: dict[int, object] = {}
        self._undo: list[Callable[[], None]] = []

    def keep(self, container: dict[Any, Any] | list[Any]) -> None:
        """Remember the contents of a dict or list that is about to change."""
        if id(container) in self._kept:
            return
        self._kept[id(container)] = container
        if isinstance(container, dict):
            entries = dict(container)

            def restore() -> None:
                container.clear()
                container.update(entries)
        else:
            items = list(container)

            def restore() -> None:
                container[:] = items

        self._undo.append(restore)

    def keep_slots(self, record: object) -> None:
        """Remember the attributes of a slotted record that is about to change; not what they hold."""
        if id(record) in self._kept:
            return
        self._kept[id(record)] = record
        values = [
            (name, getattr(record, name)) for kind in type(record).__mro__ for name in getattr(kind, "__slots__", ())
        ]

        def restore() -> None:
            for name, value in values:
                setattr(record, name, value)

        self._undo.append(restore)

    def roll_back(self) -> None:
        """Put everything back, the latest first."""
        for restore in reversed(self._undo):
            restore()
        self._undo.clear()
        self._kept.clear()
