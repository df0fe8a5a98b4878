"""`turnstile explain`: why a Workload waits, and the smallest changes that would admit it."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from turnstile.api import names
from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.asking import ConfigFile, Source, State, asking_the_engine
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, namespace_of
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.cli.served import Question
from turnstile.insight import rights
from turnstile.insight.blockers import Blocker
from turnstile.insight.explain import Explanation, Place, explain, plain
from turnstile.insight.remedies import Remedy
from turnstile.insight.room import Room
from turnstile.insight.running import Running
from turnstile.insight.standing import Leaving, with_pods
from turnstile.wording.grammar import counted, sentence
from turnstile.wording.quotas import set_elsewhere
from turnstile.wording.room import fits
from turnstile.wording.standing import loses, still_run
from turnstile.wording.starts import lasting


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "explain")
    def explaining(
        *,
        target: Annotated[
            str, typer.Argument(metavar="JOB|KIND/NAME", help="A job by its name; or a Workload, job or pod.")
        ],
        state: State = None,
        config: ConfigFile = None,
        output: Printed = Output.TEXT,
        where: Where,
    ) -> None:
        """Show why a Workload waits, and what would admit it.

        The answer names the smallest changes that would admit it. The scheduler's own code decides on what the cluster
        has, read with your rights, or on a dump; nothing is written. Where your rights do not suffice, the page in the
        cluster is asked, if there is one. Each remedy was tried that way, with everything else as it is. Exit code 0:
        told; 2: unable.
        """
        with explained():
            source, namespace = Source(state, config, where), namespace_of(where)
            documents = source.read(run, "explain", namespace)
            snapshot = rights.relevant(documents.snapshot)
            key = source.workload(run, "explain", snapshot, target, namespace, clock())
            of = f"workload/{key.partition('/')[2]}"
            answer = source.asked(run, Question("explain", namespace, {"of": [of]}), snapshot)
            if answer is not None:
                found = msgspec.json.decode(answer, type=Explanation)
            else:
                with asking_the_engine("looking for what would admit it"):
                    found = explain(snapshot, source.options(), clock().timestamp(), key, sees=lambda _: True)
            leaving = tuple(_with_pods(each, lambda path: source.get(run, "explain", path)) for each in found.leaving)
            found = msgspec.structs.replace(found, leaving=leaving)
        if output is Output.TEXT:
            say("\n".join(shown(found)))
        else:
            say_document(plain(found), output)


def _with_pods(leaving: Leaving, get: Callable[[str], dict[str, Any] | None]) -> Leaving:
    """A victim with its pods that still run, if the user may see it and list them."""
    namespace, slash, _ = leaving.workload.partition("/")
    pods = get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={names.PODSET_LABEL}") if slash else None
    return leaving if pods is None else with_pods(leaving, pods)


def shown(found: Explanation) -> Iterator[str]:
    """The explanation as lines for people."""
    where = f"LocalQueue {found.local_queue or '(none)'}, ClusterQueue {found.cluster_queue or '(none)'}"
    yield f"{found.job or found.workload} is {found.state} (Workload {found.workload.partition('/')[2]}, {where})."
    yield ""
    yield f"Why: {found.sentence}"
    if found.kept:
        yield f"     {found.kept}."
    if found.preempted is not None and found.state == "pending":
        yield f"     It was {found.preempted.why}, and waits since."
    yield from (f"     {sentence(loses(each.workload, each.lost))}" for each in found.leaving if each.lost)
    yield from (f"     {sentence(still_run(each.pods, each.workload))}" for each in found.leaving if each.pods)
    if found.run is not None:
        yield from _run(found.run)
    if found.blockers:
        yield ""
        yield from _blocked(found.blockers)
        if found.set_by:
            yield f"  {sentence(set_elsewhere('ClusterQueue', found.cluster_queue, found.set_by))}"
    for rule in found.rules:
        yield f"Not preempted: {rule}."
    for skipped in found.skipped_flavors:
        yield f"Not tried: flavor {skipped}"
    for room in found.room:
        yield ""
        yield from _room(room)
    if found.place is not None:
        yield ""
        yield from _placed(found.place)
    if len(found.waits_for) > 1:
        yield ""
        yield "It waits for:"
        yield from (f"  - {each}" for each in found.waits_for)
    if found.remedies:
        yield ""
        yield f"{'As far as you may see, each' if found.unread else 'Each'} of these alone would admit it now:"
        for number, remedy in enumerate(found.remedies, 1):
            yield from _proposed(number, remedy)
    elif found.state == "pending" and not found.unread and not found.by_itself:
        yield ""
        yield "No single change was found that would admit it now."
    for each in found.unread:
        yield ""
        yield f"This answer is not complete: {each}."


def _run(run: Running) -> Iterator[str]:
    lasts = lasting(run.seconds)
    yield (
        f"     It ran for {lasts}, until {run.until}."
        if run.until
        else f"     It has run for {lasts}, since {run.since}."
    )
    if run.cluster:
        yield f"     It {'ran' if run.until else 'runs'} on the worker cluster {run.cluster}."
    if run.evicted:
        yield f"     It was evicted {counted(run.evicted, 'time')} before."
    for each in run.pod_sets:
        name = f"{each.name}: " if len(run.pod_sets) > 1 else ""
        done = f", {each.done} of them done" if each.done else ""
        yield f"  {name}{counted(each.pods, 'pod')} on {', '.join(each.flavors) or 'no flavor'}{done}"
    if run.used:
        most = " at most" if any(each.done for each in run.pod_sets) else ""
        yield f"  used{most}: {', '.join(f'{each.hours:,.2f} {each.unit}' for each in run.used)}"


def _blocked(blockers: tuple[Blocker, ...]) -> Iterator[str]:
    rows = [("FLAVOR", "RESOURCE", "ASKED", "AVAILABLE", "NOMINAL", "USED", "BORROWING LIMIT", "HELD BY")]
    for each in blockers:
        held = ", ".join(f"{holder.cluster_queue} {holder.amount}" for holder in each.holders)
        limit = each.borrowing_limit or "-"
        rows.append((each.flavor, each.resource, each.requested, each.available, each.nominal, each.used, limit, held))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _room(room: Room) -> Iterator[str]:
    yield f"Most pods of pod set {room.pod_set} ({room.pods}) that fit into one domain of flavor {room.flavor} now:"
    yield from (f"  {fits(each.pods, each.domain, each.level)}" for each in room.holes)


def _placed(place: Place) -> Iterator[str]:
    if not place.in_cluster_queue:
        yield "It is the first in line of its ClusterQueue."
        return
    yield f"{place.in_cluster_queue} before it in the ClusterQueue, {place.in_local_queue} of them in its LocalQueue:"
    yield from (f"  {each}" for each in place.before)
    rest = place.in_cluster_queue - len(place.before) - place.hidden
    if rest:
        yield f"  and {rest} more"
    if place.hidden:
        yield f"  and {place.hidden} of namespaces that you may not see"


def _proposed(number: int, remedy: Remedy) -> Iterator[str]:
    by = "" if remedy.by == "time" else f"({remedy.by}) "
    yield f"  {number}. {by}{remedy.does}"
    if remedy.preempts:
        yield f"     it would preempt {', '.join(remedy.preempts)}"
    if remedy.takers:
        yield f"     others are admitted too, and take part of that quota: {', '.join(remedy.takers)}"
