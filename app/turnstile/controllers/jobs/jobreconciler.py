"""Decides about one job of any kind: its Workload, its start, its stop, its end.

The engine decides what quota a Workload gets, and `controllers.workloads.workload` when the Workload must release the
quota; this module starts and stops the job accordingly, and writes the state of the job to the Workload's status. It
must never reserve quota and never touch a job in a namespace that is not managed. Order, reasons, events and messages
follow Kueue's generic reconciler (pkg/controller/jobframework). A decision ends at a write that changes what later
steps depend on; the next decision starts from the result. Values that are right already are not written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Condition, Kind, find_condition
from turnstile.api.workload import ON_HOLD, Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.charging.excess import Excess, excess
from turnstile.controllers.charging.podcharge import Charge, allowed_by
from turnstile.controllers.jobs import podsscheduled
from turnstile.controllers.jobs.children import Childhood, have_read_stop, index_children
from turnstile.controllers.jobs.matching import Matching
from turnstile.controllers.jobs.orphans import ownerless
from turnstile.controllers.jobs.reclaim import Reclaiming
from turnstile.controllers.jobs.reconcile import (
    RETRY_SECONDS,
    TEMPLATES_ARE_READ,
    discarded,
    ended,
    put_on_hold,
    released,
    taken_back,
    taken_off_hold,
)
from turnstile.controllers.jobs.servingsets import index_sets
from turnstile.controllers.jobs.shared import Sharing, index_named_jobs
from turnstile.controllers.runtime.actions import Delete, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.status import podsready
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView, NotRead
from turnstile.controllers.view.ends import UNSEEN_SECONDS
from turnstile.jobs import workload as build
from turnstile.jobs.integration import (
    NOT_ADMITTED,
    WORKLOAD_DELETED,
    WORKLOAD_EVICTED,
    CannotCompose,
    Change,
    GroupIntegration,
    Integration,
)
from turnstile.jobs.labels import prebuilt_name, queue_name
from turnstile.jobs.naming import group_in, split_job_key
from turnstile.jobs.registry import Registry
from turnstile.kube import raws
from turnstile.kube.gate import Rank
from turnstile.kube.store import Store

JOBS_BY_GROUP: Final = "group"
"""Index of objects by the key of their group (`pod:team-a/group/train`)."""

_DEACTIVATED_BY_TURNSTILE: Final = "DeactivatedDueTo"
_OWN_END: Final = frozenset(("Succeeded", "Failed"))
_FAILED_TO_START: Final = "FailedToStart"
_HELD: Final = "Job is on hold"
_IDLE: Final = "All pods of the group have ended; the group waits for a pod that may run"
_AGAIN_SECONDS: Final = 1.0
"""Seconds between two looks at the children of a stopped job."""
_ORPHANS: Final = "orphan"
"""The finalizer of an object that is deleted with orphan propagation."""


def index_jobs(workloads: Store[Workload], registry: Registry, jobs: Mapping[type[Kind], Store[Kind]]) -> None:
    """Declare the indexes by which `decide` finds Workloads, children, and the members of groups."""
    workloads.add_index(WORKLOADS_BY_JOB, registry.jobs_of)
    for kind, store in jobs.items():
        integration = registry.of(kind())
        index_children(store, integration, registry)
        if integration.groups is not None:
            _index_groups(store, integration, registry)
        if kind is Pod:
            index_named_jobs(store, registry)
            index_sets(store, registry)


def _index_groups(store: Store[Any], integration: Integration[Any], registry: Registry) -> None:
    store.add_index(JOBS_BY_GROUP, lambda job: [registry.key_of(job)] if integration.group_of(job) else [])


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The next writes for the job of that key (`framework:namespace/name`); no actions if none are needed."""
    framework, name = split_job_key(key)
    integration = cluster.registry.known.get(framework)
    if integration is None or integration.kind not in cluster.jobs:
        return ReconcileResult([], why=f"the framework {framework} is not known")
    try:
        return _decide(key, integration, name, cluster)
    except NotRead as why:
        return ReconcileResult([], why=str(why))


def pods_are_ready(workload: Workload, cluster: ClusterView) -> bool:
    """Whether the pods of a job of the Workload are ready now, which the Workload may not say yet. Raises NotRead."""
    for key in cluster.registry.jobs_of(workload):
        framework, name = split_job_key(key)
        integration = cluster.registry.known.get(framework)
        if integration is not None and integration.kind in cluster.jobs:
            integration, job = _read(key, integration, name, [workload], cluster)
            if job is not None and integration.pods_ready(job):
                return True
    return False


