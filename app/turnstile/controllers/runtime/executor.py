"""Executes decisions: sends writes in order, each at its turn and under the fence, and stores each answer.

The only module that writes for the reconcilers and the scheduler. Its rules:

- A write waits for its turn at the gate (`turnstile.kube.gate`), which limits how many are in flight.
- A write is sent only while the fence allows it, and is never retried past the fence's end. While the term is
  suspended, because the Lease could not be renewed in time, writes wait; once it is over they fail.
- This process never has two writes of one object in flight; writes of different objects run concurrently.
- The first action that fails ends a decision. After a stale write (409) the newer object is decided about again; a
  write that is stale when its turn comes is not sent.
- A patch that stops a job has its resourceVersion as precondition once, and after a conflict its uid alone: a user who
  changes the job all the time does not keep it running.
- Deferrable patches are sent one at a time, the newest of each object.

The executor must never decide: `decide` functions return what to write, and keys that failed return to their work
queue.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import structlog

from turnstile.api import names
from turnstile.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    NotLeading,
    Suspended,
    TurnstileError,
    WireError,
)
from turnstile.api.meta import Kind
from turnstile.controllers.runtime.actions import (
    Create,
    Delete,
    Emit,
    Patch,
    PatchType,
    ReconcileResult,
    RequeueAfter,
    Whole,
)
from turnstile.controllers.runtime.deferred import Deferred, Entry, Target
from turnstile.controllers.runtime.locks import Locked, Locks
from turnstile.controllers.runtime.refusals import OUTAGE, REFUSED, RETRY, is_refusal
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence
from turnstile.kube.gate import Gate, Rank
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.kube.workqueue import WorkQueue

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Kind)
HOUSEKEEPING_LIMIT: Final = 10_000
"""Maximum number of deferred patches; any further patch waits for its turn with its worker."""
REFUSED_SECONDS: Final = 1.0
"""Minimum seconds before a write that the API server refused is sent again."""
REFUSALS_REMEMBERED: Final = 1_000
"""Maximum number of objects whose refused version is remembered; forgetting an entry costs one futile write."""
ATTEMPTS: Final = 5
"""Attempts of a write that conflicts."""


@dataclass(slots=True)
class Stats:
    """Counts since the start of this term; `turnstile.process.metrics` exports them."""

    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Writes that succeeded, by (kind, verb); the verb of a status patch is `patch status`."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Reported errors by (kind, name of the error)."""
    deferred: int = 0
    """Patches that were deferred."""
    outages: int = 0
    """Reported errors that say nothing of their object: the API server cannot be reached, or cannot work."""
    outage: str = ""
    """The last of them."""


