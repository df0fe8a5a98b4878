"""The option that commands share that read what the flight recorder keeps."""

from typing import Annotated, Final

import typer

_OPTION: Final = typer.Option(
    "--recorder",
    envvar="TURNSTILE_RECORDER",
    metavar="FILE|URL",
    help="Where `turnstile serve --recorder` writes: a file, or postgresql://USER@HOST/DATABASE, read with your rights"
    " there (PGPASSWORD and ~/.pgpass are looked at); also when the controller does not run.",
)
RecorderPlace = Annotated[str, _OPTION]
MaybeRecorder = Annotated[str | None, _OPTION]
