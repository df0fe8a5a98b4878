"""Decides about one serving set: the Workload of each of its gangs, and which pods join the gang's pod group.

A gang is a pod group whose Workload the set owns, so `controllers.jobs.jobreconciler` starts and stops its pods: this
module must never lift a gate. A Workload whose gang changed is rewritten while it waits, and replaced once no pod of
the gang runs. A Workload keeps its quota while its pods may run, also when the set was scaled down. Source: Kueue's
pkg/controller/jobs/statefulset and leaderworkerset.

The number of gangs is a number that a tenant writes. So a decision is made in steps, one for each Workload or pod that
exists; it ends after `MOST_WRITES`, and the set is decided about again at once; and Workloads are created for gangs
that have pods, and for `AHEAD` others. Kueue creates the Workloads of all gangs.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, cast

import msgspec

from turnstile.api import names, rollout
from turnstile.api import workload as wl
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, OwnerReference, find_condition, to_plain
from turnstile.api.pods import Container, PodSpec
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.charging.podcharge import Charge, allowed_by
from turnstile.controllers.jobs.admissible import skip_unmanaged
from turnstile.controllers.jobs.adoption import adopt_child
from turnstile.controllers.jobs.following import FAILED_TO_START
from turnstile.controllers.jobs.orphans import CHECK_SECONDS, ownerless
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.podsofsets import PODS_BY_SET, gang_key
from turnstile.controllers.jobs.release import (
    discarded,
    put_on_hold,
    released,
    taken_back,
    taken_off_hold,
)
from turnstile.controllers.jobs.settling import another_queue, class_priority, relabelled
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Action, Delete, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView, NotRead
from turnstile.jobs import pods, podsets
from turnstile.jobs import workload as build
from turnstile.jobs.integration import NOT_ADMITTED, Removal
from turnstile.jobs.labels import queue_name
from turnstile.jobs.naming import group_in, job_key, split_job_key
from turnstile.jobs.remote import is_copy
from turnstile.jobs.roles import Shape, shape_of
from turnstile.jobs.servingset import Component, Gangs, ServingSet
from turnstile.kube.gate import Rank

MOST_WRITES: Final = 100
"""Writes after which a decision ends."""
AHEAD: Final = 32
"""Workloads of one set at most whose gangs have no pods. The pods of all gangs are created at once, and wait at their
gates, so this delays no honest set; a set without pods cannot fill the API server."""

Steps = Generator[None, None, ReconcileResult]

_NOT_HELD: Final = "it was created without a scheduling gate, and runs without quota"
_CHANGED: Final = "Its pods ask for more than was admitted with Workload"
_CHANGED_CURE: Final = "what is not charged for stays gated until it is scaled to zero and back"
_OUTDATED: Final = "it is of an old revision, and asks for more than its set does now"


def steps(key: str, cluster: ClusterView) -> Steps:
    """The steps to the next writes for the set of that key, between which other tasks may run; no actions if none are
    needed."""
    framework, name = split_job_key(key)
    known = cluster.registry.known.get(framework)
    integration = known.as_set if known is not None else None
    if integration is None or integration.kind not in cluster.jobs or group_in(name):
        return ReconcileResult(why=f"the framework {framework} is not known")
    if not cluster.pods.complete:
        return ReconcileResult(why="pods are not read yet")
    try:
        return (yield from _decide(key, integration, name, cluster))
    except NotRead as why:
        return ReconcileResult(why=str(why))


def _decide(key: str, integration: ServingSet[Any], name: str, cluster: ClusterView) -> Steps:
    cluster.require([integration.kind])
    job = cluster.jobs[integration.kind].get(name)
    left: list[Workload] = []
    own: list[Workload] = []
    for workload in cluster.workloads.by_index(WORKLOADS_BY_JOB, key):
        mine = job is not None and any(each.uid == job.metadata.uid for each in workload.metadata.owner_references)
        (own if mine else left).append(workload)
        yield
    gone = job is None or bool(job.metadata.deletion_timestamp)
    actions: list[Action] = []
    for workload in [*left, *own] if gone else left:
        found, _ = ownerless([workload], cluster, "")
        actions += found
        if _full(actions):
            return ReconcileResult([*actions, RequeueAfter(0.0)], why="Workloads of a set that is gone, and others")
        yield
    if job is None or gone:
        return ReconcileResult(actions, why="the set is gone")
    if (named := _named(integration, job, cluster)) is not None:
        job = integration.named(job, named.metadata.name)
        own += [] if any(each is named for each in own) else [named]
    decision = yield from _Set(JobView(integration, job, own, cluster), actions).decide()
    return decision


def _named(integration: ServingSet[Any], job: Any, cluster: ClusterView) -> Workload | None:
    """The Workload that has one of the names of a set's only Workload, if all its owners are the set and the set's
    pods: Turnstile made it, or an older version of Kueue."""
    meta = job.metadata
    for name in integration.names_of(job):
        workload = cluster.workloads.get(f"{meta.namespace}/{name}")
        others = [each for each in workload.metadata.owner_references if each.uid != meta.uid] if workload else []
        if workload is None or (others and not _are_pods_of(meta.uid, workload, others, cluster)):
            continue
        return workload
    return None


def _are_pods_of(uid: str, workload: Workload, owners: Sequence[OwnerReference], cluster: ClusterView) -> bool:
    pods_ = (each.metadata for each in charges.own_pods(workload, cluster))
    known = {each.uid for each in pods_ if each.controller is not None and each.controller.uid == uid}
    return all(each.uid in known for each in owners)


def _full(actions: Sequence[Action]) -> bool:
    """Whether a decision has as many writes as it may have."""
    if len(actions) < MOST_WRITES:
        return False
    return sum(not isinstance(each, Emit | RequeueAfter) for each in actions) >= MOST_WRITES


class _Full(Exception):
    """The decision has as many writes as it may have."""


class _Set(Plan):
    """The writes of one decision about one set."""

    @property
    def job(self) -> Any:
        """The set."""
        return self.view.job

    @property
    def cluster(self) -> ClusterView:
        """The stores that the decision may read."""
        return self.view.cluster

    @property
    def _integration(self) -> ServingSet[Any]:
        return cast(ServingSet[Any], self.view.integration)

    @property
    def _key(self) -> str:
        meta = self.job.metadata
        return job_key(self._integration.framework, meta.namespace, meta.name)

    @cached_property
    def _gangs(self) -> Gangs:
        return self._integration.components(self.job)

    @cached_property
    def _shapes(self) -> list[Shape]:
        """The demands of the pods of a gang, by pod set."""
        return [_shape(each.view.spec) for each in self._gangs.pod_sets]

    def decide(self) -> Steps:
        """Bring the Workloads in line with the set, then let its pods join their groups."""
        for step in (skip_unmanaged, self._skip_another_kind, adopt_child):
            if (outcome := step(self.view)) is not None:
                self.actions += outcome.actions
                if outcome.why:
                    return self._decision(outcome.why)
        try:
            yield from self._bring_in_line()
        except _Full:
            self.actions.append(RequeueAfter(0.0))
            return self._decision("brought in line in part")
        except build.PriorityClassMissing as error:
            self.emit(error.reason, str(error), warning=True)
            return self._decision(str(error))  # the creation of the class requeues the set
        return self._decision("in line" if not self.actions else "brought in line")

    def _skip_another_kind(self, view: JobView) -> Outcome | None:
        """Leave a set alone whose pods are held for a parent of another kind. Its template says that."""
        if self._integration.of_another_kind(view.job):
            return Plan(view).ends("its pods are held for a parent of another kind")
        return None

    def _decision(self, why: str) -> ReconcileResult:
        return ReconcileResult(self.actions, why=why, rank=Rank.STOP)

    def _bring_in_line(self) -> Generator[None, None, None]:
        for workload in self.view.workloads:
            component = self._gangs.of(workload.metadata.name, workload.metadata.annotations)
            if component is None:
                self._surplus(workload)
            elif all(owner.uid != self.job.metadata.uid for owner in workload.metadata.owner_references):
                self._adopt(workload)
            else:
                self._follow(workload, component)
            self._end_if_full()
            yield
        members = self.cluster.pods.by_index(PODS_BY_SET, self._key)
        yield from self._create_missing(members)
        for pod in members:
            self._take_in(pod)
            self._end_if_full()
            yield

    def _end_if_full(self) -> None:
        if _full(self.actions):
            raise _Full

    def _create_missing(self, members: Sequence[Pod]) -> Generator[None, None, None]:
        """Create the Workloads of the gangs that have pods, then of some that have none yet."""
        if is_copy(self.job):
            return  # its Workloads come from the cluster where it was submitted
        with_pods: dict[str, str] = {}
        exist = {each.metadata.name for each in self.view.workloads}
        for pod in members:
            with_pods[self._integration.component_of(self.job, pod)] = self._integration.number_of(pod)
            yield
        room = AHEAD - len(exist.difference(with_pods))
        asked = (
            self._gangs.of(name, {names.COMPONENT_WORKLOAD_INDEX: number})
            for name, number in with_pods.items()
            if name not in exist
        )
        known = exist.union(with_pods)
        for component in chain(filter(None, asked), self._gangs if self._gangs.ahead else ()):
            yield
            without_pods = component.workload not in with_pods
            if component.pods <= 0 or (without_pods and room <= 0):
                return
            if without_pods and component.workload not in known:
                room -= 1
            elif without_pods or component.workload in exist:
                continue
            self._create_for(component, self.view.priority())
            exist.add(component.workload)
            self._end_if_full()

    def _create_for(self, component: Component, priority: build.Priority) -> None:
        integration, options = self._integration, self.cluster.options

        def body(job: Kind) -> dict[str, Any]:
            gang = replace(component, pod_sets=integration.components(job).pod_sets)
            return build.component_body(integration, job, gang, priority, options)

        self.create(component.workload, body, component.pod_sets)
        self.emit("CreatedWorkload", f"Created Workload: {self.job.metadata.namespace}/{component.workload}")

    def _follow(self, workload: Workload, component: Component) -> None:
        """The next write for the Workload of a gang that the set asks for."""
        pods_run = charges.held(workload, self.cluster) or self._may_be_starting(workload)
        if not pods_run and (workload.evicted or workload.metadata.deletion_timestamp):
            pods_run = charges.held_anywhere(workload, self.cluster)
            self.actions.extend([RequeueAfter(CHECK_SECONDS)] if pods_run else [])
        if workload.metadata.deletion_timestamp:
            self.actions.extend([] if pods_run else released(workload))
        elif is_copy(self.job):
            self._follow_origin(workload, component, pods_run=pods_run)
        elif workload.finished:
            if component.pods > 0 and not pods_run and self._to_replace(workload):
                self.discard(workload)
        elif workload.evicted and workload.quota_reserved and not pods_run:
            self.actions.append(taken_back(workload, self.cluster, requeues=True))
        elif component.pods > 0 and not self._alike(workload):
            self._replace(workload, component, pods_run=pods_run)
        elif not workload.quota_reserved and self._bring_up_to_date(workload, component):
            pass  # whatever follows is decided with the queue and the priority that the set asks for
        elif component.pods <= 0:
            hold = () if pods_run else put_on_hold(workload, self.cluster, self._integration.hold_reason)
            self.actions.extend(hold)
        elif workload.quota_reserved and (why := relabelled(self, workload)):
            self._leave(workload, why, pods_run=pods_run)
        elif workload.on_hold:
            self.actions.append(taken_off_hold(workload, self.cluster))
        else:
            self._bring_up_to_date(workload, component)

    def _follow_origin(self, workload: Workload, component: Component, *, pods_run: bool) -> None:
        """The next write for the Workload of a set that was made by a manager of other clusters: its spec is the
        manager's, which dispatches anew what does not fit the set."""
        if workload.finished:
            return
        if workload.evicted and workload.quota_reserved and not pods_run:
            self.actions.append(taken_back(workload, self.cluster, requeues=True))
        elif not (pods_run or (component.pods > 0 and self._alike(workload))):
            self.finish(workload, "OutOfSync", "The prebuilt workload is out of sync with its user job")

    def _adopt(self, workload: Workload) -> None:
        """Become an owner of a Workload, which charges for the set's pods from then on."""
        meta, own = workload.metadata, build.owner_reference(self._integration, self.job)
        metadata = {
            "ownerReferences": [*(to_plain(each) for each in meta.owner_references), own],
            "annotations": build.owner_marks(self._integration, self.job),
        }
        self.actions.append(fresh_patch(workload, {"metadata": metadata}))

    def _surplus(self, workload: Workload) -> None:
        """Delete the Workload of a gang that the set does not ask for any more, once its pods are gone. No event says
        so: the user asked for it."""
        if not charges.held(workload, self.cluster) and not self._may_be_starting(workload):
            self.actions.extend(discarded(workload))

    def _may_be_starting(self, workload: Workload) -> bool:
        """Whether the gate of a pod may be being lifted for an admitted Workload: the reconciler of its group decides
        that, at the same time as this one, and its write is seen only when the API server has answered. So while there
        is such a pod that reconciler alone, which waits for its own writes, releases the quota."""
        if not workload.admitted or workload.finished:
            return False
        charge = Charge(allowed_by(workload), workload.metadata.namespace, self.cluster)
        return any(
            pods.is_gated(pod)
            and charges.may_run(pod)
            and any(charge.covers(each.name, pod) for each in workload.spec.pod_sets)
            for pod in self.cluster.pods.by_index(PODS_BY_SET, gang_key(self._key, workload.metadata.name))
        )

    def _replace(self, workload: Workload, component: Component, *, pods_run: bool) -> None:
        """Rewrite a Workload without quota; replace one with quota when none of its pods runs. Pods that run are never
        stopped because their set was changed past its webhook: pods that are not charged for stay gated, and the quota
        of pods that the set does not ask for any more is released."""
        meta = workload.metadata
        if not workload.quota_reserved:
            priority, integration, options = self.view.priority(), self._integration, self.cluster.options
            self.respecify(
                workload,
                lambda job: build.spec_change(job, integration.components(job).pod_sets, priority, options),
                component.pod_sets,
            )
            self.emit("UpdatedWorkload", f"Updated not matching Workload for suspended job: {meta.key}")
        elif not pods_run:
            self.discard(workload)
        elif self._alike(workload, fewer=True):
            draft = self.cluster.draft(workload)
            if self.cluster.options.reclaimable_pods:
                draft.reclaim(self._given_back(workload, component))
            if draft.changed:
                self.actions.append(draft.patch())
        else:
            self.emit("NotCharged", f"{_CHANGED} {meta.key}; {_CHANGED_CURE}", warning=True)

    def _alike(self, workload: Workload, *, fewer: bool = False) -> bool:
        """Whether a Workload charges for the pods of a gang; with `fewer`, also if the gang has fewer pods."""
        wanted = self._gangs.pod_sets
        if len(workload.spec.pod_sets) != len(wanted):
            return False
        return all(
            has.name == wants.name
            and (has.count >= wants.count if fewer else has.count == wants.count)
            and _shape(has.template.spec) == shape
            for has, wants, shape in zip(workload.spec.pod_sets, wanted, self._shapes, strict=True)
        )

    def _given_back(self, workload: Workload, component: Component) -> dict[str, int]:
        """Pods by pod set that the set does not ask for any more and that do not run; never fewer than before, as the
        API server refuses."""
        running = len(charges.pods_of(workload, self.cluster))
        given = {each.name: each.count for each in workload.status.reclaimable_pods}
        charged = sum(each.count for each in workload.spec.pod_sets) - sum(given.values())
        for has, wants in zip(workload.spec.pod_sets, component.pod_sets, strict=True):
            free = max(min(has.count - wants.count - given.get(has.name, 0), charged - running), 0)
            if free:
                given[has.name] = given.get(has.name, 0) + free
                charged -= free
        return given

    def _leave(self, workload: Workload, why: str, *, pods_run: bool) -> None:
        """Release the quota of a Workload that has to follow a label of the set: the API server takes the change only
        without a reservation. For another queue, pods of a set without ready pods are stopped, as the webhook lets such
        a set be moved; pods that serve are never stopped for a label."""
        if not pods_run:
            self.actions.extend(put_on_hold(workload, self.cluster, why))
        elif not self._integration.runs(self.job) and another_queue(self.view, workload) is not None:
            meta = workload.metadata  # its finalizer stays: the reconciler of its group stops the pods first
            self.actions.append(Delete(Workload, meta.namespace, meta.name, uid=meta.uid))
            self.emit("DeletedWorkload", f"Deleted Workload: {meta.key}. {why}")

    def _bring_up_to_date(self, workload: Workload, component: Component) -> bool:
        """Copy queue, admission gates and priority class of the set to a Workload. The API server refuses another queue
        while quota is reserved. Returns whether anything was written."""
        meta, body = workload.metadata, dict[str, Any]()
        spec: dict[str, Any] = {}
        annotations: dict[str, str | None] = {}
        queue = another_queue(self.view, workload)
        if not workload.quota_reserved and queue is not None:
            spec["queueName"] = queue or None
        if (priority := class_priority(self, workload)) is not None:
            spec |= {"priority": priority.value, "priorityClassRef": to_plain(priority.ref)}
            self.emit("UpdatedWorkload", f"Updated workload priority class: {meta.key}")
        gates = self.cluster.options.gates_of(self.job.metadata)
        if gates != self.cluster.options.gates_of(meta):
            annotations[names.ADMISSION_GATED_BY] = gates or None
            self.emit("UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gates}"')
        if component.rollout != meta.annotations.get(rollout.WORKLOAD, ""):
            annotations[rollout.WORKLOAD] = component.rollout or None
        if annotations:
            body["metadata"] = {"annotations": annotations}
        if spec:
            body["spec"] = spec
        if body:
            self.actions.append(fresh_patch(workload, body))
        return bool(body)

    def _to_replace(self, workload: Workload) -> bool:
        """Whether a finished Workload is in the way of the next: a set never finishes. One with which no pod could be
        started stays until that can be, so that the same admission is not tried for ever."""
        finished = find_condition(workload.status.conditions, wl.FINISHED)
        if finished is None or finished.reason != FAILED_TO_START:
            return True
        try:
            infos = self.cluster.infos_of(workload)
            wanted = {each.name: each.view for each in self._integration.pod_sets(self.job)}
            for info in infos:
                podsets.merge(podsets.Directives.of(wanted[info.name]), info)
        except (LookupError, PermanentError):
            return False
        return True

    def _take_in(self, pod: Pod) -> None:
        """Let a gated pod join its group. Delete a pod that was never gated, although the set names a queue, and a
        gated pod of an old revision that the Workload does not charge for: it would wait for ever, and a StatefulSet
        creates no other pod until it is ready."""
        meta = pod.metadata
        if meta.deletion_timestamp or pods.is_over(pod):
            return
        if pods.is_gated(pod) and self._integration.outdated(self.job, pod) and self._uncharged(pod):
            self.add([Removal(target=pod, event=("Stopped", f"Not admitted: {_OUTDATED}"))])
        elif (change := self._integration.membership(self.job, pod)) is not None:
            self.patch(change)
        elif self._integration.slipped_in(self.job, pod) and queue_name(self.job):
            self.add(pods.stopped(pod, reason=NOT_ADMITTED, message=_NOT_HELD, now=self.cluster.now))
            self.emit("Stopped", f"Not admitted: {_NOT_HELD}", about=[pod])

    def _uncharged(self, pod: Pod) -> bool:
        """Whether a Workload of the pod's gang exists, and charges less for a pod than this one requests."""
        name = self._integration.component_of(self.job, pod)
        workload = next((each for each in self.view.workloads if each.metadata.name == name), None)
        if workload is None or workload.finished or workload.metadata.deletion_timestamp:
            return False
        charge = Charge(allowed_by(workload), workload.metadata.namespace, self.cluster)
        return not any(charge.covers(each.name, pod) for each in workload.spec.pod_sets)


def _shape(spec: PodSpec) -> Shape:
    """The demands of a pod, without its ports, to which an API server may add a protocol."""

    def bare(containers: Sequence[Container]) -> list[Container]:
        return [msgspec.structs.replace(each, ports=()) for each in containers]

    return shape_of(
        msgspec.structs.replace(spec, containers=bare(spec.containers), init_containers=bare(spec.init_containers))
    )
