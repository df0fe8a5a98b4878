"""`turnstile run`: a container as a Job of a queue, followed until it ends, with its logs and its exit status."""

import asyncio
import contextlib
from typing import Annotated, Final

import typer

from turnstile.api.errors import ApiError, InvalidValue, WireError
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, connected, namespace_of
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.client import AsyncClient, Standing, State, Submitted, container_job

FAILED: Final = 1
"""Exit code of a job that failed without an exit code of its own, or was deleted."""


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""

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
        where: Where,
    ) -> None:
        """Run a container as a Job of a queue, and follow it to its end.

        Says on standard error what the Job waits for, prints what its pods write, and exits with the exit code of the
        container. Ctrl-C ends the following, not the Job.
        """

        async def work() -> int:
            async with connected(where, "run") as transport:
                client = AsyncClient.over(transport, namespace=namespace_of(where))
                job = await client.submit(manifest)
                say(f"{job} in namespace {job.namespace}", err=True)
                return 0 if detach else await _followed(client, job)

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


async def _followed(client: AsyncClient, job: Submitted) -> int:
    """Follow the job to its end; the exit code for the shell."""
    end: Standing | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_print_logs(client, job))
            async with contextlib.aclosing(client.watch(job)) as changes:
                async for end in changes:
                    say(f"{end.state}: {end.message}" if end.message else str(end.state), err=True)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    if end is not None and end.state is State.FAILED:
        return await client.exit_code(job) or FAILED
    return 0 if end is not None and end.state is State.SUCCEEDED else FAILED


async def _print_logs(client: AsyncClient, job: Submitted) -> None:
    """Print what the job's pods write until they end."""
    try:
        async with contextlib.aclosing(client.logs(job)) as lines:
            async for line in lines:
                say(line)
    except (ApiError, WireError) as error:
        say(f"the log of {job} cannot be read: {error}", err=True)
