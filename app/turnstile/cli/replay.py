"""`turnstile replay`: makes the decisions of a decision log again, and tells whether they are the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.cluster import explained
from turnstile.cli.recorded import OptionalRecorderPlace
from turnstile.cli.say import say
from turnstile.insight.replay import Replayed, replay
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading

DIFFERS: Final = 1
"""Exit code: a decision is another one now."""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""

    @app.command(name="replay")
    def replaying(
        file: Annotated[
            Path | None,
            typer.Argument(metavar="[LOG]", help="What `turnstile serve --decision-log` wrote with objects."),
        ] = None,
        recorder: OptionalRecorderPlace = None,
    ) -> None:
        """Repeat the decisions of a log, and compare them.

        They are made again from what the leader knew. Without a LOG, those that `turnstile serve --recorder-decisions`
        has written to --recorder. Nothing is asked of a cluster. Exit code 0: all are the same; 1: one is not; 2:
        unable.
        """
        with explained():
            if file is not None:
                terms = list(replay(_lines(file)))
            elif recorder:
                with reading(Location.of(recorder)) as reader:
                    terms = list(replay(reader.decisions()))
            else:
                raise InvalidValue("LOG", "", "name a decision log, or --recorder")
        for term in terms:
            say(shown(term))
        if not terms:
            say("no term begins in it")
        raise typer.Exit(DIFFERS if any(term.difference for term in terms) else 0)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; one that a kill has cut short ends it. Raises InvalidValue."""
    try:
        with file.open("rb") as log:
            for number, line in enumerate(log, 1):
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError:
                    if line.endswith(b"\n"):
                        raise InvalidValue(
                            "LOG", f"{file}:{number}", "is no line of JSON: name a decision log"
                        ) from None
                    return
    except OSError as error:
        raise InvalidValue("LOG", str(file), f"cannot be read: {error.strerror}") from None


def shown(term: Replayed) -> str:
    """One term, in one sentence or two."""
    head = f"term {term.epoch} of {term.identity}: {term.decisions} decisions in {term.cycles} cycles"
    if term.difference:
        return f"{head}, until one differs: {term.difference}"
    return f"{head}, all the same" + (f"; the rest was not replayed: {term.unfinished}" if term.unfinished else "")
