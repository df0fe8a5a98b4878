"""Leader election over a Lease (coordination.k8s.io/v1); `turnstile.kube.fence` keeps a former leader from writing.

At most one process may write. Three rules make that hold with clocks that disagree, requests that hang and processes
that are paused and resumed later:

- Time is measured, never compared: a leader counts from the *start* of its last renewal that succeeded, a candidate
  from when it last saw a change of the Lease, each on its own monotonic clock; the times in the Lease are for people.
- A leader stops writing (`renew_deadline`) well before a candidate may take over (`lease_duration`), whatever the
  reason for which renewing fails: any error counts, and a request that hangs is cut.
- Every writer calls `Fence.check` right before its write. The check needs no network and no event loop, so it also
  works in a process that was paused unnoticed. Writes carry a resourceVersion for delays after the check.

Every write of the Lease carries the version it is based on, so only one of two candidates gets the Lease. A leader that
stops cleanly leaves the record without a holder, and the next candidate need not wait.

A leader that cannot renew in time is *suspended*: its writers wait, and it goes on renewing. A renewal that succeeds
proves that no other process held the Lease meanwhile, because it is based on the last version that this leader wrote;
the same term then goes on. If the record has another holder, the term is over: the fence is closed for good.
"""

import asyncio
import datetime as dt
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import structlog

from turnstile.api import names
from turnstile.api.errors import Conflict, InvalidValue, NotFound, NotLeading
from turnstile.api.meta import Kind, Object
from turnstile.kube import answers
from turnstile.kube.fence import Clock, Fence, monotonic
from turnstile.kube.transport import Transport

Lead = Callable[[Fence], Awaitable[None]]

_log = structlog.get_logger(__name__)


def micro_time(moment: dt.datetime) -> str:
    """metav1.MicroTime of an aware datetime: UTC, always with six digits, which the server insists on."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseSpec(Object):
    """coordinationv1.LeaseSpec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Kind):
    """coordination.k8s.io/v1 Lease."""

    GROUP: ClassVar = "coordination.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Lease"
    PLURAL: ClassVar = "leases"
    NAMESPACED: ClassVar = True

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


@dataclass(slots=True)
class LeaseStats:
    """Counts of an elector since its start, for the metrics. Written by its thread, read by any: each is one number."""

    terms: int = 0
    """Terms of this process."""
    transitions: int = 0
    """leaseTransitions as last seen: terms of all processes."""
    renewed: int = 0
    failed: int = 0
    """Renewals that succeeded, and that did not."""
    seconds: float = 0.0
    """Duration of the last renewal that succeeded."""
    suspensions: int = 0
    """How often a term was suspended."""
    fence: Fence | None = None
    """The fence of the present term; None while not leading."""
    failure: str = ""
    """Why the last renewal failed; empty after a renewal that succeeded."""


class _Lost(Exception):
    """This process lost the Lease."""


class _HeldBack(Exception):
    """This process does not renew the Lease, although it could."""


MARGIN = 0.5
"""Seconds between the suspension of a leader and the end of its Lease, at least."""
CHECK_SECONDS = 1.0
"""Seconds between two looks of a candidate at the Lease, at most, so that a released Lease is taken soon."""
WARN_SECONDS = 30.0
"""Seconds between two warnings about the same trouble."""
CURE_RENEWAL = (
    "see whether the API server is slow or refuses patches of this Lease, and whether the chart's FlowSchemas are on;"
    " writes wait until a renewal succeeds"
)
CURE_LOST = (
    "nothing if it is rare: this process is a candidate again. If it repeats, see lease.renewal_failed before it,"
    " and the CPU limits of the pods; a longer leaderElection.leaseDuration tolerates slower servers"
)


