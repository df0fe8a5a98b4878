"""`turnstile timeline`: what happened to a Workload, also after it is gone."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where, namespace_of
from turnstile.cli.options import command
from turnstile.cli.recorded import OptionalRecorderPlace, recorded_answer
from turnstile.cli.say import say
from turnstile.cli.served import Question
from turnstile.engine.instants import stamp
from turnstile.insight.targets import target_of
from turnstile.recorder.folding import attempted, folded
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading
from turnstile.recorder.timelines import Timeline, timelines, words


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""

    @command(app, "timeline")
    def timeline(
        *,
        target: Annotated[str, typer.Argument(metavar="JOB|KIND/NAME", help="A job by its name; or a Workload.")],
        recorder: OptionalRecorderPlace = None,
        output: Printed = Output.TEXT,
        where: Where,
    ) -> None:
        """Show what happened to a Workload, also after it is gone.

        The flight recorder keeps when and why it waited, was admitted, was preempted, by whom, and ended. All
        Workloads of one name or job are shown, the oldest first. Without --recorder the page in the cluster is asked.
        Exit code 0: told; 2: unable.
        """
        (kind, name), namespace = target_of(target), namespace_of(where)
        if recorder is None:
            question = Question("timeline", namespace, {"of": [target]})
            life = msgspec.json.decode(recorded_answer(run, where, question), type=list[Timeline])
        else:
            with reading(Location.of(recorder)) as reader:
                life = timelines(reader, kind, name, namespace)
        if output is Output.TEXT:
            say("\n".join(line for each in life for line in shown(each)))
        else:
            say_document(msgspec.to_builtins(life), output)


def shown(life: Timeline) -> Iterator[str]:
    """A timeline as lines for people."""
    workload = life.workload
    owner = f", for {workload.owner_kind} {workload.owner_name}" if workload.owner_name else ""
    yield f"Workload {workload.namespace}/{workload.name} (uid {workload.uid}){owner}"
    for group in folded(life.entries):
        entry, often = group[-1], attempted(group)
        head = f"  {stamp(group[0].at)}  {entry.what:<9}"
        first, *more = [*([often] if often else []), *words(entry, life)] or [""]
        yield f"{head} {first}".rstrip()
        yield from (" " * (len(head) + 1) + each for each in more)
    if workload.over is None:
        yield "  it is not over yet, as far as is recorded"
