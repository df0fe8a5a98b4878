"""A job with everything that a step may read about it, and the roles of its Workloads. Frozen: no step changes it.

An answer that is costly, or may fail, is worked out when a step first asks for it. Must never hold an action.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from turnstile.api.conditions import instant
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import slices
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.jobs.slices import Spent
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import podsets
from turnstile.jobs import workload as build
from turnstile.jobs.groups import GroupIntegration
from turnstile.jobs.integration import Integration, Outcome
from turnstile.jobs.labels import max_execution_seconds, prebuilt_name
from turnstile.jobs.podsets import JobPodSet

TEMPLATES_ARE_READ: Final = "its pod templates are being read"
_DELETED_FLAVOR: Final = ResourceFlavor()
"""Stands for a flavor that was deleted after the admission: the admitted counts still apply."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The Workloads of a job, each in one role."""

    current: Workload | None = None
    """The Workload that charges for the job: it fits, or the job names it as prebuilt."""
    surplus: list[Workload] = field(default_factory=list)
    """The other Workloads of the job: each is rewritten or deleted, once none of its pods runs."""
    growth: Workload | None = None
    """The slice of an elastic job that waits to take the place of the current one."""
    spent: Sequence[Spent] = ()
    """Slices that charge for nothing any more, and are to be finished."""
    past: Sequence[Workload] = ()
    """Slices that are finished, the first of the chain first."""


