"""Facts, as values: those about Workloads, and the quotas of ClusterQueues and Cohorts.

Pure functions of the versions of objects that the stores have seen. They run in the event loop, for every change of a
Workload, so they take a few microseconds.

A fact that an object itself dates (a condition became true) has a `mark` made of that date: a leader that derives the
fact again after a restart or a change of leader makes the same mark, and it is stored once.
A fact that only its observer can date is `observed`: it is stored unless it repeats the newest one of its kind.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Condition, find_condition
from turnstile.api.quantity import to_int
from turnstile.api.quota import ResourceGroup
from turnstile.api.workload import Workload
from turnstile.engine.decisions import preempting_queue, preemptor_uid
from turnstile.engine.instants import Instant, instant, instant_or_zero

What = Literal[
    "created", "waiting", "tried", "reserved", "check", "admitted", "ready", "pods", "usage", "evicted", "released",
    "finished", "deleted",
]  # fmt: skip
"""A fact about a Workload:

- `created`: the object.
- `waiting`: its status tells another reason why it has no quota.
- `tried`: the scheduler looked at it and decided something else than the time before; `detail` has the outcome, the
  amounts that were short, and the Workloads to be preempted for it.
- `reserved`: quota was reserved; `detail` has the ClusterQueue and the usage by flavor and resource.
- `check`: an admission check has another state.
- `admitted`: its job may run.
- `ready`: its pods are ready.
- `pods`: while it holds quota, a pod of it began to run, or none runs; `detail` says which.
- `usage`: it holds less or more quota than before, because pods ended.
- `evicted`: it has to stop; of a preempted one `detail` has the preemptor.
- `released`: its quota is free again.
- `finished`: its job ended.
- `deleted`: the object is gone.
"""

Pair = tuple[str, str]
"""Flavor and resource."""
LONGEST: Final = 2000
"""Characters of a message that are kept."""


class Subject(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A Workload: what identifies it, and what never changes or is of interest as it was at first."""

    uid: str
    namespace: str
    name: str
    owner_kind: str
    owner_name: str
    local_queue: str
    priority: int
    created: Instant
    labels: dict[str, str]