def _decide(key: str, integration: Integration[Any], name: str, cluster: ClusterView) -> ReconcileResult:
    workloads = cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
    integration, job = _read(key, integration, name, workloads, cluster)
    if job is None:
        if isinstance(integration, GroupIntegration):
            workloads = [each for each in workloads if not (build.of_a_set(each) and each.metadata.owner_references)]
        return ReconcileResult(*ownerless(workloads, cluster, "the job is gone"))
    if integration.group_of(job):
        # A Workload that was made before the object joined the group keeps the quota of the pods that run.
        unused = [each for each in workloads if not charges.held(each, cluster)]
        actions = [action for workload in unused for action in discarded(workload)]
        return ReconcileResult(actions, why="the object has joined a group, which has a Workload of its own")
    return _Job(integration, job, workloads, cluster).decide()


def _read(
    key: str, integration: Integration[Any], name: str, workloads: Sequence[Workload], cluster: ClusterView
) -> tuple[Integration[Any], Kind | None]:
    """The job of a key as it is cached, and the integration that handles it. Raises NotRead."""
    cluster.require([integration.kind, *([integration.templates_in] if integration.templates_in is not None else [])])
    store = cluster.jobs[integration.kind]
    if integration.groups is not None and (group := group_in(name)):
        charged = {owner.uid for each in workloads for owner in each.metadata.owner_references}
        members = [
            each
            for each in store.by_index(JOBS_BY_GROUP, key)
            if not integration.skip(each) or each.metadata.uid in charged
        ]
        return integration.groups, _composed(integration.groups, group, members, cluster) if members else None
    job = store.get(name)
    if job is not None and integration.templates_in is not None:
        job = _joined(integration, job, integration.templates_in, cluster)
    return integration, job


def _joined(integration: Integration[Any], job: Kind, kind: type[Kind], cluster: ClusterView) -> Kind:
    """A job with the object that has its pod templates, if that object was made for this very job."""
    made = cluster.jobs[kind].get(job.metadata.key) if kind in cluster.jobs else None
    owner = made.metadata.controller if made is not None else None
    if made is None or owner is None or owner.uid != job.metadata.uid or raws.stripped(made):
        return job
    joined: Kind = integration.joined(job, made)
    return joined


def _composed(integration: GroupIntegration[Any], group: str, members: list[Kind], cluster: ClusterView) -> Kind:
    """A group, with the Workload of its name, or with the prebuilt Workload that its members name."""
    named = next((found for each in members if (found := prebuilt_name(each))), "")
    workload = cluster.workloads.get(f"{members[0].metadata.namespace}/{named or group}")
    of_a_set = workload is not None and build.of_a_set(workload)
    covers = None
    if workload is not None and (named or of_a_set):
        covers = Charge(allowed_by(workload), workload.metadata.namespace, cluster).covers
    prebuilt = bool(named) and not of_a_set
    composed: Kind = integration.compose(group, members, workload, now=cluster.now, covers=covers, prebuilt=prebuilt)
    return composed


