"""The known job kinds and which of them are enabled: a value built from the configuration and passed as an argument.

Jobs of a kind that is not enabled get no Workload, but those that have one are followed to their end: a kind may have
been switched off while its jobs ran. So keys and watches exist for every known kind.

A new kind is a module in `kinds` and a line in `_KINDS`. There is no global registry: two processes, or two tests, may
enable different kinds. Must never depend on which kinds the API server serves; `turnstile.kube.caches` finds that out.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from turnstile.api import names
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.core import ReplicaSet
from turnstile.api.meta import Kind, OwnerReference
from turnstile.api.workload import Workload
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.bases.external import ExternalJobs
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrappers
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.deployment import Deployments
from turnstile.jobs.kinds.inferenceservice import InferenceServices
from turnstile.jobs.kinds.jobset import JobSets
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS
from turnstile.jobs.kinds.kubeflow.training import JAX_JOBS, PADDLE_JOBS, PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSets
from turnstile.jobs.kinds.notebook import Notebooks
from turnstile.jobs.kinds.pipelinerun.run import PipelineRuns
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.kinds.ray.cluster import RayClusters
from turnstile.jobs.kinds.ray.job import RayJobs
from turnstile.jobs.kinds.ray.service import RayServices
from turnstile.jobs.kinds.spark.application import SparkApplications
from turnstile.jobs.kinds.statefulset import StatefulSets
from turnstile.jobs.kinds.trainjob import TrainJobs
from turnstile.jobs.naming import SHORT_NAME, group_key, group_of, job_key, owner_keys

_KINDS: Final[tuple[Integration[Any], ...]] = (
    BatchJob(),
    JobSets(),
    PlainPod(),
    Deployments(),
    RayClusters(),
    RayJobs(),
    RayServices(),
    StatefulSets(),
    LeaderWorkerSets(),
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    PADDLE_JOBS,
    JAX_JOBS,
    MPI_JOBS,
    TrainJobs(),
    InferenceServices(),
    Notebooks(),
    PipelineRuns(),
    SparkApplications(),
)
ALL: Final[tuple[Integration[Any], ...]] = (*_KINDS, AppWrappers(_KINDS))


def described_kinds(entries: Iterable[CustomKind]) -> list[Integration[Any]]:
    """The integrations of kinds that the configuration file describes."""
    return [ConfiguredJobs(entry) for entry in entries]


def external_kinds(names: Iterable[str]) -> list[Integration[Any]]:
    """The integrations of kinds whose jobs another controller queues (`multiKueue.externalFrameworks`), each given as
    `Kind.version.group` or `Kind.version.group=plural`."""
    return [ExternalJobs(each) for each in names]


@dataclass(frozen=True, slots=True)
class Maker:
    """The kind of an owner. `makes`: its controller makes objects like the child. `enabled`: its objects are jobs of
    this process. `charged`: its jobs have Workloads of their own, and are read."""

    kind: type[Kind]
    makes: bool
    enabled: bool
    charged: bool


_REPLICA_SETS: Final = Maker(ReplicaSet, makes=True, enabled=False, charged=False)
_POD: Final = ("", "Pod")
_MAKE_PODS: Final = frozenset(
    (("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("", "ReplicationController"))
)
"""Kubernetes' own kinds that make pods, beside Jobs."""


def _with_short_names(integration: Integration[Any]) -> Integration[Any]:
    found = copy(integration)
    found.handling = replace(found.handling, longest_name=SHORT_NAME)
    return found


