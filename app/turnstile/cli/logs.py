"""`turnstile logs`: what the pods of a job write, also where the job runs on a worker cluster of MultiKueue."""

import sys
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final

import typer

from turnstile.api import durations
from turnstile.api.errors import ApiError, InvalidValue, TurnstileError, WireError
from turnstile.cli import elsewhere
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where
from turnstile.cli.elsewhere import Job, Place
from turnstile.cli.options import command
from turnstile.cli.podlogs import Printer, Wanted, follow_logs, print_logs
from turnstile.cli.queues.session import Session, session
from turnstile.cli.say import say
from turnstile.client.standing import State

PART: Final = 1
"""Exit code: not all of the logs were printed."""


def register(app: typer.Typer, run: Run, program: str) -> None:
    """Add the command to `app`."""
    title = program.replace("-", " ")

    @command(app, "logs")
    def logs(
        *,
        target: Annotated[
            str, typer.Argument(metavar="JOB|KIND/NAME", help="A job by its name; or a job or pod, as job/train.")
        ],
        follow: Annotated[
            bool, typer.Option("--follow", "-f", help="Go on with what is written, until the job has ended.")
        ] = False,
        container: Annotated[
            str, typer.Option("--container", "-c", help="Container; by default the pod's default one, or its first.")
        ] = "",
        all_containers: Annotated[bool, typer.Option("--all-containers", help="All containers of each pod.")] = False,
        prefix: Annotated[bool, typer.Option("--prefix", help="Begin each line with its pod and container.")] = False,
        tail: Annotated[int, typer.Option(help="Last lines of each log; -1 for all.", min=-1)] = -1,
        since: Annotated[str, typer.Option(help="Only what is newer, as 30s, 5m or 1h30m; 0 for all.")] = "0",
        max_log_requests: Annotated[int, typer.Option(help="Logs that are followed at once.", min=1)] = 50,
        worker_context: elsewhere.Contexts = None,
        where: Where,
    ) -> None:
        """Print what the pods of a job write, wherever it runs.

        Where a job runs on a worker cluster of MultiKueue, the logs of its copy are read there, by a context of your
        kubeconfig: with your own rights on that cluster, never those of the manager. At a terminal, control characters
        of a log are spelled out; a file or a program gets it as it was written. Exit code 0: printed; 1: not all of it;
        2: unable, as for a job that waits.
        """
        wanted = Wanted(
            container=container,
            all_containers=all_containers,
            prefix=prefix,
            follow=follow,
            tail=tail,
            since_seconds=_seconds(since),
            at_once=max_log_requests,
        )
        given = elsewhere.given_contexts(worker_context)
        code: int = run(_print(where, target, wanted, given, title))
        if code:
            raise typer.Exit(code)


def _seconds(text: str) -> int:
    """Whole seconds of a duration, and at least one of any."""
    try:
        found = durations.parse(text)
    except ValueError as error:
        raise InvalidValue("--since", text, str(error)) from None
    if found < 0:
        raise InvalidValue("--since", text, "give a duration of the past, as 5m")
    return -(-found // durations.SECOND)


async def _print(where: Where, target: str, wanted: Wanted, given: dict[str, str], title: str) -> int:
    """Find the pods, and print their logs; the exit code."""
    async with session(where, "logs") as at, AsyncExitStack() as stack:
        job = await elsewhere.job_of(at, target)
        explained = f"`{title} explain {job.name} -n {at.namespace}`"
        places = await _places(at, job, where, given, stack)
        pods = [pod for place in places for pod in (await place.pods())[0]]
        if not pods or (not job.clusters and job.standing.state is State.WAITING and not _started(pods)):
            raise TurnstileError(_without_pods(job, explained))
        printer = Printer(prefix=wanted.prefix, terminal=sys.stdout.isatty())
        if not wanted.follow:
            left = await print_logs(places, wanted, printer)
            if left and not printer.printed:
                raise TurnstileError("; ".join(left))
            for each in left:
                say(each, err=True)
            return PART if printer.failed else 0
        now: Job | None = job

        async def state() -> State:
            """How the job stands: on another cluster, it waits as far as these pods are concerned."""
            nonlocal now
            try:
                now = await elsewhere.again(at, job)
            except (ApiError, WireError):  # a moment without an answer ends nothing
                return State.ADMITTED
            if now is None:
                return State.GONE
            found = now.standing
            return found.state if found.ended or now.clusters == job.clusters else State.WAITING

        await follow_logs(places, wanted, printer, state)
        if now is not None and not now.standing.ended and now.workloads:
            waits = now.standing.state is State.WAITING
            ends = f"waits: {explained} says why" if waits else f"runs on cluster {', '.join(now.clusters)} now"
            say(f"{job.name} has lost its pods, and {ends}", err=True)
            return PART
        return PART if printer.failed else 0


async def _places(at: Session, job: Job, where: Where, given: dict[str, str], stack: AsyncExitStack) -> list[Place]:
    """The pods of a job: on the worker clusters that run it, or else here."""
    if not job.clusters:
        chosen = elsewhere.selectors(job.obj)
        return [Place(at=at, params=chosen)] if chosen is not None else []
    found = []
    for cluster in job.clusters:
        place = await stack.enter_async_context(elsewhere.on_worker(where, at.namespace, job, cluster, given))
        if place is not None:
            found.append(place)
    return found


def _started(pods: list[dict[str, Any]]) -> bool:
    """Whether a pod is on a node: its log is there, whatever the job waits for."""
    return any(pod["spec"].get("nodeName") for pod in pods)


def _without_pods(job: Job, explained: str) -> str:
    """Why there is nothing to print."""
    on = f" on cluster {job.clusters[0]}" if job.clusters else ""
    standing = job.standing
    if standing.ended:
        kept = "; multiKueue.keepFinished of the manager keeps the pods of finished jobs for a while" if on else ""
        return f"{job.name} has ended{on}, and its pods are gone with their logs{kept}"
    if standing.state is State.WAITING:
        return f"{job.name} has no pods{on}, because it waits: {explained} says why"
    return f"{job.name} has no pods yet{on}"
