"""apps/v1 StatefulSet: all its pods are admitted together, by one Workload that the StatefulSet owns.

Its pods come one after the other, each when the one before is ready; each is started as it comes, on the quota that was
reserved for all. Scaled to zero, the Workload is kept on hold without quota. Source: Kueue's
pkg/controller/jobs/statefulset.

A StatefulSet that says that it is elastic is queued pod by pod, which Kueue does not do: each pod that exists has a
Workload. So it may be scaled while it runs, by an autoscaler too, without a word of its webhook: a pod more waits for
its own quota, and the quota of one less is free when that pod is gone.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Final

import msgspec

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, Object
from turnstile.api.numbers import parse_int32
from turnstile.api.patch import JsonPatch
from turnstile.api.validation.errors import IMMUTABLE, FieldError, forbidden, invalid
from turnstile.jobs.bases.immutable import immutable_errors
from turnstile.jobs.bases.pod_parent import TemplateMetadata
from turnstile.jobs.labels import is_elastic, prebuilt_name, queue_name
from turnstile.jobs.naming import group_of, workload_name
from turnstile.jobs.podsets import JobPodSet
from turnstile.jobs.remote import RemoteCopies, is_copy, origin_uid
from turnstile.jobs.servingset import Gangs, ServingSet
from turnstile.jobs.topologyrequest import PodIndex

POD_INDEX: Final = "apps.kubernetes.io/pod-index"
REVISION: Final = "controller-revision-hash"
REPLICAS: Final = "spec.replicas"
TEMPLATE_SPEC: Final = "spec.template.spec"


class _Template(Object):
    metadata: TemplateMetadata | None = None
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_decode: Final[Callable[[msgspec.Raw], _Template]] = msgspec.json.Decoder(_Template).decode


class _RollingUpdate(Object):
    partition: int | None = None


class _UpdateStrategy(Object):
    rolling_update: _RollingUpdate | None = None


class _Ordinals(Object):
    start: int = 0


class _Spec(Object):
    replicas: int | None = None
    ordinals: _Ordinals | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")
    update_strategy: _UpdateStrategy | None = None


class _Status(Object):
    replicas: int = 0
    ready_replicas: int = 0
    update_revision: str = ""


class StatefulSet(Kind):
    """The fields of a StatefulSet that are read."""

    GROUP: ClassVar = "apps"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "StatefulSet"
    PLURAL: ClassVar = "statefulsets"
    NAMESPACED: ClassVar = True
    HAS_TEMPLATES: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
    workload: str = ""
    """Name of its Workload, if that is not the name of a new one. No StatefulSet of the API has this field."""

    @property
    def wanted(self) -> int:
        """The number of pods asked for."""
        return 1 if self.spec.replicas is None else self.spec.replicas


class StatefulSets(ServingSet[StatefulSet]):
    """Kueue's `statefulset`."""

    kind = StatefulSet
    framework = "statefulset"
    summary = "each pod held by a scheduling gate; all pods queued together"
    makes = frozenset({("", "Pod")})
    hold_reason = "StatefulSet scaled to zero; workload on hold"
    grows = True
    copies = RemoteCopies[StatefulSet](returned=None, reports_pods=False)

    def of_another_kind(self, job: StatefulSet) -> bool:
        """Whether the pods are held for a parent of another kind, such as a LeaderWorkerSet."""
        metadata = self.template_metadata(job)
        return metadata is not None and metadata.annotations.get(names.POD_SUSPENDING_PARENT, "") not in (
            "",
            self.framework,
        )

    def template_metadata(self, job: StatefulSet) -> TemplateMetadata | None:
        """Metadata of `spec.template`."""
        return _decode(job.spec.template).metadata

    def runs(self, job: StatefulSet) -> bool:
        """Whether `status.readyReplicas` is above zero."""
        return job.status.ready_replicas > 0

    def hold(self, job: StatefulSet, patch: JsonPatch) -> None:
        """Add the annotation that gets the pods gated. The reconciler labels each pod, so that a change of queue or
        priority class changes no template and rolls nothing out."""
        self.annotate(self.template_metadata(job), patch, *self.metadata_path)

    def update_errors(self, old: StatefulSet, new: StatefulSet) -> list[FieldError]:
        """Those of every set, and whoever owns it those of a set whose pods are held for its own Workload."""
        return super().update_errors(old, new) + (self._fixed(old, new) if self._holds_pods(new) else [])

    def charged_errors(self, old: StatefulSet, new: StatefulSet) -> list[FieldError]:
        """Those of a queued set whose pods are not held yet."""
        return self._fixed(old, new) if queue_name(new) and not self._holds_pods(new) else []

    def _holds_pods(self, job: StatefulSet) -> bool:
        metadata = self.template_metadata(job)
        return metadata is not None and metadata.annotations.get(names.POD_SUSPENDING_PARENT) == self.framework

    def _fixed(self, old: StatefulSet, new: StatefulSet) -> list[FieldError]:
        """Requests of a pod may not change, and the number of pods only from and to zero, unless each pod has a
        Workload of its own: one Workload charges for all of them, and it was admitted for this number."""
        errors = immutable_errors(_decode(new.spec.template).spec, _decode(old.spec.template).spec, TEMPLATE_SPEC)
        if is_elastic(old.metadata) and is_elastic(new.metadata):
            return errors
        if new.wanted and old.wanted and new.wanted != old.wanted:
            errors.append(invalid(REPLICAS, new.wanted, IMMUTABLE))
        if new.wanted and not old.wanted and old.status.replicas:
            errors.append(forbidden(REPLICAS, "scaling down is still in progress"))
        return errors

    def components(self, job: StatefulSet) -> Gangs:
        """One gang of all pods; of an elastic set one of each pod, with its ordinal."""
        decoded, single = _decode(job.spec.template), is_elastic(job.metadata)
        pod_set = JobPodSet(
            name=names.DEFAULT_PODSET,
            count=1 if single else job.wanted,
            template=b'{"metadata":{},"spec":' + bytes(decoded.spec) + b"}",
            index=None if single else PodIndex(POD_INDEX),
            annotations=decoded.metadata.annotations if decoded.metadata is not None else None,
        )
        if not single:
            return Gangs(1, (pod_set,), lambda _: self._workload(job))
        first = job.spec.ordinals.start if job.spec.ordinals is not None else 0
        of_pod = partial(self._workload_of_pod, job)
        return Gangs(first + job.wanted, (pod_set,), of_pod, numbered=True, first=first, ahead=False)

    def set_of(self, pod: Pod) -> str:
        """The controller of the pod, if it is a StatefulSet."""
        owner = pod.metadata.controller
        return owner.name if owner is not None and (owner.kind, group_of(owner)) == ("StatefulSet", "apps") else ""

    def component_of(self, job: StatefulSet, pod: Pod) -> str:
        """The one gang, or that of the pod's ordinal, if the StatefulSet is the controller of the pod."""
        owner = pod.metadata.controller
        if owner is None or owner.uid != job.metadata.uid:
            return ""
        if not is_elastic(job.metadata):
            return self._workload(job)
        number = parse_int32(self.number_of(pod))
        return self._workload_of_pod(job, number) if number is not None and number >= 0 else ""

    def number_of(self, pod: Pod) -> str:
        """The ordinal of the pod, with which its name ends."""
        return pod.metadata.name.rpartition("-")[2]

    def outdated(self, job: StatefulSet, pod: Pod) -> bool:
        """Whether the pod is of an old revision, and not one of the first pods that `partition` keeps there."""
        strategy = job.spec.update_strategy
        update = strategy.rolling_update if strategy is not None else None
        kept = (update.partition or 0) if update is not None else 0
        ordinal = self.number_of(pod)
        revision, newest = pod.metadata.labels.get(REVISION, ""), job.status.update_revision
        return bool(newest) and revision != newest and ordinal.isdecimal() and int(ordinal[:10]) >= kept

    def marks_of(self, job: StatefulSet, pod: Pod) -> Mapping[str, str]:
        """The group is admitted before all its pods exist, and never finishes; that of an elastic set is one pod."""
        serving = {names.POD_GROUP_SERVING: "true", names.ROLE_HASH: names.DEFAULT_PODSET}
        if is_elastic(job.metadata):
            return {names.POD_GROUP_TOTAL_COUNT: "1", **serving}
        return {
            **serving,
            names.POD_GROUP_TOTAL_COUNT: str(job.wanted),
            names.POD_GROUP_FAST_ADMISSION: "true",
            names.POD_GROUP_POD_INDEX_LABEL: POD_INDEX,
        }

    def significant(self, job: StatefulSet) -> tuple[object, ...]:
        """The spec, the number of pods, and the revision of new ones."""
        return job.spec, job.status.replicas, self.runs(job), job.status.update_revision

    def names_of(self, job: StatefulSet) -> tuple[str, ...]:
        """That of a new Workload, and the name that older versions of Kueue made without the uid of the set. A copy of
        another cluster's set names its Workload. An elastic set has none for all its pods."""
        if is_elastic(job.metadata):
            return ()
        if is_copy(job) and (named := prebuilt_name(job)):
            return (named,)
        name, longest = job.metadata.name, self.handling.longest_name
        return tuple(workload_name(self.kind, name, uid, longest=longest) for uid in (origin_uid(job), ""))

    def named(self, job: StatefulSet, workload: str) -> StatefulSet:
        """The set with that name for its Workload."""
        return msgspec.structs.replace(job, workload=workload)

    def _workload(self, job: StatefulSet) -> str:
        return job.workload or self.names_of(job)[0]

    def _workload_of_pod(self, job: StatefulSet, ordinal: int) -> str:
        name = f"{job.metadata.name}-{ordinal}"
        return workload_name(self.kind, name, origin_uid(job), longest=self.handling.longest_name)
