"""Which pods a Workload is charged for, and whether it must keep its quota because of them. The only rule for it.

A Workload keeps the quota that it reserved for as long as a pod that it is charged for may run: whether its job was
deleted (in whatever way), was evicted, has ended, or was orphaned. A pod is charged to the Workload of its controller,
of the pod itself if it was queued by itself, and to the one that its annotation `kueue.x-k8s.io/workload` names, which
every start adds; but only if it can be a pod of that Workload (`may_belong`): references, labels and annotations are
what a pod says of itself. A pod may run until its phase is Succeeded or Failed, or the API server has no such pod; a
pod that is being deleted and is not bound to a node can never run.

Must never decide what to do with a pod.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.view.clusterview import WORKLOADS_BY_CHAIN, WORKLOADS_BY_JOB, ClusterView
from turnstile.controllers.view.ends import UNSEEN_SECONDS
from turnstile.jobs import pods
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import identifier, slice_name
from turnstile.jobs.naming import group_of, job_key, split_job_key
from turnstile.jobs.once import FACTS
from turnstile.jobs.registry import Registry
from turnstile.jobs.servingset import is_numbered, pod_of
from turnstile.kube import raws
from turnstile.kube.store import Store

PODS_BY_CHARGE: Final = "charge"
"""Index of the pods that may run: by the key of the Workload that their annotation names, and by the uid of their
controller; those of a controller that numbers its pods by that and their name too."""
UNSCHEDULABLE_PODS: Final = "unschedulable"
"""Index of the same pods by the same values, of those alone for which kube-scheduler found no node."""
SLOW_PODS: Final = "slow"
"""Index of the same pods by the same values, of those alone that terminate and have longer than SLOW_SECONDS for it."""
SLOW_SECONDS: Final = 60
LEFT_GATED_PODS: Final = "left-gated"
"""Index of the same pods by the same values, of those alone that a gate of Kueue's holds."""
UNREAD_SECONDS: Final = 35.0
"""Seconds after which a stopped job gives its quota back although its controller does not say that it has read of the
stop: it may not run at all. When it comes back, it reads the job as it is then. Longer than a webhook may delay a pod
that the controller has asked for before (30 s)."""


def index_pods(store: Store[Pod]) -> None:
    """Declare the indexes by which `held` and `unschedulable_pods` find pods; forget what was worked out of pods that
    are not held any more."""
    store.add_index(PODS_BY_CHARGE, _charged_to)
    store.add_index(UNSCHEDULABLE_PODS, lambda pod: _charged_to(pod) if pods.unschedulable(pod) is not None else [])
    store.add_index(SLOW_PODS, lambda pod: _charged_to(pod) if is_slow(pod) else [])
    store.add_index(LEFT_GATED_PODS, lambda pod: _charged_to(pod) if pods.is_left_gated(pod) else [])
    store.subscribe(_forget)


def _forget(_: str, old: Pod | None, new: Pod | None) -> None:
    if old is not None and (new is None or new.spec is not old.spec):
        FACTS.forget(old)


def may_run(pod: Pod) -> bool:
    """Whether a pod runs, or may be bound to a node at any time."""
    if pods.is_over(pod):
        return False
    return not pod.metadata.deletion_timestamp or pods.is_bound(pod)


def held(workload: Workload, cluster: ClusterView, *, deleting: bool = False) -> bool:
    """Whether a Workload must keep its quota because a pod that it is charged for may run, or may be unknown.

    `deleting`: a pod that owns the Workload is deleted in the same decision, and counts only if it is bound to a node.
    """
    if not workload.quota_reserved or workload.finished:
        return False
    if not cluster.pods.complete:
        return True
    early = cluster.options.fast_quota_release and not _made_by_a_controller(workload)
    mine = partial(_holds, workload=workload, registry=cluster.registry, early=early)
    return any(cluster.pods.any_by_index(PODS_BY_CHARGE, each, mine) for each in _charges_of(workload)) or any(
        mine(pod) and may_run(pod) and (pods.is_bound(pod) or not (deleting or pods.is_gated(pod)))
        for pod in own_pods(workload, cluster)
    )


def _holds(pod: Pod, workload: Workload, registry: Registry, *, early: bool) -> bool:
    """Whether a Workload keeps its quota for a pod; `early`: not while the pod terminates."""
    return may_belong(pod, workload, registry) and not (early and pod.metadata.deletion_timestamp)


def held_anywhere(workload: Workload, cluster: ClusterView) -> bool:
    """As `held`, or because the cluster to which the Workload was sent holds quota for it. Only asked about a Workload
    whose copy ends, or is stopped because this one is evicted or deleted: any other copy runs on."""
    return held(workload, cluster) or cluster.multikueue.elsewhere.holds(workload)


