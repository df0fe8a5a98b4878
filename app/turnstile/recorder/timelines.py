"""A Workload and all that happened to it, from the recorder's file, and each entry in words. For commands and pages.

Must never name a Workload to a reader who is not shown it: not in words, and not in links.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from turnstile.api.quantity import from_int
from turnstile.engine.naming import OTHER
from turnstile.recorder.reading import Entry, Reader, Recorded
from turnstile.recorder.scope import EVERYTHING, Scope
from turnstile.wording.shortage import Short, explained


class Timeline(msgspec.Struct, frozen=True):
    """A Workload and what happened to it. `names` has other Workloads that entries mention by uid."""

    workload: Recorded
    entries: list[Entry]
    names: dict[str, str]


def timeline_of(reader: Reader, workload: Recorded) -> Timeline:
    """The history of a Workload that is recorded."""
    entries = reader.timeline(workload.uid)
    mentioned = {uid for entry in entries if (uid := entry.detail.get("preemptor"))}
    others = {uid: other for uid in mentioned if (other := reader.workload(uid)) is not None}
    return Timeline(workload, entries, {uid: f"{other.namespace}/{other.name}" for uid, other in others.items()})


def words(entry: Entry, told: Timeline, scope: Scope = EVERYTHING) -> list[str]:
    """The history, as lines for people. Workloads that the reader is not shown are counted."""
    detail, said = entry.detail, f"{entry.reason}: {entry.message}" if entry.message else entry.reason
    match entry.what:
        case "created":
            return [f"in LocalQueue {told.workload.local_queue or '(none)'}, priority {told.workload.priority}"]
        case "reserved" | "usage":
            holds = f"holds {_amounts(detail)}" if detail.get("usage") else "holds nothing"
            return [f"in ClusterQueue {detail['cluster_queue']}: {holds}"] if detail else []
        case "tried":
            lines = [f"{detail.get('outcome', '')}: {entry.message}"]
            lines += [shown] if scope.quotas and (shown := _short(detail)) else []
            return [*lines, *_preempts(entry, scope)]
        case "evicted":
            return [said, *_preempted(entry, told, scope)]
        case "check":
            return [f"{detail.get('check', '')} is {said}"]
        case "admitted" | "ready":
            return []
        case _:
            return [said] if said else []


def _short(detail: dict[str, Any]) -> str:
    """The amounts that were short, as a sentence; records of older versions hold the sentence."""
    found = detail.get("short") or []
    if isinstance(found, str):
        return found
    return explained(Short(flavor, resource, asked - free, asked, free) for flavor, resource, asked, free in found)


def others(entry: Entry, told: Timeline, scope: Scope = EVERYTHING) -> list[str]:
    """Workloads that `words` names, by key: the preemptor and the victims."""
    preemptor = told.names.get(entry.detail.get("preemptor", ""))
    victims = [key for _, key, _ in entry.detail.get("preempts", ())]
    named = dict.fromkeys([*([preemptor] if preemptor else []), *victims])
    return [key for key in named if _shown(key, entry, scope)]


def _shown(key: str, entry: Entry, scope: Scope) -> bool:
    return scope.shows(key.partition("/")[0], entry.at)


def _preempts(entry: Entry, scope: Scope) -> Iterator[str]:
    hidden = Counter[str]()
    for _, key, why in entry.detail.get("preempts", ()):
        if _shown(key, entry, scope):
            yield f"preempts Workload {key} ({why})"
        else:
            hidden[why] += 1
    for why, count in hidden.items():
        yield f"preempts {OTHER if count == 1 else f'{count} Workloads of another namespace'} ({why})"


def _preempted(entry: Entry, told: Timeline, scope: Scope) -> Iterator[str]:
    detail = entry.detail
    if uid := detail.get("preemptor"):
        name = told.names.get(uid)
        by = f"Workload {name or f'with uid {uid}'}"
        if name is not None and not _shown(name, entry, scope):
            by = OTHER
        yield f"by {by} of ClusterQueue {detail['cluster_queue']} ({detail['why']})"


def _amounts(detail: dict[str, Any]) -> str:
    """Held amounts, as `2 cpu of flavor spot, 4 nvidia.com/gpu of flavor a100`."""
    return ", ".join(
        f"{from_int(resource, amount)} {resource} of {flavor}" for flavor, resource, amount in detail["usage"]
    )
