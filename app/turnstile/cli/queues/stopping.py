"""`kubectl turnstile stop` and `resume`: queues stop admitting Workloads, or a Workload is deactivated, and back."""

from typing import Annotated, Any

import typer

from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where
from turnstile.cli.options import command
from turnstile.cli.queues import names
from turnstile.cli.queues.create import Try
from turnstile.cli.queues.options import DryRun, Shown, group
from turnstile.cli.queues.output import Format
from turnstile.cli.queues.paths import VERSION, path_of
from turnstile.cli.queues.session import session

Plain = dict[str, Any]

Keep = Annotated[
    bool, typer.Option("--keep-already-running", help="Let Workloads that have quota go on; else they are evicted.")
]
RunningClusterQueue = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names.running_cluster_queues)]
StoppedClusterQueue = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names.stopped_cluster_queues)]
RunningLocalQueue = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names.running_local_queues)]
StoppedLocalQueue = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names.stopped_local_queues)]
ActiveWorkload = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names.active_workloads)]
InactiveWorkload = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names.inactive_workloads)]


def register(app: typer.Typer, run: Run) -> None:
    """Add the commands to `app`."""
    stop = group(app, "stop", "Stop a ClusterQueue, a LocalQueue or a Workload.")
    resume = group(app, "resume", "Resume a ClusterQueue, a LocalQueue or a Workload.")

    def change(where: Where, shown: Shown, dry_run: DryRun, plural: str, name: str, spec: Plain, done: str) -> None:
        """Change the spec of an object, and print it."""
        form = Format.of(shown)

        async def work() -> Plain:
            async with session(where, done) as at:
                path = path_of(VERSION, plural, name, "" if plural == "clusterqueues" else at.namespace)
                if dry_run is DryRun.CLIENT:
                    obj = await at.get(path)
                    return obj | {"spec": obj["spec"] | spec}
                return await at.write("PATCH", path, {"spec": spec}, server_dry_run=dry_run is DryRun.SERVER)

        form.print(run(work()), done=f"{done}{dry_run.remark}")

    @command(stop, "clusterqueue")
    def _stop_cluster_queue(
        name: RunningClusterQueue,
        *,
        keep_already_running: Keep = False,
        dry_run: Try = DryRun.NONE,
        shown: Shown,
        where: Where,
    ) -> None:
        """Have a ClusterQueue admit no Workloads, and evict those that have its quota."""
        policy = "Hold" if keep_already_running else "HoldAndDrain"
        change(where, shown, dry_run, "clusterqueues", name, {"stopPolicy": policy}, "stopped")

    @command(stop, "localqueue")
    def _stop_local_queue(
        name: RunningLocalQueue,
        *,
        keep_already_running: Keep = False,
        dry_run: Try = DryRun.NONE,
        shown: Shown,
        where: Where,
    ) -> None:
        """Have no Workloads of a LocalQueue admitted, and evict those that have quota."""
        policy = "Hold" if keep_already_running else "HoldAndDrain"
        change(where, shown, dry_run, "localqueues", name, {"stopPolicy": policy}, "stopped")

    @command(stop, "workload")
    def _stop_workload(name: ActiveWorkload, *, dry_run: Try = DryRun.NONE, shown: Shown, where: Where) -> None:
        """Deactivate a Workload: it is evicted, and not admitted until it is resumed."""
        change(where, shown, dry_run, "workloads", name, {"active": False}, "stopped")

    @command(resume, "clusterqueue")
    def _resume_cluster_queue(
        name: StoppedClusterQueue, *, dry_run: Try = DryRun.NONE, shown: Shown, where: Where
    ) -> None:
        """Have a ClusterQueue admit Workloads again."""
        change(where, shown, dry_run, "clusterqueues", name, {"stopPolicy": "None"}, "resumed")

    @command(resume, "localqueue")
    def _resume_local_queue(name: StoppedLocalQueue, *, dry_run: Try = DryRun.NONE, shown: Shown, where: Where) -> None:
        """Have Workloads of a LocalQueue admitted again."""
        change(where, shown, dry_run, "localqueues", name, {"stopPolicy": "None"}, "resumed")

    @command(resume, "workload")
    def _resume_workload(name: InactiveWorkload, *, dry_run: Try = DryRun.NONE, shown: Shown, where: Where) -> None:
        """Activate a Workload again."""
        change(where, shown, dry_run, "workloads", name, {"active": True}, "resumed")