class Executor:
    """Writes of one term of leadership. `run` must run for deferred patches to be written."""

    def __init__(
        self,
        transport: Transport,
        stores: Mapping[type[Kind], Store[Any]],
        events: Recorder,
        *,
        fence: Fence,
    ) -> None:
        self._transport = transport
        self._stores = stores
        self._events = events
        self._fence = fence
        self._locks: Locks = {}
        self._refused: dict[Target, str] = {}
        self._insists: dict[Target, str] = {}
        self._deferred = Deferred()
        self._open = asyncio.Event()
        self._open.set()
        self._sent = 0
        self._answered = asyncio.Event()
        self._answered.set()
        self.stats = Stats()

    @property
    def transport(self) -> Transport:
        """The client that writes, for what a write has to read first."""
        return self._transport

    def beside(self, transport: Transport, stores: Mapping[type[Kind], Store[Any]]) -> "Executor":
        """An executor of the same term that writes to another cluster, with a gate and locks of its own."""
        return Executor(transport, stores, self._events, fence=self._fence)

    @property
    def gate(self) -> Gate:
        """Where writes wait for their turn."""
        return self._transport.gate

    @property
    def waiting(self) -> int:
        """Number of deferred patches that are not written yet."""
        return len(self._deferred)

    async def carry_out(self, kind: type[Kind], key: str, decision: ReconcileResult, queue: WorkQueue) -> None:
        """Execute a decision's actions in order. `kind` and `key` (of `queue`) name the object it was made for.

        Raises the first error that a retry may fix; the caller's worker adds the key again after its back-off.
        """
        muted = False
        try:
            for action in decision.actions:
                match action:
                    case Patch(deferrable=True):
                        # The same patch decided again while it is deferred: do not record its events again.
                        muted = not await self._defer(action)
                    case Patch():
                        await self._patched(action, decision.rank)
                    case Create():
                        await self._created(action)
                    case Delete():
                        await self._deleted(action, decision.rank)
                    case Emit():
                        if not muted:
                            self.emit(action)
                    case RequeueAfter():
                        queue.add_after(key, action.seconds)
        except NotFound:
            # The object is gone; the watch reports the deletion too, and the next decision starts from that.
            log.debug("write.gone", kind=kind.KIND, key=key)
        except ApiError as error:
            if is_refusal(error):
                await self._report_refusal(decision, action, error)
                error.retry_after = max(error.retry_after or 0.0, REFUSED_SECONDS)
            raise

    async def update(
        self, kind: type[T], key: str, patch: Callable[[T], Patch | None], *, rank: Rank, priority: int = 0
    ) -> T:
        """Write the patch that `patch` returns for the current object, again after each conflict; None: nothing.

        `patch` is called when the write has its turn. Returns the object as the API server has it. Raises NotFound if
        the object does not exist, and the last Conflict after `ATTEMPTS` conflicts.
        """
        store: Store[T] = self._stores[kind]
        attempt = 1
        async with self._writing((kind, key), rank, priority):
            current = store.get(key) or await self.refresh(kind, key)
            while (action := patch(current)) is not None:
                try:
                    written: T = await self._send_patch(action)
                except Conflict:
                    if attempt == ATTEMPTS:
                        raise
                    attempt += 1
                    latest = store.get(key)
                    if latest is None or latest.metadata.resource_version == current.metadata.resource_version:
                        latest = await self.refresh(kind, key)
                    current = latest
                else:
                    return written
            return current

    async def refresh(self, kind: type[T], key: str) -> T:
        """Read an object from the API server and put it into the store. Raises NotFound if it does not exist."""
        namespace, _, name = key.rpartition("/")
        with self._missed(kind, key):
            value = await self._transport.get(kind, name, namespace)
        self._observe(kind, value)
        return value

    @contextmanager
    def _missed(self, kind: type[Kind], key: str) -> Iterator[None]:
        """Wrap a request for an object: NotFound, which names it, deletes it from the store too, unless the watch has
        brought another one meanwhile."""
        before = self._known(kind, key)
        try:
            yield
        except NotFound:
            self._forget(kind, key, before)
            raise

    def _known(self, kind: type[Kind], key: str) -> Kind | None:
        """An object as its store has it."""
        store = self._stores.get(kind)
        return store.get(key) if store is not None else None

    def _forget(self, kind: type[Kind], key: str, before: Kind | None) -> None:
        """Delete an object from its store that is gone, unless the watch has brought another one meanwhile."""
        if before is not None and before is self._known(kind, key):
            self._stores[kind].delete(key)

    def emit(self, event: Emit) -> None:
        """Pass an event to the recorder."""
        self._events.emit(
            event.regarding, type=event.type, reason=event.reason, note=event.note, one_series=event.one_series
        )

    def report(self, kind: type[Kind], key: str, error: Exception) -> None:
        """Count and log an error of one object; Conflict, NotLeading and Suspended, which a later decision resolves,
        as debug."""
        self.stats.failures[kind.KIND, type(error).__name__] += 1
        if isinstance(error, OUTAGE):
            self.stats.outages += 1
            self.stats.outage = f"{kind.KIND} {key}: {error}"
        if isinstance(error, Conflict | NotLeading | Suspended):
            log.debug("reconcile.again", kind=kind.KIND, key=key, error=str(error))
        elif isinstance(error, TurnstileError):
            log.warning("reconcile.failed", kind=kind.KIND, key=key, error=str(error))
        else:
            log.error("reconcile.broken", kind=kind.KIND, key=key, exc_info=error)

    async def run(self) -> None:
        """Write deferred patches, one at a time, until cancelled or the Lease is lost (NotLeading)."""
        while True:
            await self._deferred.some()
            async with self.gate.turn(Rank.STATUS):
                if (due := self._deferred.next()) is not None:
                    await self._write_deferred(*due)

    async def _write_deferred(self, target: Target, entry: Entry) -> None:
        try:
            async with Locked(self._locks, target):
                if self._deferred.get(target) is entry and not self._is_stale(entry.patch):
                    await self._send_patch(entry.patch)
        except NotLeading:
            raise
        except Exception as error:  # one object whose patch fails must not end the writes of all others
            self._put_off(target, entry, error)
        else:
            self._deferred.drop(target, entry)  # also a stale one: the newer object has been decided about

    async def drain(self, *, at_most: float) -> None:
        """Start no more writes, and return once every write in flight has its answer, or after `at_most` seconds.

        A write without an answer may still take effect after the next leader has read the object: the Lease is kept
        then, so that the next leader begins when the API server has given that write up. Any later call that writes
        blocks until it is cancelled.
        """
        self._open.clear()
        try:
            async with asyncio.timeout(max(0.0, min(at_most, self._fence.remaining))):
                await self._answered.wait()
        except TimeoutError:
            self._fence.keep()
            log.warning("lease.kept", writes=self._sent, why="the API server has not answered these writes yet")

    # --- single writes ------------------------------------------------------------------------------------------------

    async def _patched(self, action: Patch, rank: Rank) -> None:
        target = _target(action)
        if action.source is not None:
            action = replace(action, content=await action.source(), source=None)
        if action.stops and self._insists.pop(target, "") == action.stops:
            action = action.insisting
        refused = self._refused.pop(target, None)
        if refused is not None and refused == action.version:
            # The API server refused that version already: read the newer one instead of sending the patch again.
            seen = await self.refresh(*target)
            if seen.metadata.resource_version != refused:
                raise Conflict(409, "Conflict", f"{target[0].KIND} {target[1]} has changed since it was read")
        async with self._writing(target, rank):
            self._deferred.drop(target)
            if self._is_stale(action):
                self._insist(action)
                raise Conflict(409, "Conflict", f"{target[0].KIND} {target[1]} has changed since it was decided about")
            try:
                await self._send_patch(action)
            except Conflict:
                self._insist(action)
                if version := action.version:
                    self._refused[target] = version
                    if len(self._refused) > REFUSALS_REMEMBERED:
                        del self._refused[next(iter(self._refused))]
                raise

    def _insist(self, action: Patch) -> None:
        """Remember that the stop of a job was lost to a conflict: the next one must not be."""
        if action.stops:
            self._insists[_target(action)] = action.stops
            if len(self._insists) > REFUSALS_REMEMBERED:
                del self._insists[next(iter(self._insists))]

    def _is_stale(self, action: Patch) -> bool:
        """Whether the API server would refuse a patch, because the store has a newer object than it was made for."""
        known = self._known(*_target(action))
        return known is not None and action.version not in ("", known.metadata.resource_version)

    async def _send_patch(self, action: Patch) -> Any:
        """Write a patch; the caller holds the object's lock (`_writing`). A claim may take a second request."""
        claim = action.claim
        if claim is None:
            body = await self._made_of(action.whole) if action.whole is not None else action.body
            answer = await self._send(action, body, type=action.type)
            if action.written is not None:
                action.written()
            return answer
        answer = await self._send(action, claim.body, type="apply", manager=claim.manager)
        if (rest := claim.rest(answer)) is not None:
            answer = await self._send(action, rest, type="merge")
        return answer

    async def _send(self, action: Patch, body: bytes, *, type: PatchType, manager: str = names.FIELD_MANAGER) -> Any:  # noqa: A002
        """Send one patch request."""
        with self._missed(*_target(action)):
            async with self._sending():
                answer = await self._transport.patch(
                    action.kind,
                    action.name,
                    action.namespace,
                    body,
                    type=type,
                    subresource=action.subresource,
                    manager=manager,
                    guard=self._fence.check,  # again right before the bytes are sent
                    within=self._fence.exclusive,
                )
        self._count(action.kind, f"patch {action.subresource}".rstrip())
        self._observe(action.kind, answer)
        return answer

    async def _created(self, action: Create) -> None:
        target = _target(action)
        try:
            async with self._writing(target, Rank.CREATE):
                body = await self._body_of(action)
                async with self._sending():
                    answer = await self._transport.create(
                        action.kind,
                        action.namespace,
                        body,
                        guard=self._fence.check,
                        within=self._fence.exclusive,
                    )
                self._count(action.kind, "create")
                self._observe(action.kind, answer)
                if action.written is not None:
                    action.written()
        except AlreadyExists:
            if action.taken is None:
                await self.refresh(*target)
            else:
                action.taken()
            raise

    async def _body_of(self, action: Create) -> bytes:
        if action.source is not None:
            return await action.source()
        return await self._made_of(action.whole) if action.whole is not None else action.body

    async def _made_of(self, whole: Whole) -> bytes:
        """The body that is made of an object that was read again. Raises Conflict if it is not the object that was
        decided about, NotFound if there is none."""
        kind, meta = type(whole.seen), whole.seen.metadata
        found = await self._transport.get(kind, meta.name, meta.namespace, whole=True)
        if (found.metadata.uid, found.metadata.generation) != (meta.uid, meta.generation):
            raise Conflict(409, "Conflict", f"{kind.KIND} {meta.key} has changed since it was decided about")
        return whole.body(found)

    async def _deleted(self, action: Delete, rank: Rank) -> None:
        target = _target(action)
        async with self._writing(target, rank):
            before = self._known(*target)
            try:
                async with self._sending():
                    leaving = await self._transport.delete(
                        action.kind,
                        action.name,
                        action.namespace,
                        uid=action.uid,
                        propagation=action.propagation,
                        grace_seconds=action.grace_seconds,
                        guard=self._fence.check,  # again right before the bytes are sent
                        within=self._fence.exclusive,
                    )
            except NotFound:
                self._forget(*target, before)
                return
            except Conflict:
                with contextlib.suppress(NotFound):
                    latest: Kind = await self._transport.get(action.kind, action.name, action.namespace)
                    if action.uid in ("", latest.metadata.uid):
                        raise
                return  # another object has that name now: the intended one is deleted
            self._count(action.kind, "delete")
            if leaving is not None:
                self._observe(action.kind, leaving)
            else:
                self._forget(*target, before)

    @asynccontextmanager
    async def _writing(self, target: Target, rank: Rank, priority: int = 0) -> AsyncIterator[None]:
        """Wait for a turn, and then for the lock of one object; hold both for as long as the block lasts.

        In this order, because the holder of a lock must not wait for a turn behind writes of a better rank.
        """
        namespace, _, _ = target[1].rpartition("/")
        async with self.gate.turn(rank, namespace, priority):
            await self._fence.opened()  # what is written is computed when it can be sent
            async with Locked(self._locks, target):
                yield

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        """Wrap one write call, which has `Fence.check` as its guard too; blocks while the term is suspended, and after
        `drain`. The fence does not limit the wait for the answer: what was sent has been sent.

        Raises NotLeading once the term is over, and Suspended if the term was suspended before the call was sent.
        """
        await self._fence.opened()
        while not self._open.is_set():
            await self._open.wait()
            await self._fence.opened()
        self._sent += 1
        self._answered.clear()
        try:
            self._fence.check()
            yield
        except NotLeading as error:
            if self._fence.closed:
                raise
            raise Suspended(str(error)) from None
        finally:
            self._sent -= 1
            if not self._sent:
                self._answered.set()

    def _observe(self, kind: type[Kind], value: Kind) -> None:
        store = self._stores.get(kind)
        if store is not None:
            store.observe(value)

    def _count(self, kind: type[Kind], verb: str) -> None:
        self.stats.writes[kind.KIND, verb] += 1

    async def _report_refusal(self, decision: ReconcileResult, action: object, error: ApiError) -> None:
        """Report a refusal as the action says, or by an event on the object that the decision is about, where its owner
        sees it."""
        if isinstance(action, Create | Patch) and action.refused is not None:
            with contextlib.suppress(ApiError, WireError):  # reported again after the next refusal
                for each in action.refused(error.message):
                    if isinstance(each, Patch):
                        await self._patched(each, decision.rank)
                    elif isinstance(each, Emit):
                        self.emit(each)
            return
        regarding = next((each.regarding for each in decision.actions if isinstance(each, Emit)), None)
        if regarding is None and isinstance(action, Patch | Delete):
            namespace, name = action.namespace, action.name
            store = self._stores.get(action.kind)
            regarding = store.get(f"{namespace}/{name}" if namespace else name) if store is not None else None
        if regarding is not None:
            reason = "FailedCreate" if isinstance(action, Create) else "FailedUpdate"
            self._events.emit(regarding, type="Warning", reason=reason, note=error.message)

    # --- housekeeping -------------------------------------------------------------------------------------------------

    async def _defer(self, action: Patch) -> bool:
        """Defer a patch, in place of an older one for the same object. Returns False if the same patch is deferred."""
        target = _target(action)
        waiting = self._deferred.get(target)
        if waiting is not None and waiting.patch == action:
            return False
        if waiting is None and len(self._deferred) >= HOUSEKEEPING_LIMIT:
            await self._patched(action, Rank.STATUS)
            return True
        self._deferred.put(target, action)
        self.stats.deferred += 1
        return True

    def _put_off(self, target: Target, entry: Entry, error: Exception) -> None:
        """Retry after a back-off; drop the patch on NotFound or Conflict, after which the object is decided about."""
        self.report(target[0], target[1], error)
        if isinstance(error, NotFound | Conflict):
            self._deferred.drop(target, entry)
        else:
            self._deferred.put_off(target, entry, RETRY if isinstance(error, OUTAGE) else REFUSED)


def _target(action: Create | Patch | Delete) -> Target:
    return action.kind, f"{action.namespace}/{action.name}" if action.namespace else action.name