@dataclass(frozen=True)
class JobView:
    """One job as it is cached now. `workloads` are all that the job's key finds, also those of an earlier job of the
    same name."""

    integration: Integration[Any]
    job: Kind
    workloads: list[Workload]
    cluster: ClusterView

    @cached_property
    def pod_sets(self) -> list[JobPodSet]:
        """The pod sets of the job."""
        return self.integration.pod_sets(self.job)

    @cached_property
    def suspended(self) -> bool:
        """Whether no pod of the job can run."""
        return self.integration.suspended(self.job)

    @cached_property
    def outcome(self) -> Outcome | None:
        """How the job ended, if it has."""
        return self.integration.finished(self.job)

    @property
    def runs(self) -> bool:
        """Whether pods of the job can run, and the job has not ended."""
        return not self.suspended and self.outcome is None

    @cached_property
    def members(self) -> Sequence[Kind]:
        """The objects that the job consists of: the job itself, except for a group."""
        return (self.job,) if self.group is None else self.group.members(self.job)

    @cached_property
    def uids(self) -> set[str]:
        """The uids of the job's objects."""
        return {each.metadata.uid for each in self.members}

    @cached_property
    def owned(self) -> list[Workload]:
        """The Workloads of this very job, not of an earlier job of the same name."""
        return [
            each
            for each in self.workloads
            if any(owner.uid in self.uids for owner in each.metadata.owner_references)
            or (self.group is not None and build.of_a_set(each))
        ]

    @cached_property
    def unfinished(self) -> list[Workload]:
        """Those of them that are not finished."""
        return [each for each in self.owned if not each.finished]

    @property
    def group(self) -> GroupIntegration[Any] | None:
        """The integration, if the job is a group."""
        return self.integration.as_group

    @property
    def unread(self) -> str:
        """Why the job's pod sets cannot be known for now; empty if they can."""
        rendering = self.integration.rendering
        return rendering.unread(self.job) if rendering is not None else ""

    @property
    def half_stopped(self) -> bool:
        """Whether a stop of the job was cut short."""
        suspension = self.integration.suspension
        return suspension is not None and suspension.half_stopped(self.job)

    @property
    def carries_admission(self) -> bool:
        """Whether the job still contains what an admission added."""
        suspension = self.integration.suspension
        return suspension is not None and suspension.carries_admission(self.job)

    @property
    def to_stop(self) -> bool:
        """Whether the job runs, or was suspended by another client and still has what admission added to its pods."""
        return not self.suspended or self.carries_admission

    @property
    def is_new(self) -> bool:
        """Whether the job's owner may not have been seen yet."""
        return self.cluster.left(instant(self.job.metadata.creation_timestamp), RETRY_SECONDS) > 0

    @property
    def names_pod_set(self) -> bool:
        """Whether the job's pods name a pod set, though no start of its own can have added the label."""
        try:
            return not self.workloads and any(each.pod_set for each in self.integration.claims(self.job))
        except PermanentError:
            return False

    def priority(self) -> build.Priority:
        """The priority of the job. Raises PriorityClassMissing."""
        classes = build.PriorityClasses(self.cluster.workload_priority_classes, self.cluster.priority_classes)
        return build.priority_of(self.integration, self.job, classes)

    @cached_property
    def prebuilt(self) -> Workload | None:
        """The Workload that the job names, unless another object controls it."""
        workload = self.cluster.workloads.get(f"{self.job.metadata.namespace}/{prebuilt_name(self.job)}")
        owner = workload.metadata.controller if workload is not None else None
        return workload if owner is None or owner.uid in self.uids else None

    @cached_property
    def roles(self) -> Roles:
        """The roles of the job's Workloads: the only place that gives them. Raises CannotCompose for a group that no
        Workload can be made for."""
        if prebuilt_name(self.job):
            return self._sent_here()
        if self.elastic and (sliced := self._sliced()) is not None:
            return sliced
        current = next((each for each in self.workloads if self.fits(each)), None)
        return Roles(current, [each for each in self.workloads if each is not current])

    def _sent_here(self) -> Roles:
        """The role of the Workload that a job names. An elastic job names another slice when it is to grow, which has
        taken the place of those before."""
        current = self.prebuilt
        others = [each for each in self.owned if each is not current] if self.elastic else []
        if current is None or not current.admitted or not others:
            return Roles(current)
        spent = [slices.replaced(each) for each in others if not each.finished]
        return Roles(current, spent=spent, past=slices.in_order(each for each in others if each.finished))

    @property
    def elastic(self) -> bool:
        """Whether the job may change its number of pods while it runs: gates keep its new pods from running, unless
        the job itself is kept from it."""
        if not build.elastic(self.integration, self.job, self.cluster.options):
            return False
        elasticity = self.integration.elasticity
        assert elasticity is not None
        return elasticity.is_growth_gated(self.job) or self.suspended

    def _sliced(self) -> Roles | None:
        """The roles of an elastic job's slices; None if the current one does not fit the job in anything but its
        numbers of pods."""
        found, owned = slices.roles(self.unfinished), {each.metadata.key for each in self.owned}
        past = slices.in_order(each for each in self.owned if each.finished)
        if found.current is None:
            current = past[-1] if past and not slices.is_spent(past[-1]) else None
            found = found._replace(current=current)
        current, growth, spent = found
        if current is not None and not current.finished and not self.fits(current):
            return None
        if self.outcome is not None and growth is not None:
            spent, growth = [*spent, slices.out_of_sync(growth)], None
        return Roles(
            current,
            [each for each in self.workloads if each.metadata.key not in owned],
            growth,
            spent,
            [each for each in past if each is not current],
        )

    def fits(self, workload: Workload) -> bool:
        """Kueue's EquivalentToWorkload: the same owner, time limit and pods."""
        if self.group is None:
            owner = workload.metadata.controller
            if owner is None or owner.uid != self.job.metadata.uid:
                return False
        elif workload.finished or workload.metadata.deletion_timestamp or build.of_a_set(workload):
            return True
        if workload.spec.maximum_execution_time_seconds != max_execution_seconds(self.job):
            return False
        if self.group is not None:
            return self.group.fits(self.job)
        if self.unread:
            return True
        if workload.quota_reserved:
            try:
                infos = self.cluster.infos_of(workload, instead=_DELETED_FLAVOR)
            except PermanentError:
                infos = None
            if infos is not None and podsets.equivalent(self.pod_sets, workload, infos, counts=not self.elastic):
                return True
            if infos is not None and not self.suspended:
                return False
        return podsets.equivalent(self.pod_sets, workload, None, counts=not self.elastic)

    def pods_hold_quota(self, workloads: Sequence[Workload]) -> bool:
        """Whether pods of a stopped job still run under the quota of one of these Workloads."""
        active = self.integration.active(self.job)
        return any((each.quota_reserved and active) or charges.held(each, self.cluster) for each in workloads)
