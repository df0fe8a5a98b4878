"""`turnstile web`: the page for people, on one's own machine, with one's own rights."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated, Final

import typer

from app.api.errors import InvalidValue
from app.cli.asking import ConfigFile, Source, State
from app.cli.cluster import Context, Kubeconfig, Run, connected, explained
from app.engine import Options
from app.http.connections import DEADLINES, Connections
from app.http.connections import State as Doing
from app.http.health import Health
from app.http.server import serve
from app.process.aside import Aside
from app.process.sources import Dumped, Followed, namespaced
from app.web import guard
from app.web.application import create
from app.web.explanations import Explanations
from app.web.health import Observer
from app.web.pages import Site
from app.web.world import World

HOST: Final = "127.0.0.1"
_DEADLINES: Final = {**DEADLINES, Doing.ANSWERING: float("inf")}  # events of a page end when its reader leaves


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @app.command(name="web")
    def web(
        *,
        port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for any that is free.")] = 8765,
        namespace: Annotated[
            str, typer.Option("--namespace", "-n", help="Where to read kinds that you may not list in all namespaces.")
        ] = "",
        state: State = None,
        config: ConfigFile = None,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
        release: Annotated[str, typer.Option(help="Name of the Helm release: its Lease is shown.")] = "turnstile",
        install_namespace: Annotated[str, typer.Option(help="Namespace of the Helm release.")] = "turnstile-system",
    ) -> None:
        """Serve a page on this machine that shows queues, quota, and why Workloads wait, and follows the cluster.

        Reads with your rights and writes nothing. Prints the address to open; Ctrl-C ends it. For a browser on another
        machine forward the port: ssh -L 8765:localhost:8765 HOST.
        """
        with explained():
            source = Source(state, config, kubeconfig, context)
            run(
                _web(
                    source,
                    run,
                    clock,
                    port=port,
                    namespace=namespace,
                    lease=(install_namespace, f"{release}-controller"),
                )
            )


async def _web(
    source: Source,
    run: Run,
    clock: Callable[[], datetime],
    *,
    port: int,
    namespace: str,
    lease: tuple[str, str],
) -> None:
    options = source.options()
    async with AsyncExitStack() as stack:
        found: Dumped | Followed
        if source.state is not None:
            found = Dumped(source.read(run, "web", "").snapshot)
            where = f"the dump {source.state}"
        else:
            transport = await stack.enter_async_context(connected(source.kubeconfig, source.context, "web"))
            found = Followed(transport, await namespaced(transport, namespace), lease)
            where = f"the cluster at {transport.server}"
        await _serve(found, options, clock, where=where, port=port, lease="/".join(lease))


async def _serve(
    found: Dumped | Followed, options: Options, clock: Callable[[], datetime], *, where: str, port: int, lease: str
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    live = isinstance(found, Followed)
    world = World(found, options, clock)
    aside = Aside()
    explanations = Explanations(world, aside)
    observer = Observer(world, found.watches, found.leases, lease if live else "")
    site = Site(world=world, explanations=explanations, observer=observer, beside=aside, where=where, alive=live)
    token = guard.new_token()
    app = guard.Guard(create(site, stop), token=token)

    def listening(host: str, taken: int) -> None:
        typer.echo(f"http://{host}:{taken}/?{guard.TOKEN}={token}")

    refused: list[OSError] = []
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (world.follow(), explanations.run(), observer.run())]
        if isinstance(found, Followed):
            tasks.append(group.create_task(_watch(found)))
        try:
            await serve(
                app,
                host=HOST,
                port=port,
                health=Health(),
                stop=stop,
                connections=Connections(deadlines=_DEADLINES),
                drain_seconds=0.0,
                grace_seconds=1.0,
                on_listening=listening,
            )
        except OSError as error:
            refused.append(error)
        for task in tasks:
            task.cancel()
    for error in refused:
        raise InvalidValue("--port", port, f"cannot be used: {error.strerror or error}")


async def _watch(found: Followed) -> None:
    async with asyncio.TaskGroup() as group:
        found.caches.start(group)