class Registry:
    """The job kinds of one process.

    `frameworks` names the enabled kinds, None enables all of `kinds`. `external` is group and kind of owners that
    another controller manages (Kueue's `externalFrameworks`): their children are not queued by themselves. With
    `short_names` (gate ShortWorkloadNames) the name of a new Workload may be the value of a label.
    """

    def __init__(
        self,
        frameworks: Collection[str] | None = None,
        *,
        kinds: Iterable[Integration[Any]] = ALL,
        external: Collection[tuple[str, str]] = (),
        short_names: bool = False,
    ) -> None:
        known = {each.framework: _with_short_names(each) if short_names else each for each in kinds}
        named = set(known) if frameworks is None else {each for each in frameworks if each in known}
        for framework in sorted(named):
            for needed in known[framework].needs:
                if needed not in named and needed == PlainPod.framework:
                    known[needed] = PlainPod(parents_only=True)
                named.add(needed)
        self.known: Mapping[str, Integration[Any]] = known
        self.enabled: tuple[Integration[Any], ...] = tuple(each for each in known.values() if each.framework in named)
        self.external = frozenset(external)
        self._by_framework = {each.framework: each for each in self.enabled}
        pods = self._by_framework.get(PlainPod.framework)
        self.queues_pods = isinstance(pods, PlainPod) and not pods.parents_only
        """Whether a pod that names a queue is queued by itself, and not only for an owner that requires it."""
        self._by_kind = {(each.kind.GROUP, each.kind.KIND): each for each in known.values()}
        self._frameworks = {key: each.framework for key, each in self._by_kind.items()}
        self.may_follow = tuple(each.kind for each in self._by_kind.values() if not each.handling.top_level)
        """Kinds of jobs that may follow an owner."""
        self.pods_labels = tuple((each.framework, each.pods_label) for each in known.values() if each.pods_label)
        """Frameworks whose pods name their job in a label, with that label."""
        self.pod_marks = tuple(mark for each in known.values() for mark in each.pod_marks)
        """Labels of pods that are needed as long as these do not name their pod set."""
        self._grouping = tuple(each.framework for each in known.values() if each.groups is not None)
        self._controllers = {each.framework: self._below(each) for each in known.values()}

    def _below(self, integration: Integration[Any]) -> frozenset[tuple[str, str]]:
        """Group and kind of a job and of all objects that are made for it."""
        found = {(integration.kind.GROUP, integration.kind.KIND)}
        to_do = [integration]
        while to_do:
            for made in to_do.pop().makes - found:
                found.add(made)
                if made in self._by_kind:
                    to_do.append(self._by_kind[made])
        return frozenset(found - {_POD})

    @property
    def watched(self) -> tuple[Integration[Any], ...]:
        """The enabled kinds whose jobs the reconciler handles."""
        return tuple(each for each in self.enabled if each.handling.watched)

    @property
    def followed(self) -> tuple[Integration[Any], ...]:
        """The known kinds whose jobs the reconciler handles: of kinds that are not enabled, jobs with a Workload."""
        return tuple(each for each in self.known.values() if each.handling.watched)

    def is_enabled(self, integration: Integration[Any]) -> bool:
        """Whether new jobs of the kind are queued."""
        return integration.framework in self._by_framework

    def by_framework(self, framework: str) -> Integration[Any] | None:
        """The enabled integration of that name."""
        return self._by_framework.get(framework)

    def of(self, job: Kind) -> Integration[Any]:
        """The integration of a job, enabled or not. Raises KeyError if its kind is not known."""
        return self._by_kind[job.GROUP, job.KIND]

    def known_kind(self, kind: type[Kind]) -> Integration[Any] | None:
        """The integration of a kind, enabled or not; None if the kind is not known."""
        return self._by_kind.get((kind.GROUP, kind.KIND))

    def enabled_kind(self, kind: type[Kind]) -> Integration[Any] | None:
        """The integration of a kind, if it is enabled."""
        found = self.known_kind(kind)
        return found if found is not None and self.is_enabled(found) else None

    def by_owner(self, owner: OwnerReference) -> Integration[Any] | None:
        """The enabled integration of an owner's kind, whatever its version; None if no enabled kind matches."""
        found = self._by_kind.get((group_of(owner), owner.kind))
        return found if found is not None and self.is_enabled(found) else None

    def known_owner(self, owner: OwnerReference) -> Integration[Any] | None:
        """The integration of an owner's kind, enabled or not, whatever its version; None if the kind is not known."""
        return self._by_kind.get((group_of(owner), owner.kind))

    def may_control_pods(self, owner: OwnerReference, integration: Integration[Any]) -> bool:
        """Whether a controller of that kind may have made pods of a job: the job itself, or an object that it makes. A
        job that the configuration file describes may make objects of kinds that are not known."""
        kind = (group_of(owner), owner.kind)
        if integration.counted_pods is not None or kind in self._controllers[integration.framework]:
            return True
        return integration.handling.described and kind not in self._by_kind and kind not in _MAKE_PODS

    def maker(self, owner: OwnerReference, child: Kind) -> Maker | None:
        """The kind of the owner of `child`, if it is known."""
        made, named = (child.GROUP, child.KIND), (group_of(owner), owner.kind)
        integration = self._by_kind.get(named)
        if integration is not None:
            enabled, makes = self.is_enabled(integration), integration.creates(made)
            charged = enabled and integration.handling.watched and integration.as_set is None
            return Maker(integration.kind, makes=makes, enabled=enabled, charged=charged)
        return _REPLICA_SETS if named == (ReplicaSet.GROUP, ReplicaSet.KIND) and made == _POD else None

    def made(self, job: Kind) -> bool:
        """Whether a job's controller owner is external, or of an enabled kind that makes jobs like this."""
        owner = job.metadata.controller
        if owner is None:
            return False
        maker = self.maker(owner, job)
        return self.is_external(owner) or (maker is not None and maker.enabled and maker.makes)

    def follows(self, job: Kind, find: Callable[[type[Kind], str], Kind | None]) -> bool:
        """Whether a job's controller owner is external, or exists, with that uid, and is of an enabled kind that makes
        jobs like this and is charged for them. `find` returns an object by kind and key."""
        owner = job.metadata.controller
        if owner is None or self.is_external(owner):
            return owner is not None
        maker = self.maker(owner, job)
        if maker is None or not (maker.enabled and maker.makes and maker.charged):
            return False
        parent = find(maker.kind, f"{job.metadata.namespace}/{owner.name}")
        return parent is not None and parent.metadata.uid == owner.uid

    def lends_queue(self, job: Kind) -> bool:
        """Whether each job that a job's controller makes is queued by itself, in the queue that the job names."""
        children = self.of(job).children
        return children is not None and children.lends_queue(job)

    def manages(self, owner: OwnerReference | None) -> bool:
        """Whether an owner is of an enabled or external kind."""
        return owner is not None and (self.is_external(owner) or self.by_owner(owner) is not None)

    def is_external(self, owner: OwnerReference) -> bool:
        """Whether an owner is of a kind that another controller manages."""
        return (group_of(owner), owner.kind) in self.external

    def key_of(self, job: Kind) -> str:
        """The key of a job for the work queue: `batch/job:team-a/train`; the group's key if the job is in a group."""
        integration, meta = self.of(job), job.metadata
        groups = integration.groups
        if groups is not None and (group := groups.group_of(job)):
            return group_key(integration.framework, meta.namespace, group)
        return job_key(integration.framework, meta.namespace, meta.name)

    def jobs_of(self, workload: Workload) -> list[str]:
        """Keys of the jobs that own a Workload, by name; a group's Workload has the name of the group."""
        keys = list(owner_keys(workload, self._frameworks, grouping=self._grouping))
        if workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true":
            keys += self.groups_named(workload)
        return list(dict.fromkeys(keys))

    def groups_named(self, workload: Workload) -> list[str]:
        """Keys of the groups that share this Workload's name, one for each kind that has groups."""
        meta = workload.metadata
        return [group_key(framework, meta.namespace, meta.name) for framework in self._grouping]
