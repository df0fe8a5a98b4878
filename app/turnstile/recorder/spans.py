"""Makes spans of facts: one trace a Workload, and in it what it waited for, and each time that it ran.

Pure. Ids are made of the Workload's uid and of dates that its object states, so the next leader goes on with the same
trace, and a span that is made twice is the same span. Must never send.

| span | from | until |
|---|---|---|
| `workload` | creation | end of the job, or deletion of the Workload |
| `queued` | creation or eviction | quota is reserved |
| `admission checks` | quota is reserved | admission, where the one did not bring the other |
| `running` | admission | eviction, end or deletion |
| `evicted` | eviction | quota is free again: pods stop |
"""

import hashlib
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from turnstile.api.workload import Workload
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.recorder.facts import Fact, attempt_of

Value = str | int


class Span(msgspec.Struct, frozen=True, gc=False):
    """A part of a Workload's life that has ended. `parent` is 0 for the whole of it."""

    name: str
    trace: int
    span: int
    parent: int
    begin: Instant
    end: Instant
    attributes: dict[str, Value]
    failed: str = ""
    """Why it went wrong; empty if it did not."""


@dataclass(slots=True)
class _Life:
    """The state of a Workload that is not over."""

    trace: int
    created: Instant
    attributes: dict[str, Value]
    begun: dict[str, Instant] = field(default_factory=dict)
    """When spans began that have not ended, by name."""


class Lives:
    """The Workloads of a leader, and the spans that end."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}

    def __len__(self) -> int:
        return len(self._lives)

    def gone(self, workload: Workload, at: Instant) -> list[Span]:
        """The Workload was deleted."""
        life = self._lives.pop(workload.metadata.uid, None)
        if life is None:
            return []
        return [*self._end_all(life, at, None), self._whole(workload, life, at, "deleted")]

    def follow(self, workload: Workload, fact: Fact) -> list[Span]:
        """The spans that end with a fact; others begin."""
        meta = workload.metadata
        life = self._lives.get(meta.uid)
        if life is None:
            if fact.what != "created":  # what changes of a Workload that is over
                return []
            life = _Life(trace_of(meta.uid), instant_or_zero(meta.creation_timestamp), attributes(workload))
            self._lives[meta.uid] = life
        at = fact.at
        if workload.status.admission is not None:
            life.attributes["turnstile.cluster_queue"] = workload.status.admission.cluster_queue
        if fact.what == "created":
            if not attempt_of(workload):  # else another leader saw when it began to wait anew
                life.begun["queued"] = life.created
            return []
        if fact.what == "waiting":
            if "queued" in life.begun:
                return []
            ended = self._end_all(life, at, fact)  # another leader saw when quota was released
            life.begun["queued"] = at
            return ended
        if fact.what == "reserved":
            ended = self._end(life, "queued", at, fact)
            life.begun["admission checks"] = at
            return ended
        if fact.what == "admitted":
            if life.begun.get("admission checks") == at:
                del life.begun["admission checks"]
            ended = self._end(life, "admission checks", at, fact)
            life.begun["running"] = at
            return ended
        if fact.what == "evicted":
            ended = self._end_all(life, at, fact, why=fact.reason)
            life.begun["evicted"] = at
            return ended
        if fact.what == "released":
            ended = self._end_all(life, at, fact)
            life.begun["queued"] = at
            return ended
        if fact.what == "finished":
            ended = [*self._end_all(life, at, fact), self._whole(workload, life, at, fact.reason)]
            del self._lives[meta.uid]
            return ended
        return []

    def _end(self, life: _Life, name: str, at: Instant, fact: Fact | None, *, why: str = "") -> list[Span]:
        begin = life.begun.pop(name, None)
        if begin is None:
            return []
        more: dict[str, Value] = {"turnstile.evictions": fact.attempt} if fact is not None else {}
        if why:
            more["turnstile.reason"] = why
        own, root = id_of(life.trace, name, begin), id_of(life.trace, "workload", life.created)
        return [Span(name, life.trace, own, root, begin, max(begin, at), {**life.attributes, **more}, why)]

    def _end_all(self, life: _Life, at: Instant, fact: Fact | None, *, why: str = "") -> list[Span]:
        return [span for name in list(life.begun) for span in self._end(life, name, at, fact, why=why)]

    def _whole(self, workload: Workload, life: _Life, at: Instant, reason: str) -> Span:
        more: dict[str, Value] = {"turnstile.evictions": attempt_of(workload), "turnstile.reason": reason}
        root = id_of(life.trace, "workload", life.created)
        failed = reason if reason == "Failed" else ""
        begin = life.created
        return Span("workload", life.trace, root, 0, begin, max(begin, at), {**life.attributes, **more}, failed)


def trace_of(uid: str) -> int:
    """The id of a Workload's trace: its uid, whose 128 bits are as many."""
    try:
        return UUID(uid).int or 1
    except ValueError:  # no API server gives such a uid
        return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:16], "big") or 1


def id_of(trace: int, name: str, begin: Instant) -> int:
    """The id of a span of a trace, always the same."""
    digest = hashlib.sha256(f"{trace:032x}/{name}/{begin:.0f}".encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def attributes(workload: Workload) -> dict[str, Value]:
    """The attributes that each span of a Workload has."""
    meta = workload.metadata
    owner = meta.controller or next(iter(meta.owner_references), None)
    found: dict[str, Value] = {
        "k8s.namespace.name": meta.namespace,
        "turnstile.workload.name": meta.name,
        "turnstile.workload.uid": meta.uid,
        "turnstile.local_queue": workload.spec.queue_name or "",
        "turnstile.priority": workload.spec.priority or 0,
    }
    if owner is not None:
        found |= {"turnstile.job.kind": owner.kind, "turnstile.job.name": owner.name}
    return found