class _Job(Childhood, Matching, Reclaiming, Sharing):
    """One reconcile of one job, from the first step to the decision."""

    def decide(self) -> ReconcileResult:
        """Run Kueue's steps in Kueue's order, until a step decides."""
        steps: tuple[Callable[[], str], ...] = (
            self._deleted,
            self._left_alone,
            self._unmanaged,
            self._child,
        )
        for step in steps:
            if why := step():
                return self._decision(why)
        if (seconds := self.integration.due(self.job)) is not None:
            self.actions.append(RequeueAfter(seconds))
        try:
            matching, why = self._ensure_one_workload()
            return self._decision(why or self._follow(matching))
        except CannotCompose as error:
            self._emit("ErrWorkloadCompose", str(error), warning=True)
            self._dissolve()
            return self._decision(str(error))  # the next member that is created requeues the group
        except build.PriorityClassMissing as error:
            self._emit(error.reason, str(error), warning=True)
            return self._decision(str(error))  # the creation of the class requeues the job
        except LookupError as error:
            self.actions.append(RequeueAfter(RETRY_SECONDS))
            return self._decision(str(error))

    # Reasons not to queue a job at all. A job that was queued is followed to its end, whatever is configured and
    # labelled since.

    def _left_alone(self) -> str:
        return self._unless_followed(self.integration.skip(self.job))

    def _deleted(self) -> str:
        if not self.job.metadata.deletion_timestamp:
            return ""
        if self.integration.winds_down(self.job):
            return "the job is being deleted, and cleans up"
        orphans = _ORPHANS in self.job.metadata.finalizers
        actions, why = ownerless(self.workloads, self.cluster, "the job is being deleted", orphans=orphans)
        self.actions.extend(actions)
        if isinstance(self.job, Pod) and not self.integration.skip(self.job):
            self._hasten()
        if not any(charges.held(each, self.cluster) for each in self.workloads):
            self._finalize()
        return why

    def _unmanaged(self) -> str:
        options = self.cluster.options
        namespace = self.cluster.namespaces.get(self.job.metadata.namespace)
        if namespace is None:
            return f"namespace {self.job.metadata.namespace} is gone"
        why = ""
        if not self.cluster.registry.is_enabled(self.integration):
            why = f"the framework {self.integration.framework} is not enabled"
        elif not options.managed_jobs_namespace_selector.matches(namespace.metadata.labels):
            why = f"namespace {namespace.metadata.name} is not managed"
        if why := self._unless_followed(why):
            return why
        if raws.stripped(self.job):
            return TEMPLATES_ARE_READ  # they were not cached while the job was not managed
        return ""

    # A job and its Workload.

    def _follow(self, workload: Workload | None) -> str:
        """Write the state of the job to its Workload, or start or stop the job as the Workload requires."""
        if workload is None:
            self._hasten()
            return self._without_workload()
        if workload.finished:
            return self._after_end(workload)
        if workload.metadata.deletion_timestamp:
            before = len(self.actions)
            stopped = self._stop(workload.spec.pod_sets, reason=WORKLOAD_DELETED, message="Workload is deleted")
            if charges.held(workload, self.cluster):
                self._end_pods(workload, stopped=stopped and len(self.actions) == before)
            elif stopped and not self._unseen(workload):
                self.actions.extend(released(workload))
            return "the Workload is being deleted"
        self._share(workload)
        if self.integration.on_hold(self.job):
            return self._hold(workload, _HELD)
        if self._tell_of_replacements(workload):
            return "says whether members have to be replaced"
        if (outcome := self.outcome) is not None:
            if charges.held(workload, self.cluster):
                if workload.evicted:
                    self._stop_children()
                    self.actions.extend(ended(workload, self.cluster))
                return "the job has ended, but pods still run"
            self._finish(workload, "Succeeded" if outcome.success else "Failed", outcome.message)
            self._emit("FinishedWorkload", f"Workload '{workload.metadata.key}' is declared finished")
            self._finalize()
            return "the job has ended"
        if self._reclaim(workload):
            return "pods that are done give their quota back"
        if self._idle and not workload.evicted and (workload.quota_reserved or workload.on_hold):
            return self._hold(workload, _IDLE)
        if self._tell_pods_ready(workload):
            return "says whether its pods are ready"
        if workload.evicted:
            return self._evicted(workload)
        if workload.quota_reserved and self.suspended and (relabelled := self._relabelled(workload)):
            return self._hold(workload, relabelled)
        if self._tell_pods_scheduled(workload):
            return "says whether kube-scheduler finds nodes for its pods"
        if workload.admitted:
            if self.integration.waits(self.job) or self._half_stopped:
                return self._start(workload)
            late, again = patience.outnumbering(workload, self.cluster)
            self.actions += [*late, *([RequeueAfter(again)] if again is not None else [])]
            counted = self.integration.counts_pods and workload.spec.active and self.cluster.pods.complete
            if counted and (found := excess(workload, self.cluster)) is not None:
                return self._exceeded(workload, found)
            self._prepare()
            return "running"
        if not workload.quota_reserved:
            self._hasten()
        if not self.suspended:
            self._stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message="Not admitted by cluster queue")
            return "not admitted"
        return self._waiting(workload)

    def _exceeded(self, workload: Workload, found: Excess) -> str:
        """Deactivate the Workload of a job that has more pods than it is charged for. Evicted alone, the job would run
        again at once, and so would these pods."""
        if found.seconds:
            self.actions.append(RequeueAfter(found.seconds))
            return f"running, and may have too many pods: {found.problem}"
        self.actions.append(fresh_patch(workload, {"spec": {"active": False}}))
        note = f"Workload '{workload.metadata.key}' is deactivated: {found.problem}"
        self._emit("NotCharged", note, warning=True)
        return note

    def _hold(self, workload: Workload, why: str) -> str:
        """Release the quota of a job that must not run as admitted, and keep the Workload out of its queue until it may
        be admitted again: its own controller would not run the job, or the Workload has to follow a label first."""
        stopped = self._stop(workload.spec.pod_sets, reason=ON_HOLD, message=why)
        if not stopped or self.integration.active(self.job) or charges.held(workload, self.cluster):
            return "the job is on hold, but pods still run"
        if workload.quota_reserved and self._unseen(workload):
            return "the job is on hold, but pods may be created still"
        self.actions.extend(put_on_hold(workload, self.cluster, why))
        return "the job is on hold"

    def _without_workload(self) -> str:
        if self.outcome is not None:
            self._finalize()
            return "the job has ended"
        if self.integration.active(self.job) or self._running_children():
            return "pods of an earlier run are still there"
        if why := self.integration.unread(self.job):
            return why  # a change of the object that has the pod templates requeues the job
        integration, priority, options = self.integration, self._priority(), self.cluster.options

        def body(job: Kind) -> dict[str, Any]:
            return build.body(integration, job, integration.pod_sets(job), priority, options)

        namespace, name = self.job.metadata.namespace, integration.workload_name(self.job)
        self._remove_excess()
        self._create(name, body, self.pod_sets)
        self._emit("CreatedWorkload", f"Created Workload: {namespace}/{name}")
        return "a Workload is made"

    def _after_end(self, workload: Workload) -> str:
        """Remove finalizers once the Workload is finished; a job that has not ended must not run any more."""
        if self.outcome is None:
            finished = find_condition(workload.status.conditions, wl.FINISHED)
            said = f"{finished.reason}: {finished.message}" if finished is not None else ""
            if not self.suspended:
                message = f"Workload '{workload.metadata.key}' is finished, {said}"
                self._stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message=message)
                self._hasten()
                return f"stopped, because its Workload is finished, {said}"
            if finished is not None and finished.reason == _FAILED_TO_START and self._can_start(workload):
                self._discard(workload)
                return "repaired: a new Workload is made"
        before = len(self.actions)
        self._finalize()
        ended = len(self.actions) > before
        deferrable = workload.metadata.deletion_timestamp is None
        release = released(workload, deferrable=deferrable)
        self.actions.extend(release)
        finished = find_condition(workload.status.conditions, wl.FINISHED)
        # The end of the job itself had its event when Finished was written, unless another program wrote that.
        if ended or (release and finished is not None and finished.reason not in _OWN_END):
            self._emit("FinishedWorkload", f"Workload '{workload.metadata.key}' is declared finished")
        return "the Workload is finished"

    def _can_start(self, workload: Workload) -> bool:
        """Whether the job no longer contradicts the admission with which it could not be started."""
        try:
            self.integration.start(self.job, self.cluster.infos_of(workload))
        except (LookupError, PermanentError):
            return False
        return True

    def _tell_pods_ready(self, workload: Workload) -> bool:
        if self.cluster.options.pods_ready is None:
            return False
        ready = workload.admitted and self.integration.pods_ready(self.job)
        status, reason, message = podsready.condition(workload, ready=ready)
        told = find_condition(workload.status.conditions, wl.PODS_READY)
        if told is not None and (told.status, told.reason) == (status, reason):
            return False
        draft = self.cluster.draft(workload)
        draft.set(wl.PODS_READY, status, reason=reason, message=message)
        self.actions.append(draft.patch())
        return True

    def _tell_pods_scheduled(self, workload: Workload) -> bool:
        patch, seconds = podsscheduled.report(workload, self.cluster)
        if seconds is not None:
            self.actions.append(RequeueAfter(seconds))
        if patch is None:
            return False
        self.actions.append(patch)
        self.rank = Rank.REASON
        return True

    def _evicted(self, workload: Workload) -> str:
        """Stop the job; once no pod runs, release the quota and set Requeued."""
        condition = find_condition(workload.status.conditions, wl.EVICTED)
        assert condition is not None
        reason = f"{WORKLOAD_EVICTED}DueTo{condition.reason}"
        before = len(self.actions)
        stopped = self._stop(workload.spec.pod_sets, reason=reason, message=condition.message)
        if not workload.quota_reserved:
            self._hasten()
            # In Kueue the Workload keeps its queue until its next admission; in Turnstile it may move while it waits.
            moved = self._moved(workload) if queue_name(self.job) and not self.actions else ""
            return moved or self._deleted_after(workload, condition) or f"evicted: {condition.message}"
        if not stopped or self.integration.active(self.job) or charges.held(workload, self.cluster):
            self._end_pods(workload, stopped=stopped and len(self.actions) == before)
            return "evicted, but pods still run"
        if self._unseen(workload):
            return "evicted, but pods may be created still"
        self.actions.append(taken_back(workload, self.cluster, requeues=self.integration.keeps_reassignment))
        return f"evicted: {condition.message}"

    def _deleted_after(self, workload: Workload, evicted: Condition) -> str:
        """Delete a job that Turnstile has deactivated, when it was kept for as long as `objectRetentionPolicies` says;
        empty if it stays, as do the pods of a set: its controller would create them again at once."""
        keep, since = self.cluster.options.keep_deactivated, instant(evicted.last_transition_time)
        ours = evicted.reason.startswith(_DEACTIVATED_BY_TURNSTILE) and not workload.spec.active
        ours = ours and not build.of_a_set(workload)
        if keep is None or since is None or not ours or self.actions:
            return ""
        if left := self.cluster.left(since, keep):
            self.actions.append(RequeueAfter(left))
            return "deactivated, and kept for a while"
        self._finalize()  # first: a deletion makes the version that is read here stale
        for member in self.integration.members(self.job):
            meta = member.metadata
            self.actions.append(Delete(type(member), meta.namespace, meta.name, uid=meta.uid))
        self._emit("Deleted", "Deleted job: deactivation retention period expired")
        return "deactivated, and deleted when it was kept long enough"

    def _unseen(self, workload: Workload) -> bool:
        """Whether pods of a stopped job may be created still, by a controller that has not read that it is suspended;
        then the job is reconciled again when that is over."""
        integration, seconds = self.integration, 0.0
        if not integration.acknowledges:
            seconds = charges.unseen_seconds(workload, self.cluster)
            unheard = not (self.suspended or charges.tells_of_stops(integration))  # it is stopped in this decision
            if unheard and workload.admitted and charges.some_unseen(workload, self.cluster):
                seconds = UNSEEN_SECONDS
        if not integration.read_stop(self.job):
            seconds = max(seconds, charges.unread_seconds(workload, self.cluster))
        elif not have_read_stop(workload, self.cluster):  # a child that says so later does not wake its owner
            seconds = max(seconds, min(_AGAIN_SECONDS, charges.unread_seconds(workload, self.cluster)))
        if seconds:
            self.actions.append(RequeueAfter(seconds))
        return bool(seconds)

    def _start(self, workload: Workload) -> str:
        if self._half_stopped:
            self._stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message="Not admitted by cluster queue")
            return "a stop that was cut short is finished first"
        if self._running_children():
            return "admitted, but pods of an earlier run are still there"
        try:
            infos = self.cluster.infos_of(workload)
            started = self.integration.start(self.job, infos) or ()
        except PermanentError as error:
            if self._group is not None and self._to_stop:  # some members may run already
                self._stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message=f"Cannot start: {error}")
                return f"cannot start, and what runs is stopped first: {error}"
            self._finish(workload, _FAILED_TO_START, str(error))
            return f"cannot start: {error}"
        self._tell_uncovered()
        self.rank = Rank.START
        for change in [started] if isinstance(started, Change) else started:
            self.actions.append(self._patch(change))
            if change.subresource == "":
                queue = workload.status.admission.cluster_queue if workload.status.admission else ""
                about = [change.target] if change.target is not None else None
                self._emit("Started", f"Admitted by clusterQueue {queue}", about=about)
        return "admitted" if started else "admitted, but pods of an earlier run are still there"

    def _waiting(self, workload: Workload) -> str:
        self._stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message="Not admitted by cluster queue")
        if self.actions:
            return "a stop that was cut short is finished"
        if workload.quota_reserved:
            checks = [
                f"{check.name}: {check.message}"
                for check in workload.status.admission_checks
                if check.state == "Pending" and check.message
            ]
            if checks:
                self._emit("UpdatedAdmissionCheck", "; ".join(checks), about=self.integration.members(self.job))
            return "waiting for admission checks"
        return self._moved(workload) or self._off_hold(workload) or "waiting"

    def _moved(self, workload: Workload) -> str:
        """Move the Workload to the queue that the job names; empty if it is there already."""
        queue = self._another_queue(workload)
        if queue is None:
            return ""
        self.actions.append(fresh_patch(workload, {"spec": {"queueName": queue or None}}))
        return f"moves to queue {queue}"

    def _off_hold(self, workload: Workload) -> str:
        """Let a Workload back into its queue whose job is not on hold any more; empty if that is not for its job."""
        if not workload.on_hold or build.of_a_set(workload):
            return ""
        self.actions.append(taken_off_hold(workload, self.cluster))
        return "not on hold any more"
