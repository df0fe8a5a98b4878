"""`kubectl turnstile create`: ClusterQueues, LocalQueues and ResourceFlavors from options."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from turnstile.api.errors import InvalidValue, NotFound
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where
from turnstile.cli.options import command
from turnstile.cli.queues import names, quotas
from turnstile.cli.queues.options import DryRun, Shown, group
from turnstile.cli.queues.output import Format
from turnstile.cli.queues.paths import VERSION, path_of
from turnstile.cli.queues.session import Session, session

Plain = dict[str, Any]

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the new object.")]
Try = Annotated[
    DryRun, typer.Option("--dry-run", help="client: print what would be sent; server: have it checked, not kept.")
]


class Strategy(StrEnum):
    """In which order Workloads of a ClusterQueue are tried."""

    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"


class Reclaim(StrEnum):
    """Workloads that may be preempted in the cohort."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class Within(StrEnum):
    """Workloads that may be preempted in the ClusterQueue."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"


def _quota(text: str) -> Any:
    return typer.Option(help=f"{text}, as FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT[,FLAVOR:...]. Repeatable.")


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""
    create = group(app, "create", "Create a ClusterQueue, a LocalQueue or a ResourceFlavor.")

    def make(where: Where, shown: Shown, dry_run: DryRun, body: Plain, *, plural: str, needs: str = "") -> None:
        """Create the object, if there is a ClusterQueue of the name that it `needs`, and print it."""
        form = Format.of(shown)
        made: Plain = {"apiVersion": VERSION, **body}

        async def send(at: Session, namespace: str) -> Plain:
            if needs:
                try:
                    await at.get(path_of(VERSION, "clusterqueues", needs))
                except NotFound:
                    cure = "not found; --ignore-unknown-cq creates the LocalQueue all the same"
                    raise InvalidValue("--clusterqueue", needs, cure) from None
            if dry_run is DryRun.CLIENT:
                return made
            path = path_of(VERSION, plural, namespace=namespace)
            return await at.write("POST", path, made, server_dry_run=dry_run is DryRun.SERVER)

        async def work() -> Plain:
            if dry_run is DryRun.CLIENT and plural != "localqueues":
                return made  # no cluster is needed
            async with session(where, "create") as at:
                namespace = at.namespace if plural == "localqueues" else ""
                if namespace:
                    made["metadata"]["namespace"] = namespace
                return await send(at, namespace)

        form.print(run(work()), done=f"created{dry_run.remark}")

    @command(create, "clusterqueue")
    def _cluster_queue(
        name: Name,
        *,
        cohort: Annotated[str, typer.Option(help="Its cohort.", autocompletion=names.cohorts)] = "",
        queuing_strategy: Annotated[
            Strategy, typer.Option(help="How its Workloads are ordered.")
        ] = Strategy.BEST_EFFORT_FIFO,
        namespace_selector: Annotated[
            list[str] | None,
            typer.Option(help="Labels KEY=VALUE of the namespaces that may use it; all by default. Repeatable."),
        ] = None,
        reclaim_within_cohort: Annotated[
            Reclaim, typer.Option(help="Whom it may preempt in its cohort to get its quota back.")
        ] = Reclaim.NEVER,
        preemption_within_cluster_queue: Annotated[
            Within, typer.Option(help="Whom its Workloads may preempt within it.")
        ] = Within.NEVER,
        nominal_quota: Annotated[list[str] | None, _quota("Its own quota")] = None,
        borrowing_limit: Annotated[list[str] | None, _quota("What it may borrow at most")] = None,
        lending_limit: Annotated[list[str] | None, _quota("What it lends at most")] = None,
        dry_run: Try = DryRun.NONE,
        shown: Shown,
        where: Where,
    ) -> None:
        """Create a ClusterQueue."""
        given = {
            quotas.NOMINAL: nominal_quota,
            "--borrowing-limit": borrowing_limit,
            "--lending-limit": lending_limit,
        }
        labels = quotas.labels("--namespace-selector", namespace_selector)
        spec: Plain = {
            "queueingStrategy": str(queuing_strategy),
            "namespaceSelector": {"matchLabels": labels} if labels else {},
            "preemption": {
                "reclaimWithinCohort": str(reclaim_within_cohort),
                "withinClusterQueue": str(preemption_within_cluster_queue),
            },
        }
        if cohort:
            spec["cohortName"] = cohort
        if groups := quotas.resource_groups(given):
            spec["resourceGroups"] = groups
        body = {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        make(where, shown, dry_run, body, plural="clusterqueues")

    @command(create, "localqueue")
    def _local_queue(
        name: Name,
        *,
        clusterqueue: Annotated[
            str, typer.Option("--clusterqueue", "-c", help="Its ClusterQueue.", autocompletion=names.cluster_queues)
        ],
        ignore_unknown_cq: Annotated[
            bool, typer.Option("--ignore-unknown-cq", "-i", help="Create it though there is no such ClusterQueue.")
        ] = False,
        dry_run: Try = DryRun.NONE,
        shown: Shown,
        where: Where,
    ) -> None:
        """Create a LocalQueue."""
        body = {"kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": clusterqueue}}
        needs = "" if ignore_unknown_cq else clusterqueue
        make(where, shown, dry_run, body, plural="localqueues", needs=needs)

    @command(create, "resourceflavor")
    def _resource_flavor(
        name: Name,
        *,
        node_labels: Annotated[
            list[str] | None, typer.Option(help="Labels KEY=VALUE of its nodes, with commas between. Repeatable.")
        ] = None,
        node_taints: Annotated[
            list[str] | None, typer.Option(help="Taints KEY[=VALUE]:EFFECT of its nodes. Repeatable.")
        ] = None,
        tolerations: Annotated[
            list[str] | None, typer.Option(help="Tolerations KEY[=VALUE][:EFFECT] that its pods get. Repeatable.")
        ] = None,
        dry_run: Try = DryRun.NONE,
        shown: Shown,
        where: Where,
    ) -> None:
        """Create a ResourceFlavor."""
        spec: Plain = {
            "nodeLabels": quotas.labels("--node-labels", node_labels),
            "nodeTaints": quotas.taints("--node-taints", node_taints),
            "tolerations": quotas.tolerations("--tolerations", tolerations),
        }
        body = {
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {field: value for field, value in spec.items() if value},
        }
        make(where, shown, dry_run, body, plural="resourceflavors")
