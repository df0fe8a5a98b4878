"""The difference that a change makes: the course of things with the change beside the course without it.

A course is what the engine's cycles decide from a snapshot on: first as things are, then in rounds. A round begins
when all Workloads that hold quota have finished; rounds end when nothing more is admitted. So a Workload starves if it
would not be admitted even when all is quiet, and one of a later round waits longer. Nobody knows here how long
Workloads run (`forecast` does). Must never decide anything itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.engine.causes import Cause
from turnstile.engine.instants import Instant
from turnstile.engine.quota.tree import available
from turnstile.insight import rights
from turnstile.insight.consequences import Change, after
from turnstile.insight.snapshot import Sees, Snapshot, name_of, names_of, refusals
from turnstile.insight.whatif import Fate, decided, pending
from turnstile.wording.amounts import amount, nodes
from turnstile.wording.inactivity import inactive
from turnstile.wording.standing import missing_cluster_queue

What = Literal["admitted", "preempted", "evicted", "released", "starves", "later", "sooner", "spared", "rescued"]
"""The fate of a Workload under a change. `admitted` now, and not without the change; `preempted` and not without;
`evicted` by its queue; `released`: a reservation that was never admitted is taken back; `starves`, and not without;
`later` and `sooner`: in another round, or not at once any more; `spared`: preempted without the change; `rescued`:
starves without the change."""
WHATS: Final[tuple[What, ...]] = What.__args__  # type: ignore[attr-defined]

_SAID_BY_VERDICT: Final[frozenset[What]] = frozenset(("admitted", "starves", "later", "sooner", "rescued"))


class Effect(msgspec.Struct, frozen=True):
    """The fate of one Workload under the change."""

    workload: str
    cluster_queue: str
    what: What
    reason: str = ""
    message: str = ""
    by: str = ""
    """The preemptor."""
    flavors: tuple[dict[str, str], ...] = ()
    before: int | None = None
    """Its round without the change: 0 is now; None if it has none."""
    after: int | None = None
    """Its round with the change."""


class Verdict(msgspec.Struct, frozen=True):
    """The fate of a Workload that the change is about."""

    workload: str
    cluster_queue: str
    outcome: Literal["admitted", "reserved", "waits", "starves"]
    """`reserved`: it holds quota and waits for its admission checks."""
    flavors: tuple[dict[str, str], ...] = ()
    preempts: tuple[str, ...] = ()
    round: int | None = None
    reason: str = ""
    message: str = ""
    explanation: str = ""


class QueueEffect(msgspec.Struct, frozen=True):
    """A ClusterQueue that the change starts or stops, or lets hold more than its quota. `message` says it."""

    cluster_queue: str
    what: Literal["inactive", "active", "over quota"]
    message: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. Workloads that the asker may not see are counted in `hidden` only."""

    asked: tuple[Verdict, ...] = ()
    effects: tuple[Effect, ...] = ()
    queues: tuple[QueueEffect, ...] = ()
    hidden: dict[str, int] = {}
    waits: int = 0
    """Workloads that wait with the change, besides those that are admitted at once."""
    waits_before: int = 0
    starve_anyway: int = 0
    """Workloads that starve with and without the change."""
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Sentences on objects that could not be read: the answer does not count with them."""


def difference(
    snapshot: Snapshot, options: Options, now: Instant, change: Change, *, sees: Sees = lambda _: True
) -> Difference:
    """The difference that a change makes. Raises InvalidValue for a change that the API server would refuse, and for a
    Workload that has finished: it can neither start nor wait."""
    over = (put.metadata.key for put in change.put if isinstance(put, Workload) and put.finished)
    if key := next(over, ""):
        raise InvalidValue("workload", key, "it has finished: ask about one that waits or runs")
    changed = after(snapshot, change, now)
    before_state, _ = snapshot.state(options, now)
    after_state, refused = changed.snapshot.state(options, now)
    queues = tuple(_queues(before_state, after_state))
    without, with_ = Course(before_state, now), Course(after_state, now)
    lost = {each.key: each for each in changed.released}
    effects = [
        Effect(
            each.key, each.cluster_queue, "evicted" if each.evicted else "released", each.reason, each.message,
            before=0, after=with_.rounds.get(each.key),
        )
        for each in lost.values()
    ]  # fmt: skip
    effects += [each for each in _effects(without, with_) if each.workload not in lost]
    asked = [each.metadata.key for each in change.put if isinstance(each, Workload)]
    shown, hidden = [], dict[str, int]()
    for each in effects:
        if each.workload in asked and each.what in _SAID_BY_VERDICT:
            continue
        if sees(each.workload.partition("/")[0]):
            shown.append(_naming(each, sees))
        else:
            hidden[each.what] = hidden.get(each.what, 0) + 1
    return Difference(
        asked=tuple(with_.verdict(key, sees) for key in asked),
        effects=tuple(sorted(shown, key=lambda each: (WHATS.index(each.what), each.workload))),
        queues=queues,
        hidden=hidden,
        waits=len(with_.waiting),
        waits_before=len(without.waiting),
        starve_anyway=len(with_.starving.keys() & without.starving.keys()),
        notes=(*changed.notes, *refusals(refused, sees)),
        unread=rights.unread(snapshot),
    )


@dataclass(slots=True)
class Course:
    """The decisions of the engine on a state, which it changes, until all is quiet."""

    state: State
    now: Instant
    held: frozenset[str] = frozenset()
    """Workloads that held quota in the beginning."""
    fates: dict[str, Fate] = field(default_factory=dict)
    """The last fate of each Workload whose fate is decided now."""
    preempted: dict[str, Fate] = field(default_factory=dict)
    """Workloads that held quota in the beginning and are preempted now."""
    waiting: dict[str, Fate] = field(default_factory=dict)
    """Workloads that wait when nothing more is decided now."""
    rounds: dict[str, int] = field(default_factory=dict)
    """The round in which a Workload is admitted; 0 is now."""
    starving: dict[str, Fate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = frozenset(_holders(self.state))
        for _, fates in decided(self.state, self.now):
            for fate in fates:
                self.fates[fate.key] = fate
                if fate.outcome == "preempted" and fate.key in self.held:
                    self.preempted.setdefault(fate.key, fate)
        self.waiting = self._pending(0)
        self.rounds = dict.fromkeys(_holders(self.state), 0)
        number = 0
        while self.state.queues.waiting and self._next(number := number + 1):
            pass
        self.starving = self._pending(number)

    def _next(self, number: int) -> bool:
        """One round: whether anything was left to finish."""
        holders = _holders(self.state)
        for key in holders:
            self.state.drop_workload(key)
        for _ in decided(self.state, self.now):
            pass
        for key in _holders(self.state):
            self.rounds.setdefault(key, number)
        return bool(holders)

    def _pending(self, number: int) -> dict[str, Fate]:
        """Workloads that wait, with reasons. One that was not tried because an equal one failed has the reason of that
        one in its explanation."""
        fates = {key: pending(self.state, key, number) for key in self.state.queues.waiting}
        hashes = {key: (fate.cluster_queue, self.state.queues.waiting[key].hash) for key, fate in fates.items()}
        tried = {key: fate for key, fate in fates.items() if fate.message != Cause.EQUAL_FAILED.says()}
        by_hash = {hashes[key]: fate for key, fate in tried.items()}
        return {
            key: fate._replace(explanation=by_hash[hashes[key]].explanation)
            if key not in tried and hashes[key] in by_hash
            else fate
            for key, fate in fates.items()
        }

    def verdict(self, key: str, sees: Sees) -> Verdict:
        """The fate of one Workload."""
        fate = self.waiting.get(key)
        last = self.fates.get(key)
        if fate is not None:
            starves = key in self.starving
            why = self.starving[key] if starves else fate
            outcome: Literal["waits", "starves"] = "starves" if starves else "waits"
            return Verdict(
                key, why.cluster_queue, outcome, round=self.rounds.get(key),
                reason=why.reason, message=why.message, explanation=why.explanation,
            )  # fmt: skip
        if last is not None and last.outcome in ("admitted", "reserved"):
            preempts = sorted(each.key for each in self.preempted.values() if each.preemptor == key)
            outcome_now: Literal["admitted", "reserved"] = "admitted" if last.outcome == "admitted" else "reserved"
            return Verdict(key, last.cluster_queue, outcome_now, last.flavors, names_of(preempts, sees), round=0)
        if key in self.held:
            return Verdict(key, "", "admitted", round=0, message="it holds its quota already")
        return Verdict(key, "", "starves", message="it is not in line: it is not active, finished or held back")


def _holders(state: State) -> list[str]:
    return [key for queue in state.cluster_queues.values() for key in queue.workloads]


def _naming(effect: Effect, sees: Sees) -> Effect:
    """The effect without the name of a preemptor that the asker may not see."""
    return msgspec.structs.replace(effect, by=name_of(effect.by, sees)) if effect.by else effect


def _effects(without: Course, with_: Course) -> Iterator[Effect]:
    for key, fate in with_.preempted.items():
        if key not in without.preempted:
            again = with_.rounds.get(key)
            yield Effect(
                key, fate.cluster_queue, "preempted", fate.reason, fate.message, fate.preemptor, before=0, after=again
            )
    for key, fate in without.preempted.items():
        if key not in with_.preempted and key in with_.state.workloads | with_.rounds:
            yield Effect(key, fate.cluster_queue, "spared", fate.reason, fate.message, fate.preemptor, after=0)
    for key, fate in with_.fates.items():
        if fate.outcome in ("admitted", "reserved") and without.rounds.get(key) != 0 and key not in with_.held:
            before = without.rounds.get(key)
            yield Effect(key, fate.cluster_queue, "admitted", flavors=fate.flavors, before=before, after=0)
    for key, fate in with_.starving.items():
        if key not in without.starving:
            before = without.rounds.get(key)
            yield Effect(key, fate.cluster_queue, "starves", fate.reason, _said(fate), before=before)
    for key, fate in without.starving.items():
        if key not in with_.starving and (now := with_.rounds.get(key)):
            yield Effect(key, fate.cluster_queue, "rescued", after=now)
    yield from _moved(without, with_)


def _moved(without: Course, with_: Course) -> Iterator[Effect]:
    """Workloads that are admitted in another round."""
    for key, before in without.rounds.items():
        now = with_.rounds.get(key)
        if now is None or now == before or now == 0 or key in with_.preempted:
            continue
        fate = with_.waiting.get(key)
        queue, message = (fate.cluster_queue, _said(fate)) if fate is not None else ("", "")
        reason = fate.reason if fate is not None else ""
        yield Effect(key, queue, "later" if now > before else "sooner", reason, message, before=before, after=now)


def _said(fate: Fate) -> str:
    return fate.explanation or fate.message


def _queues(before: State, now: State) -> Iterator[QueueEffect]:
    for name in now.cluster_queues:
        active, _, message = now.questions.active_reason(name)
        was = name not in before.cluster_queues or before.questions.active_reason(name)[0]
        if was and not active:
            yield QueueEffect(name, "inactive", inactive(message))
        elif active and not was:
            yield QueueEffect(name, "active", message)
    for name in before.cluster_queues.keys() - now.cluster_queues.keys():
        yield QueueEffect(name, "inactive", missing_cluster_queue(name))
    over = dict(_over(before))
    for (name, flavor, resource), (held, excess) in _over(now):
        if over.get((name, flavor, resource)) != (held, excess):
            where, more = nodes(flavor), amount(resource, excess, more=True)
            message = f"it holds {amount(resource, held)} on {where}: {more} than quotas of it or its cohort allow;"
            message += " Workloads keep what they hold until they end"
            yield QueueEffect(name, "over quota", message)


def _over(state: State) -> Iterator[tuple[tuple[str, str, str], tuple[int, int]]]:
    """Amounts that ClusterQueues hold of flavors and resources over their quotas, and how much is over."""
    state.ledger.settle()
    for name, queue in state.cluster_queues.items():
        if state.ledger.cyclic(queue.node):
            continue
        for pair, held in queue.held().items():
            free = available(queue.node, pair)
            if free < 0:
                yield (name, pair.flavor, pair.resource), (held, -free)
