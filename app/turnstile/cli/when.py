"""`turnstile when`: a forecast of when pending Workloads will be admitted."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.asking import ConfigFile, Source, State, asking_the_engine
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, namespace_of
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.cli.served import Question
from turnstile.insight import rights
from turnstile.insight.forecast import COURSES, Forecast, forecasts, pending, plain, read
from turnstile.insight.targets import CURE
from turnstile.wording.starts import likely


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "when")
    def asking(
        *,
        target: Annotated[
            str, typer.Argument(metavar="JOB|KIND/NAME", help="A job by its name; or a Workload, job or pod.")
        ] = "",
        every: Annotated[bool, typer.Option("--all", help="All pending Workloads of the namespace.")] = False,
        label: Annotated[
            str, typer.Option(help="A label of Workloads or their pods; those with the same value run about as long.")
        ] = "",
        courses: Annotated[
            int, typer.Option(min=20, max=1000, help="Courses of events that are drawn; more take longer.")
        ] = COURSES,
        details: Annotated[
            bool, typer.Option("--details", help="Also the run times that the forecast is made of, and what is unsure.")
        ] = False,
        seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
        state: State = None,
        config: ConfigFile = None,
        output: Printed = Output.TEXT,
        where: Where,
    ) -> None:
        """Forecast when pending Workloads will be admitted.

        The forecast is an interval that holds in 80 of 100 cases. Run times are those of Workloads that have finished
        and are still there; the scheduler's own code decides as time passes. Without enough run times there is no
        forecast, but the reason. Exit code 0: told; 2: unable.
        """
        with explained():
            if bool(target) == every:
                raise InvalidValue("TARGET", target, f"{CURE}, or --all")
            source, namespace = Source(state, config, where), namespace_of(where)
            snapshot = rights.relevant(source.read(run, "when", namespace).snapshot)
            now = clock()
            key = ""
            if target:
                key = source.workload(run, "when", snapshot, target, namespace, now)
            keys = pending(snapshot, namespace, key)
            which = {"of": [f"workload/{key.partition('/')[2]}"]} if key else {"all": ["true"]}
            how = {"label": [label], "courses": [str(courses)], "seed": [str(seed)]}
            answer = source.asked(run, Question("when", namespace, {**which, **how}), snapshot)
            unread: Sequence[str]
            if answer is not None:
                found, unread, now = read(answer)
            else:
                rights.require(snapshot)
                options, at, unread = source.options(), now.timestamp(), rights.unread(snapshot)
                with asking_the_engine("foretelling"):
                    found = forecasts(snapshot, options, at, keys, label=label, courses=courses, seed=seed)
        if output is Output.TEXT:
            say("\n".join(shown(found, unread, now, details=details)))
        else:
            say_document(plain(found, unread, now), output)


def shown(found: Sequence[Forecast], unread: Sequence[str], now: datetime, *, details: bool = False) -> Iterator[str]:
    """The forecasts as lines for people: one a Workload, and with `details` the run times that they are made of."""
    if not found:
        yield "No Workload is pending."
    for each in found:
        if each.earliest is None and each.latest is None:
            yield f"{each.workload}: no forecast: {each.reason}"
            continue
        yield f"{each.workload}: {likely(each.earliest or 0.0, each.median, each.latest, now)}"
        if details and each.reason:
            yield f"  no later end: {each.reason}"
    based_on = sorted({each for forecast in found for each in forecast.based_on})
    if details and based_on:
        yield "From the run times of:"
        yield from (f"  {runs}" for runs in based_on)
    yield from (f"This answer is not complete: {each}." for each in unread)
