"""The reason why a job has no Workload: it does not exist, its kind is off, its namespace is not managed, it names no
queue, nobody leads, or the asker may not see. Must never draw a conclusion from what could not be read.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from turnstile.api import names
from turnstile.api.conditions import instant
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.nearest import nearest
from turnstile.api.selectors import LabelSelector
from turnstile.api.workload import Workload
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs.integration import Integration
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.wording import absence as words
from turnstile.wording.workloads import job_of

LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/turnstile-system/leases/turnstile-controller"
"""The Lease of a release of the usual name."""
MANAGED: Final = LabelSelector(match_labels={"kueue-managed": "true"})
"""The namespaces that the chart selects if it is not told otherwise."""

Objects = Mapping[str, Mapping[str, Any] | None]
"""Objects by path; None for one that does not exist. Those that could not be read are not in it."""
Fetch = Callable[[Iterable[str]], Objects]
"""Reads objects of the cluster by their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A job without a Workload: what is known of its namespace and of the installation."""

    snapshot: Snapshot
    namespace: str
    fetch: Fetch
    now: datetime
    registry: Registry
    options: JobOptions
    configured: bool
    """Whether registry and options are of a configuration that the asker gave; otherwise they are usual ones."""

    def why(self, kind: str, name: str) -> str:
        """The reason in a sentence; the kind is empty if the asker gave none."""
        namespace = self.namespace
        if self.snapshot.hidden.get(Workload, namespace) not in (None, namespace):
            return words.no_right(namespace)
        kinds = {each.kind.path(name, namespace): each for each in self.registry.known.values() if _means(each, kind)}
        objects = self.fetch((*kinds, LEASE))
        for path, integration in kinds.items():
            if job := objects.get(path):
                return self._not_queued(integration, job, objects)
        if not kinds or any(path not in objects for path in kinds):
            return words.unknown(f"{kind}/{name}" if kind else name, namespace)
        known = [(each.metadata.namespace, job_of(each)[1]) for each in self.snapshot.of(Workload)]
        elsewhere = sorted({space for space, each in known if each == name})
        near = nearest(name, [each for space, each in known if space == namespace])
        return words.no_such_job(next(iter(kinds.values())).kind.KIND if kind else "", name, namespace, elsewhere, near)

    def _not_queued(self, integration: Integration[Any], job: Mapping[str, Any], objects: Objects) -> str:
        job_kind, name = integration.kind.KIND, job["metadata"]["name"]
        if self.configured and not self.registry.is_enabled(integration):
            return words.kind_off(job_kind, name, integration.framework)
        space = self.snapshot.get(Namespace, self.namespace)
        selector = self.options.managed_jobs_namespace_selector if self.configured else MANAGED
        if space is not None and not selector.matches(space.metadata.labels):
            label = ",".join(f"{key}={value}" for key, value in selector.match_labels.items())
            return words.not_managed(job_kind, name, self.namespace, label)
        queued = names.QUEUE_LABEL in (job["metadata"].get("labels") or {})
        default = self.snapshot.get(LocalQueue, f"{self.namespace}/{names.DEFAULT_LOCAL_QUEUE}")
        if not queued and default is None and not self.options.manage_jobs_without_queue_name:
            return words.no_queue(job_kind, name, names.QUEUE_LABEL)
        if LEASE in objects and self._over(lease := (objects[LEASE] or {}).get("spec", {})):
            return words.no_leader(job_kind, name, lease.get("renewTime") or "")
        return words.not_yet(job_kind, name, integration.framework)

    def _over(self, lease: Mapping[str, Any]) -> bool:
        renewed = instant(lease.get("renewTime"))
        return renewed is None or self.now - renewed > timedelta(seconds=lease.get("leaseDurationSeconds") or 15)


def _means(integration: Integration[Any], word: str) -> bool:
    kind = integration.kind
    known = (kind.KIND.lower(), kind.PLURAL, *kind.SHORT_NAMES, f"{kind.PLURAL}.{kind.GROUP}")
    return not word or word in known
