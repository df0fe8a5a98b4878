"""`kubectl turnstile delete`: Workloads with their jobs, after a question; queues and flavors as kubectl."""

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from turnstile.api.errors import InvalidValue, NotFound
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where
from turnstile.cli.options import command
from turnstile.cli.queues import names, rows
from turnstile.cli.queues.create import Try
from turnstile.cli.queues.options import DryRun, group
from turnstile.cli.queues.passthrough import KINDS, SETTINGS, pass_on, resource
from turnstile.cli.queues.paths import GROUP, VERSION, path_of
from turnstile.cli.queues.session import Session, session
from turnstile.cli.say import say

Plain = dict[str, Any]

Workloads = Annotated[list[str] | None, typer.Argument(metavar="NAME...", autocompletion=names.workloads)]


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""
    delete = group(app, "delete", "Delete Workloads with their jobs, queues or flavors.")

    @command(delete, "workload")
    def _workload(
        names: Workloads = None,
        *,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before jobs are deleted.")] = False,
        every: Annotated[bool, typer.Option("--all", help="All Workloads of the namespace.")] = False,
        all_namespaces: Annotated[
            bool, typer.Option("--all-namespaces", "-A", help="With --all, those of all namespaces.")
        ] = False,
        dry_run: Try = DryRun.NONE,
        where: Where,
    ) -> None:
        """Delete the jobs that Workloads are for; a Workload that is for no job is deleted itself."""
        if bool(names) == every:
            raise InvalidValue("NAME", " ".join(names or ()), "give names of Workloads, or --all without names")
        if all_namespaces and not every:
            raise InvalidValue("--all-namespaces", "", "it goes with --all: names are looked up in one namespace")

        async def work() -> int:
            async with session(where, "delete") as at:
                found, missing = await _find(at, names or (), all_namespaces=all_namespaces)
                targets = [target for each in found for target in await _targets(at, each)]
                jobs = [target for target in targets if target.workload]
                if jobs and dry_run is DryRun.NONE and not yes and not _agreed(jobs):
                    say("Deletion is canceled")
                    return 0
                for target in targets:
                    await _delete(at, target, dry_run)
                    say(f"{target.title} deleted{dry_run.remark}")
                return 1 if missing else 0

        if code := run(work()):
            raise typer.Exit(code)

    for kind in KINDS:
        if kind != "workload":
            _pass_on(delete, kind)


def _pass_on(app: typer.Typer, kind: str) -> None:
    @app.command(kind, help=f"Delete objects of the kind {kind}, as kubectl delete.", context_settings=SETTINGS)
    def _passed_on(ctx: typer.Context) -> None:
        with explained():
            pass_on("delete", resource(kind), *ctx.args)


async def _find(at: Session, given: Iterable[str], *, all_namespaces: bool) -> tuple[list[Plain], bool]:
    """The Workloads of these names, or all without names; and whether one of the names is not there."""
    missing = False
    found: list[Plain] = []
    for name in given:
        try:
            found.append(await at.get(path_of(VERSION, "workloads", name, at.namespace)))
        except NotFound as error:
            say(f"error: {error.message}", err=True)
            missing = True
    if not found and not missing:
        path = path_of(VERSION, "workloads", namespace="" if all_namespaces else at.namespace)
        found, _ = await at.list_all(path, {})
    return found, missing


@dataclass(frozen=True, slots=True)
class _Target:
    """The object deleted for a Workload: a job, or the Workload itself. `workload` is the Workload that a job is of."""

    path: str
    title: str
    uid: str
    workload: str = ""


async def _targets(at: Session, workload: Plain) -> list[_Target]:
    """The jobs of a Workload, or the Workload itself if it has none."""
    metadata = workload["metadata"]
    namespace = metadata["namespace"]
    found = []
    for owner in rows.owners(workload):
        kind = await at.resource(owner["apiVersion"], owner["kind"])
        if kind is None:
            cure = f"the API server has no {owner['kind']} of {owner['apiVersion']}: delete the Workload with kubectl"
            raise InvalidValue("owner", owner["name"], cure)
        group, slash, _ = owner["apiVersion"].partition("/")
        path = path_of(owner["apiVersion"], kind["name"], owner["name"], namespace)
        title = f"{kind['name']}{'.' + group if slash else ''}/{owner['name']}"
        found.append(_Target(path, title, owner["uid"], f"{namespace}/{metadata['name']}"))
    own = path_of(VERSION, "workloads", metadata["name"], namespace)
    return found or [_Target(own, f"workload.{GROUP}/{metadata['name']}", metadata["uid"])]


def _agreed(jobs: list[_Target]) -> bool:
    """Whether the user agrees that jobs are deleted; no if there is nobody to ask."""
    say("This operation will also delete:")
    for job in jobs:
        say(f"  - {job.title} associated with the {job.workload} workload")
    say("Do you want to proceed (y/n)? ", nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _delete(at: Session, target: _Target, dry_run: DryRun) -> None:
    """Delete it, if it is still the same object; its pods go too, which Kubernetes would keep for a Job by default."""
    if dry_run is DryRun.CLIENT:
        return
    options: Plain = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": target.uid},
    }
    with contextlib.suppress(NotFound):
        await at.write("DELETE", target.path, options, server_dry_run=dry_run is DryRun.SERVER)
