"""Commands with subcommands, read as kubectl reads them: options may stand before the subcommand."""

from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

FLAGS: Final = frozenset(
    {
        "--all",
        "--all-containers",
        "--all-namespaces",
        "--apply",
        "--decision-log-objects",
        "--detach",
        "--details",
        "--follow",
        "--for-kueue",
        "--ignore-unknown-cq",
        "--insecure-skip-tls-verify",
        "--keep-already-running",
        "--live",
        "--manage-certificates",
        "--manage-jobs-without-queue-name",
        "--metrics-for-everybody",
        "--no-headers",
        "--once",
        "--page-registered",
        "--prefix",
        "--recorder-decisions",
        "--serve-v1beta1",
        "--serve-v1beta1-workloads",
        "--show-managed-fields",
        "--watch",
        "--with-other-tenants",
        "--with-queues",
        "--yes",
        "-A",
        "-d",
        "-i",
        "-w",
        "-y",
    }
)
"""Options without a value, of all commands. A word that follows any other option is its value."""


def behind(args: list[str], own: set[str]) -> list[str]:
    """The words of a command line, with the options that stand first moved behind the first word that is none.

    Options in `own` are those of the group itself, `--help` and `--version`: nothing else is done where one is given.
    """
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
        if args[at] in own:
            return args[at:]
        short = not args[at].startswith("--")
        at += 1 if "=" in args[at] or args[at] in FLAGS or (short and len(args[at]) > 2) else 2
    return [args[at], *args[:at], *args[at + 1 :]] if at < len(args) else args


def _own(command: Any, ctx: Any) -> set[str]:
    options = {word for each in command.params if each.param_type_name == "option" for word in each.opts}
    return options | set(ctx.help_option_names)


class Group(TyperGroup):
    """A command with subcommands: options before the subcommand are the subcommand's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As TyperGroup, with these options moved."""
        return super().parse_args(ctx, behind(args, _own(self, ctx)) if args else args)


class PassedOn(TyperCommand):
    """A command whose options another program reads: they may stand before its first argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As TyperCommand, with these options moved."""
        return super().parse_args(ctx, behind(args, _own(self, ctx)))
