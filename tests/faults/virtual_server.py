"""An API server in memory, for histories in virtual time: objects and their versions, watches that are behind, and a
connection on which requests and answers take their time or are lost.

It has those rules of a real API server on which the safety of Turnstile's writes rests: a stale resourceVersion is
refused, a status changes through its subresource alone, field managers own what they applied, a finalizer delays a
deletion, the template of a Job that may run is immutable. Everything else is left out, and nothing here decides.
"""

import asyncio
import contextlib
import copy
import random
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import jsonpatch
import orjson

from turnstile.api.core import Job, Pod
from turnstile.api.errors import AlreadyExists, Conflict, ConnectionLost, Invalid, NotFound
from turnstile.api.meta import Kind
from turnstile.api.patch import apply_merge_patch, merge_patch
from turnstile.kube import answers
from turnstile.kube.caches import Caches
from turnstile.kube.gate import Gate
from turnstile.kube.raws import Keep

Json = dict[str, Any]
Key = tuple[type[Kind], str]
Listener = Callable[[type[Kind], str, Json | None, int], None]

START: Final = 1_767_323_045
"""The wall clock, in seconds, when virtual time is zero."""
_BY_NAME: Final = {"conditions": "type", "admissionChecks": "name"}
"""Lists of a status whose entries field managers own one by one, and the key of an entry."""


def key_of(body: Json) -> str:
    """The name of an object, after its namespace if it has one."""
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