class Elector:
    """One candidate for a Lease.

    All times are in seconds. A candidate waits `lease_duration` (whole seconds) for a silent leader, and looks every
    `retry_period`, at least every `CHECK_SECONDS`: it replaces a killed leader after the sum of both, times 1.2 for the
    latter, at most, and a leader that released the Lease after the latter. A leader renews every `renew_period`,
    retries every `retry_period` after a failure, and is suspended `renew_deadline` after the start of its last
    successful renewal. That is at least `margin` before the Lease expires, for clocks of different speed and for a
    write in flight.

    `holds_back` returns why this process must not have the Lease at the moment, empty if it may: the Lease is then
    neither acquired nor renewed, so that another process leads.

    `identity` names this process for people; a random suffix makes it unique, as two processes of one identity would
    both lead. `on_change` is called with the holder's full identity (empty: no holder) when the holder changes.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: int = 15,
        renew_deadline: float = 10.0,
        renew_period: float = 2.0,
        retry_period: float = 2.0,
        margin: float = MARGIN,
        on_change: Callable[[str], None] | None = None,
        clock: Clock = monotonic,
        wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        jitter: Callable[[], float] = random.random,
        holds_back: Callable[[], str] = str,
        stats: LeaseStats | None = None,
    ) -> None:
        if lease_duration < 1:
            raise InvalidValue("lease_duration", lease_duration, "use whole seconds, at least 1")
        if not 0 < renew_period < renew_deadline <= lease_duration - margin:
            raise InvalidValue(
                "renew_deadline", renew_deadline, "keep renew_period < renew_deadline <= lease_duration - margin"
            )
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self.identity = f"{identity}_{uuid.uuid4().hex[:8]}"
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._renew_period = renew_period
        self._retry_period = retry_period
        self._on_change = on_change
        self._clock = clock
        self._wall = wall
        self._jitter = jitter
        self._holds_back = holds_back
        self.stats = stats if stats is not None else LeaseStats()
        self._seen: Lease | None = None
        self._changed_at = 0.0
        self._holder: str | None = None
        self._warned_at = float("-inf")

    @property
    def holder(self) -> str:
        """The full identity of the last known holder of the Lease; empty for no holder."""
        return self._holder or ""

    async def run(self, lead: Lead) -> None:
        """Wait for the Lease, call `lead(fence)`, and renew the Lease until `lead` ends; after losing it, wait again.

        `lead` goes on while the term is suspended, and is cancelled when the Lease is lost. When it returns or raises,
        or this call is cancelled, the Lease is released, unless its fence is `kept`, and `run` returns or raises too
        (errors of `lead` in an ExceptionGroup). A NotLeading that escapes from `lead` counts as losing the Lease.
        """
        while True:
            fence = self.stats.fence = await self._acquire()
            self.stats.terms += 1
            lost = False
            try:
                lost = await self._term(lead, fence)
            finally:
                fence.close()
                self.stats.fence = None
                if not lost and not fence.kept:
                    await self._release()
            if not lost:
                return

    # --- a candidate --------------------------------------------------------------------------------------------------

    async def _acquire(self) -> Fence:
        period = min(self._retry_period, CHECK_SECONDS)
        while True:
            try:
                async with asyncio.timeout(self._renew_deadline):
                    fence = await self._try_acquire()
            except Exception as error:
                self._warn("lease.acquire_failed", error=_words(error), cure=CURE_RENEWAL)
                fence = None
            if fence is not None:
                _log.info("lease.acquired", lease=self._name, identity=self.identity, epoch=fence.epoch)
                return fence
            wait = period * (1.0 + 0.2 * self._jitter())
            left = self._left_to_holder()
            await asyncio.sleep(min(wait, left + 0.01) if left > 0 else wait)

    async def _try_acquire(self) -> Fence | None:
        try:
            lease = await self._read()
        except NotFound:
            if self._left_to_holder() > 0:
                return None  # the Lease was deleted while its holder may still rely on it
            lease = None
        if self._left_to_holder() > 0 or self._holds_back():
            return None
        transitions = (lease.spec.lease_transitions or 0) + 1 if lease is not None else 1
        started = self._clock()
        now = micro_time(self._wall())
        spec = self._spec(acquire_time=now, renew_time=now, lease_transitions=transitions)
        try:
            await self._write(spec, lease)
        except Conflict:  # another candidate was faster; AlreadyExists is a Conflict too
            return None
        # A tenth of the time is left for clocks of different speed.
        grace = 0.9 * (self._lease_duration - self._renew_deadline)
        return Fence(clock=self._clock, epoch=transitions, renewed_at=started, span=self._renew_deadline, grace=grace)

    def _left_to_holder(self) -> float:
        """Seconds for which another holder may still rely on the Lease, on this process's clock."""
        if self._seen is None or not self._holder or self._holder == self.identity:
            return 0.0
        duration = self._seen.spec.lease_duration_seconds or self._lease_duration
        return self._changed_at + duration - self._clock()

    # --- a leader -----------------------------------------------------------------------------------------------------

    async def _term(self, lead: Lead, fence: Fence) -> bool:
        """Lead until `lead` ends (False) or the Lease is lost (True)."""
        lost = False
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._keep(fence), name="lease-renewal")
                await lead(fence)
                renewing.cancel()
        except* (_Lost, NotLeading) as why:  # the fence may stop `lead` before the renewal fails
            lost = True
            _log.error("lease.lost", lease=self._name, epoch=fence.epoch, why=str(why.exceptions[0]), cure=CURE_LOST)
        return lost

    async def _keep(self, fence: Fence) -> None:
        """Renew for ever. Closes the fence and raises _Lost when another process may lead."""
        pause = self._renew_period * (1.0 + 0.1 * self._jitter())
        suspended = False
        while True:
            await asyncio.sleep(pause)
            # One attempt gets part of the time: its connection may be dead, and the next attempt uses another.
            limit = max(0.6 * fence.remaining, self._renew_deadline / 3)
            try:
                async with asyncio.timeout(limit):
                    await self._renew(fence)
            except _Lost:
                fence.close()
                raise
            except Exception as error:
                self.stats.failed += 1
                first = not self.stats.failure
                self.stats.failure = _words(error, timeout=f"no answer within {limit:.1f} s")
                if first:
                    self._warn("lease.renewal_failed", epoch=fence.epoch, error=self.stats.failure, cure=CURE_RENEWAL)
                pause = self._retry_period * (1.0 + 0.2 * self._jitter())
                if fence.remaining > 0:
                    pause = min(pause, fence.remaining)
                elif not suspended:
                    suspended = True
                    self.stats.suspensions += 1
                    _log.error("lease.suspended", lease=self._name, epoch=fence.epoch, why=self.stats.failure)
            else:
                self.stats.failure = ""
                if suspended:
                    suspended = False
                    _log.info("lease.resumed", lease=self._name, epoch=fence.epoch)
                pause = self._renew_period * (1.0 + 0.1 * self._jitter())

    async def _renew(self, fence: Fence) -> None:
        if why := self._holds_back():
            raise _HeldBack(why)
        started = self._clock()
        try:
            await self._write(self._spec(renew_time=micro_time(self._wall())), self._seen)
        except Conflict:
            before = self._seen
            seen = await self._read()
            if before is not None and answers.number(seen.metadata.resource_version) < answers.number(
                before.metadata.resource_version
            ):
                raise _Lost("the Lease is older than before: etcd was restored from a backup") from None
            if self._holder != self.identity:
                raise _Lost(
                    f"the Lease is held by {self._holder}" if self._holder else "the Lease has no holder"
                ) from None
            if seen.spec.lease_transitions != fence.epoch:
                raise _Lost(f"the Lease is in term {seen.spec.lease_transitions}, not {fence.epoch}") from None
            raise  # still the holder: an abandoned renewal succeeded, or another client changed a label
        except NotFound:
            raise _Lost("the Lease was deleted") from None
        fence.extend(started)
        self.stats.renewed += 1
        self.stats.seconds = self._clock() - started

    def _warn(self, event: str, **fields: object) -> None:
        """Log a warning, unless there was one less than `WARN_SECONDS` ago."""
        now = self._clock()
        if now - self._warned_at >= WARN_SECONDS:
            self._warned_at = now
            _log.warning(event, lease=self._name, **fields)

    async def _release(self) -> None:
        """Clear the holder of the Lease, if this process still holds it. Never raises."""
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(1.0):
                while self._holder == self.identity:
                    try:
                        await self._write(spec | {"renewTime": micro_time(self._wall())}, self._seen)
                    except Conflict:
                        await self._read()
        except Exception as error:
            _log.warning("lease.release_failed", lease=self._name, error=f"{type(error).__name__}: {error}")
        else:
            _log.info("lease.released", lease=self._name, identity=self.identity)

    # --- the record ---------------------------------------------------------------------------------------------------

    def _spec(self, **values: object) -> dict[str, object]:
        given = {_WIRE[attribute]: value for attribute, value in values.items()}
        return {"holderIdentity": self.identity, "leaseDurationSeconds": self._lease_duration, **given}

    async def _read(self) -> Lease:
        path = Lease.path(self._name, self._namespace)
        return self._see(await self._transport.request("GET", path, retry="never"))

    async def _write(self, spec: dict[str, object], base: Lease | None) -> Lease:
        """Write the spec over the version `base`, or create the Lease. Raises Conflict after another write."""
        if base is None:
            body: dict[str, object] = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            method, path, content_type = "POST", Lease.collection_path(self._namespace), "application/json"
        else:
            body = {"metadata": {"resourceVersion": base.metadata.resource_version}, "spec": spec}
            method, path = "PATCH", Lease.path(self._name, self._namespace)
            content_type = "application/merge-patch+json"
        return self._see(
            await self._transport.request(
                method,
                path,
                params={"fieldManager": names.FIELD_MANAGER},
                body=msgspec.json.encode(body),
                content_type=content_type,
                retry="never",
            )
        )

    def _see(self, answer: bytes) -> Lease:
        """Remember the Lease. Only a change of its spec counts as a sign of life of the holder.

        Raises Unreadable if the answer is not this Lease."""
        lease = answers.read_object(_DECODER.decode, answer, f"Lease {self._name}", name=self._name)
        self.stats.transitions = lease.spec.lease_transitions or 0
        if self._seen is None or lease.spec != self._seen.spec:
            self._changed_at = self._clock()
        self._seen = lease
        holder = lease.spec.holder_identity or ""
        if holder != self._holder:
            self._holder = holder
            if self._on_change is not None:
                self._on_change(holder)
        return lease


_DECODER = msgspec.json.Decoder(Lease)
_WIRE = {"acquire_time": "acquireTime", "renew_time": "renewTime", "lease_transitions": "leaseTransitions"}


def _words(error: Exception, *, timeout: str = "no answer in time") -> str:
    if isinstance(error, _HeldBack):
        return str(error)
    return timeout if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
