"""A Workload and all that happened to it, from the recorder's file, and each entry in words. For commands and pages.

Must never name a Workload to a reader who is not shown it: not in words, and not in links.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnstile.api.errors import InvalidValue
from turnstile.engine.naming import OTHER, OTHERS
from turnstile.recorder.reading import Entry, Reader, Recorded
from turnstile.recorder.scope import EVERYTHING, Scope
from turnstile.wording.amounts import amount as in_words
from turnstile.wording.amounts import nodes
from turnstile.wording.causes import waiting
from turnstile.wording.evictions import evicted
from turnstile.wording.grammar import listed, sentence
from turnstile.wording.shortage import Short, explained
from turnstile.wording.standing import preempted

_WORKLOAD: Final = ("workload", "workloads", "wl")


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


def timelines(reader: Reader, kind: str, name: str, namespace: str, scope: Scope = EVERYTHING) -> list[Timeline]:
    """The timelines of all Workloads that a kind and name mean, the oldest first, as far as the reader is shown them; a
    name without a kind is that of a job. Raises InvalidValue without any."""
    known = reader.named(namespace, name) if kind in _WORKLOAD else reader.of_owner(namespace, kind, name)
    found = [each for each in known or reader.named(namespace, name) if scope.shows(namespace, each.created)]
    if not found:
        cure = "no Workload of it is recorded: is the namespace right, and was the recorder on then?"
        raise InvalidValue("TARGET", f"{f'{kind}/' if kind else ''}{name} in namespace {namespace}", cure)
    return [_limited(timeline_of(reader, workload), scope) for workload in found]


def _limited(life: Timeline, scope: Scope) -> Timeline:
    """The timeline without the names and amounts that the reader is not shown."""
    if scope.whole:
        return life
    entries = [replace(each, detail=_limited_detail(each, scope)) for each in life.entries]
    hidden = {uid for each in life.entries if (uid := each.detail.get("preemptor")) and not _named(life, each, scope)}
    return replace(
        life, entries=entries, names={uid: OTHER if uid in hidden else key for uid, key in life.names.items()}
    )


def _named(life: Timeline, entry: Entry, scope: Scope) -> bool:
    return _shown(life.names.get(entry.detail["preemptor"], ""), entry, scope)


def _limited_detail(entry: Entry, scope: Scope) -> dict[str, Any]:
    detail = {name: value for name, value in entry.detail.items() if name != "short" or scope.quotas}
    if "preempts" in detail:
        detail["preempts"] = [
            each if _shown(each[1], entry, scope) else ["", OTHER, *each[2:]] for each in detail["preempts"]
        ]
    return detail


def words(entry: Entry, life: Timeline, scope: Scope = EVERYTHING) -> list[str]:
    """The history, as lines for people. Workloads that the reader is not shown are counted."""
    detail, said = entry.detail, f"{entry.reason}: {entry.message}" if entry.message else entry.reason
    match entry.what:
        case "created":
            return [f"in LocalQueue {life.workload.local_queue or '(none)'}, priority {life.workload.priority}"]
        case "reserved" | "usage":
            holds = f"holds {_amounts(detail)}" if detail.get("usage") else "holds nothing"
            return [f"in ClusterQueue {detail['cluster_queue']}: {holds}"] if detail else []
        case "waiting":
            return [waiting(entry.message)] if entry.message else []
        case "tried":
            short = _short(detail) if scope.quotas else ""
            preempts = [*_preempts(entry, scope)]
            return [*([short] if short else []), *preempts] or [waiting(entry.message)]
        case "evicted":
            return [*_preempted(entry, life, scope)] or [evicted(entry.message) or entry.reason]
        case "check":
            return [f"{detail.get('check', '')} is {said}"]
        case "pods":
            return ["A pod of it runs." if detail["run"] else "No pod of it runs."]
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


def others(entry: Entry, life: Timeline, scope: Scope = EVERYTHING) -> list[str]:
    """Workloads that `words` names, by key: the preemptor and the victims."""
    preemptor = life.names.get(entry.detail.get("preemptor", ""))
    victims = [each[1] for each in entry.detail.get("preempts", ())]
    named = dict.fromkeys([*([preemptor] if preemptor else []), *victims])
    return [key for key in named if _shown(key, entry, scope)]


def _shown(key: str, entry: Entry, scope: Scope) -> bool:
    return key != OTHER and scope.shows(key.partition("/")[0], entry.at)


def _preempts(entry: Entry, scope: Scope) -> Iterator[str]:
    hidden = []
    for _, key, _, *more in entry.detail.get("preempts", ()):  # records of older versions do not know what is lost
        if _shown(key, entry, scope):
            yield f"Preempts {key}{_losing(more)}."
        else:
            hidden.append(more)
    if hidden:
        who = OTHER if len(hidden) == 1 else f"{len(hidden)} {OTHERS}"
        yield f"Preempts {who}{_losing(hidden[0]) if len(hidden) == 1 else ''}."


def _losing(lost: list[str]) -> str:
    return f", which loses {lost[0]} of its run" if any(lost) else ""


def _preempted(entry: Entry, life: Timeline, scope: Scope) -> Iterator[str]:
    detail = entry.detail
    if uid := detail.get("preemptor"):
        name = life.names.get(uid)
        by = OTHER if name is not None and not _shown(name, entry, scope) else name or "a Workload that is not recorded"
        yield sentence(preempted(f"{by} of ClusterQueue {detail['cluster_queue']}", detail["why"]))


def _amounts(detail: dict[str, Any]) -> str:
    """Held amounts, as `2 CPUs on spot nodes and 4 GPUs on a100 nodes`."""
    return listed([f"{in_words(resource, held)} on {nodes(flavor)}" for flavor, resource, held in detail["usage"]])
