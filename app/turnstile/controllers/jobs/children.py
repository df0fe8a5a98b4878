"""Decides whether a job is queued by itself or follows an ancestor, whose Workload must charge for the job's pods.

The reference to an owner is a tenant's word. It counts only if the pods are charged: the pod templates name pod sets of
the ancestor's Workload by the label that a start adds, each pod requests at most what that pod set charges for a pod,
and the unfinished children of an owner have together at most as many pods as it charges for, the oldest first. In every
other case the job needs quota itself. A running child beyond the count is suspended when any of its siblings is
reconciled. Must never create a Workload, and never resume a job: the job's own controller does.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from turnstile.api import names
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, find_condition
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import ADMITTED, EVICTED, PodSet, Workload
from turnstile.controllers.charging.podcharge import Allowance, Charge, allowed_by
from turnstile.controllers.jobs.reconcile import RETRY_SECONDS, Reconcile, job_patch
from turnstile.controllers.jobs.shared import sharing
from turnstile.controllers.runtime.actions import Emit, RequeueAfter
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView
from turnstile.jobs.ancestors import Ancestor, managed_ancestor
from turnstile.jobs.integration import NOT_ADMITTED, Change, Integration
from turnstile.jobs.labels import queue_name
from turnstile.jobs.naming import job_key, split_job_key
from turnstile.jobs.registry import Registry
from turnstile.kube import raws
from turnstile.kube.store import Store

CHILDREN: Final = "owner"
"""Index of jobs by the uid of the controller owner, and by that uid with the pod set that the pods name
(`uid/workers`)."""

_STRAY: Final = f"its pods have the label {names.PODSET_LABEL}, but no owner whose Workload charges for them"
_CURE: Final = f"set the label {names.QUEUE_LABEL} on it to have it queued by itself"


def index_children(store: Store[Any], integration: Integration[Any], registry: Registry) -> None:
    """Declare the index by which the children of an owner are counted."""

    def owned(job: Kind) -> list[str]:
        owner = job.metadata.controller
        if owner is None or not registry.made(job):
            return []
        found = [owner.uid]
        if not raws.stripped(job):
            with suppress(PermanentError):
                found += [f"{owner.uid}/{each.pod_set}" for each in integration.claims(job) if each.pod_set]
        return found

    if not integration.top_level:
        store.add_index(CHILDREN, owned)


def children_of(workload: Workload, cluster: ClusterView) -> Iterator[str]:
    """Keys of the jobs whose pods a Workload is charged for: children of its owner, and their children. The label with
    the uid of the owner stays when the garbage collector orphans the Workload."""
    pod_sets = [each.name for each in workload.spec.pod_sets]
    owners = [each.uid for each in workload.metadata.owner_references]
    uid = workload.metadata.labels.get(names.JOB_UID_LABEL)
    if uid and uid not in owners:
        owners.append(uid)
    seen = set(owners)
    while owners:
        uid = owners.pop()
        for store in _stores(cluster).values():
            for child in (each for name in pod_sets for each in store.by_index(CHILDREN, f"{uid}/{name}")):
                if child.metadata.uid not in seen:
                    seen.add(child.metadata.uid)
                    owners.append(child.metadata.uid)
                    yield cluster.registry.key_of(child)


def runs_still(child: Kind, cluster: ClusterView) -> bool:
    """Whether a child has pods, or may get pods."""
    integration = cluster.registry.of(child)
    return integration.finished(child) is None and (not integration.suspended(child) or integration.active(child))


def have_read_stop(workload: Workload, cluster: ClusterView) -> bool:
    """Whether the controllers of the jobs below a stopped job have said since its admission that these are suspended.
    It is not waited for longer than for that of the job itself."""
    admitted = find_condition(workload.status.conditions, ADMITTED)
    since = instant(admitted.last_transition_time) if admitted is not None else None
    if since is None:
        return True
    for key in children_of(workload, cluster):
        framework, name = split_job_key(key)
        integration = cluster.registry.known[framework]
        child = cluster.jobs[integration.kind].get(name)
        waits = child is not None and integration.finished(child) is None and integration.suspended(child)
        if child is not None and waits and not integration.read_stop_since(child, since):
            return False
    return True


def outlived(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a child of a Workload's owner, which is gone, can still make pods that the Workload is charged for, or
    may exist, because its kind is not read yet. The garbage collector deletes such a child. Until then its controller
    makes pods, also of a suspended child, if an operator that has not heard of its owner's end resumes the child."""
    for owner in workload.metadata.owner_references:
        integration = cluster.registry.by_owner(owner)
        if integration is not None and not all(store.complete for store in _made_by(integration, cluster).values()):
            return True
    family = Family(cluster)
    return any(
        may_make_pods(child, cluster) and not family.own_workload(child)
        for owner in workload.metadata.owner_references
        for store in _stores(cluster).values()
        for child in store.by_index(CHILDREN, owner.uid)
    )


