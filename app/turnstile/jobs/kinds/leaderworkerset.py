"""leaderworkerset.x-k8s.io LeaderWorkerSet: each of its groups, a leader and its workers, is admitted by itself.

So the set is scaled group by group, and an evicted group leaves the others running. During a rolling update with surge
there are more groups than asked for. Source: Kueue's pkg/controller/jobs/leaderworkerset.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, Object
from turnstile.api.numbers import clamped
from turnstile.api.patch import JsonPatch
from turnstile.api.rollout import Rollout
from turnstile.api.validation.errors import IMMUTABLE, FieldError, invalid
from turnstile.jobs.bases.immutable import immutable_errors
from turnstile.jobs.bases.pod_parent import TemplateMetadata
from turnstile.jobs.bases.templated import JobCondition
from turnstile.jobs.labels import queue_name
from turnstile.jobs.naming import workload_name
from turnstile.jobs.podsets import JobPodSet
from turnstile.jobs.remote import RemoteCopies, origin_uid
from turnstile.jobs.servingset import Gangs, ServingSet
from turnstile.jobs.topologyrequest import GROUP_NAME, Placed, PodIndex, group_errors, topology_errors

DOMAIN: Final = "leaderworkerset.sigs.k8s.io/"
SET_NAME: Final = f"{DOMAIN}name"
GROUP_INDEX: Final = f"{DOMAIN}group-index"
LEADER_NAME: Final = f"{DOMAIN}leader-name"
_INDEX: Final = PodIndex(f"{DOMAIN}worker-index")
PATH: Final = ("spec", "leaderWorkerTemplate")
LEADER, WORKER = "leader", "worker"
MOST_GROUPS: Final = 1_000_000


class _Template(Object):
    metadata: TemplateMetadata | None = None
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_decode: Final[Callable[[msgspec.Raw], _Template]] = msgspec.json.Decoder(_Template).decode


_NONE: Final = msgspec.Raw(b"null")
"""There is no template of its own for leaders: they are made like workers."""


class _Templates(Object):
    size: int = 1
    leader_template: msgspec.Raw = _NONE
    worker_template: msgspec.Raw = msgspec.Raw(b"{}")


class _RollingUpdate(Object):
    max_surge: int | str = 0
    max_unavailable: int | str = 1


class _RolloutStrategy(Object):
    rolling_update_configuration: _RollingUpdate | None = None


class _Spec(Object):
    replicas: int = 1
    leader_worker_template: _Templates = msgspec.field(default_factory=_Templates)
    rollout_strategy: _RolloutStrategy = msgspec.field(default_factory=_RolloutStrategy)


class _Status(Object):
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    conditions: list[JobCondition] = []


class LeaderWorkerSet(Kind):
    """The fields of a LeaderWorkerSet that are read."""

    GROUP: ClassVar = "leaderworkerset.x-k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "LeaderWorkerSet"
    PLURAL: ClassVar = "leaderworkersets"
    NAMESPACED: ClassVar = True
    HAS_TEMPLATES: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def groups(self) -> int:
        """The number of groups that there may be now: during a rolling update with surge, those that there are. After
        one, groups beyond those that are asked for are left over from a set that was scaled down."""
        wanted = max(min(self.spec.replicas, MOST_GROUPS), 0)
        update = self.spec.rollout_strategy.rolling_update_configuration
        surges = update is not None and update.max_surge not in (0, "0", "0%")
        return max(wanted, min(self.status.replicas, 2 * wanted)) if surges and self._updates(wanted) else wanted

    def _updates(self, wanted: int) -> bool:
        """Whether a rolling update is under way. Groups that surge count as updated too, so near its end only the
        condition tells."""
        return self.status.updated_replicas < wanted or any(
            each.type == "UpdateInProgress" and each.status == "True" for each in self.status.conditions
        )


class LeaderWorkerSets(ServingSet[LeaderWorkerSet]):
    """Kueue's `leaderworkerset.x-k8s.io/leaderworkerset`."""

    kind = LeaderWorkerSet
    framework = "leaderworkerset.x-k8s.io/leaderworkerset"
    summary = "each pod held by a scheduling gate; the pods of a group queued together"
    makes = frozenset({("apps", "StatefulSet")})
    copies = RemoteCopies[LeaderWorkerSet](
        returned=None,
        reports_pods=False,
        shared=True,
        size=lambda job, _: {"replicas": job.spec.replicas},
    )

    def template_metadata(self, job: LeaderWorkerSet) -> TemplateMetadata | None:
        """Metadata of the template of workers."""
        return _decode(job.spec.leader_worker_template.worker_template).metadata

    def runs(self, job: LeaderWorkerSet) -> bool:
        """Whether any group is ready."""
        return job.status.ready_replicas > 0

    def hold(self, job: LeaderWorkerSet, patch: JsonPatch) -> None:
        """Copy queue and priority class into both templates, with the annotations that get their pods gated."""
        leader = _leader(job)
        for name, metadata in _metadata(job).items():
            path = (*PATH, name, "metadata")
            self.annotate(metadata, patch, *path)
            annotations = metadata.annotations if metadata is not None else {}
            more = {names.POD_GROUP_SERVING: "true"}
            if name == "workerTemplate" and leader is not None and GROUP_NAME not in annotations:
                more[names.POD_INDEX_OFFSET] = "1"
            for key, value in more.items():
                patch.put(annotations, *path, "annotations", key=key, value=value)
            self.label(job, metadata.labels if metadata is not None else {}, patch, *path)

    def create_errors(self, job: LeaderWorkerSet) -> list[FieldError]:
        """Errors of the number of groups, and of the topology requests of a group's pods."""
        errors: list[FieldError] = []
        if not 0 <= (replicas := job.spec.replicas) <= MOST_GROUPS:
            bound = f"<= {MOST_GROUPS}" if replicas > 0 else ">= 0"
            detail = f"invalid LeaderWorkerSet replicas: must be {bound}, got {replicas}"
            errors.append(invalid("spec.replicas", replicas, detail))
        size, leader = job.spec.leader_worker_template.size, _leader(job)
        placed = [
            Placed(
                metadata.annotations if metadata is not None else {},
                ".".join((*PATH, name, "metadata.annotations")),
                1 if name == "leaderTemplate" else size - (leader is not None),
            )
            for name, metadata in _metadata(job).items()
        ]
        for each in placed:
            errors += topology_errors(each.annotations, each.path, count=each.pods)
        return errors or group_errors(placed)

    def update_errors(self, old: LeaderWorkerSet, new: LeaderWorkerSet) -> list[FieldError]:
        """The size of a group and what its pods request may not change: a Workload was admitted for each group."""
        errors = super().update_errors(old, new)
        metadata = self.template_metadata(new)
        held = metadata is not None and metadata.annotations.get(names.POD_SUSPENDING_PARENT) == self.framework
        if not (held or queue_name(new)):
            return errors
        path = ".".join(PATH)
        after, before = new.spec.leader_worker_template, old.spec.leader_worker_template
        if after.size != before.size:
            errors.append(invalid(f"{path}.size", after.size, IMMUTABLE))
        leader, was = _leader(new), _leader(old)
        if (leader is None) != (was is None):
            errors.append(invalid(f"{path}.leaderTemplate", None, IMMUTABLE))
        elif leader is not None and was is not None:
            errors += immutable_errors(_decode(leader).spec, _decode(was).spec, f"{path}.leaderTemplate.spec")
        worker, was = after.worker_template, before.worker_template
        return errors + immutable_errors(_decode(worker).spec, _decode(was).spec, f"{path}.workerTemplate.spec")

    def components(self, job: LeaderWorkerSet) -> Gangs:
        """A gang for each group."""
        templates, pod_sets = job.spec.leader_worker_template, []
        name, count = names.DEFAULT_PODSET, templates.size
        if (leader := _leader(job)) is not None:
            pod_sets.append(JobPodSet(name=LEADER, count=1, template=_without_domain(leader)))
            name, count = WORKER, count - 1
        workers = _without_domain(templates.worker_template)
        pod_sets.append(JobPodSet(name=name, count=count, template=workers, index=_INDEX))
        places = ("", "") if job.groups == job.spec.replicas else _places(job)
        return Gangs(
            job.groups,
            tuple(pod_sets),
            lambda index: self._workload(job, index),
            numbered=True,
            rollout=lambda index: places[index >= job.spec.replicas],
        )

    def set_of(self, pod: Pod) -> str:
        """The set that the label of the pod names."""
        return pod.metadata.labels.get(SET_NAME, "")

    def component_of(self, job: LeaderWorkerSet, pod: Pod) -> str:
        """The group by the index in the label, which LeaderWorkerSet's own webhook adds."""
        labels = pod.metadata.labels
        index = clamped(labels.get(GROUP_INDEX, ""))
        if labels.get(SET_NAME) != job.metadata.name or index is None or index > MOST_GROUPS:
            return ""
        return self._workload(job, index)

    def marks_of(self, job: LeaderWorkerSet, pod: Pod) -> Mapping[str, str]:
        """The size of the group, and the role."""
        role = names.DEFAULT_PODSET
        if _leader(job) is not None:
            role = WORKER if LEADER_NAME in pod.metadata.annotations else LEADER
        total = str(job.spec.leader_worker_template.size)
        return {names.POD_GROUP_TOTAL_COUNT: total, names.POD_GROUP_SERVING: "true", names.ROLE_HASH: role}

    def significant(self, job: LeaderWorkerSet) -> tuple[object, ...]:
        """The spec, and the number of groups."""
        return job.spec, job.groups, self.runs(job)

    def _workload(self, job: LeaderWorkerSet, index: int) -> str:
        name = f"{job.metadata.name}-{index}"
        return workload_name(self.kind, name, origin_uid(job), longest=self.handling.longest_name)


