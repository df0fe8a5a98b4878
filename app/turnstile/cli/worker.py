"""`turnstile worker`: makes the account by which a manager sends jobs to a worker cluster."""

from typing import Annotated, Final

import typer

from turnstile.cli.cluster import Run
from turnstile.cli.connection import Connection, configuration, connected
from turnstile.cli.groups import Group
from turnstile.cli.options import command
from turnstile.cli.say import say

Name = Annotated[str, typer.Option(help="Name of the ServiceAccount, of its role and of the binding.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the ServiceAccount.")]
_NAME: Final = "turnstile-manager"
_NAMESPACE: Final = "turnstile-system"
_HELP: Final = "Make the account of a manager on a worker cluster."


def register(app: typer.Typer, run: Run) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(cls=Group, help=_HELP, no_args_is_help=True)
    app.add_typer(group, name="worker")

    @group.callback()
    def _worker() -> None:
        """Make the account of a manager on a worker cluster."""

    @group.command()
    def role(
        *,
        name: Name = _NAME,
        namespace: Namespace = _NAMESPACE,
        with_queues: Annotated[
            bool, typer.Option("--with-queues", help="Let the manager read queues, to send jobs where there is room.")
        ] = False,
        for_kueue: Annotated[
            bool, typer.Option("--for-kueue", help="The manager is Kueue, which uses more rights than Turnstile.")
        ] = False,
        external: Annotated[
            list[str] | None,
            typer.Option(
                help="Kind.version.group of jobs in the manager's multiKueue.externalFrameworks, or "
                "Kind.version.group=plural if its name in URLs is not the usual one.",
            ),
        ] = None,
    ) -> None:
        """Print the manager's account and its rights on a worker, for `kubectl apply -f -` there."""
        import yaml

        from turnstile.api.config.frameworks import is_kind
        from turnstile.api.validation.labels import dns_1035_label_faults
        from turnstile.jobs.registry import ALL, external_kinds
        from turnstile.release.workeraccount import manifests

        for each in external or ():
            kind, _, plural = each.partition("=")
            if not is_kind(kind) or (plural and dns_1035_label_faults(plural)):
                raise typer.BadParameter(
                    f"{each}: must be in 'kind.version.group' or 'kind.version.group=plural' format"
                )
        kinds = [*ALL, *external_kinds(external or ())]
        found = manifests(kinds, name=name, namespace=namespace, queues=with_queues, kueue=for_kueue)
        say(yaml.safe_dump_all(found, sort_keys=False), nl=False)

    @command(group, "kubeconfig")
    def kubeconfig_(
        *,
        name: Name = _NAME,
        namespace: Namespace = _NAMESPACE,
        days: Annotated[int, typer.Option(help="Days for which the token is valid, at most.", min=1)] = 90,
        reached_at: Annotated[
            str, typer.Option(help="URL of the worker's API server for the manager, if it is not your own.")
        ] = "",
        where: Connection,
    ) -> None:
        """Print a kubeconfig for the manager, with a new token of its account on the worker.

        You connect as an administrator of the worker. Nothing is written there. To rotate, print another kubeconfig
        and replace the Secret on the manager, which connects anew; the old token is valid until it expires, or until
        the account is deleted.
        """
        import yaml

        from turnstile.release.workeraccount import kubeconfig, token_of

        async def work() -> tuple[str, str]:
            async with connected(where, "worker kubeconfig") as transport:
                return await token_of(transport, name=name, namespace=namespace, seconds=days * 86400)

        config, _ = configuration(where)
        cluster = config["clusters"][0]["cluster"]
        token, until = run(work())
        server = reached_at or str(cluster.get("server", ""))
        say(yaml.safe_dump(kubeconfig(cluster, server=server, token=token), sort_keys=False), nl=False)
        say(f"The token expires at {until}.", err=True)
