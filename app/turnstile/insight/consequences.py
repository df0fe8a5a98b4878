"""A snapshot after a change of objects, with what the controllers then do to Workloads before the scheduler decides.

The rules are those of the API server and of Turnstile's controllers: an object keeps its identity and status when it is
applied again; a ClusterQueue that is deleted stays, and admits nothing more, while Workloads hold quota in it; stop
policies and deactivation take quota away, a smaller quota does not. Must never decide about quota. Pure.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.effectivequota import set_by, with_effective_quota
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.validation import (
    FieldError,
    format_errors,
    validate_cluster_queue,
    validate_cohort,
    validate_resource_flavor,
    validate_workload,
)
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine import State
from turnstile.engine.instants import Instant, stamp
from turnstile.engine.intake import FEEDING
from turnstile.engine.queue.stops import stop_of
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import released
from turnstile.wording import quotas as words

K = TypeVar("K", bound=Kind)

_VALIDATE: Final[dict[type[Kind], Any]] = {
    ClusterQueue: validate_cluster_queue,
    Cohort: validate_cohort,
    ResourceFlavor: validate_resource_flavor,
    Workload: validate_workload,
}


class Change(NamedTuple):
    """Objects that are applied, and those that are deleted, by kind and key."""

    put: tuple[Kind, ...] = ()
    drop: tuple[tuple[type[Kind], str], ...] = ()


class Released(NamedTuple):
    """A Workload that has to give its quota back because of a change. `evicted`: its pods are stopped."""

    key: str
    cluster_queue: str
    reason: str
    message: str
    evicted: bool


class Changed(NamedTuple):
    """The snapshot after a change; notes tell what is not as a reader of the change may expect."""

    snapshot: Snapshot
    written: Change
    """All that is written: the change as it takes effect, and what the controllers do to Workloads."""
    released: tuple[Released, ...]
    notes: tuple[str, ...]

    def happen(self, state: State, now: Instant) -> None:
        """Let a ledger that lived until now hear of all that is written."""
        for obj in self.written.put:
            FEEDING[type(obj)].put(state, obj, now)
        for kind, key in self.written.drop:
            FEEDING[kind].drop(state, key, now)


def after(snapshot: Snapshot, change: Change, now: Instant) -> Changed:
    """The snapshot after a change. Raises InvalidValue for an object that the API server would refuse, and for one to
    be deleted that is not there."""
    notes: list[str] = []
    other = snapshot.changed()
    for obj in change.put:
        known = other.objects.get(type(obj), {}).get(obj.metadata.key)
        applied = _applied(obj, known, now)
        if isinstance(applied, ClusterQueue | Cohort) and isinstance(obj, ClusterQueue | Cohort):
            applied = with_effective_quota(applied)
            if applied.spec.resource_groups != obj.spec.resource_groups:
                notes.append(words.spec_without_effect(obj.KIND, obj.metadata.name, set_by(applied)))
        _check(applied, known if known is not None and known.metadata.uid == applied.metadata.uid else None)
        other.put(applied)
    for kind, key in change.drop:
        notes += _delete(other, kind, key, now)
    _follow_priority_classes(other, change)
    lost = tuple(_released(other))
    for each in lost:
        workload = other.get(Workload, each.key)
        assert workload is not None
        other.put(released(workload, each.reason if each.evicted else "", now))
    return Changed(other, _written(snapshot, other), lost, tuple(notes))


def _written(before: Snapshot, now: Snapshot) -> Change:
    """The objects that differ, of the kinds that a ledger holds."""
    put: list[Kind] = []
    drop: list[tuple[type[Kind], str]] = []
    for kind in FEEDING:
        old, new = before.objects.get(kind, {}), now.objects.get(kind, {})
        put += [obj for key, obj in new.items() if old.get(key) is not obj]
        drop += [(kind, key) for key in old if key not in new]
    return Change(tuple(put), tuple(drop))


def _check(obj: Kind, known: Kind | None) -> None:
    validate = _VALIDATE.get(type(obj))
    errors: list[FieldError] = validate(obj, known) if validate is not None else []
    if errors:
        title = f"{type(obj).KIND} {obj.metadata.key}"
        raise InvalidValue(title, "as given", f"the API server would refuse it: {format_errors(errors)}")


def _applied(obj: K, known: Kind | None, now: Instant) -> K:
    """The object as it is after `kubectl apply`: identity and status are kept, the generation counts up. With another
    uid it is another object, made anew under the same name."""
    meta = obj.metadata
    if known is None or meta.uid not in ("", known.metadata.uid):
        given = {"creation_timestamp": meta.creation_timestamp or stamp(now), "uid": meta.uid or f"new-{meta.key}"}
        return replace(obj, metadata=replace(meta, resource_version="", **given))
    old = known.metadata
    kept: dict[str, Any] = {}
    if hasattr(obj, "status") and obj.status == type(obj.status)():
        kept["status"] = known.status  # type: ignore[attr-defined]
    changed = getattr(obj, "spec", None) != getattr(known, "spec", None)
    metadata = replace(
        meta,
        uid=old.uid,
        creation_timestamp=old.creation_timestamp,
        deletion_timestamp=old.deletion_timestamp,
        generation=old.generation + changed,
        finalizers=old.finalizers,
        owner_references=meta.owner_references or old.owner_references,
        resource_version="",
    )
    return replace(obj, metadata=metadata, **kept)


def _delete(snapshot: Snapshot, kind: type[Kind], key: str, now: Instant) -> Iterator[str]:
    """Delete an object; one with users stays until they are gone."""
    found = snapshot.get(kind, key)
    if found is None:
        raise InvalidValue("--drop", f"{kind.KIND} {key}", "there is no such object")
    if kind is ClusterQueue and (holders := sum(_holds_in(each, key) for each in snapshot.of(Workload))):
        snapshot.put(replace(found, metadata=replace(found.metadata, deletion_timestamp=stamp(now))))
        count = "1 Workload" if holders == 1 else f"{holders} Workloads"
        yield f"ClusterQueue {key}, in which {count} hold quota, stays until these have ended, and admits nothing more"
        return
    if kind in (ResourceFlavor, AdmissionCheck):
        users = [queue.metadata.name for queue in snapshot.of(ClusterQueue) if _uses(queue, kind, key)]
        if users:
            yield f"{kind.KIND} {key} stays, and nothing changes, while a ClusterQueue names it: {', '.join(users)}"
            return
    snapshot.drop(kind, key)


def _holds_in(workload: Workload, cluster_queue: str) -> bool:
    admission = workload.status.admission
    held = workload.quota_reserved and not workload.finished
    return held and admission is not None and admission.cluster_queue == cluster_queue


def _uses(queue: ClusterQueue, kind: type[Kind], name: str) -> bool:
    if kind is ResourceFlavor:
        return any(flavor.name == name for group in queue.spec.resource_groups for flavor in group.flavors)
    checks = queue.spec.admission_checks_strategy
    return checks is not None and any(each.name == name for each in checks.admission_checks)


def _follow_priority_classes(snapshot: Snapshot, change: Change) -> None:
    """Write the value of a changed WorkloadPriorityClass to its Workloads, as its controller does."""
    values = {each.metadata.name: each.value for each in change.put if isinstance(each, WorkloadPriorityClass)}
    if not values:
        return
    for workload in list(snapshot.of(Workload)):
        ref = workload.spec.priority_class_ref
        if ref is not None and ref.kind == WorkloadPriorityClass.KIND and ref.name in values and not workload.finished:
            snapshot.put(replace(workload, spec=replace(workload.spec, priority=values[ref.name])))


def _released(snapshot: Snapshot) -> Iterator[Released]:
    for workload in snapshot.of(Workload):
        admission = workload.status.admission
        if not workload.quota_reserved or workload.finished or workload.evicted or admission is None:
            continue
        key, name = workload.metadata.key, admission.cluster_queue
        if not workload.spec.active:
            yield Released(key, name, "Deactivated", "The workload is deactivated", evicted=True)
            continue
        local = snapshot.get(LocalQueue, f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")
        queue = snapshot.get(ClusterQueue, name)
        if (stop := stop_of(workload, (("LocalQueue", local), ("ClusterQueue", queue)))) is not None:
            yield Released(key, name, stop.reason, stop.message, evicted=stop.evicts)
        elif not workload.admitted and not _all_there(snapshot, local, queue):
            message = "its LocalQueue or ClusterQueue is terminating or missing"
            yield Released(key, name, "Misconfigured", message, evicted=False)


def _all_there(snapshot: Snapshot, local: LocalQueue | None, queue: ClusterQueue | None) -> bool:
    """Whether both queues exist, as far as they may be read."""
    pairs: tuple[tuple[type[Kind], Kind | None], ...] = ((LocalQueue, local), (ClusterQueue, queue))
    return all(
        not snapshot.whole(kind) or (found is not None and not found.metadata.deletion_timestamp)
        for kind, found in pairs
    )