class Server:
    """The objects. Callers must not change what they get, except in a draft of `edit`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._objects: dict[type[Kind], dict[str, Json]] = {}
        self._applied: dict[tuple[Key, str], Json] = {}
        self._listeners: list[Listener] = []
        self.revision = 100

    # --- for everybody ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The wall clock."""
        return datetime.fromtimestamp(START + self._clock(), UTC)

    @property
    def stamp(self) -> str:
        """The wall clock as objects have it."""
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def all(self, kind: type[Kind]) -> list[Json]:
        """Objects of a kind, the oldest first."""
        return list(self._objects.get(kind, {}).values())

    def find(self, kind: type[Kind], key: str) -> Json | None:
        """An object as it is."""
        return self._objects.get(kind, {}).get(key)

    @property
    def latest(self) -> str:
        """The name of the object that changed last, of those that are left."""
        bodies = [(kind, each) for kind, objects in self._objects.items() for each in objects.values()]
        kind, found = max(bodies, key=lambda each: int(each[1]["metadata"]["resourceVersion"]))
        return f"{kind.KIND} {key_of(found)}"

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have each change passed on; returns the function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def create(self, kind: type[Kind], body: Json) -> Json:
        """Add an object, which is the server's from now on."""
        key = key_of(body)
        if self.find(kind, key) is not None:
            raise AlreadyExists(409, "AlreadyExists", f"{kind.KIND} {key} already exists")
        self.revision += 1
        meta = {"uid": f"uid-{self.revision}", **body["metadata"], "creationTimestamp": self.stamp, "generation": 1}
        return self._put(kind, {**body, "metadata": meta})

    def edit(self, kind: type[Kind], key: str, change: Callable[[Json], object]) -> Json | None:
        """Change a draft of an object, if it is there, and write it with any part of it."""
        old = self.find(kind, key)
        if old is None:
            return None
        draft = copy.deepcopy(old)
        change(draft)
        return self._write(kind, old, draft)

    def delete(self, kind: type[Kind], key: str, *, uid: str = "", grace_seconds: int | None = None) -> Json | None:
        """Ask for a deletion. A pod on a node is there until its kubelet has stopped it; others wait for finalizers.
        The object if it stays."""
        old = self.known(kind, key)
        meta = old["metadata"]
        if uid not in ("", meta["uid"]):
            raise Conflict(409, "Conflict", f"{kind.KIND} {key} has another uid")
        draft = copy.deepcopy(old)
        if "deletionTimestamp" not in meta:
            draft["metadata"]["deletionTimestamp"] = self.stamp
        if kind is Pod and draft["spec"].get("nodeName") and old.get("status", {}).get("phase") not in _OVER:
            draft["metadata"]["deletionGracePeriodSeconds"] = 30 if grace_seconds is None else grace_seconds
            return self._write(kind, old, draft)
        if meta.get("finalizers"):
            return self._write(kind, old, draft)
        self.remove(kind, key)
        return None

    def remove(self, kind: type[Kind], key: str) -> None:
        """Remove an object at once."""
        if self._objects.get(kind, {}).pop(key, None) is not None:
            self.revision += 1
            for each in [each for each in self._applied if each[0] == (kind, key)]:
                del self._applied[each]
            self._tell(kind, key, None)

    def collect(self) -> int:
        """Ask for the deletion of all objects whose owners are gone; how many these were."""
        uids = {each["metadata"]["uid"] for objects in self._objects.values() for each in objects.values()}
        lost = [
            (kind, key)
            for kind, objects in self._objects.items()
            for key, each in objects.items()
            if (owners := each["metadata"].get("ownerReferences"))
            and "deletionTimestamp" not in each["metadata"]
            and not any(owner["uid"] in uids for owner in owners)
        ]
        for kind, key in lost:
            self.delete(kind, key)
        return len(lost)

    # --- requests -----------------------------------------------------------------------------------------------------

    def patch(self, kind: type[Kind], key: str, body: Any, how: str, subresource: str, manager: str) -> Json:
        """Change a part of an object as a request of a client does."""
        old = self.known(kind, key)
        if how == "json":
            new = jsonpatch.apply_patch(old, [each for each in body if each["op"] != "test"])
            if any(each["op"] == "test" and _at(old, each["path"]) != each["value"] for each in body):
                raise Conflict(409, "Conflict", f"{kind.KIND} {key} is not what the patch tests for")
            body = merge_patch(old, new)
        meta = body.get("metadata", {})
        for field in ("resourceVersion", "uid"):
            if (wanted := meta.get(field)) is not None and wanted != old["metadata"][field]:
                raise Conflict(409, "Conflict", f"{kind.KIND} {key} has another {field}")
        if how == "strategic" and "conditions" in body.get("status", {}):
            status = {**body["status"], "conditions": _joined(old, body["status"]["conditions"])}
            body = {**body, "status": status}
        if how == "apply":
            new = {**old, "status": self._apply((kind, key), manager, old.get("status", {}), body.get("status", {}))}
        else:
            new = apply_merge_patch(copy.deepcopy(old), body)
        if subresource == "status":
            new = {**old, "status": new.get("status", {})}
        elif new.get("status") != old.get("status"):
            raise Invalid(422, "Invalid", f"the status of {kind.KIND} {key} changes through its subresource only")
        return self._write(kind, old, new)

    def _apply(self, key: Key, manager: str, status: Json, wanted: Json) -> Json:
        before = self._applied.get((key, manager), {})
        self._applied[key, manager] = wanted
        found = dict(status)
        for field in before.keys() | wanted.keys():
            by = _BY_NAME.get(field)
            if by is None:
                found.pop(field, None)
                if field in wanted:
                    found[field] = wanted[field]
                continue
            owned = {each[by] for each in (*before.get(field, ()), *wanted.get(field, ()))}
            rest = [each for each in found.get(field, ()) if each[by] not in owned]
            found[field] = [*rest, *wanted.get(field, ())]
        return found

    def known(self, kind: type[Kind], key: str) -> Json:
        """An object as it is. Raises NotFound."""
        found = self.find(kind, key)
        if found is None:
            raise NotFound(404, "NotFound", f'{kind.PLURAL} "{key.rpartition("/")[2]}" not found')
        return found

    def _write(self, kind: type[Kind], old: Json, new: Json) -> Json:
        meta = new["metadata"]
        if kind is Job:
            _check_job(old, new)
        if new == old:
            return old
        meta = {**meta, "generation": old["metadata"]["generation"] + (new.get("spec") != old.get("spec"))}
        new = {**new, "metadata": meta}
        if (
            meta.get("deletionTimestamp")
            and not meta.get("finalizers")
            and not (kind is Pod and new["spec"].get("nodeName"))
        ):
            self.remove(kind, key_of(new))
            return new
        self.revision += 1
        return self._put(kind, new)

    def _put(self, kind: type[Kind], body: Json) -> Json:
        body["metadata"]["resourceVersion"] = str(self.revision)
        self._objects.setdefault(kind, {})[key_of(body)] = body
        self._tell(kind, key_of(body), body)
        return body

    def _tell(self, kind: type[Kind], key: str, body: Json | None) -> None:
        for listener in list(self._listeners):
            listener(kind, key, body, self.revision)


_OVER: Final = ("Succeeded", "Failed")


