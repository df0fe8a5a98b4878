"""`turnstile web`: the page for people, on one's own machine, with one's own rights."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final

import typer

from turnstile.api.errors import Forbidden, InvalidValue, NotInstalled
from turnstile.cli.asking import ConfigFile, Source, State
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, connected, namespace_of
from turnstile.cli.options import command
from turnstile.cli.recorded import OptionalRecorderPlace
from turnstile.cli.say import say
from turnstile.kube.caches import Caches
from turnstile.process import logs
from turnstile.process.aside import Aside
from turnstile.process.memory import Collector, map_large_blocks
from turnstile.process.sources import Dumped, Followed, namespaced
from turnstile.recorder.location import Location

HOST: Final = "127.0.0.1"


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "web")
    def web(
        *,
        port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for any that is free.")] = 8765,
        recorder: OptionalRecorderPlace = None,
        state: State = None,
        config: ConfigFile = None,
        release: Annotated[str, typer.Option(help="Name of the Helm release: its Lease is shown.")] = "turnstile",
        install_namespace: Annotated[str, typer.Option(help="Namespace of the Helm release.")] = "turnstile-system",
        where: Where,
    ) -> None:
        """Serve the page on this machine, with your rights.

        The page shows queues, quota, and why Workloads wait, and follows the cluster. Reads with your rights and writes
        nothing; kinds that you may not list in all namespaces are read in one. Prints the address to open; Ctrl-C ends
        it. For a browser on another machine forward the port: ssh -L 8765:localhost:8765 HOST.
        """
        logs.set_up(level="error", form="console")  # what cannot be read is said on the page
        with explained():
            source = Source(state, config, where)
            run(
                _web(
                    source,
                    run,
                    clock,
                    port=port,
                    namespace=namespace_of(where),
                    recorder=Location.of(recorder) if recorder is not None else None,
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
    recorder: Location | None,
    lease: tuple[str, str],
) -> None:
    try:
        from turnstile.web import guard
        from turnstile.web.server import PageServer
    except ModuleNotFoundError as error:
        raise NotInstalled("turnstile web", error) from None
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    token = guard.new_token()

    def listening(host: str, taken: int) -> None:
        say(f"http://{host}:{taken}/?{guard.TOKEN}={token}")

    options = source.options()
    if source.state is not None:
        dump = Dumped(source.read(run, "web", "").snapshot)
        where = f"the dump {source.state}"
        page = PageServer(dump, options, clock, Aside(), where=where, alive=False, recorder=recorder, token=token)
        await _serve(page.run(HOST, port, stop=stop, on_listening=listening), port)
        return
    map_large_blocks()
    async with connected(source.where, "web") as transport:
        with suppress(Forbidden):  # the server answers, and knows the user
            await transport.request("GET", "/version")
        scopes = await namespaced(transport, namespace)
        found = Followed(Caches(transport), scopes, lease, wait_for_room=options.wait_for_room)
        where, of = f"the cluster at {transport.server}", "/".join(lease)
        page = PageServer(
            found,
            options,
            clock,
            Aside(),
            where=where,
            lease=of,
            recorder=recorder,
            token=token,
            pods=transport.request,
        )

        async def follow() -> None:
            async with asyncio.TaskGroup() as group:
                found.caches.start(group)
                group.create_task(_mind_memory(found), name="memory")
                await page.run(HOST, port, stop=stop, on_listening=listening)
                raise _Ended

        await _serve(follow(), port)


async def _mind_memory(found: Followed) -> None:
    """Let the garbage collector hold up no page, once everything was read."""
    collector = Collector()
    await found.caches.synced()
    collector.settle()
    await collector.run()


class _Ended(Exception):
    """The page is not served any more; raised to cancel the watches."""


async def _serve(serving: Coroutine[None, None, None], port: int) -> None:
    refused = ""
    try:
        await serving
    except* _Ended:
        pass
    except* OSError as errors:
        refused = str(next(_errors(errors)))
    if refused:
        raise InvalidValue("--port", port, f"cannot be used: {refused}")


def _errors(group: BaseExceptionGroup[OSError]) -> Iterator[OSError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _errors(error)
        else:
            yield error
