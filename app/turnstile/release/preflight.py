"""Looks at a cluster before Turnstile's chart is installed or upgraded, and reports dangers and what will change.

Reads only; the SelfSubjectAccessReviews that it creates are questions, and stored nowhere. The release to be
installed is given as rendered manifests (`turnstile.release.manifests`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.config import load, of_release
from turnstile.api.core import Namespace
from turnstile.api.errors import InvalidConfiguration
from turnstile.api.kinds import KINDS
from turnstile.api.meta import without_nulls
from turnstile.api.workload import Workload
from turnstile.jobs.integration import Integration
from turnstile.jobs.registry import ALL, Registry
from turnstile.kube.transport import Transport
from turnstile.process.configured import job_kinds
from turnstile.release import checks
from turnstile.release.counts import Counts, jobs_with_quota, managed_namespaces, stops
from turnstile.release.findings import Change, Check, Finding, Report, danger
from turnstile.release.manifests import CHART_LABEL, RELEASE_LABEL, Manifests, Plain, configuration, labels
from turnstile.release.narrowing import Running, default_scope, narrowing
from turnstile.release.reading import ADMISSION, Reading, Resource, Right, rights_to_grant, rights_to_install
from turnstile.release.scope import Scope, changes, resource_name, widening
from turnstile.release.unbuilt import unbuilt

_NAMESPACES: Final = "/api/v1/namespaces"
_POLICY: Final = "ValidatingAdmissionPolicy"
_SECONDS: Final = 10.0
"""For the first answer of the API server."""
_SETTINGS: Final = ("failurePolicy", "timeoutSeconds", "reinvocationPolicy")


async def examine(transport: Transport, manifests: Manifests, *, now: datetime) -> Report:
    """The report on the cluster of `transport`. Raises WireError if no server answers, and ApiError."""
    reading = Reading(transport)
    version = orjson.loads(await transport.request("GET", "/version", timeout=_SECONDS, retry="never"))
    versions = {each["apiVersion"] for each in manifests.objects} | {version for version, _ in checks.OPTIONAL}
    resources = await reading.resources(versions)
    live = await reading.live(manifests, resources)
    ours = [each for each in (*live, *await _removed(reading, manifests)) if manifests.owns(each)]
    configurations = await reading.webhook_configurations()
    definitions = await _definitions(reading)
    before, after = Scope.of(ours), Scope.of(manifests.objects)
    registry, faults = _registry(manifests, manifests.objects, after)
    known = _registry(manifests, ours, before)[0].known
    namespaces = {each["metadata"]["name"]: labels(each) for each in await reading.items(_NAMESPACES)}
    baseline = before if ours else default_scope(after)
    workloads = [each async for each in reading.objects(Workload)]
    counts, running = await _count(reading, workloads, after, registry, baseline, known, namespaces)
    managed = managed_namespaces(namespaces, before, after, counts)
    findings = [
        *checks.server(version),
        *checks.served(manifests, resources),
        *faults,
        *checks.kueue(manifests, configurations, *await _kueue(reading), now),
        *checks.releases(manifests, configurations),
        *checks.owners(manifests, live),
        *checks.definitions(definitions),
        *await _rights(reading, manifests, resources, namespaces, definitions),
        *(widening(before, after, (each.name for each in managed if not each.before)) if ours else ()),
        *narrowing(baseline, after, running, namespaces, installed=bool(ours)),
        *stops(managed),
        *await _unbuilt(reading, workloads),
    ]
    installed = next((labels(each)[CHART_LABEL] for each in ours if CHART_LABEL in labels(each)), "")
    return Report(
        release=manifests.release,
        namespace=manifests.namespace,
        server=transport.server,
        version=str(version.get("gitVersion", "")),
        installed=installed,
        findings=(*findings, *checks.unread(reading.failures)),
        namespaces=managed,
        changes=(
            *_chart(installed, manifests),
            *changes(before, after),
            *_settings(ours, manifests.objects),
            *await _objects(reading, manifests, resources, ours),
        ),
    ).accepting(())


def _registry(manifests: Manifests, objects: Iterable[Plain], scope: Scope) -> tuple[Registry, list[Finding]]:
    """The job kinds of a release with these objects, and the faults of its configuration file."""
    known = [each for each in ALL if resource_name(each.kind.GROUP, each.kind.PLURAL) in scope.selectors]
    registry = Registry([each.framework for each in known])
    text = configuration(iter(objects))
    if not text:
        return registry, []
    try:
        installation = of_release(manifests.name, manifests.namespace)
        return job_kinds(load(text, installation=installation, frameworks=[each.framework for each in ALL])), []
    except InvalidConfiguration as error:
        says = f"Turnstile would not start with this configuration: {error}"
        return registry, [danger(Check.CONFIGURATION, says, "mend the value `config`; turnstile config check FILE")]


async def _definitions(reading: Reading) -> dict[str, tuple[Plain, CustomResourceDefinition]]:
    """Those of Turnstile's CustomResourceDefinitions that exist, by name."""
    paths = {kinds.name: CustomResourceDefinition.path(kinds.name) for kinds in KINDS}
    found = dict(zip(paths, await reading.each(reading.get, paths.values()), strict=True))
    return {
        name: (each, msgspec.convert(without_nulls(each), CustomResourceDefinition))
        for name, each in found.items()
        if each is not None
    }


