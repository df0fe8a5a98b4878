"""Brings running jobs under queues without a restart: reads a cluster, plans the import, and writes it if asked.

An import writes no job, only a Workload for each, with an admission by which its quota is charged; the controller
follows a job with such a Workload, and marks the job itself. Three writes in this order, so that no controller stops
the job between two of them: the Workload without an owner and behind a gate, its status, and the owner in place of the
gate. An import that was cut short is finished by the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from turnstile.api import names
from turnstile.api.core import Node, Pod, PriorityClass
from turnstile.api.errors import ApiError, Conflict, Forbidden, InvalidValue, NotServed
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import Options
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs.integration import Integration
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import answers
from turnstile.kube.transport import Transport
from turnstile.process import snapshots
from turnstile.release.findings import danger, warning
from turnstile.release.importplan import Importer
from turnstile.release.imports import GATE, Check, Import, Planned, Report, Running
from turnstile.release.manifests import is_of_our_chart
from turnstile.release.queuemapping import QueueMapping
from turnstile.release.reading import AT_ONCE, Reading
from turnstile.release.scope import Scope

_ATTEMPTS: Final = 5
"""Times that a status is written, which a controller may change meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The jobs to import, and how they are read. Without `namespaces` those of all namespaces."""

    namespaces: Sequence[str]
    selector: str
    mapping: QueueMapping
    registry: Registry
    options: JobOptions
    engine: Options
    apply: bool


async def bring_in(transport: Transport, wanted: Wanted, clock: Callable[[], datetime]) -> Report:
    """The report on an import, which is written with `apply`. Raises InvalidValue if Turnstile is not installed, and
    ApiError and WireError if the cluster cannot be read."""
    reading = Reading(transport)
    scope = Scope.of(each for each in await reading.webhook_configurations() if is_of_our_chart(each))
    if not scope.selectors:
        cure = "install Turnstile first: without its webhook the next jobs would not wait for the quota of these"
        raise InvalidValue("cluster", transport.server, cure)
    snapshot = await snapshots.read(transport, also=(PriorityClass, WorkloadPriorityClass))
    unread = [*snapshot.hidden, *snapshot.unread]
    importer = Importer(
        snapshot=snapshot.keeping(
            Workload, lambda each: each.metadata.annotations.get(names.ADMISSION_GATED_BY) != GATE
        ),
        scope=scope,
        registry=wanted.registry,
        options=wanted.options,
        mapping=wanted.mapping,
        running=await _running(transport, reading, wanted, snapshot),
        now=clock().timestamp(),
        engine=wanted.engine,
    )
    planned = importer.plan()
    entries = [each.entry for each in planned]
    if wanted.apply:
        entries = await _written(transport, importer, planned, clock)
    failures = [*(f"{each.PLURAL}.{each.GROUP}".rstrip(".") for each in unread), *reading.failures]
    findings = [*importer.findings]
    if failures:
        says = f"you may not read, and the plan does not count with: {', '.join(sorted(set(failures)))}"
        findings.append(warning(Check.UNREAD, says, "import with the rights of a cluster administrator"))
    return Report(
        server=transport.server,
        applied=wanted.apply,
        findings=tuple(sorted(findings, key=lambda each: each.level)),
        jobs=tuple(entries),
        queued=importer.queued,
        skipped=importer.skipped,
    )


async def _running(transport: Transport, reading: Reading, wanted: Wanted, snapshot: Snapshot) -> Running:
    """The jobs of all enabled kinds, whole; pods; and nodes, if flavors are told apart by their labels. A selector is
    for jobs, and not for those that their controllers made."""
    registry, jobs = wanted.registry, list[tuple[Integration[Any], Kind]]()
    made: list[tuple[Integration[Any], Kind]] = []
    found: list[Pod] = []
    for namespace in wanted.namespaces or [""]:
        here = await _listed(transport, reading, Pod, namespace, "")
        for integration in registry.watched:
            known = here if integration.kind is Pod and not wanted.selector else None
            each = known or await _listed(transport, reading, integration.kind, namespace, wanted.selector)
            jobs += [(integration, job) for job in each]
            if wanted.selector and integration.kind in registry.may_follow:
                others = await _listed(transport, reading, integration.kind, namespace, "")
                made += [(integration, job) for job in others if registry.made(job)]
        found += here
    nodes: Mapping[str, Mapping[str, str]] | None = None
    if any(flavor.spec.node_labels for flavor in snapshot.of(ResourceFlavor)):
        try:
            nodes = {node.metadata.name: node.metadata.labels for node in await transport.list_all(Node)}
        except Forbidden:
            reading.failures.append(Node.PLURAL)
    jobs.sort(key=lambda each: (each[1].metadata.namespace, each[1].KIND, each[1].metadata.name))
    return Running(jobs, found, nodes, made)


async def _listed(transport: Transport, reading: Reading, kind: type[Kind], namespace: str, selector: str) -> list[Any]:
    """The objects of a kind with all of their pod templates; none if it is not served, or may not be read."""
    try:
        version = await transport.find_version(kind, namespace)
        path = transport.collection_path(kind, namespace)
        raw, _ = await transport.list_raw(path, params={"labelSelector": selector} if selector else {})
    except NotServed:
        return []
    except Forbidden:
        reading.failures.append(f"{kind.PLURAL}.{kind.GROUP}".rstrip("."))
        return []
    decode = answers.decoder(kind, version=version, whole=True)
    found = []
    for each in raw:
        try:
            found.append(decode(bytes(each)))
        except msgspec.ValidationError as error:
            reading.failures.append(f"an object of {kind.PLURAL} ({error})")
    return found


async def _written(
    transport: Transport, importer: Importer, planned: Iterable[Planned], clock: Callable[[], datetime]
) -> list[Import]:
    """The entries of what was planned, each written or with a finding that says why not."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def write(each: Planned) -> Import:
        async with turns:
            try:
                await _write(transport, each, clock)
            except ApiError as error:
                says = f"{each.entry.kind} {each.entry.namespace}/{each.entry.name}: {error}"
                importer.findings.append(danger(Check.WRITE, says, "it runs as before; import again"))
                return each.entry
            return replace(each.entry, imported=True)

    return list(await asyncio.gather(*(write(each) for each in planned)))


