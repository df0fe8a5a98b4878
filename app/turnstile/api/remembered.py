"""A memory of what a function returned, bounded in bytes, for functions of texts that tenants write.

`functools.lru_cache` is bounded in entries and holds its arguments: a thousand templates of a megabyte are a gigabyte.
Here a long argument is known by its hash, and an entry is dropped, the least used first, when all entries together are
larger than the budget. Must never be used for a function whose result is changed by its callers.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from hashlib import blake2b
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

BUDGET: Final = 4 << 20
"""Bytes of one function's entries, at most."""
SHORT: Final = 4096
"""Bytes of an argument that is held itself."""
ENTRY: Final = 256
"""Bytes of an entry beside its argument and its value."""
DECODED: Final = 8
"""Bytes of a decoded value for each byte of its JSON, at most on the whole."""


def remembered(*, budget: int = BUDGET) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Remember what the function returned for the same positional arguments (bytes, texts, numbers, tuples of these).

    A value that is no bytes counts as many times the arguments that it was decoded from. One that is larger than an
    eighth of the budget is not remembered. Errors are not.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        memory = _Memory(budget)

        @wraps(function)
        def answer(*args: P.args, **kwargs: P.kwargs) -> R:
            key = tuple(map(_key, args))
            found = memory.get(key)
            if found is not None:
                known: R = found[0]
                return known
            value = function(*args, **kwargs)
            size = len(value) if isinstance(value, bytes) else DECODED * sum(map(_size, args))
            memory.put(key, value, ENTRY + size + sum(map(_size, key)))
            return value

        return answer

    return decorate


def _key(argument: object) -> Hashable:
    if isinstance(argument, bytes) and len(argument) > SHORT:
        return blake2b(argument, digest_size=32).digest()
    return argument  # what is not hashable raises TypeError


def _size(argument: Any) -> int:
    if isinstance(argument, bytes | str):
        return len(argument)
    return 16 + sum(map(_size, argument)) if isinstance(argument, tuple) else 8


class _Memory:
    """Values by key, the least used first."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> tuple[Any, int] | None:
        """The value and its size, if it is remembered."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Remember a value, and forget others in its place."""
        if size > self._budget // 8:
            return
        with self._lock:
            _, before = self._held.pop(key, (None, 0))
            self._held[key] = value, size
            self._size += size - before
            while self._size > self._budget:
                _, (_, gone) = self._held.popitem(last=False)
                self._size -= gone