def _at(body: Json, path: str) -> Any:
    found: Any = body
    for part in path.strip("/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _joined(old: Json, conditions: list[Json]) -> list[Json]:
    types = {each["type"] for each in conditions}
    return [*(each for each in old.get("status", {}).get("conditions", ()) if each["type"] not in types), *conditions]


def _check_job(old: Json, new: Json) -> None:
    """batch/v1 validation of updates, the strictest of all versions."""
    status = old.get("status", {})
    mutable = old["spec"].get("suspend") and not status.get("startTime") and not status.get("active")
    if not mutable and new["spec"]["template"] != old["spec"]["template"]:
        raise Invalid(422, "Invalid", "spec.template: field is immutable")


class Connection:
    """The connection of one leader: as much of a Transport as writes need. `cut` ends it, with what is under way."""

    def __init__(self, server: Server, lots: random.Random, *, lost: float) -> None:
        self.gate = Gate(asyncio.get_running_loop().time)
        self._server = server
        self._lots = lots
        self._lost = lost
        self._under_way: dict[object, Callable[[], Json | None]] = {}
        self._cut = False

    async def get(self, kind: type[Kind], name: str, namespace: str = "", **_: Any) -> Any:
        """Read an object."""
        key = f"{namespace}/{name}" if namespace else name
        return await self._ask(kind, lambda: self._server.known(kind, key), None)

    async def create(self, kind: type[Kind], _: str, body: bytes, *, guard: Any = None, **__: Any) -> Any:
        """Add an object."""
        return await self._ask(kind, lambda: self._server.create(kind, orjson.loads(body)), guard)

    async def patch(
        self,
        kind: type[Kind],
        name: str,
        namespace: str,
        body: bytes,
        *,
        type: str,  # noqa: A002  as in Transport
        subresource: str,
        manager: str,
        guard: Any,
        **_: Any,
    ) -> Any:
        """Change a part of an object."""
        key = f"{namespace}/{name}" if namespace else name
        patch = orjson.loads(body)
        return await self._ask(kind, lambda: self._server.patch(kind, key, patch, type, subresource, manager), guard)

    async def delete(
        self,
        kind: type[Kind],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        guard: Any = None,
        **_: Any,
    ) -> Any:
        """Ask for a deletion."""
        key = f"{namespace}/{name}" if namespace else name
        return await self._ask(
            kind, lambda: self._server.delete(kind, key, uid=uid, grace_seconds=grace_seconds), guard
        )

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        """Take an event, and keep nothing of it."""
        await self._pause()
        return b"{}"

    async def _pause(self) -> None:
        await asyncio.sleep(self._lots.choice((0.001, 0.01, 0.03, 0.5)))

    async def _ask(self, kind: type[Kind], what: Callable[[], Json | None], guard: Any) -> Any:
        """The answer to a request, which may be lost."""
        mark = object()
        self._under_way[mark] = what
        try:
            await self._pause()
        finally:
            if not self._cut:
                del self._under_way[mark]
        if self._cut:
            raise ConnectionLost("the connection is cut")
        if guard is not None:
            guard()
        answer = what()
        await self._pause()
        if self._cut or self._lots.random() < self._lost:
            raise ConnectionLost("the answer is lost")
        return answers.decoder(kind)(orjson.dumps(answer)) if answer is not None else None

    def cut(self) -> None:
        """End the connection. Of the requests under way some arrive nevertheless."""
        self._cut = True
        for what in self._under_way.values():
            if self._lots.random() < 0.5:
                with contextlib.suppress(Conflict, NotFound, Invalid):
                    what()


class Watches:
    """The watches of one leader: each kind is behind by a time of its own."""

    def __init__(self, server: Server, caches: Caches, lots: random.Random) -> None:
        self._lots = lots
        self._stores = caches.stores
        self._keeps = {kind: caches.scope(kind).keep for kind in self._stores}
        self._coming: dict[type[Kind], deque[tuple[str, Json | None, int]]] = {kind: deque() for kind in self._stores}
        self._ready = dict.fromkeys(self._stores, 0.0)
        self._handles: list[asyncio.TimerHandle] = []
        for kind, store in self._stores.items():
            for body in server.all(kind):
                self._deliver(kind, key_of(body), body, server.revision)
            store.believe()
        self.close = server.listen(self._heard)

    @property
    def behind(self) -> int:
        """Changes that are still on their way."""
        return sum(map(len, self._coming.values()))

    def _heard(self, kind: type[Kind], key: str, body: Json | None, revision: int) -> None:
        if kind not in self._stores:
            return
        loop = asyncio.get_running_loop()
        delay = self._lots.choice((0.001, 0.005, 0.02, 0.02, 0.3, 2.0))
        self._ready[kind] = max(self._ready[kind], loop.time() + delay)
        self._coming[kind].append((key, body, revision))
        loop.call_at(self._ready[kind], self._next, kind)

    def _next(self, kind: type[Kind]) -> None:
        self._deliver(kind, *self._coming[kind].popleft())

    def _deliver(self, kind: type[Kind], key: str, body: Json | None, revision: int) -> None:
        store, keep = self._stores[kind], self._keeps[kind]
        if body is None:
            store.delete(key, resource_version=str(revision))
            return
        seen = answers.decoder(kind)(orjson.dumps(body))
        if keep is not None and keep(seen) is Keep.NOTHING:
            store.leave_out(key, resource_version=seen.metadata.resource_version)
        else:
            store.observe(seen)
