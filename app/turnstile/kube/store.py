"""An in-memory cache of the objects of one kind, with indexes and subscriptions. Never reads the network.

Two sources write to a store: the reflector, and every component that writes to the API server, which adds the answer
(`observe`) so that Turnstile acts on its own write without waiting for the watch. They race, and the resourceVersion
decides: the larger one is newer, because it is etcd's revision and comparable as a number. A late answer cannot bring
back a deleted object, because the store remembers the version of each deletion for a while. No other component compares
versions of objects: after etcd is restored from a backup, a full read replaces newer versions of a history that is no
more, and all that follow the store go back with it.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import structlog

from turnstile.api.meta import Kind
from turnstile.kube import answers
from turnstile.kube.slices import ordered

T = TypeVar("T", bound=Kind)
Subscriber = Callable[[str, T | None, T | None], None]
IndexFunction = Callable[[T], Iterable[str]]

REMEMBERED_DELETIONS = 4096
"""Deletions remembered. A request still unanswered after so many has long exceeded its deadline."""

_log = structlog.get_logger(__name__)


class _Index(Generic[T]):
    """Keys by index value, each value held once. The sorted keys of a value are computed on demand and cached."""

    __slots__ = ("_function", "_keys", "_names", "_sorted", "_values")

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self._keys: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        self._values: dict[str, tuple[str, ...]] = {}
        self._sorted: dict[str, list[str]] = {}

    def put(self, key: str, value: T | None) -> None:
        """Update the index for one object; None removes the key."""
        before = self._values.get(key, ())
        after = tuple(dict.fromkeys(self._function(value))) if value is not None else ()
        if before == after:
            return
        for gone in before:
            if gone in after:
                continue
            members = self._keys[gone]
            members.discard(key)
            self._sorted.pop(gone, None)
            if not members:
                del self._keys[gone], self._names[gone]
        for new in after:
            if new not in before:
                self._keys.setdefault(new, set()).add(key)
                self._sorted.pop(new, None)
        if after:
            self._values[key] = tuple([self._names.setdefault(each, each) for each in after])
        else:
            del self._values[key]

    def keys(self, value: str) -> list[str]:
        """Keys under that value, sorted."""
        found = self._sorted.get(value)
        if found is None:
            members = self._keys.get(value)
            if members is None:
                return []  # nothing is cached for a value without keys
            found = self._sorted[value] = sorted(members)
        return found

    def members(self, value: str) -> Iterable[str]:
        """Keys under that value, in no order."""
        return self._keys.get(value, ())


class Store(Generic[T]):
    """Objects of one kind by key (`namespace/name` or `name`). An update is O(1) per subscriber and index.

    The structs returned are shared: callers must not modify them. `reduce` takes out of an object what is not held.
    """

    def __init__(self, *, reduce: Callable[[T], None] | None = None) -> None:
        self._reduce = reduce
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._subscribers: list[Subscriber[T]] = []
        self._deleted: dict[str, int] = {}
        self._remembering = 0
        self._complete_as_of = 0
        self._on_complete: list[Callable[[], None]] = []
        self.changes = 0
        """Grows by one with every change."""
        self.complete = True
        """Whether an object missing here is missing in the cluster too. The reflector and the cache set it."""
        self.followed = True
        """Whether changes arrive; not while the watch of the kind fails. The reflector sets it."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        """The object under that key, or None."""
        return self._objects.get(key)

    def keys(self, *, ordered: bool = False) -> list[str]:
        """All keys at this moment; in alphabetical order if `ordered`, else in the order of their addition."""
        return sorted(self._objects) if ordered else list(self._objects)

    def values(self, *, ordered: bool = False) -> list[T]:
        """All objects at this moment, in the order of `keys`."""
        if ordered:
            return [self._objects[key] for key in sorted(self._objects)]
        return list(self._objects.values())

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Index objects by the strings that `function` returns. Raises ValueError if the name is taken."""
        if name in self._indexes:
            raise ValueError(f"index {name!r} is there already")
        index = self._indexes[name] = _Index(function)
        for key, value in self._objects.items():
            index.put(key, value)

    def by_index(self, name: str, value: str) -> list[T]:
        """Objects under that value of an index, sorted by key."""
        return [self._objects[key] for key in self._indexes[name].keys(value)]

    def keys_by_index(self, name: str, value: str, *, ordered: bool = True) -> list[str]:
        """Keys under that value of an index; without `ordered` unsorted, for callers that sort many in slices."""
        index = self._indexes[name]
        return list(index.keys(value) if ordered else index.members(value))

    def any_by_index(self, name: str, value: str, suits: Callable[[T], bool] | None = None) -> bool:
        """Whether any object is under that value of an index, and suits."""
        members = self._indexes[name].members(value)
        if suits is None:
            return bool(members)
        return any(suits(self._objects[key]) for key in members)

    def subscribe(self, subscriber: Subscriber[T], *, replay: bool = False) -> Callable[[], None]:
        """Call `subscriber(key, old, new)` after every change; old is None for a new object, new is None for a
        deleted object.

        With `replay` the subscriber is first called for every object in the store. Returns the function that
        unsubscribes. A subscriber must return at once; what it raises is logged and stops neither the other subscribers
        nor the reflector.
        """
        self._subscribers.append(subscriber)
        if replay:
            for key, value in list(self._objects.items()):
                self._call(subscriber, key, None, value)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def on_complete(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` each time the store becomes complete. Returns the function that removes the listener."""
        self._on_complete.append(listener)
        return lambda: self._on_complete.remove(listener)

    def doubt(self) -> None:
        """Mark the store incomplete: an object missing here may be in the cluster."""
        self.complete = False

    def believe(self) -> None:
        """Mark the store complete, and call the listeners of `on_complete` if it was not."""
        if self.complete:
            return
        self.complete = True
        for listener in tuple(self._on_complete):
            try:
                listener()
            except Exception:
                _log.exception("store.listener_failed", listener=getattr(listener, "__qualname__", "?"))

    def observe(self, value: T, *, again: bool = False, listed: bool = False) -> bool:
        """Store a version of an object unless the store has seen a newer version, a later deletion or a later list
        without the object. Returns whether the version was stored.

        With `again` an equal version is replaced too, if its contents differ (whole instead of stripped, say). An
        object that is `listed` now may be older than an earlier list without it, which did not hold the object.
        """
        key = value.metadata.key
        version = version_of(value)
        if version <= self._deleted.get(key, -1):
            return False
        old = self._objects.get(key)
        if old is None:
            if version < self._complete_as_of and not listed:
                return False
        elif version_of(old) >= version and not (again and version_of(old) == version and old != value):
            return False
        if self._reduce is not None:
            self._reduce(value)
        self._put(key, old, value)
        return True

    def delete(self, key: str, *, resource_version: str = "") -> bool:
        """Remove an object. With the version of the deletion, a newer object of the same name stays.

        Returns whether an object was removed.
        """
        old = self._objects.get(key)
        deleted = answers.number(resource_version)
        if deleted:
            self._remember_deletion(key, deleted)
        if old is None:
            return False
        if resource_version and version_of(old) > deleted:
            return False
        self._remember_deletion(key, max(deleted, version_of(old)))
        self._put(key, old, None)
        return True

    def leave_out(self, key: str, *, resource_version: str) -> None:
        """Remove an object that is not to be held any more, unless a newer version is held. It was not deleted: the
        same version may be stored again."""
        old = self._objects.get(key)
        if old is not None and version_of(old) <= answers.number(resource_version):
            self._put(key, old, None)

    def replace(
        self, items: Iterable[T], *, resource_version: str = "", keep: Iterable[str] = (), rewound: bool = False
    ) -> None:
        """Make the store equal to a list: add its items, remove objects it lacks, notify subscribers of changes only.

        `resource_version` is the version of the list: objects observed at a later version stay. Keys in `keep` stay as
        well (objects that exist but could not be decoded). `rewound` means that the server's history went back (a
        restored backup): versions seen before are meaningless, and the list replaces everything. A list shows the same
        of one object if it has an older version than the store had seen by the version of the list.
        """
        listed: dict[str, T | None] = {value.metadata.key: value for value in items}
        for key in keep:
            listed.setdefault(key, None)
        deque(self.replacing(listed, resource_version=resource_version, rewound=rewound), maxlen=0)

    def replacing(
        self, listed: dict[str, T | None], *, resource_version: str = "", rewound: bool = False, again: bool = False
    ) -> Generator[None, None, None]:
        """As `replace`, in steps, so that other tasks can run while a list of any length is processed.

        With `again` equal versions are replaced too, as by `observe`.

        `listed` maps keys to items, and to None where the stored object stays; it is emptied on the way, so that its
        memory is freed step by step. A reader between two steps sees the store as a watch that catches up would leave
        it: each object as it was, as listed, or newer; changes are applied in the order of their versions, then
        deletions. Versions decide about objects observed or deleted meanwhile. If the generator is closed early, part
        of the changes is stored and no existing object was removed; the next list completes the update.
        """
        taken = answers.number(resource_version)
        if rewound:
            self._deleted.clear()
            self._complete_as_of = 0
            resource_version = ""
        with self.remembering():
            changed: list[tuple[int, str]] = []
            back: set[str] = set()
            for key, value in listed.items():
                if value is not None and not rewound and version_of(value) < self._seen_by(key, taken):
                    back.add(key)  # the list is of another history than what was seen
                if value is not None and (rewound or again or key in back or not self.holds(key, version_of(value))):
                    changed.append((version_of(value), key))
                else:
                    listed[key] = None
                yield
            if back:
                _log.warning("store.history_went_back", objects=len(back), version=taken)
            in_order = yield from ordered(changed)
            for _, key in in_order:
                value, listed[key] = listed[key], None
                if value is None:
                    continue
                old = self._objects.get(key)
                if key in back and version_of(value) < self._seen_by(key, taken):
                    self._deleted.pop(key, None)
                    self._put(key, old, value)
                elif not rewound:
                    self.observe(value, again=again, listed=True)
                elif old != value:
                    self._put(key, old, value)
                yield
            self._complete_as_of = taken if rewound else max(taken, self._complete_as_of)
            for key in self.keys():
                held = self._objects.get(key)
                if held is not None and key not in listed and (not resource_version or version_of(held) <= taken):
                    self.delete(key, resource_version=resource_version)
                yield
            while listed:
                listed.popitem()
                yield
        if rewound:
            self._deleted.clear()

    def holds(self, key: str, version: int) -> bool:
        """Whether the store has that version of the object or a newer one."""
        held = self._objects.get(key)
        return held is not None and version_of(held) >= version

    def holds_exactly(self, key: str, version: int) -> bool:
        """Whether the store has that version of the object."""
        held = self._objects.get(key)
        return held is not None and version_of(held) == version

    def _seen_by(self, key: str, version: int) -> int:
        """The newest version of an object, or of its deletion, that was seen; 0 if it is newer than that version of the
        whole kind."""
        held = self._objects.get(key)
        seen = max(self._deleted.get(key, 0), version_of(held) if held is not None else 0)
        return seen if seen <= version else 0

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Remember all deletions inside this context: for callers that store objects which were read a while ago."""
        self._remembering += 1
        try:
            yield
        finally:
            self._remembering -= 1
            self._forget_old_deletions()

    def _remember_deletion(self, key: str, version: int) -> None:
        """Record that every object that had that key up to that version is deleted."""
        self._deleted[key] = max(version, self._deleted.pop(key, 0))
        self._forget_old_deletions()

    def _forget_old_deletions(self) -> None:
        while len(self._deleted) > REMEMBERED_DELETIONS and not self._remembering:
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
    """The resourceVersion as a number; 0 for an object without one."""
    return answers.number(value.metadata.resource_version)
