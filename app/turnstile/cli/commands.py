"""The command line: which commands there are, and the module that each is in. A module is imported when its command is
called, so that no command waits for what others import."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from turnstile import __version__

if TYPE_CHECKING:
    from turnstile.cli.cluster import Run
    from turnstile.process.settings import Settings


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, the first sentence of its help, and the module of `turnstile.cli` whose `register` adds it.

    `register` is given what it names of `app`, `run` (runs a coroutine), `clock` (the time), `serving` (runs the roles
    of `turnstile serve`), and `program` (the name of the program). One module may add several commands.
    """

    name: str
    help: str
    module: str


COMMANDS: Final = (
    Entry("version", "Print the version.", "version"),
    Entry("config", "Check and print configuration files.", "config"),
    Entry("serve", "Answer admission reviews, keep quota, or both; or serve the page.", "serve"),
    Entry("preflight", "Look at a cluster before `helm install` or `helm upgrade`, without writing.", "preflight"),
    Entry("explain", "Tell why a Workload waits, and the smallest changes that would admit it.", "explain"),
    Entry(
        "what-if",
        "Tell what a change would do: which Workloads it admits, preempts, evicts, delays or starves, and why.",
        "what_if",
    ),
    Entry(
        "when",
        "Forecast when pending Workloads will be admitted, as an interval that holds in 80 of 100 cases.",
        "when",
    ),
    Entry("lint", "Tell what is wrong with manifests of jobs, and with quota set-ups.", "lint"),
    Entry(
        "timeline",
        "Tell what happened to a Workload: when and why it waited, was admitted, preempted, by whom, and ended.",
        "timeline",
    ),
    Entry(
        "usage",
        "Report what was reserved, used, borrowed, lent and lost to preemption over time, in hours of each resource.",
        "usage",
    ),
    Entry(
        "bundle",
        "Collect versions, configuration, queues, Workloads, metrics and timelines into one file for a bug report.",
        "bundle",
    ),
    Entry(
        "replay",
        "Make the decisions of a log again, from what the leader knew, and tell whether they are the same.",
        "replay",
    ),
    Entry(
        "web",
        "Serve a page on this machine that shows queues, quota, and why Workloads wait, and follows the cluster.",
        "web",
    ),
    Entry("create", "Create a ClusterQueue, a LocalQueue or a ResourceFlavor.", "queues.create"),
    Entry("list", "List queues, flavors, Workloads, or the pods of a job.", "queues.listing"),
    Entry("stop", "Stop a ClusterQueue, a LocalQueue or a Workload.", "queues.stopping"),
    Entry("resume", "Resume a ClusterQueue, a LocalQueue or a Workload.", "queues.stopping"),
    Entry("delete", "Delete Workloads with their jobs, queues or flavors.", "queues.delete"),
    Entry("get", "Print queues, flavors or Workloads, as kubectl get.", "queues.passthrough"),
    Entry("describe", "Print them in full with their events, as kubectl describe.", "queues.passthrough"),
    Entry("edit", "Change one in an editor, as kubectl edit.", "queues.passthrough"),
    Entry("patch", "Change fields of one, as kubectl patch.", "queues.passthrough"),
    Entry("top", "Show quota and usage of cohorts and ClusterQueues, live until Ctrl-C.", "queues.top"),
    Entry("completion", "Print the completion of a shell.", "completion"),
    Entry(
        "uninstall",
        "Remove Turnstile's webhooks and policies, stop its controller, and undo gates, suspensions and finalizers.",
        "uninstall",
    ),
)
"""All commands, in the order in which help lists them."""


def create(
    *,
    run: "Run",
    clock: Callable[[], datetime],
    serving: "Callable[[Settings], int] | None" = None,
    program: str = "turnstile",
) -> typer.Typer:
    """The application. `serving` runs the roles until they are stopped and returns the exit code; without it there is
    no command `serve`, and it is the plug-in of kubectl."""
    given = {"run": run, "clock": clock, "serving": serving, "program": program}
    entries = {entry.name: entry for entry in COMMANDS if entry.name != "serve" or serving is not None}

    class Commands(TyperGroup):
        """Has a stand-in for each command, for the list in the help, until that command is called."""

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            for entry in entries.values():
                self.add_command(TyperCommand(entry.name, help=entry.help))

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """As TyperGroup; the command itself takes the place of its stand-in."""
            if args and args[0] in entries:
                self.add_command(load(entries[args[0]], given))
            return super().resolve_command(ctx, args)

    app = _application(
        cls=Commands,
        name=program,
        help="A quota keeper for shared Kubernetes clusters.",
        no_args_is_help=True,
    )

    def print_version(*, wanted: bool) -> None:
        if wanted:
            from turnstile.cli.say import say

            say(__version__)
            raise typer.Exit

    @app.callback()
    def _root(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """A quota keeper for shared Kubernetes clusters that speaks Kueue's API."""

    return app


def load(entry: Entry, given: dict[str, Any]) -> Any:
    """The command itself, of an application with only what its module adds."""
    app = _application()
    app.callback()(lambda: None)
    register = import_module(f"turnstile.cli.{entry.module}").register
    register(app, **{name: value for name, value in given.items() if name in signature(register).parameters})
    return typer.main.get_command(app).commands[entry.name]  # type: ignore[attr-defined]


def _application(**attributes: Any) -> typer.Typer:
    """An application whose help and errors are plain text, as kubectl's: the coloured ones cost half a second."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **attributes)
