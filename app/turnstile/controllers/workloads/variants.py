"""Concurrent admission (gate ConcurrentAdmission): a Workload that competes for several flavors at once.

In a ClusterQueue with a `concurrentAdmissionPolicy` each Workload is the parent of variants, one for each flavor of the
queue's resource group. The variants wait and hold quota in its place; the first that is admitted gives its admission to
the parent, whose job starts. Variants are objects, as in Kueue, because each has a reservation and admission checks of
its own, which the next leader must find. Source: Kueue's pkg/controller/concurrentadmission. Must never reserve quota.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import instant, timestamp
from turnstile.api.meta import find_condition, is_true, to_plain
from turnstile.api.workload import Workload
from turnstile.controllers.jobs.release import taken_back
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Watch, every
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.clusterview import (
    LOCAL_QUEUES_BY_CLUSTER_QUEUE,
    VARIANTS_BY_PARENT,
    WORKLOADS_BY_QUEUE,
    ClusterView,
    parents_of,
)
from turnstile.controllers.wakes import Keys
from turnstile.engine.causes import Eviction
from turnstile.engine.queue.admissible import PARENT_LABEL, has_variants, is_parent, variant_of
from turnstile.jobs.naming import MAX_NAME, variant_name

GATE: Final = "kueue.x-k8s.io/concurrent-admission"
"""The preemption gate of a variant: while it is closed, the variant preempts no other Workload."""
ALLOWED_FLAVORS: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
UNGATE_SECONDS: Final = 300.0
"""Seconds between the openings of two gates: a variant that preempts may be admitted first."""
VARIANT_EVICTED: Final = "VariantEvicted"
NONE_RUNS: Final = "ConcurrentAdmission"


@dataclass(slots=True)
class _Family:
    """A parent with its variants, the most favorable flavor first, and what is to be written."""

    parent: Workload
    queue: ClusterQueue
    variants: list[Workload]
    stays: float = 0.0
    """Seconds for which the job does not move yet: each move restarts it."""
    actions: list[Action] = field(default_factory=list)

    @property
    def flavors(self) -> list[str]:
        """The flavors of the queue, the most favorable first."""
        return _names(self.queue)

    def place(self, variant: Workload) -> int:
        """The place of a variant's flavor among those."""
        return self.flavors.index(_flavor(variant))

    def report(self, about: Workload, reason: str, note: str) -> None:
        """Add an event."""
        self.actions.append(Emit(about, "Normal", reason, note))


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The next writes for a parent and its variants; no actions if none are needed."""
    parent = cluster.workloads.get(key)
    if parent is None or parent.metadata.deletion_timestamp:
        return ReconcileResult(why="gone")
    queue = cluster.cluster_queue_of(cluster.local_queue_of(parent))
    if queue is None or not has_variants(parent, queue):
        return ReconcileResult(why="it has no variants")
    if not is_parent(parent):
        if parent.quota_reserved or parent.finished:
            return ReconcileResult(why="it holds quota itself, since before its queue had a policy")
        return ReconcileResult([fresh_patch(parent, {"metadata": {"labels": {PARENT_LABEL: "true"}}})], why="a parent")
    found = [each for each in cluster.workloads.by_index(VARIANTS_BY_PARENT, key) if variant_of(each, parent)]
    family = _Family(parent, queue, found)
    if parent.finished:
        return _finished(family, cluster)
    _match_flavors(family)
    if (waits := _follow_evictions(family, cluster)) is not None:
        return ReconcileResult([*family.actions, *waits], why="a variant is evicted: its job stops first")
    _activate(family, cluster)
    return ReconcileResult(family.actions, why="variants")


def _finished(family: _Family, cluster: ClusterView) -> ReconcileResult:
    """Finish the variants of a parent that is finished."""
    said = find_condition(family.parent.status.conditions, wl.FINISHED)
    assert said is not None
    for each in family.variants:
        if not each.finished:
            draft = cluster.draft(each)
            draft.finish(said.reason, said.message)
            family.actions.append(draft.patch())
    return ReconcileResult(family.actions, why="its parent is finished")


def _match_flavors(family: _Family) -> None:
    """Create the variants that are missing, and delete those whose flavor the queue has no longer."""
    parent, known = family.parent, {_flavor(each) for each in family.variants}
    for flavor in family.flavors:
        if flavor not in known:
            made = body(parent, flavor)
            name = made["metadata"]["name"]
            family.actions.append(Create(Workload, parent.metadata.namespace, name, orjson.dumps(made)))
            family.report(parent, "CreatedVariant", f'Variant Workload "{parent.metadata.namespace}/{name}" created')
    for each in family.variants:
        meta = each.metadata
        if _flavor(each) not in family.flavors and not meta.deletion_timestamp:
            family.actions.append(Delete(Workload, meta.namespace, meta.name, uid=meta.uid))
            family.report(parent, "DeletedVariant", f'Variant Workload "{meta.key}" deleted')
    family.variants = [each for each in family.variants if _flavor(each) in family.flavors]
    family.variants.sort(key=lambda each: (family.place(each), each.metadata.name))


def _follow_evictions(family: _Family, cluster: ClusterView) -> list[Action] | None:
    """Stop the job of a variant that is evicted, and take the variant's quota back once the job has stopped: its pods
    run under the parent. Returns the actions while that has to be waited for."""
    parent = family.parent
    for each in [each for each in family.variants if each.evicted and each.quota_reserved]:
        if parent.quota_reserved:
            return _stopped(parent, cluster, VARIANT_EVICTED, Eviction.VARIANT_EVICTED.says())
        family.actions.append(taken_back(each, cluster, requeues=True))
        family.variants.remove(each)
    running = any(_runs(each) for each in family.variants)
    if parent.admitted and not running:
        return _stopped(parent, cluster, NONE_RUNS, Eviction.VARIANTS_GONE.says())
    return [] if parent.evicted and parent.quota_reserved else None


def _stopped(parent: Workload, cluster: ClusterView, reason: str, message: str) -> list[Action]:
    """Evict the parent, unless it is evicted."""
    if parent.evicted:
        return []
    draft = cluster.draft(parent)
    draft.evict(reason, message)
    return [draft.patch()]


def _activate(family: _Family, cluster: ClusterView) -> None:
    """Let those variants compete that may be admitted, give the parent the admission of the one that is, and let the
    next one preempt."""
    parent, variants = family.parent, family.variants
    admitted = next((each for each in variants if _runs(each)), None)
    family.stays = _stays(family, admitted, cluster)
    if family.stays:
        family.actions.append(RequeueAfter(family.stays))
    for each in variants:
        if each is admitted:
            continue
        wrong = _why_not(family, each, admitted)
        if wrong and each.spec.active:
            family.actions.append(fresh_patch(each, {"spec": {"active": False}}))
            family.report(each, "DeactivatedVariant", f"Variant Workload deactivated due to {wrong}")
        elif not wrong and not each.spec.active:
            family.actions.append(fresh_patch(each, {"spec": {"active": True}}))
            family.report(each, "ActivatedVariant", f"Variant Workload activated due to {_why(admitted)}")
    if admitted is not None and not parent.admitted and parent.spec.active:
        _admit(family, admitted, cluster)
    if admitted is not None:
        _copy_readiness(family, admitted, cluster)
    if parent.spec.active:
        _open_gate(family, [each for each in variants if not _why_not(family, each, admitted)], cluster)


def _stays(family: _Family, admitted: Workload | None, cluster: ClusterView) -> float:
    """Seconds for which the policy does not let the job move, so that it does not restart again and again."""
    policy = family.queue.spec.concurrent_admission_policy
    constraints = policy.migration.constraints if policy is not None else None
    if admitted is None or constraints is None or not constraints.min_run_seconds:
        return 0.0
    said = find_condition(admitted.status.conditions, wl.ADMITTED)
    since = instant(said.last_transition_time) if said is not None else None
    return cluster.left(since, constraints.min_run_seconds) if since is not None else 0.0


def _why_not(family: _Family, variant: Workload, admitted: Workload | None) -> str:
    """Why a variant may not compete; empty if it may."""
    parent, policy = family.parent, family.queue.spec.concurrent_admission_policy
    if not parent.spec.active:
        return f'Parent Workload "{parent.metadata.key}" not active'
    if admitted is None or policy is None:
        return ""
    key, migration = admitted.metadata.key, policy.migration
    if migration.mode == "RetainFirstAdmission":
        return f'RetainFirstAdmission: another Variant "{key}" is admitted'
    last = migration.constraints.last_acceptable_flavor_name if migration.constraints is not None else None
    if last in family.flavors and family.place(variant) > family.flavors.index(last):
        return f'being below lastAcceptableFlavor: "{last}" and another Variant admitted "{key}"'
    if family.place(variant) > family.place(admitted):
        return f'being lower priority than admitted Variant "{key}"'
    if family.stays:
        return f'admitted Variant "{key}" running for too short a time to move'
    return ""


def _why(admitted: Workload | None) -> str:
    """Why a variant may compete."""
    if admitted is None:
        return "no other Variant being admitted"
    return f'being higher priority than admitted Variant "{admitted.metadata.key}"'


def _admit(family: _Family, variant: Workload, cluster: ClusterView) -> None:
    """Give the parent the admission of a variant, so that its job starts."""
    admission = variant.status.admission
    assert admission is not None
    draft = cluster.draft(family.parent)
    draft.reserve(admission, admitted=False)
    message = f"The variant {variant.metadata.name} is admitted"
    draft.set(wl.ADMITTED, "True", reason="Admitted", message=message)
    family.actions.append(draft.patch())


def _copy_readiness(family: _Family, variant: Workload, cluster: ClusterView) -> None:
    """Tell the admitted variant whether the pods of its parent are ready: time limits are those of the variant."""
    said = find_condition(family.parent.status.conditions, wl.PODS_READY)
    known = find_condition(variant.status.conditions, wl.PODS_READY)
    if said is None or (known is not None and (known.status, known.reason) == (said.status, said.reason)):
        return
    draft = cluster.draft(variant)
    draft.set(wl.PODS_READY, said.status, reason=said.reason, message=said.message)
    family.actions.append(draft.patch())


def _open_gate(family: _Family, variants: Sequence[Workload], cluster: ClusterView) -> None:
    """Let the most favorable variant preempt that has to, at most one in five minutes, and none before all that are
    more favorable were tried."""
    blocked: list[Workload] = []
    for each in variants:
        if each.quota_reserved or not each.spec.active or _opened(each):
            continue
        if is_true(each.status.conditions, wl.BLOCKED_ON_PREEMPTION_GATES):
            blocked.append(each)
        elif find_condition(each.status.conditions, wl.QUOTA_RESERVED) is None:
            break
    if not blocked:
        return
    opened = [since for each in family.variants if (since := instant(_opened(each))) is not None]
    if opened and (left := cluster.left(max(opened), UNGATE_SECONDS)) > 0:
        family.actions.append(RequeueAfter(left))
        return
    chosen = blocked[0]
    gates = {each.name: to_plain(each) for each in chosen.status.preemption_gates}
    gates[GATE] = {"name": GATE, "position": "Open", "lastTransitionTime": timestamp(cluster.now)}
    family.actions.append(fresh_patch(chosen, {"status": {"preemptionGates": [*gates.values()]}}, subresource="status"))
    note = f'Opened preemption gate for variant workload "{chosen.metadata.key}"'
    family.report(chosen, "PreemptionUngatedVariant", note)
    family.actions.append(RequeueAfter(UNGATE_SECONDS))


def _opened(variant: Workload) -> str | None:
    """Since when the gate of a variant is open; None if it is closed."""
    found = (each for each in variant.status.preemption_gates if each.name == GATE and each.position == "Open")
    return next((each.last_transition_time for each in found), None)


def _runs(variant: Workload) -> bool:
    return variant.admitted and not variant.finished and not variant.metadata.deletion_timestamp


def _flavor(variant: Workload) -> str:
    return variant.metadata.annotations.get(ALLOWED_FLAVORS, "")


def body(parent: Workload, flavor: str, *, longest: int = MAX_NAME) -> dict[str, Any]:
    """The variant of a Workload for a flavor: the same spec, metadata and priority, and the gate against preemption.

    Its finalizer keeps its quota until the pods of the job are gone, which Kueue does not do.
    """
    meta, spec = parent.metadata, to_plain(parent.spec)
    spec["preemptionGates"] = [*spec.get("preemptionGates", ()), {"name": GATE}]
    spec.pop("active", None)
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": Workload.KIND,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {key: value for key, value in meta.labels.items() if key != PARENT_LABEL}
    metadata: dict[str, Any] = {
        "name": variant_name(meta.name, meta.uid, flavor, longest=longest),
        "namespace": meta.namespace,
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": [owner],
        "annotations": {**meta.annotations, ALLOWED_FLAVORS: flavor},
    }
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": names.API_VERSION, "kind": Workload.KIND, "metadata": metadata, "spec": spec}


def flavors_changed(old: ClusterQueue | None, new: ClusterQueue | None) -> bool:
    """Whether a change of a ClusterQueue concerns the variants in it: other flavors, or in another order."""
    if old is None or new is None:
        return False
    return _names(old) != _names(new)


def _names(queue: ClusterQueue) -> list[str]:
    groups = queue.spec.resource_groups
    return [each.name for each in groups[0].flavors] if groups else []


def controller(cluster: ClusterView) -> Controller:
    """The controller of parents; a change of a variant has its parent reconciled."""

    def changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
        latest = new or old
        parents = parents_of(latest) if latest is not None else []
        return (*parents,) if parents else (key,)

    def queue_changed(key: str, old: ClusterQueue | None, new: ClusterQueue | None) -> Keys | None:
        return members(key) if old is None or flavors_changed(old, new) else None

    def members(cluster_queue: str) -> Keys:
        for queue in cluster.local_queues.keys_by_index(LOCAL_QUEUES_BY_CLUSTER_QUEUE, cluster_queue):
            yield from cluster.workloads.keys_by_index(WORKLOADS_BY_QUEUE, queue)

    def local_queue_changed(key: str, old: object, new: object) -> Keys:
        yield from cluster.workloads.keys_by_index(WORKLOADS_BY_QUEUE, key)

    return Controller(
        name="concurrent-admission",
        kind=Workload,
        decide=lambda key: decide(key, cluster),
        watches=[
            Watch(cluster.workloads, changed),
            Watch(cluster.cluster_queues, many=queue_changed),
            Watch(cluster.local_queues, many=local_queue_changed),
        ],
        initial=lambda: every(cluster.workloads),
        workers=4,
    )
