"""`turnstile what-if`: what a change would do to the Workloads of a cluster, before anybody makes it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from turnstile.api.core import Node, PriorityClass
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.nearest import proposed
from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.asking import ConfigFile, Source, State, asking_the_engine
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, namespace_of
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.cli.served import Question
from turnstile.insight import documents, rights
from turnstile.insight.difference import Difference, Effect, Verdict
from turnstile.insight.drain import Displaced, Drained, drained, plain, read, selector
from turnstile.insight.freeing import Plan, plans
from turnstile.insight.manifests import Composer
from turnstile.insight.proposals import Otherwise, Setting, what_if
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.targets import dropped
from turnstile.process.configuration import text_of
from turnstile.wording.causes import waiting
from turnstile.wording.grammar import clause, counted
from turnstile.wording.standing import by_whom

FAILED: Final = 1
"""Exit code: something happens that `--fail-on` names."""
LISTED: Final = 50
"""Workloads of each effect that are listed for people."""


class FailOn(StrEnum):
    """Effects of a change that make the command fail."""

    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    RELEASED = "released"
    STARVES = "starves"
    LATER = "later"
    WAITS = "waits"
    INACTIVE = "inactive"


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "what-if")
    def asking(
        *,
        targets: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="JOB|KIND/NAME", help="A job that exists, to be changed by --set, --queue or --priority-class."
            ),
        ] = None,
        files: Annotated[
            list[str] | None,
            typer.Option("--filename", "-f", help="Manifests that would be applied; - for standard input."),
        ] = None,
        settings: Annotated[
            list[str] | None,
            typer.Option("--set", help="[POD_SET/]RESOURCE=AMOUNT of each pod, or [POD_SET/]count=NUMBER of pods."),
        ] = None,
        queue: Annotated[str, typer.Option(help="Another LocalQueue for the jobs that are asked about.")] = "",
        priority_class: Annotated[str, typer.Option(help="Another WorkloadPriorityClass for them.")] = "",
        drops: Annotated[
            list[str] | None, typer.Option("--drop", metavar="KIND/NAME", help="An object that would be deleted.")
        ] = None,
        drain: Annotated[
            str, typer.Option(metavar="SELECTOR", help="Labels of nodes that would go, such as pool=spot.")
        ] = "",
        free_domain: Annotated[
            str,
            typer.Option(
                metavar="LEVEL",
                help="Which pods would have to move to free a domain of this level of a Topology, such as rack.",
            ),
        ] = "",
        fail_on: Annotated[
            list[FailOn] | None, typer.Option(help="Exit with 1 if a Workload or ClusterQueue is affected so.")
        ] = None,
        state: State = None,
        config: ConfigFile = None,
        output: Printed = Output.TEXT,
        where: Where,
    ) -> None:
        """Show which Workloads a change would admit, preempt or delay.

        Also which it would evict or starve, and why. The scheduler's own code decides on what the cluster has, read
        with your rights, or on a dump, with and without the change; nothing is written. Where your rights do not
        suffice, the page in the cluster is asked, if there is one. Exit code 0: told; 1: something of `--fail-on`
        happens, or may and is not known; 2: unable.
        """
        with explained():
            source, namespace = Source(state, config, where), namespace_of(where)
            otherwise = Otherwise(
                settings=[Setting.parse(each) for each in settings or ()], queue=queue, priority_class=priority_class
            )
            if free_domain and (targets or files or drops or drain or otherwise or fail_on):
                raise InvalidValue("--free-domain", free_domain, "ask about it alone: it changes no object")
            if not (targets or files or drops or drain or free_domain):
                cure = "give manifests with -f, a job as KIND/NAME, --drop, --drain or --free-domain"
                raise InvalidValue("what-if", "nothing", f"say what would change: {cure}")
            if otherwise and not (targets or files):
                raise InvalidValue("--set, --queue, --priority-class", "no job", "give -f FILE or KIND/NAME")
            also = (PriorityClass, *((Node,) if drain or free_domain else ()))
            snapshot = rights.relevant(source.read(run, "what-if", namespace, also=also).snapshot)
            now = clock().timestamp()
            if free_domain:
                rights.require(snapshot)
                with asking_the_engine("deciding where pods would go"):
                    freed = plans(snapshot, free_domain, source.options(), now)
                if output is Output.TEXT:
                    say("\n".join(planned(freed, free_domain)))
                else:
                    say_document({"plans": msgspec.to_builtins(freed)}, output)
                return
            registry, options = source.jobs()

            def key_of(text: str) -> str:
                return source.workload(run, "what-if", snapshot, text, namespace, clock())

            texts = [(path, text_of(Path(path), "--filename")) for path in files or ()]
            keys = [key_of(each) for each in targets or ()]
            question = Question(
                "what-if",
                namespace,
                {
                    "of": [f"workload/{each.partition('/')[2]}" for each in keys],
                    "set": settings or (),
                    "queue": [queue],
                    "priorityClass": [priority_class],
                    "drop": drops or (),
                    "drain": [drain],
                },
                "\n---\n".join(text for _, text in texts),
            )
            if (answer := source.asked(run, question, snapshot)) is not None:
                compared, pool = read(answer)
            else:
                rights.require(snapshot)
                given = documents.Documents()
                for path, text in texts:
                    given.add(documents.parse(text, path, namespace=namespace))
                if queue:
                    _warn_of_unknown(queue, namespace, snapshot, given.snapshot)
                pool = drained(snapshot, selector(drain), source.options(), now) if drain else None
                with asking_the_engine("deciding with the change and without"):
                    compared = what_if(
                        Composer(snapshot, registry, options, now),
                        source.options(),
                        given,
                        source=", ".join(files or ()),
                        targets=keys,
                        drop=[dropped(each, namespace, key_of) for each in drops or ()],
                        otherwise=otherwise,
                        quotas=pool.quotas.put if pool is not None else (),
                    )
        if output is Output.TEXT:
            say("\n".join(shown(compared, pool)))
        else:
            say_document(plain(compared, pool), output)
        if failed := _failures(compared, fail_on or ()):
            say(f"failed, because of --fail-on: {', '.join(failed)}", err=True)
            raise typer.Exit(FAILED)
        if fail_on and compared.unread:
            say("failed, because of --fail-on: the answer is not complete", err=True)
            raise typer.Exit(FAILED)


def _warn_of_unknown(name: str, namespace: str, *snapshots: Snapshot) -> None:
    """Warn if there is no LocalQueue of that name in the namespace, neither now nor in the manifests."""
    if any(LocalQueue in each.hidden and each.hidden[LocalQueue] != namespace for each in snapshots):
        return
    found = (queue.metadata for each in snapshots for queue in each.of(LocalQueue))
    known = {each.name for each in found if each.namespace == namespace}
    if name not in known:
        say(f"warning: there is no LocalQueue {name} in namespace {namespace}: {proposed(name, known)}", err=True)


def _failures(compared: Difference, fail_on: Sequence[FailOn]) -> list[str]:
    seen: dict[str, int] = dict(compared.hidden)
    for what in [
        *(each.what for each in compared.effects),
        *("waits" for each in compared.asked if each.outcome == "waits"),
        *("starves" for each in compared.asked if each.outcome == "starves"),
        *("inactive" for each in compared.queues if each.what == "inactive"),
    ]:
        seen[what] = seen.get(what, 0) + 1
    return [each.value for each in FailOn if each in fail_on and seen.get(each.value)]


# --- for people -------------------------------------------------------------------------------------------------------

_TITLES: Final = {
    "admitted": "Start now, only with the change:",
    "preempted": "Preempted:",
    "evicted": "Evicted:",
    "released": "Lose a reservation that was never admitted:",
    "starves": "Can never start any more, not even when all others have ended:",
    "later": "Wait longer (a round ends when all jobs that hold quota have ended):",
    "sooner": "Wait less:",
    "spared": "Not preempted any more:",
    "rescued": "Can start again:",
}


def shown(compared: Difference, pool: Drained | None) -> Iterator[str]:
    """The answer as lines for people."""
    for note in compared.notes:
        yield f"Note: {note}."
    if pool is not None:
        yield from _pool(pool)
    for verdict in compared.asked:
        yield from _verdict(verdict)
    for queue in compared.queues:
        yield f"ClusterQueue {queue.cluster_queue} is {queue.what}: {queue.message}"
    for what, title in _TITLES.items():
        effects = [each for each in compared.effects if each.what == what]
        hidden = compared.hidden.get(what, 0)
        if not effects and not hidden:
            continue
        yield ""
        yield title
        yield from (f"  {_effect(each)}" for each in effects[:LISTED])
        if len(effects) > LISTED:
            yield f"  and {len(effects) - LISTED} more (all are in -o json)"
        if hidden:
            yield f"  and {hidden} of namespaces that you may not see"
    yield ""
    if not compared.effects and not compared.hidden and not compared.queues:
        yield "No other Workload is affected."
    before = "as before" if compared.waits == compared.waits_before else f"{compared.waits_before} without the change"
    yield f"Still waiting: {compared.waits}, {before}."
    if compared.starve_anyway:
        yield f"{compared.starve_anyway} of them can never start, with or without the change."
    for each in compared.unread:
        yield f"This answer is not complete: {each}."


def _verdict(verdict: Verdict) -> Iterator[str]:
    where = f" in ClusterQueue {verdict.cluster_queue}" if verdict.cluster_queue else ""
    why = verdict.explanation or verdict.message
    match verdict.outcome:
        case "admitted" | "reserved":
            checks = ", and would wait for its admission checks" if verdict.outcome == "reserved" else ""
            flavors = sorted({flavor for each in verdict.flavors for flavor in each.values()})
            with_ = f" with flavor {', '.join(flavors)}" if flavors else ""
            yield f"Workload {verdict.workload} would be admitted now{where}{with_}{checks}."
            if verdict.preempts:
                yield f"  It would preempt {', '.join(verdict.preempts)}."
        case "waits":
            yield f"Workload {verdict.workload} would wait{where}: {why}"
            yield f"  It would start {_round(verdict.round)}."
        case "starves":
            yield f"Workload {verdict.workload} can never start{where}: {why}"


def _effect(each: Effect) -> str:
    what = f"{each.workload} ({each.cluster_queue})" if each.cluster_queue else each.workload
    match each.what:
        case "admitted":
            flavors = ", ".join(sorted({flavor for item in each.flavors for flavor in item.values()}))
            return f"{what} with flavor {flavors}; without the change {_round(each.before)}"
        case "preempted" | "spared":
            again = f"; starts again {_round(each.after)}" if each.what == "preempted" else ""
            return f"{what} {by_whom(each.by, each.reason)}{again}"
        case "evicted" | "released":
            return f"{what}: {clause(waiting(each.message))} ({each.reason}); starts again {_round(each.after)}"
        case "starves":
            return f"{what}: {each.message.rstrip('.')}; without the change {_round(each.before)}"
        case "later" | "sooner":
            why = f": {each.message}" if each.message else ""
            return f"{what} {_round(each.after)} instead of {_round(each.before)}{why}"
        case _:
            return f"{what} {_round(each.after)}"


def _round(number: int | None) -> str:
    """When a Workload starts, in rounds: each ends when all jobs that hold quota have ended."""
    match number:
        case None:
            return "never"
        case 0:
            return "now"
        case 1:
            return "after the jobs that run now have ended"
        case _:
            return f"in round {number}, after jobs that start before it have ended"


def _displaced(lost: Sequence[Displaced]) -> Iterator[str]:
    if not lost:
        yield "  No Workload has places on them."
    for each in sorted(lost, key=lambda one: one.room)[:LISTED]:
        what = "get other nodes" if each.room else "find no room elsewhere: it is evicted, and waits again"
        yield f"  {each.workload} has {counted(each.pods, 'pod')} there, which {what}."
    if len(lost) > LISTED:
        yield f"  and {len(lost) - LISTED} more (all are in -o json)"


def planned(freed: Sequence[Plan], level: str) -> Iterator[str]:
    """Plans that free a domain, as lines for people."""
    for plan in freed:
        labels = ",".join(f"{key}={value}" for key, value in plan.labels.items())
        nodes = counted(plan.nodes, "node")
        if not plan.moves:
            yield f"Flavor {plan.flavor}: a {level} of {nodes} is free ({labels}): topology has placed no pods there."
            continue
        yield f"Flavor {plan.flavor}: the {level} that is freed at the least cost has {nodes} ({labels})."
        for each in plan.moves[:LISTED]:
            again = "and start again elsewhere at once" if each.again else "and wait again"
            what = "would get other nodes" if each.room else f"have no other nodes: it would be evicted, {again}"
            loses = f"; lost: {each.loses}" if each.loses else ""
            yield f"  {each.workload} has {counted(each.pods, 'pod')} there, which {what}{loses}."
        if len(plan.moves) > LISTED:
            yield f"  and {len(plan.moves) - LISTED} more (all are in -o json)"
        if plan.preempts:
            yield f"  To start again they would preempt {', '.join(plan.preempts[:LISTED])}."
        yield f"  To do it: kubectl drain -l {labels} --ignore-daemonsets"
        yield f"  and then: kubectl uncordon -l {labels}"
    yield "Nothing was changed. Pods that topology did not place stay where they are."


def _pool(pool: Drained) -> Iterator[str]:
    yield "A drain changes no quota: Workloads keep theirs, and pods that lose their nodes wait until there are others."
    for each in pool.flavors:
        nodes = f"{each.drained} of {each.nodes} nodes" if each.nodes else "all nodes (none could be read)"
        loses = ", ".join(f"{amount} {resource}" for resource, amount in sorted(each.loses.items()))
        yield f"Flavor {each.flavor} loses {nodes}{f', with {loses}' if loses else ''}."
        if each.displaced is not None:
            yield from _displaced(each.displaced)
        elif each.workloads:
            some = "some of " if each.drained < each.nodes else ""
            yield f"  Pods of {some}these run there: {', '.join(each.workloads[:LISTED])}"
            if len(each.workloads) > LISTED:
                yield f"  and of {len(each.workloads) - LISTED} more (all are in -o json)"
        else:
            yield "  No Workload holds quota in it."
    yield "The rest assumes that the quotas of these flavors shrink in the same proportion:"
    yield ""
