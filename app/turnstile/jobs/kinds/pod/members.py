"""A snapshot of the pods of one group: the stage and role of each pod, and which pods are in excess.

Roles and counts are computed from the pods and from the Workload that charges for them; the pods' own role annotations
are only hints. Must never decide which pods to change; `turnstile.jobs.kinds.pod.group` does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final

from turnstile.api import names
from turnstile.api.conditions import instant, later
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.api.numbers import parse_int32
from turnstile.api.workload import Workload
from turnstile.jobs import pods
from turnstile.jobs.labels import queue_name
from turnstile.jobs.roles import Shape, role_in, shape_of


class Stage(Enum):
    """Where a pod of a group is in its lifecycle."""

    HELD = "held"
    """The admission gate keeps the pod from being scheduled."""
    RUNNING = "running"
    """Not gated: the pod runs, or may be scheduled at any moment."""
    LEAVING = "leaving"
    """Being deleted; its containers may still run."""
    SUCCEEDED = "succeeded"
    LOST = "lost"
    """Failed, or deleted and certain not to run."""


MAY_RUN: Final = (Stage.RUNNING, Stage.LEAVING)


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group: its stage, its role in the group's Workload ("" if the Workload has no such role), and the role
    that the pod would have in a Workload created now."""

    pod: Pod
    stage: Stage
    role: str
    own_role: str

    @property
    def rank(self) -> tuple[bool, bool, str, str]:
        """Sort key, pods to keep first: pods with the finalizer, then started pods, then the oldest."""
        meta = self.pod.metadata
        unfinalized = names.POD_FINALIZER not in meta.finalizers
        return unfinalized, self.stage is Stage.HELD, meta.creation_timestamp or "", meta.name

    @property
    def lost_since(self) -> tuple[bool, str, str]:
        """Sort key of lost members, first to release first: pods without the finalizer, then by time."""
        meta = self.pod.metadata
        since = meta.deletion_timestamp or next(
            (each.last_transition_time for each in self.pod.status.conditions if each.type == "ContainersReady"), None
        )
        return names.POD_FINALIZER in meta.finalizers, since or "9999", meta.name


class PodGroup(Kind, kw_only=True):
    """A snapshot of the pods of a group and of the Workload with the group's name.

    The metadata is taken from the oldest pod that is not lost, with the group's name. The deletion timestamp is set if
    the whole group was deleted, and not by Turnstile.
    """

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Pod"
    PLURAL: ClassVar = "pods"
    NAMESPACED: ClassVar = True

    members: tuple[Member, ...]
    workload: Workload | None
    now: datetime
    total: int
    of_a_set: bool = False
    """Whether the Workload was made for the owner of the pods, which creates and replaces them."""
    prebuilt: bool = False
    """Whether the Workload was made before the pods, with pod sets that only its maker knows: a gated pod that no pod
    set charges for stays gated."""
    early: bool = False
    """Whether members that are being deleted need no quota any more. Each keeps its place in the group until it can run
    no more."""
    problem: str
    """Why these pods cannot form a group; empty if they can."""

    @property
    def serving(self) -> bool:
        """Whether the group is a service that never finishes."""
        return self.metadata.annotations.get(names.POD_GROUP_SERVING) == "true"

    @property
    def fast(self) -> bool:
        """Whether the Workload is created from the first pod, without waiting for the other pods."""
        return self.metadata.annotations.get(names.POD_GROUP_FAST_ADMISSION) == "true"

    @property
    def needs_quota(self) -> bool:
        """Whether quota must be kept for a member that may run."""
        return bool(self.at(*((Stage.RUNNING,) if self.early else MAY_RUN)))

    def at(self, *stages: Stage, role: str | None = None) -> list[Member]:
        """Members in these stages; with `role`, only members of that role."""
        return [each for each in self.members if each.stage in stages and (role is None or each.role == role)]

    def succeeded(self, role: str) -> int:
        """Succeeded pods of a role: the number seen, or the Workload's `reclaimablePods` if that is larger."""
        seen = len(self.at(Stage.SUCCEEDED, role=role))
        return max(seen, self._reclaimed(role))

    def _reclaimed(self, role: str) -> int:
        released = self.workload.status.reclaimable_pods if self.workload is not None else []
        return next((each.count for each in released if each.name == role), 0)

    @property
    def excess(self) -> list[Member]:
        """Members that the Workload does not charge for; without a Workload, members beyond the announced total."""
        live = sorted(self.at(Stage.RUNNING, Stage.HELD), key=lambda each: each.rank)
        if self.of_a_set:  # its controller would only replace gated pods
            live = self.at(Stage.RUNNING)
        if self.workload is None:
            return live[max(self.total - len(self.at(Stage.SUCCEEDED)), 0) :] if not self.problem else []
        found: list[Member] = []
        places = 0
        for pod_set in self.workload.spec.pod_sets:
            places += pod_set.count - self.succeeded(pod_set.name)
            of_role = [each for each in live if each.role == pod_set.name]
            found += of_role[max(pod_set.count - self.succeeded(pod_set.name), 0) :]
        strangers = [each for each in live if not each.role]
        others = len(live) - len(found) - len(strangers)
        free = 0 if self.fast or self.of_a_set else max(places - others, 0)  # a fast admission has a single role
        return found + strangers[free:]

    @property
    def replaced(self) -> list[Member]:
        """Lost members that other pods have replaced, and lost members without a role in the Workload."""
        pod_sets = self.workload.spec.pod_sets if self.workload is not None else []
        found = self.at(Stage.LOST, role="")
        for pod_set in pod_sets:
            lost = sorted(self.at(Stage.LOST, role=pod_set.name), key=lambda each: each.lost_since)
            present = len(self.at(Stage.RUNNING, Stage.HELD, role=pod_set.name)) + self.succeeded(pod_set.name)
            found += lost[: max(len(lost) + present - pod_set.count, 0)]
        return found


