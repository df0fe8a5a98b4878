"""Counts the jobs of the namespaces that a release manages: what is there, what it takes under management, and what it
stops until it is admitted. The rules are those of `turnstile.controllers.jobs.jobreconciler`. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import queue_name
from turnstile.jobs.registry import Registry
from turnstile.release.findings import Check, Finding, Jobs, ManagedNamespace, danger, listed
from turnstile.release.scope import Scope, resource_name


def jobs_with_quota(workloads: Iterable[Workload], registry: Registry) -> frozenset[str]:
    """Keys of the jobs whose Workload holds quota: these go on."""
    held = (each for each in workloads if each.quota_reserved and not each.finished and not each.evicted)
    return frozenset(key for each in held for key in registry.jobs_of(each))


class Counts:
    """Counts jobs as they are read. `with_quota` are keys of jobs that go on as they are."""

    def __init__(self, scope: Scope, registry: Registry, with_quota: Collection[str]) -> None:
        self._scope = scope
        self._registry = registry
        self._with_quota = with_quota
        self._counted: Counter[tuple[str, str, str]] = Counter()

    def add(self, integration: Integration[Any], job: Kind) -> None:
        """Count one job, if it has not finished and is not the part of another one."""
        if integration.finished(job) is not None or job.metadata.deletion_timestamp:
            return
        if self._registry.made(job):
            return
        resource = resource_name(integration.kind.GROUP, integration.kind.PLURAL)
        namespace = job.metadata.namespace
        self._counted[namespace, resource, "unfinished"] += 1
        named = self._scope.without_queue_name or queue_name(job)
        if not named or integration.exceptions.skip(job):
            return
        self._counted[namespace, resource, "taken"] += 1
        goes_on = self._registry.key_of(job) in self._with_quota
        stoppable = integration.suspension is not None or not integration.handling.serves
        if stoppable and not goes_on and not integration.suspended(job):
            self._counted[namespace, resource, "stopped"] += 1

    def of(self, namespace: str) -> tuple[Jobs, ...]:
        """The counts of a namespace, by kind."""
        resources = sorted({resource for where, resource, _ in self._counted if where == namespace})
        return tuple(
            Jobs(
                resource,
                **{what: self._counted[namespace, resource, what] for what in ("unfinished", "taken", "stopped")},
            )
            for resource in resources
        )


def managed_namespaces(
    namespaces: Mapping[str, Mapping[str, str]], before: Scope, after: Scope, counts: Counts
) -> tuple[ManagedNamespace, ...]:
    """The namespaces, given by name with their labels, that are managed before or after."""
    found = (
        ManagedNamespace(name, bool(before.manages(labels)), bool(after.manages(labels)), counts.of(name))
        for name, labels in sorted(namespaces.items())
    )
    return tuple(each for each in found if each.before or each.after)


def stops(namespaces: Iterable[ManagedNamespace]) -> Iterator[Finding]:
    """Jobs that the release will stop."""
    known = tuple(namespaces)
    stopped = {
        f"{each.name} ({sum(jobs.stopped for jobs in each.jobs)})"
        for each in known
        if each.after and any(jobs.stopped for jobs in each.jobs)
    }
    if stopped:
        says = f"jobs that run without quota will be stopped until they are admitted, in: {listed(stopped)}"
        cure = "let them end first, or take the label kueue.x-k8s.io/queue-name off; if this is intended, --accept jobs"
        yield danger(Check.JOBS, says, cure)
