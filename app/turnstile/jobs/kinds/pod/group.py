"""Pod groups: several pods that name one group are one job, with a pod set for each role.

A role is what quota and placement of a pod depend on, computed from the pod's spec. The Workload charges a fixed number
of pods of each role; pods beyond that number are deleted or stay gated. A failed or deleted pod keeps its place, and
Kueue's pod finalizer, until another pod replaces it. A terminating pod keeps its place until it is gone or its grace
period is over, so that a replacement never runs beside it beyond the quota. The total count annotation only announces
the group's size: the Workload determines how many pods may run. Source: Kueue's pkg/controller/jobs/pod, pod groups.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import PodSet, Workload
from turnstile.jobs import pods
from turnstile.jobs.capabilities import GatedPods, Reclaim
from turnstile.jobs.groups import GroupIntegration
from turnstile.jobs.integration import (
    WORKLOAD_DELETED,
    CannotCompose,
    Change,
    Handling,
    Outcome,
    Removal,
    Step,
    Stop,
)
from turnstile.jobs.kinds.pod.members import MAY_RUN, Member, PodGroup, Stage, compose, grace_end
from turnstile.jobs.labels import identifier
from turnstile.jobs.podsets import JobPodSet, PodSetInfo

EXCESS: Final = ("ExcessPodDeleted", "Excess pod deleted")


class PodGroups(GroupIntegration[PodGroup], GatedPods[PodGroup], Reclaim[PodGroup]):
    """Groups of pods, of the framework `pod`."""

    kind = Pod
    framework = "pod"
    handling = Handling(top_level=True)

    def group_of(self, member: Pod) -> str:
        """The name in the annotation or label; the webhook does not let it change."""
        return identifier(member.metadata, names.POD_GROUP_NAME)[0]

    def annotations(self, job: PodGroup) -> Mapping[str, str]:
        """Annotations by which the Workload of a group is known."""
        return {names.IS_GROUP_WORKLOAD: "true"}

    def compose(
        self,
        name: str,
        members: Sequence[Pod],
        workload: Workload | None,
        *,
        now: datetime,
        covers: Callable[[str, Pod], bool] | None = None,
        prebuilt: bool = False,
        early: bool = False,
    ) -> PodGroup:
        """Sort the pods by age and determine the stage and role of each."""
        return compose(name, members, workload, now=now, covers=covers, prebuilt=prebuilt, early=early)

    def members(self, job: PodGroup) -> Sequence[Kind]:
        """The pods, oldest first."""
        return [each.pod for each in job.members]

    def owners(self, job: PodGroup) -> Sequence[Kind]:
        """The pods that are neither excess nor replaced."""
        leaving = {id(each) for each in job.excess + (job.replaced if job.workload is not None else [])}
        return [each.pod for each in job.members if id(each) not in leaving]

    def needs_queue(self, job: PodGroup) -> str:
        """As for a single pod, of the first member to which it applies."""
        return next((problem for each in job.members if (problem := pods.needs_queue(each.pod))), "")

    def hold(self, job: PodGroup, patch: JsonPatch) -> None:
        """Never called: the webhook gates each pod separately."""

    def suspended(self, job: PodGroup) -> bool:
        """Whether no member may run."""
        return not job.at(*MAY_RUN)

    def waits(self, job: PodGroup) -> bool:
        """Whether any member is gated, including a pod created after the group was admitted."""
        return bool(job.at(Stage.HELD))

    def active(self, job: PodGroup) -> bool:
        """Whether quota must be kept for a member that may run, or whose copy on another cluster runs."""
        return job.needs_quota or any(pods.runs_elsewhere(each.pod) for each in job.members)

    def roles(self, job: PodGroup) -> Mapping[str, str]:
        """The role of each pod of the group's Workload."""
        return {each.pod.metadata.uid: each.role for each in job.members if each.role}

    def idle(self, job: PodGroup) -> bool:
        """Whether no member may run, now or when the group is admitted, of a group whose pods no set replaces."""
        return not (job.of_a_set or job.at(*MAY_RUN, Stage.HELD))

    def due(self, job: PodGroup) -> float | None:
        """Seconds until the first grace period of the terminating members is over."""
        ends = [grace_end(each.pod) for each in job.at(Stage.LEAVING)]
        return max((min(ends) - job.now).total_seconds(), 0.0) if ends else None

    def finished(self, job: PodGroup) -> Outcome | None:
        """Finished once no member may run, and all pods have succeeded or the group is unretriable with no gated pod.

        A finished group counts as successful, as in Kueue. Lowering the total count does not finish a group while any
        pod may run.
        """
        if job.serving or job.of_a_set or job.at(*MAY_RUN):
            return None
        pod_sets = job.workload.spec.pod_sets if job.workload is not None else []
        succeeded = max(len(job.at(Stage.SUCCEEDED)), sum(job.succeeded(each.name) for each in pod_sets))
        unretriable = any(
            each.pod.metadata.annotations.get(names.RETRIABLE_IN_GROUP) == "false" for each in job.members
        )
        if not 0 < job.total <= succeeded and not (unretriable and not job.at(Stage.HELD)):
            return None
        return Outcome(success=True, message=f"Pods succeeded: {succeeded}/{job.total}.")

    def pod_sets(self, job: PodGroup) -> list[JobPodSet]:
        """A pod set for each role, sorted by name. Raises CannotCompose while pods are missing or inconsistent."""
        if job.problem:
            raise CannotCompose(job.problem)
        live = sorted(job.at(Stage.RUNNING, Stage.HELD), key=lambda each: each.rank)
        succeeded = job.at(Stage.SUCCEEDED)[: job.total]
        kept = live[: job.total - len(succeeded)] + succeeded
        if job.fast and kept:
            return [pods.pod_set(kept[0].pod, kept[0].own_role, job.total)]
        if len(kept) < job.total:
            raise CannotCompose(f"'{job.metadata.name}' group has fewer runnable pods than expected")
        of_role: dict[str, list[Member]] = {}
        for member in kept:
            of_role.setdefault(member.own_role, []).append(member)
        return [pods.pod_set(_example(of_role[role]), role, len(of_role[role])) for role in sorted(of_role)]

    def fits(self, job: PodGroup) -> bool:
        """Whether each running or gated pod has a role in the Workload. Missing pods do not matter.

        The Workload of a set always fits: pods without a role in it stay gated.
        """
        if job.of_a_set:
            return True
        dropped = {id(each) for each in job.excess}
        live = [each for each in job.at(Stage.RUNNING, Stage.HELD) if id(each) not in dropped]
        charged = (each.role or (job.prebuilt and each.stage is Stage.HELD) for each in live)
        return all(charged) and any(each.role for each in job.members)

    def uncovered(self, job: PodGroup) -> Sequence[Kind]:
        """The gated pods without a role in the prebuilt Workload."""
        return [each.pod for each in job.at(Stage.HELD, role="")] if job.prebuilt else []

    def start(self, job: PodGroup, infos: Sequence[PodSetInfo]) -> Sequence[Change]:
        """Lift the gates of each role's pods, up to the admitted count less succeeded and running pods.

        A pod that says it is a member of a set's group, and is not charged for or conflicts with the admission, stays
        gated: no pod may stop the others by saying so.
        """
        changes: list[Change] = []
        conflict: PermanentError | None = None
        known = {info.name for info in infos}
        unknown = [each for each in job.at(Stage.HELD) if each.role not in known]
        if unknown and not (job.of_a_set or job.prebuilt):
            meta = unknown[0].pod.metadata
            raise PermanentError(f"pod {meta.name} has no role in the admission, which has {', '.join(sorted(known))}")
        for info in infos:
            taken = job.succeeded(info.name) + len(job.at(*MAY_RUN, role=info.name))
            held = sorted(job.at(Stage.HELD, role=info.name), key=lambda each: each.rank)
            for member in held[: max(info.count - taken, 0)]:
                try:
                    changes.append(pods.started(member.pod, info))
                except PermanentError as error:
                    conflict = conflict or error
        if conflict is not None and not (job.of_a_set and (changes or job.at(*MAY_RUN))):
            raise conflict
        return changes

    def stop(
        self, job: PodGroup, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime
    ) -> Stop:
        """Delete running pods like single pods; if the Workload was deleted, delete and release the other pods too.

        Not complete while quota must be kept for a pod that may run: until then the Workload keeps its reservation.
        """
        steps: list[Step] = []
        running = job.at(Stage.RUNNING)
        for member in running:
            steps += pods.stopped(member.pod, reason=reason, message=message, now=now)
        if reason == WORKLOAD_DELETED:
            over = [each.pod for each in job.members if pods.is_over(each.pod)]
            for pod in over:
                if not pod.metadata.deletion_timestamp:
                    steps += pods.stopped(pod, reason=reason, message=message, now=now)
            steps += self.dissolve(job)
        return Stop(steps, announce=bool(running), complete=not job.needs_quota)

    def finalize(self, job: PodGroup) -> Sequence[Step]:
        """Remove the finalizer from each pod. Running pods are deleted: no quota is charged for them any more."""
        steps: list[Step] = []
        for member in job.members:
            if member.stage is Stage.RUNNING:
                steps.append(Removal(target=member.pod, event=EXCESS))
            else:
                steps += pods.released(member.pod)
        return steps

    def dissolve(self, job: PodGroup) -> Sequence[Step]:
        """Remove the finalizer from deleted pods, and from failed ones: a group without a Workload expects no
        replacements, and composes one without them."""
        gone = [
            each.pod
            for each in job.members
            if each.stage not in MAY_RUN
            and (each.pod.metadata.deletion_timestamp or (each.stage is Stage.LOST and job.workload is None))
        ]
        return [step for pod in gone for step in pods.released(pod)]

    def tidy(self, job: PodGroup) -> Sequence[Step]:
        """Delete excess pods; remove the finalizer from replaced pods."""
        steps: list[Step] = [Removal(target=each.pod, event=EXCESS) for each in job.excess]
        if job.of_a_set:  # a pod of the same name cannot be created before it is gone
            steps += [step for each in job.at(Stage.LOST) for step in pods.released(each.pod)]
        elif job.workload is not None:
            steps += [step for each in job.replaced for step in pods.released(each.pod)]
        return steps

    def incomplete(self, job: PodGroup) -> bool:
        """Whether a role has fewer pods than the Workload charges for; with fast admission, whether a role has none.
        Never for a set, whose controller creates its pods one after the other."""
        if job.of_a_set:
            return False
        present = (Stage.RUNNING, Stage.HELD, Stage.LEAVING)
        return any(
            len(job.at(*present, role=each.name)) + job.succeeded(each.name) < (1 if job.fast else each.count)
            for each in (job.workload.spec.pod_sets if job.workload is not None else ())
        )

    def pods_ready(self, job: PodGroup) -> bool:
        """Whether as many pods as the total count announces are ready or have succeeded."""
        ready = [each for each in job.members if pods.is_true(each.pod, "Ready") or each.stage is Stage.SUCCEEDED]
        return 0 < job.total <= len(ready)

    def reclaimable(self, job: PodGroup) -> dict[str, int]:
        """Succeeded pods by role; none for a serving group."""
        if job.serving or job.of_a_set:
            return {}
        counts: dict[str, int] = {}
        for member in job.at(Stage.SUCCEEDED):
            counts[member.role] = counts.get(member.role, 0) + 1
        return counts

    def follows_queue(self, job: PodGroup) -> bool:
        """False for a serving group, for one of a set, which moves its Workload itself, and for a group whose pods
        contradict each other, for example about the queue."""
        return not (job.serving or job.of_a_set or job.problem)


def _example(members: Sequence[Member]) -> Pod:
    """The pod whose template becomes the role's pod set. Raises CannotCompose if another pod of the role asks for
    something else: Kueue's role hash leaves out the restart policy that makes an init container a sidecar."""
    first = members[0].pod
    for member in members[1:]:
        if not pods.is_over(member.pod) and not pods.shape(member.pod).fits(pods.shape(first)):
            both = f"pods '{first.metadata.name}' and '{member.pod.metadata.name}'"
            raise CannotCompose(f"{both} have the same role hash but ask for different resources")
    return first
