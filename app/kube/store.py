"""The objects of one kind that were last seen, with indexes and subscriptions. Lives in memory; never reads the
network.

Two hands write here: the reflector with what it watches, and whoever writes to the API server with the answer
(`observe`), so that we act on our own write without waiting for the watch. They race, and the resourceVersion decides:
the larger one is the newer one, for it is etcd's revision and comparable as a number. Nothing that was
deleted comes back by a late answer, because the version of each deletion is remembered for a while.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import structlog

from app.api.meta import Kind

T = TypeVar("T", bound=Kind)
Subscriber = Callable[[str, T | None, T | None], None]
IndexFunction = Callable[[T], Iterable[str]]

REMEMBERED_DELETIONS = 4096
"""Deletions kept in mind; an answer that arrives later than so many deletions has been given up by its deadline long
ago.
"""

_log = structlog.get_logger(__name__)


class _Index(Generic[T]):
    """Keys by value. The sorted order of a value is made when asked and kept until its membership changes."""

    __slots__ = ("_function", "_keys", "_sorted", "_values")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._keys: dict[str, set[str]] = {}
        self._values: dict[str, frozenset[str]] = {}
        self._sorted: dict[str, list[str]] = {}

    def put(self, key: str, value: T | None) -> None:
        """Index one object anew; None takes it out."""
        before = self._values.get(key, frozenset())
        after = frozenset(self._function(value)) if value is not None else frozenset()
        if before == after:
            return
        for gone in before - after:
            members = self._keys[gone]
            members.discard(key)
            self._sorted.pop(gone, None)
            if not members:
                del self._keys[gone]
        for new in after - before:
            self._keys.setdefault(new, set()).add(key)
            self._sorted.pop(new, None)
        if after:
            self._values[key] = after
        else:
            del self._values[key]

    def keys(self, value: str) -> list[str]:
        """Keys under that value, sorted."""
        found = self._sorted.get(value)
        if found is None:
            found = self._sorted[value] = sorted(self._keys.get(value, ()))
            if not found:
                del self._sorted[value]  # asking for what is not there leaves no trace
        return found

    def values(self) -> list[str]:
        """Values that have any key, sorted."""
        return sorted(self._keys)


class Store(Generic[T]):
    """Objects of one kind by key (`namespace/name` or `name`). Updates are O(1) a subscriber and index.

    The structs handed out are shared: whoever reads them must not change them.
    """

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._subscribers: list[Subscriber[T]] = []
        self._deleted: dict[str, int] = {}
        self.changes = 0
        """Grows by one with every change."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        """The object under that key, if it was seen."""
        return self._objects.get(key)

    def keys(self, *, ordered: bool = False) -> list[str]:
        """All keys at this moment; in order of the alphabet if `ordered`, else in order of first sight."""
        return sorted(self._objects) if ordered else list(self._objects)

    def values(self, *, ordered: bool = False) -> list[T]:
        """All objects at this moment, in the order of `keys`."""
        if ordered:
            return [self._objects[key] for key in sorted(self._objects)]
        return list(self._objects.values())

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Keep objects findable under the strings that `function` gives for them. A second index of a name is an
        error.
        """
        if name in self._indexes:
            raise ValueError(f"index {name!r} is there already")
        index = self._indexes[name] = _Index(function)
        for key, value in self._objects.items():
            index.put(key, value)

    def by_index(self, name: str, value: str) -> list[T]:
        """Objects under that value of an index, sorted by key."""
        return [self._objects[key] for key in self._indexes[name].keys(value)]

    def keys_by_index(self, name: str, value: str) -> list[str]:
        """Keys under that value of an index, sorted."""
        return list(self._indexes[name].keys(value))

    def index_values(self, name: str) -> list[str]:
        """The values of an index that any object has, sorted."""
        return self._indexes[name].values()

    def subscribe(self, subscriber: Subscriber[T], *, replay: bool = False) -> Callable[[], None]:
        """Call `subscriber(key, old, new)` after every change; old is None for a new object, new is None for a
        deleted one.

        With `replay` it first hears of everything that is there. Returns the function that ends it. A subscriber must
        return at once; what it raises is logged and stops neither the others nor the reflector.
        """
        self._subscribers.append(subscriber)
        if replay:
            for key, value in list(self._objects.items()):
                self._call(subscriber, key, None, value)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def observe(self, value: T) -> bool:
        """Take in a version of an object unless a newer one, or its later deletion, was seen. Says whether it was
        taken.
        """
        key = value.metadata.key
        version = version_of(value)
        if version <= self._deleted.get(value.metadata.uid, -1):
            return False
        old = self._objects.get(key)
        if old is not None and version_of(old) >= version:
            return False
        self._put(key, old, value)
        return True

    def delete(self, key: str, *, uid: str = "", resource_version: str = "") -> bool:
        """Forget an object. With the uid and version of the deletion, a newer object of the same name stays.

        Says whether anything was forgotten.
        """
        old = self._objects.get(key)
        deleted = _number(resource_version)
        self._remember_deletion(uid, deleted)
        if old is None:
            return False
        if resource_version and version_of(old) > deleted:
            return False
        self._remember_deletion(old.metadata.uid, max(deleted, version_of(old)))
        self._put(key, old, None)
        return True

    def replace(
        self, items: Iterable[T], *, resource_version: str = "", keep: Iterable[str] = (), rewound: bool = False
    ) -> None:
        """Become what a list showed: take in its items, forget what it lacks, tell subscribers of the difference only.

        `resource_version` is the list's own: what was observed after it was taken stays. Keys in `keep` stay as well
        (objects that are there but could not be read). `rewound` says that the server's history went back (a restored
        backup): versions seen before it mean nothing, and the list is taken as it is.
        """
        listed = set(keep)
        taken = _number(resource_version)
        if rewound:
            self._deleted.clear()
            resource_version = ""
        for value in items:
            key = value.metadata.key
            listed.add(key)
            old = self._objects.get(key)
            if rewound and old is not None and old.metadata.resource_version != value.metadata.resource_version:
                self._put(key, old, value)
            else:
                self.observe(value)
        for key in sorted(self._objects.keys() - listed):
            if not resource_version or version_of(self._objects[key]) <= taken:
                self.delete(key, resource_version=resource_version)
        if rewound:
            self._deleted.clear()

    def _remember_deletion(self, uid: str, version: int) -> None:
        if not uid:
            return
        self._deleted[uid] = max(version, self._deleted.pop(uid, 0))
        if len(self._deleted) > REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]

    def _put(self, key: str, old: T | None, new: T | None) -> None:
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        for index in self._indexes.values():
            index.put(key, new)
        self.changes += 1
        for subscriber in tuple(self._subscribers):
            self._call(subscriber, key, old, new)

    def _call(self, subscriber: Subscriber[T], key: str, old: T | None, new: T | None) -> None:
        try:
            subscriber(key, old, new)
        except Exception:
            _log.exception("store.subscriber_failed", key=key, subscriber=getattr(subscriber, "__qualname__", "?"))


def version_of(value: Kind) -> int:
    """The resourceVersion as a number; 0 for an object that never was in a cluster."""
    return _number(value.metadata.resource_version)


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0
