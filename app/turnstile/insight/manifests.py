"""The Workloads that the controllers would create for manifests of jobs: pod sets, priority and queue as they do.

The manifest goes the way of a job in the cluster: the default queue and priority class of the webhook, the kind's
integration, the body of the Workload. Additions of the engine alone (LimitRanges, RuntimeClasses, transformations) are
made where the Workload enters a ledger. Must never invent what a job's own controller decides.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import orjson

from turnstile.api import names
from turnstile.api.core import Namespace, Pod, PriorityClass
from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.instants import Instant, stamp
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs import workload as build
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.deployment import Deployment
from turnstile.jobs.labels import queue_name
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import answers

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Composer:
    """Makes Workloads of manifests, for the cluster of a snapshot."""

    snapshot: Snapshot
    registry: Registry
    options: JobOptions
    now: Instant

    def reads(self, plain: Plain) -> bool:
        """Whether a manifest is of a kind that is queued."""
        return _kind_of(plain) in {(each.kind.GROUP, each.kind.KIND) for each in self.registry.enabled}

    def workloads(self, manifests: Iterable[Plain], source: str) -> list[Workload]:
        """The Workloads of manifests of jobs, in their order; pods of a group are one job.

        Raises InvalidValue for a manifest that no enabled kind reads, and for a job that would get no Workload.
        """
        found: list[Workload] = []
        groups: dict[tuple[str, str], list[Pod]] = {}
        for plain in manifests:
            integration = self._integration(plain, source)
            job = self._job(integration, plain, source)
            kind = integration.groups
            group = kind.group_of(job) if kind is not None else ""
            if group and isinstance(job, Pod):
                groups.setdefault((job.metadata.namespace, group), []).append(job)
            else:
                found += self._of(integration, job, plain)
        for (_, name), members in groups.items():
            found.append(self._of_group(name, members))
        return found

    def _integration(self, plain: Plain, source: str) -> Integration[Any]:
        for each in self.registry.enabled:
            if _kind_of(plain) == (each.kind.GROUP, each.kind.KIND):
                return each
        kinds = ", ".join(sorted(each.kind.KIND for each in self.registry.enabled))
        title = f"{plain['kind']} {plain['metadata']['name']}"
        raise InvalidValue(source, title, f"is of no kind that is queued: use one of {kinds}, or --config")

    def _job(self, integration: Integration[Any], plain: Plain, source: str) -> Kind:
        """The job as the webhook leaves it."""
        meta = plain["metadata"]
        uid = meta.get("uid") or f"new-{plain['kind'].lower()}-{meta['name']}"
        given = {"uid": uid, "creationTimestamp": meta.get("creationTimestamp") or stamp(self.now)}
        try:
            job: Kind = answers.decoder(integration.kind, whole=True)(
                orjson.dumps({**plain, "metadata": {**meta, **given}})
            )
        except (msgspec.DecodeError, TypeError) as error:
            title = f"{plain['kind']} {meta['name']}"
            raise InvalidValue(source, title, f"cannot be read: {error}") from None
        labels = dict(job.metadata.labels)
        namespace = job.metadata.namespace
        if not labels.get(names.QUEUE_LABEL) and self._has(LocalQueue, f"{namespace}/{names.DEFAULT_LOCAL_QUEUE}"):
            labels[names.QUEUE_LABEL] = names.DEFAULT_LOCAL_QUEUE
        by_default = self.options.default_priority_class
        by_default = by_default and self._has(WorkloadPriorityClass, names.DEFAULT_PRIORITY_CLASS)
        if by_default and not labels.get(names.PRIORITY_CLASS_LABEL):
            labels[names.PRIORITY_CLASS_LABEL] = names.DEFAULT_PRIORITY_CLASS
        job.metadata.labels = labels
        self._check(job)
        return job

    def _has(self, kind: type[Kind], key: str) -> bool:
        return self.snapshot.get(kind, key) is not None

    def _check(self, job: Kind) -> None:
        """A job without a queue, or in a namespace that is not managed, gets no Workload."""
        title, namespace = _title(job), self.snapshot.get(Namespace, job.metadata.namespace)
        selector = self.options.managed_jobs_namespace_selector
        if namespace is not None and not selector.matches(namespace.metadata.labels):
            raise InvalidValue("namespace", namespace.metadata.name, f"is not managed, so {title} gets no Workload")
        if not queue_name(job) and not self.options.manage_jobs_without_queue_name:
            cure = f"name a LocalQueue in the label {names.QUEUE_LABEL}, or with --queue"
            raise InvalidValue(title, "no queue", cure)

    def _of(self, integration: Integration[Any], job: Kind, plain: Plain) -> list[Workload]:
        if (kind := integration.as_set) is not None:
            gangs = self._facts(job, lambda: kind.components(job))
            if gangs.count > MOST_GANGS:
                cure = f"ask about {MOST_GANGS} at most: each is queued by itself, and the others follow those"
                raise InvalidValue(_title(job), f"{gangs.count} groups", cure)
            bodies = [
                build.component_body(kind, job, each, self._priority(integration, job), self.options)
                for each in gangs
                if each.pods > 0
            ]
            return [self._workload(each) for each in bodies]
        if not integration.handling.watched:
            return list(self._of_parent(integration, job, plain))
        rendering = integration.rendering
        if rendering is not None and (why := rendering.unread(job)):
            raise InvalidValue(_title(job), "no pods yet", f"{why}: ask again when they are, or about the Workload")
        return [self._made(integration, job)]

    def _made(self, integration: Integration[Any], job: Kind) -> Workload:
        pod_sets = self._facts(job, lambda: integration.pod_sets(job))
        priority = self._priority(integration, job)
        body = self._facts(job, lambda: build.body(integration, job, pod_sets, priority, self.options))
        return self._workload(body)

    def _of_group(self, name: str, members: Sequence[Pod]) -> Workload:
        integration = self.registry.of(members[0]).groups
        assert integration is not None
        now = datetime.fromtimestamp(self.now, UTC)
        job = self._facts(members[0], lambda: integration.compose(name, members, None, now=now))
        return self._made(integration, job)

    def _of_parent(self, integration: Integration[Any], job: Kind, plain: Plain) -> Iterator[Workload]:
        """The Workloads of the pods that a Deployment's controller makes, each of which is queued by itself."""
        if not isinstance(job, Deployment):
            raise InvalidValue(_title(job), "pods", "its controller decides on its pods: ask about such a Pod instead")
        template = orjson.loads(bytes(job.spec.template))
        marks = {
            "labels": {key: value for key, value in job.metadata.labels.items() if key in _OF_THE_PARENT},
            "annotations": {names.POD_SUSPENDING_PARENT: integration.framework},
        }
        given = template.get("metadata") or {}
        replicas = 1 if job.spec.replicas is None else job.spec.replicas
        pods = self.registry.enabled_kind(Pod)
        assert pods is not None  # a Deployment's kind needs it
        for number in range(replicas):
            metadata = {
                "name": f"{job.metadata.name}-{number}",
                "namespace": job.metadata.namespace,
                "labels": {**given.get("labels", {}), **marks["labels"], names.MANAGED_LABEL: "true"},
                "annotations": {**given.get("annotations", {}), **marks["annotations"]},
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}
            yield self._made(pods, self._job(pods, pod, _title(job)))

    def _priority(self, integration: Integration[Any], job: Kind) -> build.Priority:
        classes = build.PriorityClasses(
            {each.metadata.name: each for each in self.snapshot.of(WorkloadPriorityClass)},
            {each.metadata.name: each for each in self.snapshot.of(PriorityClass)},
        )
        try:
            priority: build.Priority = self._facts(job, lambda: build.priority_of(integration, job, classes))
        except build.PriorityClassMissing as error:
            hidden = any(error.kind == kind.KIND for kind in self.snapshot.hidden)
            why = " (you may not list them)" if hidden else ""
            raise InvalidValue(_title(job), "priority class", f"{error}{why}: no Workload is made until then") from None
        return priority

    def _facts(self, job: Kind, facts: Any) -> Any:
        """The facts that an integration gives about a job. Raises InvalidValue, naming the job, if it says that the
        job is wrong."""
        try:
            return facts()
        except (PermanentError, LookupError) as error:
            raise InvalidValue(_title(job), "as given", str(error)) from None

    def _workload(self, body: Plain) -> Workload:
        meta = body["metadata"]
        given = {"uid": f"new-{meta['name']}", "creationTimestamp": stamp(self.now), "generation": 1}
        return Workload.decoder()(orjson.dumps({**body, "metadata": {**meta, **given}}))


MOST_GANGS: Final = 1000
"""Groups of a serving set at most whose Workloads are made for a question."""
_OF_THE_PARENT: Final = (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL)


def _kind_of(plain: Plain) -> tuple[str, str]:
    """Group and kind of a manifest."""
    return str(plain["apiVersion"]).rpartition("/")[0], str(plain["kind"])


def _title(job: Kind) -> str:
    return f"{type(job).KIND} {job.metadata.key}"
