"""`kubectl turnstile get`, `edit`, `describe` and `patch`: kubectl's own, for the kinds of Turnstile."""

import os
import shutil
from typing import Annotated, Final, NoReturn

import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.cluster import explained
from turnstile.cli.queues.options import NAME_OF
from turnstile.cli.queues.paths import GROUP

KINDS: Final = {
    "workload": "workloads",
    "clusterqueue": "clusterqueues",
    "localqueue": "localqueues",
    "resourceflavor": "resourceflavors",
    "cohort": "cohorts",
    "admissioncheck": "admissionchecks",
    "topology": "topologies",
    "workloadpriorityclass": "workloadpriorityclasses",
}
"""Types that may be passed on, with the plural that kubectl gets."""
SETTINGS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
"""Settings of a command whose options kubectl reads."""
COMMANDS: Final = {
    "get": "Print queues, flavors or Workloads, as kubectl get.",
    "describe": "Print them in full with their events, as kubectl describe.",
    "edit": "Change one in an editor, as kubectl edit.",
    "patch": "Change fields of one, as kubectl patch.",
}


def kubectl(*arguments: str) -> NoReturn:
    """Become kubectl, with these arguments. Raises InvalidValue without a kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        raise InvalidValue("PATH", os.environ.get("PATH", ""), "has no kubectl, which does this: install it")
    os.execv(program, ["kubectl", *arguments])  # noqa: S606 -- kubectl is to take this process over


def resource(word: str) -> str:
    """The full name of a kind, which no other API group can have. Raises InvalidValue."""
    kind, slash, name = word.partition("/")
    kind = kind.lower().removesuffix(f".{GROUP}")
    plural = kind if kind in KINDS.values() else KINDS.get(NAME_OF.get(kind, kind))
    if plural is None:
        raise InvalidValue("TYPE", kind, f"give one of {', '.join(KINDS)}")
    return f"{plural}.{GROUP}{slash}{name}"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""

    def add(name: str, text: str) -> None:
        @app.command(name, help=text, context_settings=SETTINGS)
        def _passed_on(
            ctx: typer.Context,
            kind: Annotated[str, typer.Argument(metavar="TYPE", help="workload, clusterqueue, localqueue, ...")],
        ) -> None:
            with explained():
                kubectl(name, resource(kind), *ctx.args)

    for name, text in COMMANDS.items():
        add(name, text)
