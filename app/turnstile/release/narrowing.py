"""Finds what a release manages less than the one that runs, or, where none runs, than the chart does by default: job
kinds, admission policies, feature gates, namespaces, and jobs without a queue name. Each is a danger: a job that is not
managed any more runs without quota, and nothing else says so. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from turnstile.api.config import built, features
from turnstile.api.config.frameworks import GATED
from turnstile.api.meta import Kind
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import queue_name
from turnstile.jobs.registry import ALL, Registry
from turnstile.release.findings import Check, Finding, danger, listed
from turnstile.release.scope import INTENDED, Resource, Scope, resource_name

POLICIES: Final = frozenset(("children", "claims", "pods", "queued", "resize", "templates", "versions"))
"""The admission policies of the chart's default values, without the name of the release."""

Labels = Mapping[str, str]


def default_scope(after: Scope) -> Scope:
    """The scope of the chart by default, in the namespaces of a release."""
    chosen = next(iter(after.selectors.values()), None)
    kinds = (resource_name(each.kind.GROUP, each.kind.PLURAL) for each in ALL if each.framework not in GATED)
    return Scope(
        {} if chosen is None else dict.fromkeys(kinds, chosen),
        without_queue_name=after.without_queue_name,
        policies=POLICIES,
        gates=features.DEFAULTS & built.HEEDED,
    )


class Running:
    """Jobs that run and that a scope manages, counted as they are read: those that hold quota, whose keys `with_quota`
    has, and those that nothing suspends. `namespaces` has the labels of each namespace by its name."""

    def __init__(
        self, scope: Scope, registry: Registry, with_quota: Collection[str], namespaces: Mapping[str, Labels]
    ) -> None:
        self._scope = scope
        self._registry = registry
        self._with_quota = with_quota
        self._namespaces = namespaces
        self._counted: Counter[tuple[str, Resource, bool]] = Counter()

    def add(self, integration: Integration[Any], job: Kind) -> None:
        """Count one job, if it runs and is not the part of another one."""
        resource, namespace = resource_name(integration.kind.GROUP, integration.kind.PLURAL), job.metadata.namespace
        selector, named = self._scope.selectors.get(resource), bool(queue_name(job))
        if selector is None or not selector.matches(self._namespaces.get(namespace, {})):
            return
        if not (named or self._scope.without_queue_name) or integration.exceptions.skip(job):
            return
        if integration.finished(job) is not None or job.metadata.deletion_timestamp or self._registry.made(job):
            return
        stoppable = integration.suspension is not None or not integration.handling.serves
        if self._registry.key_of(job) in self._with_quota or (stoppable and not integration.suspended(job)):
            self._counted[namespace, resource, named] += 1

    def of(self, *, resource: Resource = "", namespace: str = "", unnamed: bool = False) -> int:
        """The jobs of one resource, of one namespace, or without a queue name; without any of these all."""
        return sum(
            count
            for (where, kind, named), count in self._counted.items()
            if resource in ("", kind) and namespace in ("", where) and not (unnamed and named)
        )


def narrowing(
    baseline: Scope, after: Scope, running: Running, namespaces: Mapping[str, Labels], *, installed: bool
) -> Iterator[Finding]:
    """The dangers of a release that manages less than `baseline`, which is the scope of the `installed` release, or the
    chart's default. Each with the number of jobs that run and that it concerns."""
    than, gone = ("now", "from now on") if installed else ("by the chart's default", "by this release")
    cure = INTENDED if installed else _BY_DEFAULT
    all_of_them = running.of()

    def finding(what: str, names: Iterable[str], concerns: str) -> Finding:
        every = tuple(names)
        return danger(Check.SCOPE, f"{what}: {listed(every, most=len(every))}{concerns}", cure)

    if kinds := baseline.selectors.keys() - after.selectors.keys():
        counted = (f"{each} ({running.of(resource=each)})" for each in kinds)
        what = f"kinds that are managed {than}, and not {gone}, with the number of their jobs that run"
        yield finding(what, counted, "")
    if policies := baseline.policies - after.policies:
        what = f"admission policies that there are {than}, and not {gone}"
        yield finding(what, policies, f"; jobs that run where they hold: {all_of_them}")
    if gates := baseline.gates - after.gates:
        what = f"feature gates that are on {than}, and not {gone}"
        yield finding(what, gates, f"; jobs that run: {all_of_them}")
    if not installed:
        return
    left = [name for name, labels in namespaces.items() if baseline.manages(labels) and not after.manages(labels)]
    if left:
        what = (
            "namespaces that are not managed from now on, with the number of their jobs that run; jobs that wait there"
            " stay suspended until their users resume them"
        )
        yield finding(what, (f"{name} ({running.of(namespace=name)})" for name in left), "")
    if baseline.without_queue_name and not after.without_queue_name:
        says = f"jobs without a queue name are not managed from now on; of these run: {running.of(unnamed=True)}"
        yield danger(Check.SCOPE, says, cure)


_BY_DEFAULT: Final = (
    "leave out the values that take them away (config.integrations.frameworks, featureGates, admissionPolicies); if it"
    " is intended, --accept scope"
)
