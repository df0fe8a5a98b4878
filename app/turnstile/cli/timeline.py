"""`turnstile timeline`: what happened to a Workload, also after it is gone."""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.cluster import explained
from turnstile.cli.connection import Where, namespace_of
from turnstile.cli.options import command
from turnstile.cli.recorded import RecorderPlace
from turnstile.cli.say import say
from turnstile.insight.targets import named
from turnstile.recorder.folding import attempted, folded
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, reading
from turnstile.recorder.reports import stamp
from turnstile.recorder.timelines import Timeline, timeline_of, words

_CURE: Final = "give KIND/NAME, as job/train or workload/job-train-4f2a1"
_WORKLOAD: Final = ("workload", "workloads", "wl")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""

    @command(app, "timeline")
    def timeline(
        *,
        target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="A Workload, or the job that it is for.")],
        recorder: RecorderPlace,
        output: Printed = Output.TEXT,
        where: Where,
    ) -> None:
        """Show what happened to a Workload, also after it is gone.

        The flight recorder keeps when and why it waited, was admitted, was preempted, by whom, and ended. All
        Workloads of one name or job are shown, the oldest first. Exit code 0: told; 2: unable.
        """
        with explained(), reading(Location.of(recorder)) as reader:
            kind, name = named(target, _CURE)
            told = timelines(reader, kind, name, namespace_of(where))
        if output is Output.TEXT:
            say("\n".join(line for each in told for line in shown(each)))
        else:
            say_document(msgspec.to_builtins(told), output)


def timelines(reader: Reader, kind: str, name: str, namespace: str) -> list[Timeline]:
    """The timelines of all Workloads that `KIND/NAME` means, the oldest first. Raises InvalidValue without any."""
    is_workload = kind in _WORKLOAD
    found = reader.named(namespace, name) if is_workload else reader.of_owner(namespace, kind.removesuffix("s"), name)
    if not found:
        cure = "no Workload of it is recorded: is the namespace right, and was the recorder on then?"
        raise InvalidValue("TARGET", f"{kind}/{name} in namespace {namespace}", cure)
    return [timeline_of(reader, workload) for workload in found]


def shown(told: Timeline) -> Iterator[str]:
    """A timeline as lines for people."""
    workload = told.workload
    owner = f", for {workload.owner_kind} {workload.owner_name}" if workload.owner_name else ""
    yield f"Workload {workload.namespace}/{workload.name} (uid {workload.uid}){owner}"
    for group in folded(told.entries):
        entry, often = group[-1], attempted(group)
        head = f"  {stamp(group[0].at)}  {entry.what:<9}"
        first, *more = [*([often] if often else []), *words(entry, told)] or [""]
        yield f"{head} {first}".rstrip()
        yield from (" " * (len(head) + 1) + each for each in more)
    if workload.over is None:
        yield "  it is not over yet, as far as is recorded"
