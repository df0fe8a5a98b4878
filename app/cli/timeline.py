"""`turnstile timeline`: what happened to a Workload, also after it is gone."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import orjson
import typer

from app.api.errors import InvalidValue
from app.api.quantity import from_int
from app.cli.asking import Namespace
from app.cli.cluster import explained
from app.cli.recorded import RecorderPlace, stamp
from app.insight.targets import named
from app.recorder.location import Location
from app.recorder.reading import Entry, Reader, Recorded, reading

_CURE: Final = "give KIND/NAME, as job/train or workload/job-train-4f2a1"
_WORKLOAD: Final = ("workload", "workloads", "wl")


class Output(StrEnum):
    """How a timeline is printed."""

    TEXT = "text"
    JSON = "json"


class Timeline(msgspec.Struct, frozen=True):
    """A Workload and what happened to it. `names` has other Workloads that entries mention by uid."""

    workload: Recorded
    entries: list[Entry]
    names: dict[str, str]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""

    @app.command()
    def timeline(
        *,
        target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="A Workload, or the job that it is for.")],
        recorder: RecorderPlace,
        namespace: Namespace = "default",
        output: Annotated[
            Output, typer.Option("--output", "-o", help="text for people, json for programs.")
        ] = Output.TEXT,
    ) -> None:
        """Tell what happened to a Workload: when and why it waited, was admitted, preempted, by whom, and ended.

        Read from what the flight recorder keeps, so it works after the Workload and its job are gone. Of several
        Workloads of one name or job, all are told, the oldest first. Exit code 0: told; 2: unable.
        """
        with explained(), reading(Location.of(recorder)) as reader:
            kind, name = named(target, _CURE)
            told = timelines(reader, kind, name, namespace)
        if output is Output.JSON:
            typer.echo(as_json(told))
        else:
            typer.echo("\n".join(line for each in told for line in shown(each)))


def timelines(reader: Reader, kind: str, name: str, namespace: str) -> list[Timeline]:
    """The timelines of all Workloads that `KIND/NAME` means, the oldest first. Raises InvalidValue without any."""
    is_workload = kind in _WORKLOAD
    found = reader.named(namespace, name) if is_workload else reader.of_owner(namespace, kind.removesuffix("s"), name)
    if not found:
        cure = "no Workload of it is recorded: is the namespace right, and was the recorder on then?"
        raise InvalidValue("TARGET", f"{kind}/{name} in namespace {namespace}", cure)
    return [_timeline(reader, workload) for workload in found]


def _timeline(reader: Reader, workload: Recorded) -> Timeline:
    entries = reader.timeline(workload.uid)
    mentioned = {uid for entry in entries if (uid := entry.detail.get("preemptor"))}
    others = {uid: other for uid in mentioned if (other := reader.workload(uid)) is not None}
    return Timeline(workload, entries, {uid: f"{other.namespace}/{other.name}" for uid, other in others.items()})


def as_json(told: list[Timeline]) -> str:
    """Timelines for programs."""
    return orjson.dumps(msgspec.to_builtins(told), option=orjson.OPT_INDENT_2).decode()


def shown(told: Timeline) -> Iterator[str]:
    """A timeline as lines for people."""
    workload = told.workload
    owner = f", for {workload.owner_kind} {workload.owner_name}" if workload.owner_name else ""
    yield f"Workload {workload.namespace}/{workload.name} (uid {workload.uid}){owner}"
    for entry in told.entries:
        head = f"  {stamp(entry.at)}  {entry.what:<9}"
        first, *more = _words(entry, told) or [""]
        yield f"{head} {first}".rstrip()
        yield from (" " * (len(head) + 1) + each for each in more)
    if workload.over is None:
        yield "  it is not over yet, as far as is recorded"


def _words(entry: Entry, told: Timeline) -> list[str]:
    detail, said = entry.detail, f"{entry.reason}: {entry.message}" if entry.message else entry.reason
    match entry.what:
        case "created":
            return [f"in LocalQueue {told.workload.local_queue or '(none)'}, priority {told.workload.priority}"]
        case "reserved" | "usage":
            holds = f"holds {amounts(detail)}" if detail.get("usage") else "holds nothing"
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


def amounts(detail: dict[str, Any]) -> str:
    """What is held, as `2 cpu of flavor spot, 4 nvidia.com/gpu of flavor a100`."""
    return ", ".join(
        f"{from_int(resource, amount)} {resource} of {flavor}" for flavor, resource, amount in detail["usage"]
    )
