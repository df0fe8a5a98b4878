"""Everything that happened in a cluster, in the order in which it happened.

Kinds are watched from one resourceVersion on, so nothing is missed between two looks. All of them are kept in one etcd,
whose revisions order them: sorted by resourceVersion, the events of all kinds are one history. Never polls, and never
asks Turnstile.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from testbed.client import Api, Json, Watch, wait_until


@dataclass(frozen=True)
class Event:
    """One change of one object: `old` is None when it is new, `new` is None when it is gone.

    `at` is when it was heard of, on this process's monotonic clock; the change itself is a little older.
    """

    revision: int
    at: float
    kind: str
    old: Json | None
    new: Json | None

    @property
    def obj(self) -> Json:
        """The object as it is, or was last."""
        obj = self.new or self.old
        assert obj is not None
        return obj


class Recorder:
    """`with Recorder(api, paths) as recorder`: watches collections, given by kind, until the block ends."""

    def __init__(self, api: Api, paths: dict[str, str], *, concerns: Callable[[Json], bool] = lambda obj: True) -> None:
        self._api = api
        self._paths = paths
        self._concerns = concerns
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._now: dict[str, dict[str, Json]] = {kind: {} for kind in paths}
        self._watches: list[Watch] = []
        self._threads: list[threading.Thread] = []
        self._armed: list[_Trap] = []
        self._failures: list[BaseException] = []

    def __enter__(self) -> Self:
        for kind, path in self._paths.items():
            listed = self._api.get(path)
            for obj in listed["items"]:
                self._put(kind, obj["metadata"]["uid"], obj, int(obj["metadata"]["resourceVersion"]))
            watch = self._api.watch(path, resource_version=listed["metadata"]["resourceVersion"])
            self._watches.append(watch)
            thread = threading.Thread(target=self._follow, args=(kind, watch), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches:
            watch.close()
        for thread in self._threads:
            thread.join()

    def _follow(self, kind: str, watch: Watch) -> None:
        try:
            for event in watch:
                obj = event["object"]
                if event["type"] == "ERROR":
                    self._failures.append(AssertionError(f"the watch of {kind} was cut: {obj}"))
                    return
                gone = event["type"] == "DELETED"
                revision = int(obj["metadata"]["resourceVersion"])
                self._put(kind, obj["metadata"]["uid"], None if gone else obj, revision)
        except BaseException as error:
            self._failures.append(error)

    def _put(self, kind: str, uid: str, obj: Json | None, revision: int) -> None:
        at = time.monotonic()
        if obj is not None and not self._concerns(obj):
            return
        with self._lock:
            old = self._now[kind].get(uid)
            if old is None and obj is None:
                return
            if obj is None:
                del self._now[kind][uid]
            else:
                self._now[kind][uid] = obj
            event = Event(revision, at, kind, old, obj)
            self._events.append(event)
            sprung = [trap for trap in self._armed if trap.catches(event)]
            self._armed = [trap for trap in self._armed if trap not in sprung]
        for trap in sprung:
            trap.act()

    def now(self, kind: str) -> list[Json]:
        """The objects of a kind as they were heard of last."""
        with self._lock:
            return list(self._now[kind].values())

    def at_next(self, catches: Callable[[Event], bool], act: Callable[[], None]) -> None:
        """Do something once, the moment such an event is heard of; in the thread that heard it."""
        with self._lock:
            self._armed.append(_Trap(catches, act))

    def disarm(self) -> None:
        """Forget what was to be done."""
        with self._lock:
            self._armed.clear()

    def catch_up(self, *, timeout: float = 60) -> None:
        """Wait until all that the server holds now was heard of."""

        def behind() -> str:
            for kind, path in self._paths.items():
                there = {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in self._api.items(path)
                         if self._concerns(o)}  # fmt: skip
                with self._lock:
                    heard = {uid: obj["metadata"]["resourceVersion"] for uid, obj in self._now[kind].items()}
                if there != heard:
                    return f"{kind}: heard of {heard}, there is {there}"
            return ""

        wait_until(lambda: not behind(), timeout=timeout, describe=behind)

    def history(self) -> list[Event]:
        """All events so far in their order; fails if a watch broke, as then some may be missing.

        Of an event and those after it, none can have happened later than any of them was heard of.
        """
        if self._failures:
            raise AssertionError("a watch broke: events may be missing") from self._failures[0]
        with self._lock:
            ordered = sorted(self._events, key=lambda event: event.revision)
        latest = float("inf")
        for index in range(len(ordered) - 1, -1, -1):
            latest = min(latest, ordered[index].at)
            ordered[index] = replace(ordered[index], at=latest)
        return ordered


@dataclass(frozen=True, eq=False)
class _Trap:
    catches: Callable[[Event], bool]
    act: Callable[[], None]