def pods_of(workload: Workload, cluster: ClusterView) -> list[Pod]:
    """The pods of a job that a Workload is charged for and that may run, by key."""
    return [pod for pod in claimants(workload, cluster) if may_belong(pod, workload, cluster.registry)]


def claimants(workload: Workload, cluster: ClusterView) -> list[Pod]:
    """The pods that may run and that say, by an annotation or their controller, that a Workload is charged for them:
    of these, `may_belong` says which can be right."""
    found = (cluster.pods.by_index(PODS_BY_CHARGE, each) for each in _charges_of(workload))
    return list({pod.metadata.key: pod for some in found for pod in some}.values())


def is_slow(pod: Pod) -> bool:
    """Whether a pod terminates, with a long grace period."""
    meta = pod.metadata
    return bool(meta.deletion_timestamp) and (meta.deletion_grace_period_seconds or 0) > SLOW_SECONDS


def has_slow_pods(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a pod that a Workload is charged for terminates with a long grace period."""
    return any(cluster.pods.any_by_index(SLOW_PODS, each) for each in _charges_of(workload))


def may_belong(pod: Pod, workload: Workload, registry: Registry) -> bool:
    """Whether a pod can be one of the pods of a Workload that it says it is charged to.

    A pod that a job's controller made has the job as its controller, or an object that is made for the job, or none
    since it was orphaned; and its label names a pod set of the Workload. A pod of a group owns the Workload or names
    the group. The requests of a pod do not matter: it uses quota also if it requests other amounts than were charged.
    """
    owner = pod.metadata.controller
    for each in workload.metadata.owner_references:
        if each.uid == pod.metadata.uid:
            return True
        if owner is not None and each.uid == owner.uid:
            if (single := pod_of(workload)) is not None and single != (owner.uid, pod.metadata.name):
                # It is charged to the Workload of another pod of the set, unless it joined the group of this one.
                return (
                    _names(pod, workload)
                    and identifier(pod.metadata, names.POD_GROUP_NAME)[0] == workload.metadata.name
                )
            return (each.kind, group_of(each)) == (owner.kind, group_of(owner)) and owner.kind != Pod.KIND
    if not _names(pod, workload):
        # The owner reference of the Workload is gone before those of the pods, when its job is deleted with orphan.
        orphaned = owner is not None and workload.metadata.labels.get(names.JOB_UID_LABEL) == owner.uid
        return orphaned and owner is not None and registry.known_owner(owner) is not None and owner.kind != Pod.KIND
    if workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true":
        return identifier(pod.metadata, names.POD_GROUP_NAME)[0] == workload.metadata.name
    integrations = [registry.known_owner(each) for each in workload.metadata.owner_references]
    if any(each is not None and (each.pods_label or each.counted_pods is not None) for each in integrations):
        return True  # the pods are looked at one by one: `shared`, `excess`
    if pod.metadata.labels.get(names.PODSET_LABEL) not in [each.name for each in workload.spec.pod_sets]:
        return False
    return (
        owner is None
        or not integrations
        or any(each is None or registry.may_control_pods(owner, each) for each in integrations)
    )


def _names(pod: Pod, workload: Workload) -> bool:
    """Whether a pod says that it is charged to a Workload, or to the chain of slices that the Workload is of."""
    said, chain = pod.metadata.annotations, slice_name(workload)
    return said.get(names.WORKLOAD) == workload.metadata.name or said.get(names.SLICE_NAME) == chain


def unschedulable_pods(workload: Workload, cluster: ClusterView) -> set[str]:
    """Keys of the pods that a Workload is charged for and for which kube-scheduler found no node."""
    keys = (cluster.pods.keys_by_index(UNSCHEDULABLE_PODS, each, ordered=False) for each in _charges_of(workload))
    return set().union(*keys)


def left_gated_pods(workload: Workload, cluster: ClusterView) -> list[Pod]:
    """Pods that a Workload is charged for and that a gate of Kueue's topologies or elastic jobs holds."""
    found = (cluster.pods.by_index(LEFT_GATED_PODS, each) for each in _charges_of(workload))
    claiming = {pod.metadata.key: pod for some in found for pod in some}
    return [pod for pod in claiming.values() if may_belong(pod, workload, cluster.registry)]


def unseen_seconds(workload: Workload, cluster: ClusterView) -> float:
    """Seconds for which a Workload whose job is gone or stopped keeps its quota, because pods may have been created
    that were not seen yet; 0 if none can be."""
    admitted = find_condition(workload.status.conditions, wl.ADMITTED)
    if not workload.admitted or admitted is None or not _made_by_a_controller(workload):
        return 0.0
    since = instant(admitted.last_transition_time)
    ended = cluster.ends.seconds_left(_owners_of(workload), cluster.measured)
    return max(cluster.left(since, UNSEEN_SECONDS), ended)


def follow_ends(cluster: ClusterView) -> None:
    """Note in `cluster.ends` each job that is deleted, or is stopped and whose controller says nothing of that, while
    not all pods of its Workload were seen."""
    cluster.ends.begin(cluster.measured)
    for integration in cluster.registry.followed:
        store = cluster.jobs.get(integration.kind)
        if store is not None and integration.kind is not Pod and not _starts_pods_itself(integration):
            store.subscribe(partial(_note_end, cluster, integration))


def _note_end(
    cluster: ClusterView, integration: Integration[Any], key: str, old: Kind | None, new: Kind | None
) -> None:
    if old is None or old.metadata.deletion_timestamp:
        return
    meta = old.metadata
    goes_on = new is not None and new.metadata.uid == meta.uid and not new.metadata.deletion_timestamp
    if new is not None and goes_on and not _stopped_unheard(integration, old, new):
        return
    for workload in cluster.workloads.by_index(WORKLOADS_BY_JOB, f"{integration.framework}:{key}"):
        if workload.admitted and not workload.finished and some_unseen(workload, cluster):
            cluster.ends.note(meta.uid, cluster.measured)


def _stopped_unheard(integration: Integration[Any], old: Kind, new: Kind) -> bool:
    """Whether a job is stopped by this change, and its controller will say nothing of that: one that has said that the
    job is active says so no more when it has read that the job is stopped."""
    stops = integration.suspended(new) and not integration.suspended(old) and not integration.active(new)
    return stops and not stops_are_known(integration)


def stops_are_known(integration: Integration[Any]) -> bool:
    """Whether no pods can be made unnoticed when a job is stopped: the kind's controller says what it has read, or each
    pod is held until Turnstile starts it."""
    return integration.acknowledgement is not None or _starts_pods_itself(integration)


def _starts_pods_itself(integration: Integration[Any]) -> bool:
    return integration.as_set is not None or bool(integration.pods_label)


def some_unseen(workload: Workload, cluster: ClusterView) -> bool:
    """Whether pods that a Workload is charged for, and that a controller makes, do not exist, as far as is known."""
    return _made_by_a_controller(workload) and len(pods_of(workload, cluster)) < sum(pods_charged(workload).values())


def pods_charged(workload: Workload) -> dict[str, int]:
    """How many pods of each pod set a Workload is charged for: those admitted, but at most those that are left of the
    pod set without the ones whose quota was released (`reclaimablePods`). An admission that comes after pods have
    succeeded is for the others alone."""
    ended = {each.name: each.count for each in workload.status.reclaimable_pods}
    counts = {each.name: max(0, each.count - ended.get(each.name, 0)) for each in workload.spec.pod_sets}
    if workload.status.admission is not None:
        for given in workload.status.admission.pod_set_assignments:
            if given.count is not None and given.name in counts:
                counts[given.name] = min(given.count, counts[given.name])
    return counts


def most_reclaimable(workload: Workload, cluster: ClusterView, roles: Mapping[str, str]) -> dict[str, int]:
    """How many pods of each pod set may give their quota back: all but those that may run, whatever the status of the
    job says. It counts pods that were never charged, if its controller has adopted them. `roles` are names of pod sets
    by the uids of pods; the label of a pod decides where its uid is missing, and a pod without either counts for each
    pod set."""
    running = dict.fromkeys((each.name for each in workload.spec.pod_sets), 0)
    pods_now = {pod.metadata.uid: pod for pod in (*pods_of(workload, cluster), *own_pods(workload, cluster))}
    for pod in pods_now.values():
        if may_run(pod) and (pods.is_bound(pod) or not pods.is_gated(pod)):
            role = roles.get(pod.metadata.uid) or pod.metadata.labels.get(names.PODSET_LABEL, "")
            for name in [role] if role in running else running:
                running[name] += 1
    return {each.name: max(0, each.count - running[each.name]) for each in workload.spec.pod_sets}


def ungated_pods(workload: Workload, cluster: ClusterView, *, ready: bool = False) -> dict[str, int]:
    """How many pods of each pod set of an elastic job run, or may be bound to a node at any time; or how many of these
    are `ready`."""
    found: dict[str, int] = {}
    alone = workload.spec.pod_sets[0].name if len(workload.spec.pod_sets) == 1 else ""
    for pod in pods_of(workload, cluster):
        if pods.is_true(pod, "Ready") if ready else (pods.is_bound(pod) or not pods.gates(pod)):
            name = pod.metadata.labels.get(names.PODSET_LABEL) or alone
            found[name] = found.get(name, 0) + 1
    return found


def unread_seconds(workload: Workload, cluster: ClusterView) -> float:
    """Seconds for which a Workload whose job was stopped keeps its quota although the controller of the job does not
    say that it has read of the stop; 0 if it did not have to be stopped. A deletion after an eviction stops nothing."""
    evicted = find_condition(workload.status.conditions, wl.EVICTED)
    evicted_at = evicted.last_transition_time if evicted is not None and workload.evicted else None
    return cluster.left(instant(evicted_at or workload.metadata.deletion_timestamp), UNREAD_SECONDS)


def waiting_for(pod: Pod, cluster: ClusterView) -> Iterator[Workload]:
    """The Workloads that were charged for a pod, which cannot run any more, and were waiting only for that."""
    for workload in workloads_of(pod, cluster):
        if not workload.quota_reserved or workload.finished or held(workload, cluster):
            continue
        if workload.evicted or workload.metadata.deletion_timestamp or not _runs(workload, cluster):
            yield workload


def _runs(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a job of the Workload goes on: the end of a pod decides nothing then."""
    for key in cluster.registry.jobs_of(workload):
        framework, name = split_job_key(key)
        integration = cluster.registry.by_framework(framework)
        store = cluster.jobs.get(integration.kind) if integration is not None else None
        job = store.get(name) if store is not None else None
        if integration is None or job is None or job.metadata.deletion_timestamp or integration.exceptions.skip(job):
            continue
        if raws.stripped(job) or (integration.finished(job) is None and not integration.suspended(job)):
            return True
    return False


def workloads_of(pod: Pod, cluster: ClusterView) -> list[Workload]:
    """The Workloads that a pod is charged to."""
    meta = pod.metadata
    named = cluster.workloads.get(f"{meta.namespace}/{meta.annotations.get(names.WORKLOAD, '')}")
    registry, owner = cluster.registry, meta.controller
    integration = registry.by_owner(owner) if owner is not None else None
    keys = [registry.key_of(pod)] if registry.enabled_kind(Pod) is not None else []
    if owner is not None and integration is not None:
        keys.append(job_key(integration.framework, meta.namespace, owner.name))
    owned = [each for key in keys for each in cluster.workloads.by_index(WORKLOADS_BY_JOB, key)]
    if chain := meta.annotations.get(names.SLICE_NAME):
        owned += cluster.workloads.by_index(WORKLOADS_BY_CHAIN, f"{meta.namespace}/{chain}")
    found = {each.metadata.key: each for each in (named, *owned) if each is not None}
    return [each for each in found.values() if may_belong(pod, each, registry)]


def _charged_to(pod: Pod) -> list[str]:
    if not may_run(pod) or (pods.is_gated(pod) and not pods.is_bound(pod)):
        return []
    meta, owner = pod.metadata, pod.metadata.controller
    named = dict.fromkeys(meta.annotations.get(key) for key in (names.WORKLOAD, names.SLICE_NAME))
    found = [f"{meta.namespace}/{workload}" for workload in named if workload]
    if owner is not None:
        found += [owner.uid, *([f"{owner.uid}/{meta.name}"] if is_numbered(pod) else [])]
    return found


def _charges_of(workload: Workload) -> Iterator[str]:
    """The values of the index under which the pods of a Workload are."""
    yield workload.metadata.key
    if (first := slice_name(workload)) != workload.metadata.name:
        yield f"{workload.metadata.namespace}/{first}"
    if (single := pod_of(workload)) is not None:
        yield "/".join(single)
    else:
        yield from _owners_of(workload)


def _owners_of(workload: Workload) -> list[str]:
    """The uids of the jobs of a Workload. The label stays when the garbage collector orphans the Workload."""
    meta = workload.metadata
    return [
        each for each in (*(owner.uid for owner in meta.owner_references), meta.labels.get(names.JOB_UID_LABEL)) if each
    ]


def own_pods(workload: Workload, cluster: ClusterView) -> Iterator[Pod]:
    """The pods that own the Workload: they were queued by themselves."""
    for owner in workload.metadata.owner_references:
        if (owner.kind, owner.api_version) == ("Pod", "v1"):
            pod = cluster.pods.get(f"{workload.metadata.namespace}/{owner.name}")
            if pod is not None and pod.metadata.uid == owner.uid:
                yield pod


def _made_by_a_controller(workload: Workload) -> bool:
    owners = workload.metadata.owner_references
    return not any(owner.kind == "Pod" and owner.api_version == "v1" for owner in owners)