async def _kueue(reading: Reading) -> tuple[list[Plain], list[Plain]]:
    """Kueue's Deployments and Leases."""
    controllers = await reading.items("/apis/apps/v1/deployments", labels="app.kubernetes.io/name=kueue")
    named = await reading.items("/apis/apps/v1/deployments", fields="metadata.name=kueue-controller-manager")
    deployments = {each["metadata"]["uid"]: each for each in (*controllers, *named)}
    fields = f"metadata.name={checks.KUEUE_LEASE}"
    leases = await reading.items("/apis/coordination.k8s.io/v1/leases", fields=fields)
    managers = [
        each
        for each in deployments.values()
        if labels(each).get("control-plane", "controller-manager") == "controller-manager"
    ]
    return managers, [{**each, "kind": "Lease"} for each in leases]


async def _removed(reading: Reading, manifests: Manifests) -> list[Plain]:
    """The objects of the running release that say what it manages, and that the manifests may not have any more."""
    path = f"{_NAMESPACES}/{manifests.namespace}/configmaps/{manifests.name}-config"
    file = None if any(manifests.of_kind("ConfigMap")) else await reading.get(path)
    selector = f"{RELEASE_LABEL}={manifests.release}"
    policies = await reading.items(f"{ADMISSION}/validatingadmissionpolicies", labels=selector)
    return [*([{**file, "kind": "ConfigMap"}] if file else []), *({**each, "kind": _POLICY} for each in policies)]


async def _unbuilt(reading: Reading, workloads: Sequence[Workload]) -> list[Finding]:
    """Features of Kueue that the cluster uses and Turnstile has not."""
    return list(unbuilt([each async for each in reading.objects(ClusterQueue)], workloads))


async def _count(
    reading: Reading,
    workloads: Sequence[Workload],
    after: Scope,
    registry: Registry,
    baseline: Scope,
    known: Mapping[str, Integration[Any]],
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[Counts, Running]:
    """The jobs of the kinds that the release manages, and those that run of the kinds in `baseline`, whose integrations
    `known` has. Only Pods that may be managed are read: the others are too many."""
    lost = baseline.selectors.keys() - after.selectors.keys()
    gone = [each for each in known.values() if resource_name(each.kind.GROUP, each.kind.PLURAL) in lost]
    both = Registry(
        [each.framework for each in (*registry.enabled, *gone)],
        kinds={each.framework: each for each in (*registry.known.values(), *gone)}.values(),
    )
    counts = Counts(after, registry, jobs_with_quota(workloads, registry))
    running = Running(baseline, both, jobs_with_quota(workloads, both), namespaces)
    stays = {each.framework for each in registry.watched}
    for integration in both.watched:
        async for job in reading.objects(integration.kind, labels=integration.asked.selector):
            running.add(integration, job)
            if integration.framework in stays:
                counts.add(integration, job)
    return counts, running


async def _rights(
    reading: Reading,
    manifests: Manifests,
    resources: Mapping[tuple[str, str], Resource],
    namespaces: Mapping[str, Any],
    definitions: Mapping[str, Any],
) -> Iterator[Finding]:
    """Rights that the caller lacks to install the chart."""
    if await reading.may({"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}):
        return iter(())
    wanted = rights_to_install(manifests, resources)
    if manifests.namespace not in namespaces:
        wanted.append(Right("create", "", Namespace.PLURAL))
    definition = CustomResourceDefinition
    wanted += [Right("patch", definition.GROUP, definition.PLURAL)]
    if len(definitions) < len(KINDS):
        wanted += [Right("create", definition.GROUP, definition.PLURAL)]
    lacking = await reading.lacking(wanted)
    escalates = await reading.may(Right("escalate", "rbac.authorization.k8s.io", "clusterroles").attributes)
    not_granted = [] if escalates else await reading.lacking(rights_to_grant(manifests))
    return checks.rights(lacking, not_granted)


def _chart(installed: str, manifests: Manifests) -> Iterator[Change]:
    if installed != manifests.chart:
        yield Change("chart", installed, manifests.chart)


def _settings(before: Iterable[Plain], after: Iterable[Plain]) -> Iterator[Change]:
    """Settings of the webhooks that all entries share."""
    found = [
        {
            setting: str(entry[setting])
            for each in objects
            if each["kind"] == "MutatingWebhookConfiguration"
            for entry in each["webhooks"]
            for setting in _SETTINGS
            if setting in entry
        }
        for objects in (before, after)
    ]
    for setting in _SETTINGS:
        old, new = (each.get(setting, "") for each in found)
        if old != new:
            yield Change(f"{setting} of the webhooks", old, new)


async def _objects(
    reading: Reading,
    manifests: Manifests,
    resources: Mapping[tuple[str, str], Resource],
    live: Iterable[Plain],
) -> list[Change]:
    """Objects that an upgrade adds to the release or takes from it, by resource; nothing for an installation."""
    known = {(each["kind"], each["metadata"]["name"]) for each in live}
    if not known:
        return []
    wanted: dict[tuple[str, str], set[str]] = {each: {manifests.namespace} for each in checks.OPTIONAL}
    for each in manifests.objects:
        namespace = each["metadata"].get("namespace", "")
        wanted.setdefault((each["apiVersion"], each["kind"]), set()).add(namespace)
    selector = f"{RELEASE_LABEL}={manifests.release},{CHART_LABEL}"
    found: list[Change] = []
    for (version, kind), places in sorted(wanted.items()):
        resource = resources.get((version, kind))
        if resource is None:
            continue
        here = {name for place in places for name in await reading.names(resource.path(place), labels=selector)}
        rendered = {each["metadata"]["name"] for each in manifests.of_kind(kind)}
        there = {name for name in rendered if (kind, name) in known}
        added, removed = sorted(rendered - there), sorted(here - rendered)
        if added or removed:
            found.append(Change(resource_name(resource.group, resource.plural), ", ".join(removed), ", ".join(added)))
    return found
