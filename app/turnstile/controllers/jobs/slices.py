"""Slices of an elastic job: its Workloads in the order in which they take each other's place, and which of them stay.

A job that grows while it runs gets a second Workload, the next slice, which is charged for the difference alone and
takes the place of the first when it is admitted. Source: Kueue's pkg/workloadslicing. Must never look at pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.jobs.labels import slice_name

Change = Literal["nothing", "numbers", "growth"]

REPLACED: Final = "WorkloadSliceReplaced"
OUT_OF_SYNC: Final = "OutOfSync"
_IS_OUT_OF_SYNC: Final = "The workload slice is out of sync with its parent job"
_IS_REPLACED: Final = "Replaced to accommodate a new workload slice"


class Spent(NamedTuple):
    """A slice that charges for nothing any more, and why: the reason and the message with which it is finished."""

    workload: Workload
    reason: str
    message: str


class Chain(NamedTuple):
    """The unfinished slices of a job. `head` holds quota, `pending` waits to take its place, or is the only one."""

    head: Workload | None
    pending: Workload | None
    spent: Sequence[Spent]

    @property
    def latest(self) -> Workload | None:
        """The slice that the job should have when all of it is admitted."""
        return self.pending or self.head


class Roles(NamedTuple):
    """The slices of a job by what they are for.

    `current` charges for the pods that run, or will be the first to. `growth` waits to take its place: for quota, or
    with quota for admission checks.
    """

    current: Workload | None
    growth: Workload | None
    spent: Sequence[Spent]


def in_order(workloads: Iterable[Workload]) -> list[Workload]:
    """Slices from the first to the last: by age, those of one second in the order in which they take each other's
    place, then by uid."""
    found = list(workloads)
    by_key = {each.metadata.key: each for each in found}

    def place(workload: Workload) -> tuple[str, int, str]:
        age, steps, each = _age(workload), 0, by_key.get(replaced_by(workload))
        while each is not None and _age(each) == age and steps < len(found):  # references may form a circle
            steps, each = steps + 1, by_key.get(replaced_by(each))
        return age, steps, workload.metadata.uid

    return sorted(found, key=place)


def chain(slices: Sequence[Workload]) -> Chain:
    """The slices that stay of several, and those that are spent: Kueue's rule.

    One that holds quota stays, the newest that no other one of these replaces, and one that waits to replace it. If
    none holds quota the newest stays. Slices that are evicted never stay.
    """
    ordered = in_order(slices)
    living = [each for each in ordered if not each.evicted]
    head = _tip([each for each in living if each.quota_reserved])
    waiting = [each for each in living if not each.quota_reserved]
    if head is not None:
        waiting = [each for each in waiting if replaced_by(each) == head.metadata.key]
    pending = waiting[-1] if waiting else None
    return Chain(head, pending, _spent(ordered, (head, pending)))


def roles(slices: Sequence[Workload]) -> Roles:
    """The roles of a job's unfinished slices.

    Beyond Kueue's rule: a slice whose pods run stays until the one in its place is admitted, and not only has quota; an
    evicted slice stays as long as it has quota, because pods run under it; and growth that is evicted waits again.
    """
    if len(slices) < 2:
        return Roles(slices[0] if slices else None, None, ())
    ordered, found = in_order(slices), chain(slices)
    current = _tip([each for each in ordered if each.admitted and not each.evicted])
    current = current or next((each for each in ordered if each.admitted and each.quota_reserved), None)
    current = current or found.head or found.pending
    growth = found.latest if found.latest is not current else None
    if growth is None and current is not None and not current.evicted:
        again = (each for each in ordered if each.evicted and replaced_by(each) == current.metadata.key)
        growth = max(again, key=ordered.index, default=None)
    return Roles(current, growth, _spent(ordered, (current, growth)))


def replaced_by(workload: Workload) -> str:
    """The key of the slice whose place a slice takes; empty if it takes none's."""
    return workload.metadata.annotations.get(names.SLICE_REPLACEMENT_FOR, "")


def is_spent(workload: Workload) -> bool:
    """Whether a finished slice was finished because it charged for nothing any more, and not because its job ended."""
    finished = find_condition(workload.status.conditions, wl.FINISHED)
    return finished is not None and finished.reason in (REPLACED, OUT_OF_SYNC)


def replaced(workload: Workload) -> Spent:
    """A slice whose place another one has taken."""
    return Spent(workload, REPLACED, _IS_REPLACED)


def out_of_sync(workload: Workload) -> Spent:
    """A slice that is not needed any more, and that no other one replaces."""
    return Spent(workload, OUT_OF_SYNC, _IS_OUT_OF_SYNC)


def chain_of(workload: Workload) -> list[str]:
    """The key of the first slice of the chain of an elastic job that a Workload is of; empty if it is of none."""
    if names.SLICE_NAME not in workload.metadata.annotations:
        return []
    return [f"{workload.metadata.namespace}/{slice_name(workload)}"]


def counts(workload: Workload) -> dict[str, int]:
    """The numbers of pods of a slice, by pod set."""
    return {each.name: each.count for each in workload.spec.pod_sets}


def change(latest: Workload, wanted: Mapping[str, int]) -> Change | None:
    """The change by which the job may have these numbers of pods; None if a slice has other pod sets.

    Numbers are written into a slice that waits, or that gets smaller; growth needs another slice, also if another pod
    set shrinks.
    """
    charged = counts(latest)
    if charged.keys() != wanted.keys():
        return None
    if charged == wanted:
        return "nothing"
    grows = any(wanted[name] > count for name, count in charged.items())
    return "growth" if grows and latest.quota_reserved else "numbers"


def _age(workload: Workload) -> str:
    return workload.metadata.creation_timestamp or ""


def _tip(slices: Sequence[Workload]) -> Workload | None:
    """The newest of some slices whose place no other one of them takes."""
    taken = {replaced_by(each) for each in slices}
    tips = [each for each in slices if each.metadata.key not in taken]
    return tips[-1] if tips else (slices[-1] if slices else None)


def _spent(ordered: Sequence[Workload], kept: Iterable[Workload | None]) -> list[Spent]:
    stay = {each.metadata.key for each in kept if each is not None}
    successors = {replaced_by(each): each for each in ordered}
    found = []
    for each in ordered:
        if each.metadata.key in stay:
            continue
        successor = successors.get(each.metadata.key)
        if successor is None:
            found.append(out_of_sync(each))
        elif successor.admitted:
            meta = successor.metadata
            job = meta.labels.get(names.JOB_UID_LABEL) or "UNKNOWN"
            by = f"a workload (UID: {meta.uid or 'UNKNOWN'}, JobUID: {job}) due to workload slice aggregation"
            found.append(Spent(each, REPLACED, f"Replaced to accommodate {by}"))
        else:
            found.append(replaced(each))
    return found