def compose(
    name: str,
    members: Sequence[Pod],
    workload: Workload | None,
    *,
    now: datetime,
    covers: Callable[[str, Pod], bool] | None = None,
    prebuilt: bool = False,
    early: bool = False,
) -> PodGroup:
    """The group `name`, from its pods and the Workload with that name. There is at least one pod.

    `covers` is given for a Workload that was not made from these pods: whether it charges for a pod as one of that pod
    set. It is the Workload of a set, or a `prebuilt` one, whose pods must be placed as its templates are. With `early`
    (gate FastQuotaReleaseInPodIntegration) no quota is kept for a pod that is being deleted.
    """
    pod_sets = workload.spec.pod_sets if workload is not None else []
    shapes = {each.name: shape_of(each.template.spec) for each in pod_sets}

    def role_of(pod: Pod, hints: Iterable[str]) -> str:
        if covers is None:
            return role_in(shapes, pods.shape(pod), hints)
        placed = (hint for hint in hints if hint in shapes and not (prebuilt and not _placed(pod, shapes[hint])))
        return next((hint for hint in placed if covers(hint, pod)), "")

    seen = [_member(pod, role_of, now) for pod in members]
    seen.sort(key=lambda each: (each.pod.metadata.creation_timestamp or "", each.pod.metadata.name))
    first = next((each for each in seen if each.stage is not Stage.LOST), seen[0]).pod
    total, problem = _announced(name, first, seen)
    of_a_set = covers is not None and not prebuilt
    if of_a_set:
        reclaimed = workload.status.reclaimable_pods if workload is not None else []
        total, problem = sum(each.count for each in pod_sets) - sum(each.count for each in reclaimed), ""
    meta = first.metadata
    return PodGroup(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=None if of_a_set else _deleted(seen, workload, total),
            labels=meta.labels,
            annotations=meta.annotations,
        ),
        members=tuple(seen),
        workload=workload,
        now=now,
        total=total,
        of_a_set=of_a_set,
        prebuilt=prebuilt,
        early=early,
        problem=problem,
    )


def _placed(pod: Pod, wanted: Shape) -> bool:
    return pods.shape(pod).is_placed(wanted)


def _member(pod: Pod, role_of: Callable[[Pod, Iterable[str]], str], now: datetime) -> Member:
    stage = _stage(pod, now)
    own, annotated = pods.role(pod), pod.metadata.annotations.get(names.ROLE_HASH, "")
    label = pod.metadata.labels.get(names.PODSET_LABEL, "")
    # The hash of a started pod differs: its spec includes what the admission added.
    role = role_of(pod, (own, annotated) if pods.is_gated(pod) else (label, annotated, own))
    return Member(pod, stage, role, (annotated or own) if pods.is_over(pod) else own)


def _stage(pod: Pod, now: datetime) -> Stage:
    if pod.status.phase == "Succeeded":
        return Stage.SUCCEEDED
    if pod.status.phase == "Failed":
        return Stage.LOST
    gated = pods.is_gated(pod)
    if not pod.metadata.deletion_timestamp:
        return Stage.HELD if gated else Stage.RUNNING
    bound = pods.is_bound(pod)
    return Stage.LEAVING if bound and not gated and now < grace_end(pod) else Stage.LOST


def grace_end(pod: Pod) -> datetime:
    """When a terminating pod is certain not to run any more.

    Kubernetes sets the deletion timestamp to the end of the grace period; the grace period is added once more, as in
    Kueue, because the node's clock may be late.
    """
    seconds = pod.metadata.deletion_grace_period_seconds
    begin = instant(pod.metadata.deletion_timestamp)
    assert begin is not None
    return later(begin, pods.GRACE_SECONDS if seconds is None else seconds)


def _announced(name: str, first: Pod, members: Iterable[Member]) -> tuple[int, str]:
    """The group's announced size, and why the pods contradict each other; empty if they do not."""
    total = _total(first)
    if total < 1:
        return 0, f"pod '{first.metadata.name}' has no valid annotation {names.POD_GROUP_TOTAL_COUNT}"
    for member in members:
        pod = member.pod
        both = f"pods '{first.metadata.name}' and '{pod.metadata.name}' of group '{name}' have different"
        if member.stage is Stage.LOST:
            continue
        if queue_name(pod) != queue_name(first):
            return total, f"{both} queue names: '{queue_name(first)}' and '{queue_name(pod)}'"
        if _total(pod) != total:
            return total, f"{both} values of {names.POD_GROUP_TOTAL_COUNT}: {total} and {_total(pod)}"
    return total, ""


def _total(pod: Pod) -> int:
    return parse_int32(pod.metadata.annotations.get(names.POD_GROUP_TOTAL_COUNT, "")) or 0


def _deleted(members: Sequence[Member], workload: Workload | None, total: int) -> str | None:
    """When the whole group was deleted; None if it was not, or if Turnstile deleted the pods and expects replacements.

    Always None for a group without a Workload: `dissolve` releases each of its deleted pods separately.
    """
    uids = {each.pod.metadata.uid for each in members}
    if workload is None or not any(owner.uid in uids for owner in workload.metadata.owner_references):
        return None
    ours = workload.evicted or any(pods.is_true(each.pod, "TerminationTarget") for each in members)
    times: list[Any] = [each.pod.metadata.deletion_timestamp for each in members]
    if ours or not all(times) or len(members) < total or any(each.stage in MAY_RUN for each in members):
        return None
    return str(max(times))
