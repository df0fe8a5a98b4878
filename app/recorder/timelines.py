"""A Workload and all that happened to it, from the recorder's file, and each entry in words. For commands and pages."""

from collections.abc import Iterator
from typing import Any

import msgspec

from app.api.quantity import from_int
from app.recorder.reading import Entry, Reader, Recorded


class Timeline(msgspec.Struct, frozen=True):
    """A Workload and what happened to it. `names` has other Workloads that entries mention by uid."""

    workload: Recorded
    entries: list[Entry]
    names: dict[str, str]


def timeline_of(reader: Reader, workload: Recorded) -> Timeline:
    """What happened to a Workload that is recorded."""
    entries = reader.timeline(workload.uid)
    mentioned = {uid for entry in entries if (uid := entry.detail.get("preemptor"))}
    others = {uid: other for uid in mentioned if (other := reader.workload(uid)) is not None}
    return Timeline(workload, entries, {uid: f"{other.namespace}/{other.name}" for uid, other in others.items()})


def words(entry: Entry, told: Timeline) -> list[str]:
    """What happened, as lines for people."""
    detail, said = entry.detail, f"{entry.reason}: {entry.message}" if entry.message else entry.reason
    match entry.what:
        case "created":
            return [f"in LocalQueue {told.workload.local_queue or '(none)'}, priority {told.workload.priority}"]
        case "reserved" | "usage":
            holds = f"holds {_amounts(detail)}" if detail.get("usage") else "holds nothing"
            return [f"in ClusterQueue {detail['cluster_queue']}: {holds}"] if detail else []
        case "tried":
            lines = [f"{detail.get('outcome', '')}: {entry.message}"]
            lines += [detail["short"]] if "short" in detail else []
            return lines + [f"preempts Workload {key} ({why})" for _, key, why in detail.get("preempts", ())]
        case "evicted":
            return [said, *_preempted(detail, told)]
        case "check":
            return [f"{detail.get('check', '')} is {said}"]
        case "admitted" | "ready":
            return []
        case _:
            return [said] if said else []


def _preempted(detail: dict[str, Any], told: Timeline) -> Iterator[str]:
    if uid := detail.get("preemptor"):
        name = told.names.get(uid, f"with uid {uid}")
        yield f"by Workload {name} of ClusterQueue {detail['cluster_queue']} ({detail['why']})"


def _amounts(detail: dict[str, Any]) -> str:
    """What is held, as `2 cpu of flavor spot, 4 nvidia.com/gpu of flavor a100`."""
    return ", ".join(
        f"{from_int(resource, amount)} {resource} of {flavor}" for flavor, resource, amount in detail["usage"]
    )
