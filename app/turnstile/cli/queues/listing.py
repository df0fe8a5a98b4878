"""`kubectl turnstile list`: queues, flavors, Workloads and the pods of a job, in tables or in full."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson
import typer

from turnstile.api.errors import ApiError, Expired, Forbidden, InvalidValue, NotServed
from turnstile.api.nearest import proposed
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where
from turnstile.cli.options import command
from turnstile.cli.queues import names, rows
from turnstile.cli.queues.jobs import find_job, pod_selectors
from turnstile.cli.queues.options import Chosen, Shown, group
from turnstile.cli.queues.output import Format, flush, none_found
from turnstile.cli.queues.passthrough import kubectl
from turnstile.cli.queues.paths import VERSION, path_of
from turnstile.cli.queues.session import Session, session
from turnstile.cli.queues.surroundings import Surroundings
from turnstile.cli.queues.tables import Table
from turnstile.cli.say import say

Plain = dict[str, Any]

IDLE_SECONDS: Final = 3600.0
"""A watch that brings nothing for so long is begun again."""

Active = Annotated[
    str, typer.Option(help="Only those that admit Workloads (true), or that do not (false).", metavar="BOOL")
]
ForJob = Annotated[str, typer.Option("--for", help="Only that of a job, as TYPE[.GROUP]/NAME.", metavar="TYPE/NAME")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Objects of all namespaces.")]
OfClusterQueue = Annotated[
    str,
    typer.Option(
        "--clusterqueue", "-c", help="Only what goes to this ClusterQueue.", autocompletion=names.cluster_queues
    ),
]
OfLocalQueue = Annotated[
    str, typer.Option("--localqueue", "-q", help="Only those of this LocalQueue.", autocompletion=names.local_queues)
]


class Status(StrEnum):
    """States of Workloads by which they are chosen."""

    ALL = "all"
    PENDING = "pending"
    QUOTARESERVED = "quotareserved"
    ADMITTED = "admitted"
    FINISHED = "finished"


@dataclass(slots=True)
class Listing:
    """One `list` command: what is read, which of it is kept, and the columns."""

    kind: str
    plural: str
    columns: Sequence[str]
    wide: Sequence[str]
    row: Callable[[Plain, bool], list[str]]
    keep: Callable[[Plain], bool] = lambda _: True
    prepare: Callable[[list[Plain]], Awaitable[None]] | None = None
    """Reads what rows need beside the objects."""
    namespace: str | None = None
    """Empty for all namespaces; None for objects without a namespace."""
    queues: Sequence[tuple[str, str, str]] = ()
    """Kind, name and namespace of the queues that were asked for; an empty name where no queue was."""

    async def run(self, at: Session, shown: Shown, chosen: Chosen) -> None:
        """List, print, and with `--watch` follow the changes."""
        form = Format.of(shown, wide=True)
        selectors = {"labelSelector": chosen.selector, "fieldSelector": chosen.field_selector}
        params = {name: text for name, text in selectors.items() if text}
        path = path_of(VERSION, self.plural, namespace=self.namespace or "")
        headings = [*(["Namespace"] if self.namespace == "" else []), *self.columns]
        table = Table([*headings, *(self.wide if form.kind == "wide" else ())], header=not chosen.no_headers)
        version = await self._print_all(at, path, params, form, table)
        if not chosen.watch:
            return
        flush()
        while True:
            try:
                async for kind, obj in _changes(at, path, params, version):
                    version = obj["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK" and self.keep(obj):
                        await self._print([obj], form, table)
                        flush()
            except Expired:  # the API server has forgotten the version: all that there is now
                version = await self._print_all(at, path, params, form, table)

    async def _print_all(self, at: Session, path: str, params: dict[str, str], form: Format, table: Table) -> str:
        items, version = await at.list_all(path, dict(params))
        for each in items:  # items of a list say neither
            each.setdefault("apiVersion", VERSION)
            each.setdefault("kind", self.kind)
        if self.prepare is not None:
            await self.prepare(items)
        items = [each for each in items if self.keep(each)]
        if not items and form.kind not in ("json", "yaml"):
            none_found(self.namespace or "")
            for kind, name, namespace in self.queues:
                await _propose_queue(at, kind, name, namespace)
        elif form.table:
            await self._print(items, form, table, prepared=True)
        else:
            form.print_list(self.kind, VERSION, items, version)
        return version

    async def _print(self, items: list[Plain], form: Format, table: Table, *, prepared: bool = False) -> None:
        if not form.table:
            for each in items:
                form.print(each)
            return
        if self.prepare is not None and not prepared:
            await self.prepare(items)
        wide = form.kind == "wide"
        own = [[each["metadata"]["namespace"]] if self.namespace == "" else [] for each in items]
        for line in table.lines([*first, *self.row(each, wide)] for first, each in zip(own, items, strict=True)):
            say(line)


async def _changes(at: Session, path: str, params: dict[str, str], version: str) -> AsyncIterator[tuple[str, Plain]]:
    """Changes after a version: the type of each event, and the object. Raises Expired if the API server has
    forgotten that version."""
    query = {**params, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
    async with aclosing(at.transport.watch(path, params=query, idle_timeout=IDLE_SECONDS)) as lines:
        async for line in lines:
            event = orjson.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                kind = Expired if status.get("code") == 410 else ApiError
                raise kind(status.get("code", 500), status.get("reason", ""), status.get("message", ""))
            yield event["type"], event["object"]


async def _propose_queue(at: Session, kind: str, name: str, namespace: str) -> None:
    """Where nothing was found because a queue does not exist, say so, and which queue may be meant."""
    if not name:
        return
    try:
        found = await at.get(path_of(VERSION, f"{kind.lower()}s", namespace=namespace), accept=names.METADATA)
    except (Forbidden, NotServed):
        return
    known = {each["metadata"]["name"] for each in found["items"]}
    if name not in known:
        where = f" in namespace {namespace}" if namespace else ""
        say(f"warning: there is no {kind} {name}{where}: {proposed(name, known)}", err=True)


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""
    listing = group(app, "list", "List queues, flavors, Workloads, or the pods of a job.")

    def show(where: Where, shown: Shown, chosen: Chosen, of: Callable[[Session], Awaitable[Listing | None]]) -> None:
        """Connect, and run what `of` makes."""

        async def work() -> None:
            async with session(where, "list") as at:
                if (what := await of(at)) is not None:
                    await what.run(at, shown, chosen)

        run(work())

    @command(listing, "clusterqueue")
    def _cluster_queues(*, active: Active = "", chosen: Chosen, shown: Shown, where: Where) -> None:
        """List ClusterQueues."""
        if active not in ("", "true", "false"):
            raise InvalidValue("--active", active, "give true or false")

        async def of(_: Session) -> Listing:
            return Listing(
                "ClusterQueue",
                "clusterqueues",
                rows.CLUSTER_QUEUE,
                rows.CLUSTER_QUEUE_WIDE,
                lambda obj, wide: rows.cluster_queue(obj, clock(), wide=wide),
                keep=lambda obj: not active or rows.holds(obj, "Active") is (active == "true"),
            )

        show(where, shown, chosen, of)

    @command(listing, "localqueue")
    def _local_queues(
        *,
        clusterqueue: OfClusterQueue = "",
        all_namespaces: AllNamespaces = False,
        chosen: Chosen,
        shown: Shown,
        where: Where,
    ) -> None:
        """List LocalQueues."""

        async def of(at: Session) -> Listing:
            return Listing(
                "LocalQueue",
                "localqueues",
                rows.LOCAL_QUEUE,
                rows.LOCAL_QUEUE_WIDE,
                lambda obj, wide: rows.local_queue(obj, clock(), wide=wide),
                keep=lambda obj: not clusterqueue or obj["spec"].get("clusterQueue") == clusterqueue,
                namespace="" if all_namespaces else at.namespace,
                queues=[("ClusterQueue", clusterqueue, "")],
            )

        show(where, shown, chosen, of)

    @command(listing, "resourceflavor")
    def _resource_flavors(*, chosen: Chosen, shown: Shown, where: Where) -> None:
        """List ResourceFlavors."""

        async def of(_: Session) -> Listing:
            return Listing(
                "ResourceFlavor",
                "resourceflavors",
                rows.RESOURCE_FLAVOR,
                rows.RESOURCE_FLAVOR_WIDE,
                lambda obj, wide: rows.resource_flavor(obj, clock(), wide=wide),
            )

        show(where, shown, chosen, of)

    @command(listing, "workload")
    def _workloads(
        *,
        clusterqueue: OfClusterQueue = "",
        localqueue: OfLocalQueue = "",
        status: Annotated[list[Status] | None, typer.Option(help="Only those in this state. Repeatable.")] = None,
        for_job: ForJob = "",
        all_namespaces: AllNamespaces = False,
        chosen: Chosen,
        shown: Shown,
        where: Where,
    ) -> None:
        """List Workloads, with their jobs and their positions in the queue."""
        states = set() if Status.ALL in (status or ()) else {str(each) for each in status or ()}

        async def of(at: Session) -> Listing | None:
            namespace = "" if all_namespaces else at.namespace
            around = Surroundings(at, every_namespace=all_namespaces)
            job = await find_job(at, for_job, every_namespace=all_namespaces) if for_job else None
            if for_job and job is None:
                none_found(namespace)
                return None

            def keep(obj: Plain) -> bool:
                return (
                    (not clusterqueue or rows.cluster_queue_of(obj, around.known) == clusterqueue)
                    and (not localqueue or obj["spec"].get("queueName") == localqueue)
                    and (not states or rows.state(obj) in states)
                    and (job is None or rows.is_for(obj, job["metadata"]["uid"]))
                )

            return Listing(
                "Workload",
                "workloads",
                rows.WORKLOAD,
                rows.WORKLOAD_WIDE,
                lambda obj, wide: rows.workload(obj, around.known, clock(), wide=wide),
                keep=keep,
                prepare=around.read,
                namespace=namespace,
                queues=[("ClusterQueue", clusterqueue, ""), ("LocalQueue", localqueue, namespace)],
            )

        show(where, shown, chosen, of)

    @command(listing, "pods")
    def _pods(
        *,
        for_job: Annotated[str, typer.Option("--for", help="The job, as TYPE[.GROUP]/NAME.", metavar="TYPE/NAME")],
        all_namespaces: AllNamespaces = False,
        chosen: Chosen,
        shown: Shown,
        where: Where,
    ) -> None:
        """List the pods of a job."""

        options = {
            "--output": shown.output,
            "--selector": chosen.selector,
            "--field-selector": chosen.field_selector,
        }

        async def find() -> tuple[dict[str, str] | None, str]:
            async with session(where, "list") as at:
                job = await find_job(at, for_job, every_namespace=all_namespaces)
                selectors = pod_selectors(job) if job is not None else None
                return selectors, "" if all_namespaces else at.namespace

        selectors, namespace = run(find())
        if selectors is None:
            none_found(namespace)
            return
        for option, text in selectors.items():
            options[option] = ",".join(filter(None, (options[option], text)))
        flags = {
            "--all-namespaces": all_namespaces,
            "--watch": chosen.watch,
            "--no-headers": chosen.no_headers,
            "--show-managed-fields": shown.show_managed_fields,
        }
        given = [f"{name}={value}" for name, value in options.items() if value]
        kubectl("get", "pods", *given, *(flag for flag, on in flags.items() if on), *where.arguments())
