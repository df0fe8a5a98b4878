"""The command line: which commands there are, and the module that each is in. A module is imported when its command is
called, so that no command waits for what others import."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from turnstile import __version__
from turnstile.cli.groups import Group

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


GROUPS: Final = {
    "Your job": (
        Entry("run", "Run a container as a Job of a queue, and follow it to its end.", "run"),
        Entry("explain", "Show why a Workload waits, and what would admit it.", "explain"),
        Entry("when", "Forecast when pending Workloads will be admitted.", "when"),
        Entry("what-if", "Show which Workloads a change would admit, preempt or delay.", "what_if"),
        Entry("logs", "Print what the pods of a job write, wherever it runs.", "logs"),
        Entry("timeline", "Show what happened to a Workload, also after it is gone.", "timeline"),
        Entry("list", "List queues, flavors, Workloads, or the pods of a job.", "queues.listing"),
    ),
    "Quotas": (
        Entry("top", "Show quota and usage of cohorts and ClusterQueues.", "queues.top"),
        Entry("usage", "Report quota that was used, borrowed, lent and lost.", "usage"),
        Entry("create", "Create a ClusterQueue, a LocalQueue or a ResourceFlavor.", "queues.create"),
        Entry("stop", "Stop a ClusterQueue, a LocalQueue or a Workload.", "queues.stopping"),
        Entry("resume", "Resume a ClusterQueue, a LocalQueue or a Workload.", "queues.stopping"),
        Entry("delete", "Delete Workloads with their jobs, queues or flavors.", "queues.delete"),
        Entry("get", "Print queues, flavors or Workloads, as kubectl get.", "queues.passthrough"),
        Entry("describe", "Print them in full with their events, as kubectl describe.", "queues.passthrough"),
        Entry("edit", "Change one in an editor, as kubectl edit.", "queues.passthrough"),
        Entry("patch", "Change fields of one, as kubectl patch.", "queues.passthrough"),
    ),
    "Operate": (
        Entry("preflight", "Check a cluster before `helm install` or `helm upgrade`.", "preflight"),
        Entry("import", "Bring running jobs and pods under queues, without a restart.", "importing"),
        Entry("check", "Check that the installed Turnstile works.", "check"),
        Entry("lint", "Check manifests of jobs, and quota set-ups.", "lint"),
        Entry("config", "Check and convert configuration files.", "config"),
        Entry("bundle", "Collect the facts for a bug report into one file.", "bundle"),
        Entry("worker", "Make the account of a manager on a worker cluster.", "worker"),
        Entry("uninstall", "Remove Turnstile's marks from all objects of a cluster.", "uninstall"),
    ),
    "Run": (
        Entry("serve", "Run the webhook, the controller, both, or the page.", "serve"),
        Entry("web", "Serve the page on this machine, with your rights.", "web"),
        Entry("replay", "Repeat the decisions of a log, and compare them.", "replay"),
    ),
    "This program": (
        Entry("completion", "Print the completion of a shell.", "completion"),
        Entry("version", "Print the version.", "version"),
    ),
}
"""All commands, under the headings and in the order in which help lists them."""
COMMANDS: Final = tuple(entry for entries in GROUPS.values() for entry in entries)


def create(
    *,
    run: "Run",
    clock: Callable[[], datetime],
    serving: "Callable[[Settings], int] | None" = None,
    program: str = "turnstile",
) -> typer.Typer:
    """The application. `serving` runs the roles until they are stopped and returns the exit code; without it there is
    no command `serve`, and it is the plug-in of kubectl."""
    title = program.replace("-", " ")
    given = {"run": run, "clock": clock, "serving": serving, "program": program}
    entries = {entry.name: entry for entry in COMMANDS if entry.name != "serve" or serving is not None}

    class Commands(Group):
        """Has a stand-in for each command, for the list in the help, until that command is called."""

        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            for entry in entries.values():
                self.add_command(TyperCommand(entry.name, help=entry.help))

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """As Group; `help COMMAND` is `COMMAND --help`."""
            return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """The list of commands, each under the heading of what it is for."""
            for title, group in GROUPS.items():
                with formatter.section(title):
                    formatter.write_dl([(entry.name, entry.help) for entry in group if entry.name in entries])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """As Group; the command itself takes the place of its stand-in."""
            if args and args[0] in entries:
                self.add_command(load(entries[args[0]], given))
            return super().resolve_command(ctx, args)

    app = _application(
        cls=Commands,
        name=program,
        epilog=f"`{title} help COMMAND` prints the options of a command. They may stand before it, as with kubectl.",
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
        """Turnstile queues jobs on Kubernetes: it shares GPUs, CPUs and memory between teams, by Kueue's API."""

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
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **attributes,
    )