def unheard(workload: Workload, cluster: ClusterView) -> bool:
    """Whether pods of a Workload, or jobs that its owner's controller makes, may have been made since their watch
    failed."""
    owners = (cluster.registry.by_owner(owner) for owner in workload.metadata.owner_references)
    made = (store for owner in owners if owner is not None for store in _made_by(owner, cluster).values())
    return not (cluster.pods.followed and all(store.followed for store in made))


def may_make_pods(child: Kind, cluster: ClusterView) -> bool:
    """Whether a child can have pods made, now or when it is resumed."""
    integration = cluster.registry.of(child)
    if child.metadata.deletion_timestamp:
        return integration.winds_down(child)
    return integration.finished(child) is None


def _stores(cluster: ClusterView) -> dict[type[Kind], Store[Kind]]:
    """The stores of jobs that may follow an owner."""
    return {kind: cluster.jobs[kind] for kind in cluster.registry.may_follow if kind in cluster.jobs}


def _made_by(integration: Integration[Any], cluster: ClusterView) -> dict[type[Kind], Store[Kind]]:
    """The stores of jobs that the controller of a kind makes."""
    return {kind: store for kind, store in _stores(cluster).items() if (kind.GROUP, kind.KIND) in integration.makes}


class Family:
    """The children of managed jobs, as the stores have them."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def uncharged(self, job: Kind, ancestor: Ancestor, workload: Workload) -> str:
        """Why the Workload of a job's ancestor does not charge for the job; empty if it does.

        The owners between the two are checked first, each against the owner above it.
        """
        assert ancestor.job is not None
        allowance, parent = allowed_by(workload), ancestor.job
        for child in (*reversed(ancestor.between), job):
            if problem := self._problem(child, parent, allowance):
                return problem
            allowance, parent = Allowance(), child
            for claim in self._cluster.registry.of(child).claims(child):
                allowance.add(claim.pod_set, claim.count, claim.spec)
        return ""

    def beyond(self, job: Kind, ancestor: Ancestor, workload: Workload) -> Iterator[Kind]:
        """Running siblings of a job for whose pods the Workload does not charge, because older siblings use it up."""
        if ancestor.between or ancestor.job is None:  # the counts of an owner in between are its own
            return
        allowance = allowed_by(workload)
        found: set[str] = set()
        for claim in self._cluster.registry.of(job).claims(job):
            pods = 0
            for sibling in self._siblings(ancestor.job, claim.pod_set, allowance):
                integration = self._cluster.registry.of(sibling)
                pods += integration.claimed(sibling, claim.pod_set)
                over = pods > allowance.counts[claim.pod_set]
                uid = sibling.metadata.uid
                if over and sibling is not job and uid not in found and not integration.suspended(sibling):
                    found.add(uid)
                    yield sibling

    def _problem(self, job: Kind, parent: Kind, allowance: Allowance) -> str:
        """Why an owner's allowance does not include the pods of one of its children."""
        owner = f"the Workload of {parent.KIND} {parent.metadata.name}"
        try:
            claims = self._cluster.registry.of(job).claims(job)
        except PermanentError as error:
            return str(error)
        charge = Charge(allowance, job.metadata.namespace, self._cluster)
        for claim in claims:
            if claim.count == 0:
                continue
            if claim.pod_set not in allowance.counts:
                named = f"pod set '{claim.pod_set}'" if claim.pod_set else f"no pod set (label {names.PODSET_LABEL})"
                return f"its pods name {named} of {owner}, which therefore does not charge for them"
            if more := charge.exceeded_by(claim.pod_set, claim.spec):
                return f"its pods request more {more} than {owner} charges for a pod of pod set '{claim.pod_set}'"
            pods = 0
            for sibling in self._siblings(parent, claim.pod_set, allowance):
                pods += self._cluster.registry.of(sibling).claimed(sibling, claim.pod_set)
                if sibling.metadata.uid == job.metadata.uid:
                    break
            if pods > (charged := allowance.counts[claim.pod_set]):
                return (
                    f"with older children of {parent.KIND} {parent.metadata.name} it has {pods} pods of pod set "
                    f"'{claim.pod_set}', and {owner} charges for {charged}"
                )
        return ""

    def _siblings(self, parent: Kind, pod_set: str, allowance: Allowance) -> list[Kind]:
        """The children of an owner that may run pods of a pod set, the oldest first; unsorted if there are enough pods
        for all of them. Jobs with a Workload of their own do not count."""
        self._cluster.require(_made_by(self._cluster.registry.of(parent), self._cluster))
        found: list[Kind] = []
        pods = 0
        for kind, store in _stores(self._cluster).items():
            integration = self._cluster.registry.of(kind())
            for child in store.by_index(CHILDREN, f"{parent.metadata.uid}/{pod_set}"):
                gone = child.metadata.deletion_timestamp and not integration.active(child)
                if integration.finished(child) is None and not gone and not self.left_over(child, parent):
                    found.append(child)
                    pods += integration.claimed(child, pod_set)
        if pods <= allowance.counts.get(pod_set, 0):
            return found
        found = [child for child in found if not self.own_workload(child)]
        return sorted(found, key=lambda child: (child.metadata.creation_timestamp or "", child.metadata.name))

    def left_over(self, child: Kind, parent: Kind) -> bool:
        """Whether a child has no pods, and its owner's controller may have made another one instead."""
        return self._cluster.registry.of(parent).stops_children and not runs_still(child, self._cluster)

    def own_workload(self, job: Kind) -> bool:
        """Whether a job has an unfinished Workload itself."""
        key = self._cluster.registry.key_of(job)
        return any(
            not each.finished and (owner := each.metadata.controller) is not None and owner.uid == job.metadata.uid
            for each in self._cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
        )