def _places(job: LeaderWorkerSet) -> tuple[str, str]:
    """The places in a rollout of the groups that are asked for, and of those that surge. A group that surges may take
    the quota of another if the rollout may make no group unavailable; otherwise the rollout goes on without it."""
    update = job.spec.rollout_strategy.rolling_update_configuration
    replaces = update is not None and update.max_unavailable in (0, "0", "0%")
    owner = f"leaderworkerset/{job.metadata.name}"
    return Rollout(owner, 0, replaces=False).text, Rollout(owner, 1, replaces=replaces).text


def _leader(job: LeaderWorkerSet) -> msgspec.Raw | None:
    found = job.spec.leader_worker_template.leader_template
    return found if bytes(found) not in (b"null", b"") else None


def _metadata(job: LeaderWorkerSet) -> dict[str, TemplateMetadata | None]:
    """Metadata of each template that the set has, by the name of its field."""
    found = {"leaderTemplate": _leader(job), "workerTemplate": job.spec.leader_worker_template.worker_template}
    return {name: _decode(raw).metadata for name, raw in found.items() if raw is not None}


def _without_domain(template: msgspec.Raw) -> bytes:
    """A template as a Workload has it: without labels and annotations of LeaderWorkerSet itself, but for the name."""
    found = _decode(template)
    metadata: dict[str, Any] = {}
    for part in ("labels", "annotations") if found.metadata is not None else ():
        values = getattr(found.metadata, part)
        kept = {key: value for key, value in values.items() if not key.startswith(DOMAIN) or key == SET_NAME}
        if kept:
            metadata[part] = kept
    return b'{"metadata":' + msgspec.json.encode(metadata) + b',"spec":' + bytes(found.spec) + b"}"
