"""`turnstile run`: a container as a Job of a queue, followed until it ends, with its logs and its exit status."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Annotated, Any, Final

import typer

from turnstile.api.errors import ApiError, InvalidValue, TurnstileError, WireError
from turnstile.cli import elsewhere
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, connected, namespace_of
from turnstile.cli.options import command
from turnstile.cli.podlogs import Printer, Wanted, follow_logs
from turnstile.cli.queues.session import Session
from turnstile.cli.say import say
from turnstile.client import AsyncClient, Standing, State, Submitted, container_job

FAILED: Final = 1
"""Exit code of a job that failed without an exit code of its own, or was deleted."""
_COPY_ATTEMPTS: Final = 30
"""How often a worker cluster is asked for the copy of a job: it is made a moment after the job is admitted there."""
_PAUSE: Final = 1.0
"""Seconds between two of these questions, and between two looks at whether the job runs on a worker cluster."""

Now = Callable[[], Standing]
"""How the job stands now, as far as is known."""


def register(app: typer.Typer, run: Run, program: str) -> None:
    """Add the command to `app`."""
    title = program.replace("-", " ")

    @command(app, "run")
    def submit_and_follow(
        *,
        words: Annotated[
            list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="Command and arguments in the container.")
        ] = None,
        image: Annotated[str, typer.Option(help="Image of the container.")],
        queue: Annotated[str, typer.Option("--queue", "-q", help="LocalQueue; without it the default one.")] = "",
        name: Annotated[str, typer.Option(help="Name of the Job; by default made from the image's.")] = "",
        gpus: Annotated[int, typer.Option(help="GPUs of each pod.", min=0)] = 0,
        gpu_resource: Annotated[str, typer.Option(help="Resource that --gpus counts.")] = "nvidia.com/gpu",
        cpu: Annotated[str, typer.Option(help="CPUs of each pod.")] = "1",
        memory: Annotated[str, typer.Option(help="Memory of each pod.")] = "1Gi",
        pods: Annotated[int, typer.Option(help="Pods at once.", min=1)] = 1,
        priority_class: Annotated[str, typer.Option(help="WorkloadPriorityClass.")] = "",
        env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE. Repeatable.")] = None,
        annotation: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, of the pods. Repeatable.")] = None,
        detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit it, and do not follow it.")] = False,
        worker_context: elsewhere.Contexts = None,
        where: Where,
    ) -> None:
        """Run a container as a Job of a queue, and follow it to its end.

        Says on standard error what the Job waits for, prints what its pods write, and exits with the exit code of the
        container. Where the Job runs on a worker cluster of MultiKueue, its pods are read there as `logs` does, and a
        Job that failed there exits with 1. Ctrl-C ends the following, not the Job.
        """
        contexts = elsewhere.given_contexts(worker_context)

        async def work() -> int:
            async with connected(where, "run") as transport:
                client = AsyncClient.over(transport, namespace=namespace_of(where))
                job = await client.submit(manifest)
                say(f"{job} in namespace {job.namespace}", err=True)
                at = Session(transport, job.namespace, {})
                command = f"{title} logs -f {job} -n {job.namespace}"
                there = partial(_print_elsewhere, at, where, job, contexts, command)
                return 0 if detach else await _followed(client, job, there)

        with explained():
            manifest = container_job(
                image,
                words or (),
                name=name,
                queue=queue,
                priority_class=priority_class,
                cpu=cpu,
                memory=memory,
                gpus=gpus,
                gpu_resource=gpu_resource,
                pods=pods,
                env=_pairs("--env", env),
                annotations=_pairs("--annotation", annotation),
            )
            code: int = run(work())
        raise typer.Exit(code)


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Names and values of a repeated option."""
    found = {}
    for each in given or ():
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise InvalidValue(option, each, "give NAME=VALUE")
        found[name] = value
    return found


async def _followed(client: AsyncClient, job: Submitted, there: Callable[[Now], Coroutine[Any, Any, None]]) -> int:
    """Follow the job to its end, `there` on worker clusters; the exit code for the shell."""
    now = Standing(State.WAITING)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_print_logs(client, job))
            tasks.create_task(there(lambda: now))
            async with contextlib.aclosing(client.watch(job)) as changes:
                async for now in changes:
                    on = f" on the worker cluster {now.cluster}" if now.cluster else ""
                    say(f"{now.state}{on}: {now.message}" if now.message else f"{now.state}{on}", err=True)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    if now.state is State.FAILED:
        return await client.exit_code(job) or FAILED
    return 0 if now.state is State.SUCCEEDED else FAILED


async def _print_logs(client: AsyncClient, job: Submitted) -> None:
    """Print what the job's pods write until they end."""
    try:
        async with contextlib.aclosing(client.logs(job)) as lines:
            async for line in lines:
                say(line)
    except (ApiError, WireError) as error:
        say(f"the log of {job} cannot be read: {error}", err=True)


async def _print_elsewhere(
    at: Session, where: Where, job: Submitted, contexts: Mapping[str, str], command: str, now: Now
) -> None:
    """Print what the job's pods write on worker clusters, with the user's own rights there, until the job has ended.
    Where that fails, say why, and by which command they are read."""
    tried = ""
    while True:
        standing = now()
        if standing.cluster and standing.cluster != tried:
            try:
                await _print_there(at, where, job, contexts, standing.cluster, now)
            except TurnstileError as error:
                what = f"the log of {job} on the worker cluster {standing.cluster}"
                say(f"{what} cannot be read: {error}; `{command}` prints it when that is mended", err=True)
        tried = standing.cluster
        if standing.ended:
            return
        await asyncio.sleep(_PAUSE)


async def _print_there(
    at: Session, where: Where, job: Submitted, contexts: Mapping[str, str], cluster: str, now: Now
) -> None:
    """Print what the job's pods write on one worker cluster for as long as it runs there."""

    async def state() -> State:
        standing = now()
        return standing.state if standing.ended or standing.cluster == cluster else State.WAITING

    for attempt in range(_COPY_ATTEMPTS):
        found = await elsewhere.job_of(at, f"{job.kind.lower()}/{job.name}")
        try:
            async with elsewhere.on_worker(where, at.namespace, found, cluster, contexts) as place:
                if place is None:
                    raise TurnstileError("the job has ended, and its pods are gone")
                await follow_logs([place], Wanted(follow=True), Printer(terminal=sys.stdout.isatty()), state)
                return
        except elsewhere.NoCopy:
            if attempt == _COPY_ATTEMPTS - 1:
                raise
            await asyncio.sleep(_PAUSE)
