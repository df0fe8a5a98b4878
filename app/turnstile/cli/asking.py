"""Shared by commands that ask the scheduler's own code about a cluster or a dump: options, and reading of objects."""

import asyncio
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from turnstile.api.errors import Forbidden, NotFound, NotServed
from turnstile.api.meta import Kind
from turnstile.cli import served
from turnstile.cli.cluster import Run
from turnstile.cli.config import load_or_exit
from turnstile.cli.connection import Connection, connected
from turnstile.cli.progress import progress
from turnstile.cli.served import Question
from turnstile.engine import Options
from turnstile.engine.options import Gates
from turnstile.insight import documents, rights
from turnstile.insight.absence import Absence
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.targets import target_of, workload_of
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.process import configured, snapshots
from turnstile.process.configuration import text_of

if TYPE_CHECKING:
    from turnstile.kube.transport import Transport

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Ask about a dump instead of a cluster: what `kubectl get -A -o yaml namespaces,resourceflavors,cohorts,"
        "clusterqueues,localqueues,workloads` prints; - for standard input.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file of the installation: how quota is shared. Its defaults without."),
]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the objects come from: a dump, or else a cluster."""

    state: Path | None
    config: Path | None
    where: Connection

    def options(self) -> Options:
        """The engine's options. Ends the command if the configuration file is wrong. Without one, quota that another
        controller has written into a status is believed to be heeded, as it is of no use otherwise."""
        if self.config is None:
            return Options(gates=Gates(dynamic_quota_orchestration=True))
        loaded = load_or_exit(self.config, name="turnstile", namespace="turnstile-system")
        return configured.engine_options(loaded) if loaded is not None else Options()

    def jobs(self) -> tuple[Registry, JobOptions]:
        """The job kinds that are queued, and how. Ends the command if the configuration file is wrong."""
        loaded = None
        if self.config is not None:
            loaded = load_or_exit(self.config, name="turnstile", namespace="turnstile-system")
        return configured.job_kinds(loaded), configured.JobFlags().options(loaded)

    def read(self, run: Run, command: str, namespace: str, *, also: Iterable[type[Kind]] = ()) -> documents.Documents:
        """All objects that decisions depend on, and of the kinds in `also`; from a dump, the others too. Raises what
        `snapshots` raises."""
        options = self.options()
        if self.state is not None:
            found = documents.parse(text_of(self.state, "--state"), str(self.state))
            return replace(found, snapshot=found.snapshot.heeding(options))

        async def read() -> Snapshot:
            async with connected(self.where, command) as transport:
                return await snapshots.read(transport, namespace, also=also, wait_for_room=options.wait_for_room)

        with progress("reading the cluster"):
            snapshot: Snapshot = run(read())
        return documents.Documents(snapshot=snapshot.heeding(options))

    def fetch(self, run: Run, command: str, paths: Iterable[str]) -> dict[str, dict[str, Any] | None]:
        """Objects of the cluster by their URL paths: None for one that does not exist. Those that the user may not read
        are left out, and all of them where a dump is asked."""
        if self.state is not None:
            return {}
        found: dict[str, dict[str, Any] | None] = {}

        async def get(transport: "Transport", path: str) -> None:
            try:
                found[path] = orjson.loads(await transport.request("GET", path))
            except (NotFound, NotServed):
                found[path] = None
            except Forbidden:
                pass

        async def every() -> None:
            async with connected(self.where, command) as transport, asyncio.TaskGroup() as group:
                for path in paths:
                    group.create_task(get(transport, path))

        run(every())
        return found

    def get(self, run: Run, command: str, path: str) -> dict[str, Any] | None:
        """One of them."""
        return self.fetch(run, command, [path]).get(path)

    def workload(self, run: Run, command: str, snapshot: Snapshot, target: str, namespace: str, now: datetime) -> str:
        """The key of the Workload that a target means. Raises TurnstileError, with the reason why there is none."""
        registry, options = self.jobs()
        absence = Absence(
            snapshot=snapshot,
            namespace=namespace,
            fetch=partial(self.fetch, run, command),
            now=now,
            registry=registry,
            options=options,
            configured=self.config is not None,
        )
        return workload_of(snapshot, target_of(target), namespace, partial(self.get, run, command), absence.why)

    def asked(self, run: Run, question: Question, snapshot: Snapshot) -> bytes | None:
        """The answer of the page in the cluster, as JSON, if a snapshot that was read with the user's rights does not
        suffice; None where it does, and where no page answers the user."""
        if self.state is not None or rights.suffice(snapshot):
            return None

        async def ask() -> bytes | None:
            async with connected(self.where, question.what) as transport:
                return await served.ask(transport, question)

        with progress("asking the page in the cluster"):
            answer: bytes | None = run(ask())
        return answer


@contextmanager
def asking_the_engine(what: str) -> Iterator[None]:
    """Tell a user at a terminal that the engine is asked what, where the block takes long."""
    gc.freeze()  # what was read lives as long as the command: to look for garbage in it takes longer than the answer
    with progress(what):
        yield
