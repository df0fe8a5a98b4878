"""Runs the audit in the leader now and then, and reports what it finds.

A finding counts only when two audits in a row have it, because watches lag behind each other. It is then reported once,
as an event and a log line, and counted in the metrics until an audit no longer has it. The jobs and Workloads that it
concerns are reconciled again as long as it stands. Must never write anything but events: what to do about a finding is
decided by the reconcilers.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import structlog

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Emit
from turnstile.controllers.runtime.controller import Target
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine.options import Options
from turnstile.insight.audit import Finding, Problem, audit
from turnstile.insight.evidence import Evidence
from turnstile.jobs.ancestors import MAX_DEPTH
from turnstile.jobs.naming import job_key, split_job_key
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store

INTERVAL_SECONDS: Final = 30.0
"""Seconds between two audits."""
UNREAD_SECONDS: Final = 1.0
"""Seconds until an audit is tried again for which jobs or pods were not read yet."""
GRACE_SECONDS: Final = 60.0
"""Seconds for which an admitted Workload may have neither pods nor a job that can create pods."""
REPORTS: Final = 100
"""Findings that one audit reports, and has reconciled, at most; others follow with the next audits."""

log = structlog.get_logger(__name__)


class Auditor:
    """The audits of one term of leadership. `emit` records an event, `requeue` has a key of a controller reconciled."""

    def __init__(
        self,
        cluster: ClusterView,
        options: Options,
        *,
        emit: Callable[[Emit], None],
        requeue: Callable[[Target], None],
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._emit = emit
        self._requeue = requeue
        self._interval = interval
        self._last: frozenset[Finding] = frozenset()
        self._reported: set[Finding] = set()
        self.findings: tuple[Finding, ...] = ()
        """The findings of the last two audits."""
        self.audits = 0
        """Audits done."""
        self.seconds = 0.0
        """Duration of the last audit."""
        self.ended_at = 0.0
        """When the last audit ended, in Unix seconds."""

    async def run(self) -> None:
        """Audit now and then, until cancelled; not at all if the interval is 0."""
        while self._interval > 0:
            audits = self.audits
            try:
                await self.audit()
            except Exception:
                log.exception("audit.broken")
                audits = -1
            await asyncio.sleep(self._interval if self.audits > audits else min(self._interval, UNREAD_SECONDS))

    async def audit(self) -> None:
        """Audit once. Does nothing while some jobs or pods have not been read."""
        cluster = self._cluster
        stores: list[Store[Any]] = [cluster.pods, cluster.workloads, *cluster.jobs.values()]
        if not all(store.complete for store in stores):
            return
        began = time.perf_counter()
        found = await in_slices(audit(self._evidence()))
        self.findings = tuple(each for each in found if each in self._last)
        self._last = frozenset(found)
        self.audits += 1
        self.seconds, self.ended_at = time.perf_counter() - began, cluster.now.timestamp()
        self._report()

    def counts(self) -> Counter[tuple[str, str]]:
        """Findings by problem and ClusterQueue; 0 for each problem without ClusterQueue, so that there is a figure."""
        counted = Counter({(str(problem), ""): 0 for problem in Problem})
        for each in self.findings:
            counted.update((str(each.problem), queue) for queue in each.cluster_queues or ("",))
        return counted

    def _evidence(self) -> Evidence:
        """The objects of this moment. Those in the stores never change; a newer version takes their place."""
        cluster, options = self._cluster, self._cluster.options
        selector = options.managed_jobs_namespace_selector

        def find(kind: type[Kind], key: str) -> Kind | None:
            store = cluster.jobs.get(kind)
            return store.get(key) if store is not None else None

        def managed(name: str) -> bool:
            namespace = cluster.namespaces.get(name)
            return namespace is not None and selector.matches(namespace.metadata.labels)

        return Evidence(
            now=cluster.now,
            pods=cluster.pods.values(),
            workloads=cluster.workloads.values(),
            cluster_queues=cluster.cluster_queues.values(),
            cohorts=cluster.cohorts.values(),
            local_queues=cluster.local_queues.values(),
            flavors=cluster.flavors.values(),
            find=find,
            managed=managed,
            manage_jobs_without_queue_name=options.manage_jobs_without_queue_name,
            registry=cluster.registry,
            options=self._options,
            grace_seconds=GRACE_SECONDS,
        )

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        standing = set(self.findings)
        for each in sorted(self._reported - standing):
            log.info("audit.ended", finding=str(each.problem), kind=each.about[0], name=each.about[1])
        self._reported &= standing
        new = [each for each in self.findings if each not in self._reported]
        for each in new[:REPORTS]:
            self._report_one(each)
            self._reported.add(each)
        if len(new) > REPORTS:
            log.warning("audit.more", findings=len(new) - REPORTS)
        for each in self.findings[:REPORTS]:
            for target in self._targets(each):
                self._requeue(target)

    def _report_one(self, finding: Finding) -> None:
        kind, key = finding.about
        log.warning(
            "audit.finding",
            finding=str(finding.problem),
            kind=kind,
            name=key,
            cluster_queues=list(finding.cluster_queues),
            message=finding.message,
        )
        if (regarding := self._object(finding)) is not None:
            self._emit(Emit(regarding, "Warning", str(finding.problem), finding.note or finding.message))

    def _object(self, finding: Finding) -> Kind | None:
        kind, key = finding.about
        stores: dict[str, Store[Any]] = {
            Pod.KIND: self._cluster.pods,
            Workload.KIND: self._cluster.workloads,
            ClusterQueue.KIND: self._cluster.cluster_queues,
        }
        found: Kind | None = stores[kind].get(key)
        return found

    def _targets(self, finding: Finding) -> Iterator[Target]:
        """The keys that reconcile the object of a finding: its jobs, or the Workload itself if it has none."""
        registry, found = self._cluster.registry, self._object(finding)
        if isinstance(found, Workload):
            jobs = registry.jobs_of(found)
            yield from (_target(job) for job in jobs)
            if not jobs:
                yield Workload.KIND, found.metadata.key
        elif isinstance(found, Pod):
            if registry.enabled_kind(Pod) is not None:
                yield _target(registry.key_of(found))
            yield from self._owners_of(found)

    def _owners_of(self, obj: Kind) -> Iterator[Target]:
        """The jobs above an object, nearest first."""
        namespace = obj.metadata.namespace
        for _ in range(MAX_DEPTH):
            owner = obj.metadata.controller
            integration = self._cluster.registry.by_owner(owner) if owner is not None else None
            store = self._cluster.jobs.get(integration.kind) if integration is not None else None
            above = store.get(f"{namespace}/{owner.name}") if owner is not None and store is not None else None
            if owner is None or integration is None or above is None:
                return
            yield _target(job_key(integration.framework, namespace, owner.name))
            obj = above


def _target(key: str) -> Target:
    framework, _ = split_job_key(key)
    return framework, key
