"""Options that the commands on queues share, and commands with a subcommand for each kind."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from turnstile.cli.groups import Group

ALIASES: Final = {
    "clusterqueue": ("cq", "clusterqueues"),
    "localqueue": ("lq", "localqueues", "queue", "queues"),
    "resourceflavor": ("rf", "resourceflavors", "flavor", "flavors"),
    "workload": ("wl", "workloads", "kwl", "kueueworkload", "kueueworkloads"),
    "pods": ("po", "pod"),
}
"""Other names of the kinds: those of kueuectl, the plurals, and the short names that kubectl knows."""
NAME_OF: Final = {alias: name for name, aliases in ALIASES.items() for alias in (name, *aliases)}


class DryRun(StrEnum):
    """Whether a change is made."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"

    @property
    def remark(self) -> str:
        """The words after the report of a change that was not made."""
        return "" if self is DryRun.NONE else f" ({self} dry run)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How objects are printed."""

    output: Annotated[
        str, typer.Option("--output", "-o", help="json, yaml, name, wide (lists), jsonpath=TEMPLATE.", metavar="FORMAT")
    ] = ""
    show_managed_fields: Annotated[
        bool, typer.Option("--show-managed-fields", help="Keep managedFields in json and yaml.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which objects of a kind are listed, and whether their changes are."""

    selector: Annotated[str, typer.Option("--selector", "-l", help="Labels, as key1=value1,key2!=value2.")] = ""
    field_selector: Annotated[str, typer.Option(help="Fields that the API server can select by, as key=value.")] = ""
    watch: Annotated[bool, typer.Option("--watch", "-w", help="After the list, print each change until Ctrl-C.")] = (
        False
    )
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Without the line of column names.")] = False


class Kinds(Group):
    """A command with a subcommand for each kind, which may be called by any name of the kind."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As Group, for the name that an alias stands for."""
        if args:
            args = [NAME_OF.get(args[0].lower(), args[0]), *args[1:]]
        return super().resolve_command(ctx, args)


def group(app: typer.Typer, name: str, text: str) -> typer.Typer:
    """Add a command of that name that has subcommands, one for each kind."""
    added = typer.Typer(cls=Kinds, help=text, no_args_is_help=True)
    app.add_typer(added, name=name)
    return added