async def _write(transport: Transport, planned: Planned, clock: Callable[[], datetime]) -> None:
    namespace, name = planned.entry.namespace, planned.entry.workload
    workload = await _created(transport, planned, namespace, name)

    async def reserve(seen: Workload) -> Workload:
        if seen.quota_reserved:
            return seen  # by an import that was cut short
        body = {
            "metadata": {"resourceVersion": seen.metadata.resource_version},
            "status": planned.status(seen, clock()),
        }
        return await transport.patch(Workload, name, namespace, body, subresource="status")

    async def connect(seen: Workload) -> Workload:
        body = {"metadata": {**planned.connection(), "resourceVersion": seen.metadata.resource_version}}
        return await transport.patch(Workload, name, namespace, body)

    for step in (reserve, connect):
        workload = await _in_turn(transport, step, workload)


async def _created(transport: Transport, planned: Planned, namespace: str, name: str) -> Workload:
    """The Workload, made now or by an import that was cut short. Raises Conflict if another program made it."""
    try:
        return await transport.create(Workload, namespace, planned.created())
    except Conflict:
        found = await transport.get(Workload, name, namespace)
        if found.metadata.annotations.get(names.ADMISSION_GATED_BY) != GATE:
            raise
        return found


async def _in_turn(
    transport: Transport, step: Callable[[Workload], Awaitable[Workload]], workload: Workload
) -> Workload:
    """A write of a Workload, made again on what another writer has made of it, such as why it waits."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await step(workload)
        except Conflict:
            workload = await transport.get(Workload, workload.metadata.name, workload.metadata.namespace)
    return await step(workload)
