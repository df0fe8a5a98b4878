"""`turnstile lint`: what is wrong with manifests of jobs and with quota set-ups, before or after they are applied."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from turnstile.advice.submission import Asked, asked_of
from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace, Node, PriorityClass
from turnstile.api.errors import Forbidden, InvalidValue, NotServed
from turnstile.api.meta import Kind
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.cli.asking import ConfigFile, Source, State
from turnstile.cli.cluster import Run, explained
from turnstile.cli.config import load_or_exit
from turnstile.cli.connection import Where, connected, namespace_of
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.insight import documents, rights
from turnstile.insight.lint.findings import Finding, Severity
from turnstile.insight.lint.rules import NAMES, lint
from turnstile.insight.lint.world import Place, place, world
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs.options import NAMESPACE_NAME_LABEL
from turnstile.jobs.registry import Registry
from turnstile.kube.transport import Transport
from turnstile.process import configured
from turnstile.process.configuration import text_of

FOUND: Final = 1
"""Exit code: there is an error or a warning."""
_CLASSES: Final[tuple[type[Kind], ...]] = (WorkloadPriorityClass, PriorityClass)
_SUFFIXES: Final = (".yaml", ".yml", ".json")


class Output(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


@dataclass(slots=True)
class _Read:
    """The objects read, and where each object of the files stands."""

    snapshot: Snapshot
    others: list[dict[str, Any]]
    nodes: list[dict[str, str]] | None = None
    files: dict[Place, str] = field(default_factory=dict)
    jobs: list[tuple[Place, Asked]] = field(default_factory=list)


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""

    @command(app, "lint")
    def linting(
        *,
        file: Annotated[
            list[Path] | None,
            typer.Option("--file", "-f", help="Manifests, or a folder of them; - for standard input. Repeatable."),
        ] = None,
        live: Annotated[
            bool, typer.Option("--live", help="See the files beside what the cluster has; without files all of that.")
        ] = False,
        state: State = None,
        config: ConfigFile = None,
        off: Annotated[
            list[str] | None, typer.Option("--off", metavar="RULE", help="Do not run a rule. Repeatable.")
        ] = None,
        output: Annotated[
            Output, typer.Option("--output", "-o", help="text, json, or github for annotations of a workflow.")
        ] = Output.TEXT,
        where: Where,
    ) -> None:
        """Check manifests of jobs, and quota set-ups.

        Without --live or --state, lint knows only your files. With one of them, files are checked as if applied.
        Exit code 0: nothing but infos; 1: an error or a warning; 2: unable.
        """
        with explained():
            if not (file or live or state):
                raise InvalidValue("--file", "(none)", "name manifests, or give --live or --state")
            if live and state:
                raise InvalidValue("--live", "--state", "give one of them")
            for each in off or ():
                if each not in NAMES:
                    raise InvalidValue("--off", each, f"there is no such rule: {', '.join(sorted(NAMES))}")
            source = Source(state, config, where)
            read = _there(source, run) if live or state else _Read(Snapshot(), [])
            registry = _registry(config)
            _take_classes(read.snapshot, read.others, "--state")
            for path in _paths(file or ()):
                _lay_over(read, path, namespace_of(where), registry)
            found = lint(
                world(read.snapshot, source.options(), jobs=read.jobs, nodes=read.nodes, whole=bool(live or state)),
                off=off or (),
                files=read.files if file else None,
            )
        for each in rights.unread(rights.relevant(read.snapshot)):
            say(f"not complete: {each}", err=True)
        for line in _PRINTED[output](found):
            say(line)
        raise typer.Exit(FOUND if any(each.severity is not Severity.INFO for each in found) else 0)


def _registry(config: Path | None) -> Registry:
    loaded = load_or_exit(config, name="turnstile", namespace="turnstile-system") if config is not None else None
    return configured.job_kinds(loaded)


def _there(source: Source, run: Run) -> _Read:
    """The objects of a cluster or a dump."""
    found = source.read(run, "lint", "")
    read = _Read(found.snapshot, found.others)
    if source.state is None:

        async def more() -> None:
            async with connected(source.where, "lint") as transport:
                await _read_more(read, transport)

        run(more())
    else:
        nodes = [each for each in found.others if each["kind"] == "Node"]
        read.nodes = [each["metadata"].get("labels") or {} for each in nodes] or None
    return read


async def _read_more(read: _Read, transport: Transport) -> None:
    """Priority classes, and the labels of nodes."""
    for kind in _CLASSES:
        try:
            for obj in await transport.list_all(kind):
                read.snapshot.put(obj)
        except Forbidden:
            read.snapshot.hidden[kind] = ""
        except NotServed as error:
            read.snapshot.unread[kind] = str(error)
    try:
        nodes = orjson.loads(await transport.request("GET", "/api/v1/nodes"))
        read.nodes = [each["metadata"].get("labels") or {} for each in nodes["items"]]
    except Forbidden:
        read.snapshot.hidden[Node] = ""


def _paths(given: Sequence[Path]) -> Iterator[Path]:
    """The files; of a folder its manifests, by name."""
    for path in given:
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
        else:
            yield path


def _lay_over(read: _Read, path: Path, namespace: str, registry: Registry) -> None:
    """Put the objects of a file into the snapshot."""
    name = "standard input" if path == Path("-") else str(path)
    found = documents.parse(text_of(path, "--file"), name, namespace=namespace)
    for obj in _take_classes(found.snapshot, found.others, name):
        if isinstance(obj, Namespace):  # the API server adds the label
            obj.metadata.labels = {**obj.metadata.labels, NAMESPACE_NAME_LABEL: obj.metadata.name}
        known = read.snapshot.get(type(obj), obj.metadata.key)
        if isinstance(obj, ClusterQueue | Cohort) and known is not None and obj.status == type(obj.status)():
            obj.status = known.status  # type: ignore[attr-defined]
        read.snapshot.put(obj)
        read.files[place(obj)] = name
    for plain in found.others:
        for about, asked in _jobs(plain, registry, name):
            read.jobs.append((about, asked))
            read.files[about] = name


def _take_classes(snapshot: Snapshot, others: Sequence[dict[str, Any]], source: str) -> Iterator[Kind]:
    """All objects of a snapshot, after the priority classes among the others were put into it."""
    for plain in others:
        for kind in _CLASSES:
            if (_group(plain), plain["kind"]) == (kind.GROUP, kind.KIND):
                meta = {key: value for key, value in plain["metadata"].items() if key != "namespace"}
                snapshot.put(documents.decode(kind, {**plain, "metadata": meta}, source))
    return (obj for held in list(snapshot.objects.values()) for obj in list(held.values()))


def _jobs(plain: dict[str, Any], registry: Registry, source: str) -> Iterator[tuple[Place, Asked]]:
    """The job that an object is, or that a CronJob makes."""
    about = Place(plain["kind"], f"{plain['metadata']['namespace']}/{plain['metadata']['name']}")
    if (_group(plain), plain["kind"]) == ("batch", "CronJob"):
        template = (plain.get("spec") or {}).get("jobTemplate") or {}
        meta = {**(template.get("metadata") or {}), **{key: plain["metadata"][key] for key in ("name", "namespace")}}
        plain = {**template, "apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    for integration in registry.enabled:
        kind = integration.kind
        if (_group(plain), plain["kind"]) == (kind.GROUP, kind.KIND):
            job = documents.decode(kind, plain, source)
            if job.metadata.labels.get(names.QUEUE_LABEL):
                yield about, asked_of(integration, job)


def _group(plain: Mapping[str, Any]) -> str:
    return str(plain["apiVersion"]).rpartition("/")[0]


def _as_text(found: Collection[Finding]) -> Iterator[str]:
    for each in found:
        where = f"{each.file}: " if each.file else ""
        yield f"{where}{each.about}: {each.severity} {each.rule}: {each.sentence} ({each.fix})"
    yield ", ".join(f"{level}s: {sum(each.severity is level for each in found)}" for level in Severity)


def _as_json(found: Collection[Finding]) -> Iterator[str]:
    plain = [
        {
            "file": each.file,
            "kind": each.about.kind,
            "object": each.about.key,
            "rule": each.rule,
            "severity": each.severity,
            "sentence": each.sentence,
            "fix": each.fix,
        }
        for each in found
    ]
    yield orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode()


def _as_annotations(found: Collection[Finding]) -> Iterator[str]:
    """Commands of a GitHub workflow."""
    for each in found:
        level = "notice" if each.severity is Severity.INFO else each.severity
        title = f"title={_property(f'{each.rule}: {each.about}')}"
        place_ = f"file={_property(each.file)},{title}" if each.file else title
        yield f"::{level} {place_}::{_escaped(f'{each.sentence} ({each.fix})')}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


_PRINTED: Final[Mapping[Output, Callable[[Collection[Finding]], Iterator[str]]]] = {
    Output.TEXT: _as_text,
    Output.JSON: _as_json,
    Output.GITHUB: _as_annotations,
}
