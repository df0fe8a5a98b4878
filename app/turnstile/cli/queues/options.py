"""Options that many commands share: each set of them is a class, and a command has a parameter of that class."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer.core import TyperGroup

from turnstile.cli.cluster import Context, Kubeconfig, explained
from turnstile.cli.queues import names

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
class Where:
    """The API server, the identity and the namespace: kubectl's options for them, over those of the kubeconfig."""

    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace; by default that of the context.",
            autocompletion=names.namespaces,
        ),
    ] = None
    kubeconfig: Kubeconfig = None
    context: Context = None
    cluster: Annotated[str | None, typer.Option(help="Cluster of the kubeconfig.")] = None
    user: Annotated[str | None, typer.Option(help="User of the kubeconfig.")] = None
    server: Annotated[str | None, typer.Option("--server", "-s", help="URL of the API server.")] = None
    token: Annotated[str | None, typer.Option(help="Bearer token.")] = None
    act_as: Annotated[str | None, typer.Option("--as", help="User to impersonate.")] = None
    as_group: Annotated[list[str] | None, typer.Option(help="Group to impersonate. Repeatable.")] = None
    as_uid: Annotated[str | None, typer.Option(help="UID to impersonate.")] = None
    certificate_authority: Annotated[str | None, typer.Option(help="File of the API server's CA.")] = None
    insecure_skip_tls_verify: Annotated[
        bool, typer.Option("--insecure-skip-tls-verify", help="Do not check the API server's certificate.")
    ] = False
    request_timeout: Annotated[
        str, typer.Option(help="Time for one request, such as 30s or 2m; 0 for Turnstile's default.")
    ] = "0"

    def arguments(self) -> list[str]:
        """The options as kubectl takes them."""
        found: list[str] = []
        for name in self.__dataclass_fields__:
            option = "--as" if name == "act_as" else f"--{name.replace('_', '-')}"
            value = getattr(self, name)
            given = value if isinstance(value, list) else [value]
            found += [option if each is True else f"{option}={each}" for each in given if each]
        return found


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


class Kinds(TyperGroup):
    """A command with a subcommand for each kind, which may be called by any name of the kind."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As TyperGroup, for the name that an alias stands for."""
        if args:
            args = [NAME_OF.get(args[0].lower(), args[0]), *args[1:]]
        return super().resolve_command(ctx, args)


def group(app: typer.Typer, name: str, text: str) -> typer.Typer:
    """Add a command of that name that has subcommands, one for each kind."""
    added = typer.Typer(cls=Kinds, help=text, no_args_is_help=True)
    app.add_typer(added, name=name)
    return added


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], None]:
    """Add a function as a command. Each parameter whose type is a class of options above becomes those options, and an
    error of Turnstile ends the command with one sentence."""

    def add(function: Callable[..., None]) -> None:
        sets: dict[str, Any] = {}
        own: list[Parameter] = []
        for parameter in signature(function, eval_str=True).parameters.values():
            if is_dataclass(parameter.annotation):
                sets[parameter.name] = parameter.annotation
            else:
                own.append(parameter)
        for options in sets.values():
            hints = get_type_hints(options, include_extras=True)
            own += [
                Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
                for each in fields(options)
            ]

        @wraps(function)
        def called(**given: Any) -> None:
            for name, options in sets.items():
                given[name] = options(**{each.name: given.pop(each.name) for each in fields(options)})
            with explained():
                function(**given)

        del called.__wrapped__  # its signature is not that of the command
        called.__signature__ = Signature(own)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
        app.command(name)(called)

    return add