class Childhood(Reconcile):
    """The part of a reconcile that decides whether the job follows an ancestor."""

    def _child(self) -> str:
        """Suspend a running child of a managed job until that job is admitted; a job for which no ancestor's Workload
        charges must name a queue. A job with a Workload of its own keeps its queue, whatever its labels and owners are
        since."""
        if self._unfinished:
            named = queue_name(self.job) or any(each.spec.queue_name for each in self._unfinished)
            everything = self.cluster.options.manage_jobs_without_queue_name
            return "" if named or everything else self._unless_followed("no queue name")
        if isinstance(self.job, Pod) and (workload := sharing(self.job, self.cluster)) is not None:
            if self.outcome is not None:
                self._finalize()
            return f"started within what Workload {workload.metadata.key} reserves"
        try:
            ancestor = self._ancestor()
        except LookupError as error:
            if self._is_new:  # the owner may have been created only a moment before the job
                self.actions.append(RequeueAfter(RETRY_SECONDS))
                return str(error)
            return self._by_itself(str(error) if self._claims or queue_name(self.job) else "")
        except PermanentError as error:
            return self._by_itself(str(error))
        if ancestor is None and not queue_name(self.job) and (queue := self._lent_queue()):
            change = Change({"metadata": {"labels": {names.QUEUE_LABEL: queue}}}, fresh=True)
            self.actions.append(self._patch(change))
            return f"takes queue {queue} of its owner"
        if ancestor is None:
            return self._by_itself(_STRAY if self._claims else "")
        if ancestor.job is None:
            return f"managed elsewhere with {ancestor.kind} {ancestor.name}"
        family = Family(self.cluster)
        if family.own_workload(self.job):
            return ""
        workload = self._workload_of(ancestor.job)
        if workload is None or not workload.admitted:
            if self._runs and self._suspend(self.integration, self.job):
                self._emit("Suspended", "Kueue managed child job suspended")
            else:
                self._prepare()
            self._hasten()
            return f"queued with {ancestor.kind} {ancestor.name}"
        if workload.evicted and self._runs and self._left_running(workload):
            return f"queued with {ancestor.kind} {ancestor.name}, which is stopped"
        problem = ancestor.fault
        if not problem and self._judged(workload) and not family.left_over(self.job, ancestor.job):
            problem = family.uncharged(self.job, ancestor, workload)
        if problem:
            return self._by_itself(problem)
        self._prepare()
        for sibling in family.beyond(self.job, ancestor, workload):
            if self._suspend(self.cluster.registry.of(sibling), sibling):
                note = f"The Workload of {ancestor.kind} {ancestor.name} does not charge for its pods: {_CURE}"
                self.actions.append(Emit(sibling, "Warning", "NotCharged", note))
        return f"queued with {ancestor.kind} {ancestor.name}"

    def _left_running(self, workload: Workload) -> bool:
        """Whether the Workload of the ancestor was evicted so long ago that the job, which runs still, is suspended
        here: the ancestor's own controller does not run, or is late."""
        evicted = find_condition(workload.status.conditions, EVICTED)
        since = instant(evicted.last_transition_time) if evicted is not None else None
        assert since is not None
        if left := self.cluster.left(since, RETRY_SECONDS):
            self.actions.append(RequeueAfter(left))
            return False
        if self._suspend(self.integration, self.job):
            self._emit("Suspended", "Kueue managed child job suspended")
        return True

    def _ancestor(self) -> Ancestor | None:
        if self.integration.top_level:
            return None
        cluster = self.cluster
        return managed_ancestor(self.job, self._find, options=cluster.options, registry=cluster.registry)

    def _lent_queue(self) -> str:
        """The queue of the job's owner, if that lends it to what its controller makes."""
        owner, registry = self.job.metadata.controller, self.cluster.registry
        maker = registry.maker(owner, self.job) if owner is not None else None
        if owner is None or maker is None or not (maker.makes and maker.enabled):
            return ""
        parent = self._find(maker.kind, f"{self.job.metadata.namespace}/{owner.name}")
        lends = parent is not None and parent.metadata.uid == owner.uid and registry.of(parent).lends_queue(parent)
        return queue_name(parent) if parent is not None and lends else ""

    def _find(self, kind: type[Kind], key: str) -> Kind | None:
        self.cluster.require([kind])
        store = self.cluster.jobs.get(kind)
        return store.get(key) if store is not None else None

    def _by_itself(self, problem: str) -> str:
        """Go on with a job that names a queue or need not name one. Leave every other job alone, unless it has a
        problem: it would run as the child of a job whose Workload does not charge for it."""
        if self.cluster.options.manage_jobs_without_queue_name or queue_name(self.job):
            if problem and not self.workloads:
                self._emit("QueuedByItself", f"It is queued by itself: {problem}")
            return ""
        if not problem and not any(each.admitted for each in self.workloads):
            problem = self.integration.needs_queue(self.job)
        if not problem:
            return "it is put into the default queue" if self._enter_default_queue() else "no queue name"
        if self.outcome is None:
            if self._runs and not self._suspend(self.integration, self.job):
                self._stop(None, reason=NOT_ADMITTED, message=f"Not admitted: {problem}")
            self._emit("NotCharged", f"It may not run: {problem}; {_CURE}", warning=True)
        self._hasten()
        return problem

    def _enter_default_queue(self) -> bool:
        """Put a job into the default queue of its namespace that the webhook did not put there because of an owner that
        has never come, or that the job names no more. A job that is older than the queue was never in it."""
        meta, cluster = self.job.metadata, self.cluster
        if self.integration.kind is Pod:  # it is gated when it is created, or never
            return False
        queue = cluster.local_queues.get(f"{meta.namespace}/{names.DEFAULT_LOCAL_QUEUE}")
        since = instant(queue.metadata.creation_timestamp) if queue is not None else None
        created = instant(meta.creation_timestamp)
        if since is None or created is None or created < since or self.outcome is not None:
            return False
        if self.workloads or meta.deletion_timestamp or cluster.registry.follows(self.job, self._find):
            return False
        patch = JsonPatch()
        patch.put(meta.labels, "metadata", "labels", key=names.QUEUE_LABEL, value=names.DEFAULT_LOCAL_QUEUE)
        self.integration.prepare(self.job, patch)
        if not self.integration.held(self.job):
            self.integration.hold(self.job, patch)
        self.actions.append(job_patch(self.integration.kind, self.job, Change(patch, fresh=True)))
        note = (
            f"It names no queue, and no owner is queued for it: it is put into LocalQueue {names.DEFAULT_LOCAL_QUEUE}"
        )
        self._emit("QueuedByDefault", note)
        return True

    def _stop(self, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str) -> bool:
        """Stop the job, and its children where its own controller need not. The stop is complete when no child runs."""
        complete = super()._stop(pod_sets, reason=reason, message=message)
        return self._stop_children() and complete

    def _stop_children(self) -> bool:
        """Suspend the children where the job's own controller need not. Returns whether no child runs any more."""
        children = self._running_children()
        for child in children if self.integration.stops_children else ():
            integration = self.cluster.registry.of(child)
            if not (integration.suspended(child) or child.metadata.deletion_timestamp):
                self._suspend(integration, child)
                self._emit("Suspended", "Kueue managed child job suspended", about=[child])
        return not children

    def _running_children(self) -> list[Kind]:
        """The children that have pods, or may get pods, where the job's kind waits for these."""
        if not self.integration.awaits_children:
            return []
        family, made = Family(self.cluster), _made_by(self.integration, self.cluster)
        self.cluster.require(made)
        return [
            child
            for store in made.values()
            for child in store.by_index(CHILDREN, self.job.metadata.uid)
            if runs_still(child, self.cluster) and not family.own_workload(child)
        ]

    def _suspend(self, integration: Integration[Any], job: Kind) -> bool:
        """Suspend a job. Returns whether its kind has a suspend field."""
        change = integration.suspend(job)
        if change is not None:
            self.actions.append(job_patch(integration.kind, job, change, stops=True))
        return change is not None

    @property
    def _runs(self) -> bool:
        return not self.suspended and self.outcome is None

    @property
    def _is_new(self) -> bool:
        """Whether the job's owner may not have been seen yet."""
        created = instant(self.job.metadata.creation_timestamp)
        return self.cluster.left(created, RETRY_SECONDS) > 0

    @property
    def _claims(self) -> bool:
        """Whether the job's pods name a pod set, though no start of its own can have added the label."""
        try:
            return not self.workloads and any(each.pod_set for each in self.integration.claims(self.job))
        except PermanentError:
            return False

    def _judged(self, workload: Workload) -> bool:
        """Whether the job must be charged for by now.

        A suspended child that is not clearly younger than the admission may still get its label: the owner's controller
        adds it when it resumes the child.
        """
        if self.outcome is not None:
            return False
        if self._runs or self._claims:
            return True
        condition = find_condition(workload.status.conditions, ADMITTED)
        admitted = instant(condition.last_transition_time) if condition is not None else None
        created = instant(self.job.metadata.creation_timestamp)
        return admitted is not None and created is not None and created > admitted + timedelta(seconds=RETRY_SECONDS)

    def _workload_of(self, ancestor: Kind) -> Workload | None:
        """The newest unfinished Workload of a job, or of the owner of a job that is being deleted.

        The owner may be gone before what it made has cleaned up.
        """
        registry, meta = self.cluster.registry, ancestor.metadata
        uids, keys = {meta.uid}, [registry.key_of(ancestor)]
        owner = meta.controller if meta.deletion_timestamp else None
        if owner is not None and (integration := registry.by_owner(owner)) is not None:
            uids.add(owner.uid)
            keys.append(job_key(integration.framework, meta.namespace, owner.name))
        workloads = [
            each
            for key in keys
            for each in self.cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
            if not each.finished and any(o.uid in uids for o in each.metadata.owner_references)
        ]
        return max(
            workloads, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None
        )