class Fact(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Something that happened to a Workload at an instant. `attempt` is the number of its evictions until then."""

    uid: str
    what: What
    at: Instant
    attempt: int
    mark: str
    observed: bool
    reason: str = ""
    message: str = ""
    detail: dict[str, Any] | None = None


class Quota(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The quota of a ClusterQueue or Cohort from an instant on: flavor, resource, nominal, borrowing and lending limit
    each. `gone` is True for one that was deleted. The first quota that is recorded of a name holds since it was
    `created`."""

    kind: Literal["ClusterQueue", "Cohort"]
    name: str
    at: Instant
    parent: str
    amounts: tuple[tuple[str, str, int, int | None, int | None], ...]
    gone: bool = False
    created: Instant | None = None


class Line(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A line of the decision log, by its number in a leader's term."""

    term: str
    number: int
    at: Instant
    text: str


Record = Subject | Fact | Quota | Line


def of_change(old: Workload | None, new: Workload | None, now: Instant) -> Iterator[Record]:
    """Facts about a Workload between two versions of it; for the first version, all that it shows."""
    if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
        yield Fact(old.metadata.uid, "deleted", now, attempt_of(old), "", observed=True)
        old = None
    if new is None:
        return
    if old is None:
        yield from _first(new)
    before, after = old.status if old is not None else None, new.status
    if before is None or before.conditions != after.conditions:
        yield from _conditions(old, new, now)
    if after.admission_checks and (before is None or before.admission_checks != after.admission_checks):
        yield from _checks(old, new, now)
    if (before is None or before.reclaimable_pods != after.reclaimable_pods) and after.reclaimable_pods:
        yield from _usage(new, now)


def _first(new: Workload) -> Iterator[Record]:
    meta, owner = new.metadata, new.metadata.controller or next(iter(new.metadata.owner_references), None)
    created = instant_or_zero(meta.creation_timestamp)
    yield Subject(
        meta.uid,
        meta.namespace,
        meta.name,
        owner.kind if owner is not None else "",
        owner.name if owner is not None else "",
        new.spec.queue_name or "",
        new.spec.priority or 0,
        created,
        meta.labels,
    )
    yield Fact(meta.uid, "created", created, 0, "", observed=False)


def attempt_of(workload: Workload) -> int:
    """How often a Workload was evicted until now."""
    stats = workload.status.scheduling_stats
    return sum(each.count for each in stats.evictions) if stats is not None else 0


def kept(message: str) -> str:
    """As much of a message as is recorded, without a character that no database takes."""
    return message[:LONGEST].replace("\0", "")


_SIMPLE: Final[dict[str, What]] = {wl.ADMITTED: "admitted", wl.PODS_READY: "ready", wl.FINISHED: "finished"}
_RANK: Final = (wl.QUOTA_RESERVED, wl.ADMITTED, wl.PODS_READY, wl.EVICTED, wl.FINISHED)
"""Conditions in the order in which they become true in one second."""


def _conditions(old: Workload | None, new: Workload, now: Instant) -> Iterator[Fact]:
    uid, attempt = new.metadata.uid, attempt_of(new)
    before = old.status.conditions if old is not None else ()
    changed = []
    for condition in new.status.conditions:
        if condition.type in _RANK:
            past = find_condition(before, condition.type)
            if past != condition:
                at = instant(condition.last_transition_time) if condition.last_transition_time else now
                changed.append((at, _RANK.index(condition.type), condition, past))
    changed.sort(key=lambda each: each[:2])
    for at, _, condition, past in changed:
        true, was = condition.status == "True", past is not None and past.status == "True"
        if condition.type == wl.QUOTA_RESERVED and not true:
            yield from _waits(uid, attempt, condition, past, at, now)
        elif not true or was:
            continue
        elif condition.type == wl.QUOTA_RESERVED:
            yield _fact(uid, "reserved", at, attempt, condition, _holding(new, full=True))
        elif condition.type == wl.EVICTED:
            yield _fact(uid, "evicted", at, attempt, condition, _preempted(new, condition))
        else:
            yield _fact(uid, _SIMPLE[condition.type], at, attempt, condition)


def _fact(
    uid: str, what: What, at: Instant, attempt: int, condition: Condition, detail: dict[str, Any] | None = None
) -> Fact:
    return Fact(uid, what, at, attempt, f"{at:.0f}", False, condition.reason, kept(condition.message), detail)


def _waits(
    uid: str, attempt: int, condition: Condition, past: Condition | None, at: Instant, now: Instant
) -> Iterator[Fact]:
    """Another reason moves no transition time: only the observer knows since when it holds."""
    if past is not None and past.status == "True":
        yield Fact(uid, "released", at, attempt, f"{at:.0f}", observed=False)
    same = past is not None and past.status == condition.status
    if same and past is not None and (past.reason, past.message) == (condition.reason, condition.message):
        return
    since = now if same else at
    yield Fact(uid, "waiting", since, attempt, f"{since:.3f}", True, condition.reason, kept(condition.message))


def _preempted(new: Workload, evicted: Condition) -> dict[str, Any] | None:
    if evicted.reason != wl.PREEMPTED:
        return None
    preempted = find_condition(new.status.conditions, wl.PREEMPTED)
    return {
        "preemptor": preemptor_uid(evicted.message) or "",
        "cluster_queue": preempting_queue(evicted.message) or "",
        "why": preempted.reason if preempted is not None else "",
    }


def _checks(old: Workload | None, new: Workload, now: Instant) -> Iterator[Fact]:
    before = {each.name: each for each in (old.status.admission_checks if old is not None else ())}
    attempt = attempt_of(new)
    for check in new.status.admission_checks:
        past = before.get(check.name)
        if past is not None and (past.state, past.message) == (check.state, check.message):
            continue
        moved = past is None or past.state != check.state
        at = instant(check.last_transition_time) if moved and check.last_transition_time else now
        detail = {"check": check.name}
        mark = f"{check.name}/{check.state}/{at:.0f}"
        yield Fact(new.metadata.uid, "check", at, attempt, mark, False, check.state, kept(check.message), detail)


def _usage(new: Workload, now: Instant) -> Iterator[Fact]:
    if new.quota_reserved and not new.finished and (holding := _holding(new, full=False)) is not None:
        yield Fact(new.metadata.uid, "usage", now, attempt_of(new), f"{now:.3f}", observed=True, detail=holding)


def _holding(workload: Workload, *, full: bool) -> dict[str, Any] | None:
    """The ClusterQueue that a Workload holds quota of, and how much by flavor and resource; without `full` less what
    pods gave back that ended."""
    admission = workload.status.admission
    if admission is None:
        return None
    counts = {each.name: each.count for each in workload.spec.pod_sets}
    back = {} if full else {each.name: each.count for each in workload.status.reclaimable_pods}
    total: dict[Pair, int] = {}
    for given in admission.pod_set_assignments:
        asked = counts.get(given.name, 0)
        count = given.count if given.count is not None else asked
        left = min(count, asked - min(back.get(given.name, 0), asked)) if given.name in back else count
        for resource, flavor in given.flavors.items():
            amount = max(0, to_int(resource, given.resource_usage.get(resource, 0)))
            if left < count:
                amount = amount // count * left
            total[flavor, resource] = total.get((flavor, resource), 0) + amount
    usage = [[flavor, resource, amount] for (flavor, resource), amount in total.items()]
    return {"cluster_queue": admission.cluster_queue, "usage": usage}


def of_pods(new: Workload, *, run: bool, since: Instant) -> Fact:
    """The fact that a pod of a Workload runs, or that none does."""
    return Fact(new.metadata.uid, "pods", since, attempt_of(new), f"{since:.3f}", observed=True, detail={"run": run})


# --- quotas --------------------------------------------------------------------------------------------------------


def of_quota(old: ClusterQueue | Cohort | None, new: ClusterQueue | Cohort | None, now: Instant) -> Iterator[Quota]:
    """The quota of a ClusterQueue or Cohort, if it is another one than before. Raises InvalidValue."""
    if new is None:
        if old is not None:
            yield Quota("Cohort" if isinstance(old, Cohort) else "ClusterQueue", old.metadata.name, now, "", (), True)
        return
    if old is not None and old.spec == new.spec:
        return  # the usual case: each admission changes the status of a ClusterQueue
    found = _quota(new, now)
    with suppress(InvalidValue):  # the old one was not recorded
        if old is not None and _quota(old, now) == found:
            return
    yield found


def _quota(new: ClusterQueue | Cohort, now: Instant) -> Quota:
    kind: Literal["ClusterQueue", "Cohort"]
    if isinstance(new, Cohort):
        kind, parent = "Cohort", new.spec.parent_name
    else:
        kind, parent = "ClusterQueue", new.spec.cohort_name
    created = instant(new.metadata.creation_timestamp) if new.metadata.creation_timestamp else None
    amounts = _amounts(new.spec.resource_groups)
    return Quota(kind, new.metadata.name, now, parent or "", amounts, created=created)


def _amounts(groups: Iterable[ResourceGroup]) -> tuple[tuple[str, str, int, int | None, int | None], ...]:
    return tuple(
        (
            flavor.name,
            each.name,
            to_int(each.name, each.nominal_quota),
            to_int(each.name, each.borrowing_limit) if each.borrowing_limit is not None else None,
            to_int(each.name, each.lending_limit) if each.lending_limit is not None else None,
        )
        for group in groups
        for flavor in group.flavors
        for each in flavor.resources
    )
