"""What a cluster holds and what changed in it, also across restarts of the API server and of a kind's definition.

Each kind is watched by a thread of its own. A watch that ends is followed by a list; what the list lacks was deleted
meanwhile. How a kind was between its last change before that and the list is not known: a `Change` of kind GAP says
so, with the revision before as its own, and that of the list as `until`. The recording of `recording` is exact but ends
with its first broken watch: that is for histories of which every version counts.
"""

import http.client
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from testbed.client import Api, Json, Watch
from testbed.errors import ApiError

GAP = "gap"
AGAIN_SECONDS = 0.2
"""From an error to the next list."""
LATE_SECONDS = 1.0
"""How late a watch may be that is about to break."""


@dataclass(frozen=True)
class Change:
    """One object as it is after a change; `obj` is None when it is gone. Of a GAP the `uid` is the kind."""

    revision: int
    at: float
    kind: str
    uid: str
    obj: Json | None
    until: int = 0


def sorted_out(changes: Iterable[Change], horizon: float) -> tuple[list[Change], list[Change]]:
    """All changes that are no younger than the newest that was heard of before `horizon`, by revision; and the rest.

    The watches of two kinds are not equally quick: an older change of one kind may be heard of after a younger change
    of another kind, and so after the horizon.
    """
    changes = list(changes)
    newest = max((each.revision for each in changes if each.at < horizon), default=-1)
    taken = [each for each in changes if each.revision <= newest]
    return sorted(taken, key=lambda each: each.revision), [each for each in changes if each.revision > newest]


class Follower:
    """`with Follower(api, paths) as follower`: follows collections, given by kind, until the block ends."""

    def __init__(self, api: Api, paths: Mapping[str, str]) -> None:
        self._api = api
        self._paths = dict(paths)
        self._lock = threading.Lock()
        self._now: dict[str, dict[str, Json]] = {kind: {} for kind in paths}
        self._changes: list[Change] = []
        self._newest: dict[str, int] = {}
        """The last revision of a kind that is known."""
        self._broken: dict[str, float] = dict.fromkeys(paths, 0.0)
        self._watches: dict[str, Watch] = {}
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def __enter__(self) -> Self:
        for kind in self._paths:
            thread = threading.Thread(target=self._follow, args=(kind,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for watch in list(self._watches.values()):
            watch.close()
        for thread in self._threads:
            thread.join(10)

    def now(self, kind: str) -> list[Json]:
        """The objects of a kind as they were heard of last."""
        with self._lock:
            return list(self._now[kind].values())

    @property
    def blind(self) -> bool:
        """Whether a kind is not watched just now."""
        return bool(self._broken)

    def take(self, before: float) -> list[Change]:
        """The changes up to the newest one that was heard of before that time, by their revision, as in `sorted_out`.
        While a watch is broken only those before."""
        with self._lock:
            horizon = min([before, *(at - LATE_SECONDS for at in self._broken.values())])
            taken, self._changes = sorted_out(self._changes, horizon)
        return taken

    def _follow(self, kind: str) -> None:
        while not self._over.is_set():
            try:
                self._list(kind)
                self._watch(kind)
            except (ApiError, OSError, ValueError, http.client.HTTPException):
                pass
            with self._lock:
                self._broken.setdefault(kind, time.monotonic())
            self._over.wait(AGAIN_SECONDS)

    def _list(self, kind: str) -> None:
        try:
            listed = self._api.request("GET", self._paths[kind], timeout=5)
        except ApiError as error:
            if error.code != 404:
                raise
            listed = {"items": [], "metadata": {}}  # the definition of the kind is gone
        revision = listed["metadata"].get("resourceVersion", "")
        there = {each["metadata"]["uid"]: each for each in listed["items"]}
        with self._lock:
            if revision and kind in self._newest:
                gap = Change(self._newest[kind], time.monotonic(), GAP, kind, None, until=int(revision))
                self._changes.append(gap)
            for uid, old in list(self._now[kind].items()):
                if uid not in there:  # some time between its last version and now: pods early, as they went first
                    last = old["metadata"]["resourceVersion"]
                    self._put(kind, uid, None, int(last if kind == "pods" else revision or last))
            for uid, obj in there.items():
                self._put(kind, uid, obj, int(obj["metadata"]["resourceVersion"]))
            if revision:
                self._newest[kind] = int(revision)
            else:
                self._broken.pop(kind, None)
        if not revision:
            self._over.wait(1.0)
            return
        self._watches[kind] = self._api.watch(self._paths[kind], resource_version=revision)
        with self._lock:
            self._broken.pop(kind, None)

    def _watch(self, kind: str) -> None:
        watch = self._watches.pop(kind, None)
        if watch is None:
            return
        self._watches[kind] = watch
        for event in watch:
            if event["type"] == "ERROR":
                return
            obj = event["object"]
            meta = obj["metadata"]
            with self._lock:
                self._newest[kind] = int(meta["resourceVersion"])
                gone = event["type"] == "DELETED"
                self._put(kind, meta["uid"], None if gone else obj, int(meta["resourceVersion"]))

    def _put(self, kind: str, uid: str, obj: Json | None, revision: int) -> None:
        old = self._now[kind].get(uid)
        if old is not None and obj is not None and old["metadata"]["resourceVersion"] == str(revision):
            return
        if obj is None:
            if self._now[kind].pop(uid, None) is None:
                return
        else:
            self._now[kind][uid] = obj
        self._changes.append(Change(revision, time.monotonic(), kind, uid, obj))
