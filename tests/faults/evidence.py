"""What each leader knew when it decided, from its decision log and the recorded objects: evidence, not inference.

A log says which version of which object the leader's ledger took in; the recording has every version. Put together they
are the quota, the line and the holders as they were known in each cycle, counted by `moments`. Of what the leader says
of itself only its decisions are taken over. Must never judge; see `promises`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from testbed.client import Json
from tests.faults.moments import Claim, Replay, is_true, total
from tests.faults.recording import Event
from tests.model.quota import Limits, Tree
from tests.model.rules import Policy

KINDS = {
    "put_workload": "workloads",
    "put_cluster_queue": "clusterqueues",
    "put_cohort": "cohorts",
    "put_local_queue": "localqueues",
    "drop_workload": "workloads",
    "drop_cluster_queue": "clusterqueues",
    "drop_cohort": "cohorts",
    "drop_local_queue": "localqueues",
}
"""Events of the log that change what counts, and the kind each is about."""


@dataclass(frozen=True)
class Victim:
    """Whom a decision wants gone; `new` if nobody had asked for that before."""

    uid: str
    queue: str
    reason: str
    new: bool


@dataclass(frozen=True)
class Decided:
    """What a cycle decided about one Workload."""

    uid: str
    queue: str
    outcome: str
    requeue: str
    borrowing: int
    victims: tuple[Victim, ...]

    @property
    def claims(self) -> bool:
        """Whether those who come after it in the cycle must leave it its room."""
        return self.outcome == "admit" or self.requeue == "PendingPreemption"

    @property
    def gone(self) -> set[str]:
        """Uids of all it wants gone."""
        return {victim.uid for victim in self.victims}

    @property
    def evicts(self) -> bool:
        """Whether it has somebody evicted who was not on his way out."""
        return any(victim.new for victim in self.victims)


@dataclass(frozen=True)
class Look:
    """One cycle of one leader: what it knew at its start, and what it decided, in order.

    `term` counts leaders. `newest` is the highest revision it knew of. `holding` has those in `assumed` too, who were
    let in and not seen so yet; those in `going` were evicted, or are to be. Those in `left` stopped waiting, or
    asked for something else, at some time since the cycle before, though they may wait again as they did.
    """

    term: int
    leader: str
    cycle: int
    newest: int
    limits: Mapping[str, Limits]
    policies: Mapping[str, Policy]
    waiting: Mapping[str, Claim]
    holding: Mapping[str, Claim]
    assumed: frozenset[str]
    going: frozenset[str]
    left: frozenset[str]
    decisions: list[Decided] = field(default_factory=list)

    @cached_property
    def tree(self) -> Tree:
        """The quota it knew of."""
        return Tree(self.limits)

    def usage(self, *, without: Iterable[str] = (), beside: Mapping[str, Claim] | None = None) -> dict[str, int]:
        """What is held, with some gone and others let in."""
        gone = set(without)
        return total({**{uid: each for uid, each in self.holding.items() if uid not in gone}, **(beside or {})})

    def place(self, uid: str) -> int | None:
        """Where in the order of the cycle a Workload was decided about."""
        return next((index for index, decided in enumerate(self.decisions) if decided.uid == uid), None)

    def __str__(self) -> str:
        return f"cycle {self.cycle} of {self.leader}"


def looks(logs: Iterable[Path], history: list[Event]) -> list[Look]:
    """All cycles that decided anything, leader after leader. Fails if a log names a version that was not recorded."""
    terms = sorted((term for path in logs for term in _terms(path)), key=lambda lines: int(lines[0]["epoch"]))
    versions = _Versions(history)
    return [look for number, lines in enumerate(terms) for look in _Term(number, versions).looks(lines)]


def _terms(path: Path) -> Iterator[list[Json]]:
    lines: list[Json] = []
    for text in path.read_bytes().splitlines(keepends=True):
        if not text.endswith(b"\n"):
            break  # it was killed while it wrote this one: nothing followed from it
        line = json.loads(text)
        if "leading" in line and lines:
            yield lines
            lines = []
        lines.append(line)
    if lines:
        yield lines


class _Versions:
    """Every recorded version of every object."""

    def __init__(self, history: list[Event]) -> None:
        self._by_uid: dict[str, dict[int, Json]] = {}
        self.newest = max((event.revision for event in history), default=0)
        for event in history:
            if event.new is not None:
                meta = event.new["metadata"]
                self._by_uid.setdefault(meta["uid"], {})[int(meta["resourceVersion"])] = event.new

    def find(self, uid: str, revision: int) -> Json | None:
        """That version; the first one for what is older than the recording; None for what does not concern it."""
        known = self._by_uid.get(uid)
        if known is None:
            return None
        if revision not in known:
            first = min(known)
            assert revision < first, f"version {revision} of {known[first]['metadata']['name']} was not recorded"
            return known[first]
        return known[revision]


class _Term:
    """What one leader came to know, line by line."""

    def __init__(self, number: int, versions: _Versions) -> None:
        self._number = number
        self._versions = versions
        self._replay = Replay()
        self._uids: dict[tuple[str, str], str] = {}
        self._known: dict[str, Json] = {}
        self._seen: dict[str, int] = {}
        self._assumed: dict[str, Claim] = {}
        self._evicting: set[str] = set()
        self._left: set[str] = set()
        self._newest = 0

    def looks(self, lines: list[Json]) -> Iterator[Look]:
        """The cycles of the term."""
        leader = lines[0]["leading"]
        look: Look | None = None
        for line in lines[1:]:
            if int(line.get("resourceVersion") or 0) > self._versions.newest:
                break  # the recording had ended
            if "event" in line:
                if look is not None:
                    yield self._done(look)
                    look = None
                self._take(line)
                continue
            if look is not None and look.cycle != line["cycle"]:
                yield self._done(look)
                look = None
            if look is None:
                look = self._look(leader, line["cycle"])
            look.decisions.append(_decided(line))
        if look is not None:
            yield self._done(look)

    def _look(self, leader: str, cycle: int) -> Look:
        replay = self._replay
        holding = {**self._assumed, **replay.holding}
        going = self._evicting.union(uid for uid, claim in replay.holding.items() if claim.evicted)
        left, self._left = self._left, set()
        return Look(
            term=self._number,
            leader=leader,
            cycle=cycle,
            newest=self._newest,
            limits=replay.limits,
            policies=replay.policies,
            waiting={uid: claim for uid, claim in replay.waiting.items() if uid not in self._assumed},
            holding=holding,
            assumed=frozenset(self._assumed.keys() - replay.holding.keys()),
            going=frozenset(going & holding.keys()),
            left=frozenset(left),
        )

    def _done(self, look: Look) -> Look:
        """What was decided counts from now on. Those that were tried behind a head that waits for its victims, and not
        let in, had no turn of their own."""
        heads: set[str] = set()
        for decided in look.decisions.copy():
            if decided.queue in heads and decided.outcome != "admit":
                look.decisions.remove(decided)
            heads.add(decided.queue)
        for decided in look.decisions:
            if decided.outcome == "admit":
                claim = look.waiting.get(decided.uid)
                if claim is not None:
                    self._assumed[decided.uid] = replace(claim, evicted="")
            self._evicting |= {victim.uid for victim in decided.victims if victim.new}
        return look

    def _take(self, line: Json) -> None:
        event, key = line["event"], line.get("key", "")
        kind = KINDS.get(event, "workloads")
        uid = line.get("uid") or self._uids.get((kind, key), "")
        if event == "forget":
            self._assumed.pop(uid, None)
        elif event == "forget_eviction":
            self._evicting.discard(uid)
        elif event == "confirm":
            self._seen[uid] = max(self._seen.get(uid, 0), int(line["resourceVersion"]))
        elif event.startswith("drop_") and event in KINDS:
            self._seen.pop(uid, None)
            self._put(kind, uid, None)
        elif event in KINDS:
            self._saw(kind, key, uid, int(line["resourceVersion"]))

    def _saw(self, kind: str, key: str, uid: str, revision: int) -> None:
        obj = self._versions.find(uid, revision)
        if obj is None or revision < self._seen.get(uid, 0):
            return
        earlier = self._uids.get((kind, key))
        if earlier is not None and earlier != uid:  # a namesake, whose end was not seen
            self._put(kind, earlier, None)
        self._uids[kind, key] = uid
        self._seen[uid] = revision
        self._newest = max(self._newest, revision)
        self._put(kind, uid, obj)

    def _put(self, kind: str, uid: str, obj: Json | None) -> None:
        old = self._known.pop(uid, None)
        if obj is not None:
            self._known[uid] = obj
        elif old is None:
            return
        waited = self._replay.waiting
        self._replay.moments([Event(self._newest, 0.0, kind, old, obj)])
        if self._replay.waiting is not waited:
            now = self._replay.waiting
            self._left |= {u for u, claim in waited.items() if u not in now or now[u].terms != claim.terms}
        if kind == "workloads" and (obj is None or is_true(obj, "QuotaReserved") or is_true(obj, "Finished")):
            self._assumed.pop(uid, None)
        if kind != "workloads":
            return
        # one that is assumed may still show why it was evicted the time before
        evicted = obj is not None and is_true(obj, "Evicted") and uid not in self._assumed
        if obj is None or evicted or is_true(obj, "Finished"):
            self._evicting.discard(uid)


def _decided(line: Json) -> Decided:
    return Decided(
        uid=line["uid"],
        queue=line["clusterQueue"],
        outcome=line["outcome"],
        requeue=line["requeue"],
        borrowing=line["borrowing"],
        victims=tuple(
            Victim(each["uid"], each["clusterQueue"], each["reason"], each["new"]) for each in line["victims"]
        ),
    )
