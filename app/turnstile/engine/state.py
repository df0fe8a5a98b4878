"""The state of the engine: what exists, who waits, who holds quota. Fed with API objects, read by cycles and people.

An admission that a cycle decided is *assumed*: its quota counts until the write is seen (`put_workload` with the
reservation) or `forget` says that it failed. Events that come while a cycle is under way are kept and applied when it
ends, so a cycle sees one instant. Must never do I/O or read a clock: `now` is an argument, in Unix seconds.
"""

from collections.abc import Callable, Mapping
from typing import Concatenate, Final, ParamSpec

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.api.localqueue import LocalQueue as ApiLocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import EVICTED, PREEMPTED, Workload
from turnstile.engine.assumptions import Assumptions
from turnstile.engine.decisions import preemptor_uid
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.engine.options import Options
from turnstile.engine.questions import Counts, FlavorUsage, Why
from turnstile.engine.queue.activity import Check
from turnstile.engine.queue.admissible import is_admissible, pods_ready
from turnstile.engine.queue.localqueue import LocalQueue
from turnstile.engine.queue.requeueing import could_help
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ledger import weight_of
from turnstile.engine.quota.ordering import birth
from turnstile.engine.quota.requests import summarize
from turnstile.engine.tables import Assumed, Overdue

__all__ = ["Assumed", "Check", "Counts", "FlavorUsage", "LocalQueue", "Options", "State", "Why"]

_P = ParamSpec("_P")

_OF_WORKLOADS: Final = frozenset(
    ("put_workload", "drop_workload", "confirm", "forget", "forget_eviction", "note_overdue")
)
"""Events that change no quota and no policy."""


def _event(
    method: "Callable[Concatenate[State, _P], bool | None]",
) -> "Callable[Concatenate[State, _P], None]":
    """An event: kept while a cycle is under way, else applied at once. A method that answers False changed nothing
    that a cycle looks at."""

    def apply(self: "State", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.cycling:
            self.deferred.append(lambda: apply(self, *args, **kwargs))
            return
        if method(self, *args, **kwargs) is not False:
            self.epoch += 1
            if method.__name__ not in _OF_WORKLOADS:
                self.shape += 1
                self.repeats.forget_all()
        self.took(method.__name__, args, kwargs)

    apply.__name__ = method.__name__
    apply.__doc__ = method.__doc__
    return apply


class State(Assumptions):
    """Everything the engine knows.

    `put_*` takes an object as it is now, `drop_*` says that it is gone; both may be repeated and may come in any order
    (a Workload before its queue, a ClusterQueue before its flavors). What lets inadmissible Workloads be tried again is
    marked at once and carried out at the start of the next cycle, or by `flush_retries`; Kueue's batch delay of one
    second is for the driver to add, if it wants it.
    """

    __slots__ = ()

    def cycled(self, now: Instant) -> None:
        """A cycle ends, and no event was applied since it began. For a subclass that records cycles."""

    def abandoned(self) -> None:
        """A cycle is closed before its end. For a subclass that records cycles."""

    # What quota is made of

    @_event
    def put_flavor(self, flavor: ResourceFlavor) -> bool | None:
        """A ResourceFlavor exists or changed."""
        name = flavor.metadata.name
        known = self.flavors.get(name)
        self.flavors[name] = flavor
        if known is not None and known.spec == flavor.spec:
            return False
        self._flavor_changed(name)
        return None

    @_event
    def drop_flavor(self, name: str) -> None:
        """A ResourceFlavor is gone."""
        self.flavors.pop(name, None)
        self._flavor_changed(name)

    def _flavor_changed(self, name: str) -> None:
        concerned = self.activity.references.flavor(name)
        self.activity.mark(concerned)
        self.retry_queues.update(concerned)

    @_event
    def put_topology(self, name: str, levels: tuple[str, ...] | None = ()) -> bool | None:
        """A Topology exists; the node labels of its levels, the widest first. None if no pod is placed by it."""
        if name in self.topologies and self.topologies[name] == levels:
            return False
        self.topologies[name] = levels
        self._topology_changed(name)
        return None

    @_event
    def drop_topology(self, name: str) -> None:
        """A Topology is gone."""
        self.topologies.pop(name, None)
        self._topology_changed(name)

    def _topology_changed(self, name: str) -> None:
        for flavor in self.flavors.values():
            if flavor.spec.topology_name == name:
                self.activity.mark(self.activity.references.flavor(flavor.metadata.name))

    @_event
    def put_admission_check(self, name: str, *, active: bool, controller: str = "") -> bool | None:
        """An AdmissionCheck exists; whether it is ready, and who answers it."""
        check = Check(active, controller)
        if self.checks.get(name) == check:
            return False
        self.checks[name] = check
        self.activity.mark(self.activity.references.check(name))
        return None

    @_event
    def drop_admission_check(self, name: str) -> None:
        """An AdmissionCheck is gone."""
        self.checks.pop(name, None)
        self.activity.mark(self.activity.references.check(name))

    @_event
    def put_device_class(self, name: str, resource: str, now: Instant) -> bool | None:
        """A DeviceClass exists or changed, and backs an extended resource; empty if it names none."""
        if self.device_classes.get(name, "") == resource:
            return False
        self.device_classes[name] = resource
        self._line_up_again(now)
        return None

    @_event
    def drop_device_class(self, name: str, now: Instant) -> bool | None:
        """A DeviceClass is gone."""
        if not self.device_classes.pop(name, ""):
            return False
        self._line_up_again(now)
        return None

    def _line_up_again(self, now: Instant) -> None:
        """Let the Workloads wait that may, and no others, once other extended resources are backed."""
        self.backed = frozenset(self.device_classes.values()) - {""}
        for key, info in list(self.workloads.items()):
            if info.finished or info.reserved or key in self.assumed:
                continue
            if is_admissible(info.workload, self.options, self.backed):
                if key not in self.waiting:
                    self.wait(info, now)
            elif key in self.waiting:
                self.leave(key)

    @_event
    def put_cluster_queue(self, api: ApiClusterQueue, now: Instant) -> bool | None:
        """A ClusterQueue exists or changed. Raises InvalidValue for a malformed quantity, and changes nothing."""
        known = self.cluster_queues.get(api.metadata.name)
        is_terminating = api.metadata.deletion_timestamp is not None
        if known is not None and known.api.spec == api.spec and known.terminating == is_terminating:
            known.api = api
            return False
        old_root = known.node.root.name if known is not None and not self.ledger.cyclic(known.node) else None
        queue = self.ledger.put_cluster_queue(api)
        self.activity.put(queue)
        self.order_lines(queue)
        if known is None:
            for info in queue.workloads.values():
                self.recall_penalty(info, now)
            for local in self.local_queues.values():
                if local.cluster_queue == queue.name:
                    self.line_up(local, now)
        self.mark_retry(queue.name)
        if old_root is not None:
            self.mark_retry_cohort(old_root)
        return None

    @_event
    def drop_cluster_queue(self, name: str) -> None:
        """A ClusterQueue is gone; its workloads wait for it to come back."""
        queue = self.cluster_queues.get(name)
        if queue is None:
            return
        if not self.ledger.cyclic(queue.node):
            self.mark_retry_cohort(queue.node.root.name)
        self.ledger.drop_cluster_queue(name)
        self.activity.drop(name)

    @_event
    def put_cohort(self, api: Cohort) -> bool | None:
        """A Cohort exists or changed. Raises InvalidValue for a malformed quantity."""
        known = self.ledger.declared.get(api.metadata.name)
        if known is not None and known.spec == api.spec:
            return False
        old_root = self._root_of_cohort(api.metadata.name)
        node = self.ledger.put_cohort(api)
        self.mark_retry_cohort(old_root)
        self.mark_retry_cohort(node.name)
        return None

    @_event
    def drop_cohort(self, name: str) -> None:
        """A Cohort object is gone."""
        self.mark_retry_cohort(self._root_of_cohort(name))
        self.mark_retry_cohort(name)
        self.ledger.drop_cohort(name)

    def _root_of_cohort(self, name: str) -> str:
        """Name of the tree a cohort is in: should it leave, what it borrowed comes free there."""
        node = self.ledger.cohorts.get(name)
        return name if node is None or self.ledger.cyclic(node) else node.root.name

    # Who waits

    @_event
    def put_namespace(self, name: str, labels: Mapping[str, str]) -> bool | None:
        """A namespace exists or its labels changed."""
        if self.namespaces.get(name) == labels:
            return False
        before = self.namespaces.get(name)
        self.namespaces[name] = dict(labels)
        for queue in self.cluster_queues.values():
            selector = queue.selector
            if (
                selector is not None
                and selector.matches(labels)
                and not (before is not None and selector.matches(before))
            ):
                self.mark_retry(queue.name)
        return None

    @_event
    def drop_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self.namespaces.pop(name, None)

    @_event
    def put_local_queue(self, api: ApiLocalQueue, now: Instant) -> bool | None:
        """A LocalQueue exists or changed."""
        local = self.local(f"{api.metadata.namespace}/{api.metadata.name}")
        if local.api is not None and local.api.metadata.uid != api.metadata.uid:
            self.lines.pop(local.key, None)  # of another object: a deletion between two looks of the watch
        before, was_open = local.cluster_queue, local.open
        created = local.api is None
        same = local.api is not None and local.api.spec == api.spec
        weight = weight_of(api.spec.fair_sharing)
        local.api, local.weight = api, weight
        seen = api.status.fair_sharing.admission_fair_sharing_status if api.status.fair_sharing is not None else None
        if seen is not None and self.usage_sharing is not None and not self._line(local.key).seeded:
            self.set_consumed(local.key, seen.consumed_resources, instant_or_zero(seen.last_update))
            self._line(local.key).inherited = True
            same = False
        if was_open and (before != local.cluster_queue or not local.open):
            self.close(local, self.cluster_queues.get(before))
        if local.open and (created or not was_open or before != local.cluster_queue):
            self.line_up(local, now)
        return False if same else None

    @_event
    def drop_local_queue(self, key: str) -> None:
        """A LocalQueue is gone; its workloads stand in no line until it comes back."""
        local = self.local_queues.get(key)
        if local is None:
            return
        self.close(local, self.cluster_queues.get(local.cluster_queue))
        self.lines.pop(key, None)  # its usage is its own, and not that of the next of its name
        local.api = None
        if not local.items:
            del self.local_queues[key]

    @_event
    def put_limit_range(self, limit_range: LimitRange, now: Instant) -> bool | None:
        """A LimitRange exists or changed: the requests of Workloads that wait in its namespace
        are counted anew by `counting_again`."""
        namespace, name = limit_range.metadata.namespace, limit_range.metadata.name
        ranges = self.limit_ranges.get(namespace, {})
        if name in ranges and ranges[name].spec == limit_range.spec:
            return False
        self._set_limits(namespace, {**ranges, name: limit_range}, now)
        return None

    @_event
    def drop_limit_range(self, key: str, now: Instant) -> None:
        """A LimitRange (`namespace/name`) is gone."""
        namespace, _, name = key.partition("/")
        ranges = {other: value for other, value in self.limit_ranges.get(namespace, {}).items() if other != name}
        self._set_limits(namespace, ranges, now)

    def _set_limits(self, namespace: str, ranges: dict[str, LimitRange], now: Instant) -> None:
        if ranges:
            self.limit_ranges[namespace] = ranges
            self.surroundings.limits[namespace] = summarize(ranges[name] for name in sorted(ranges))
        else:
            self.limit_ranges.pop(namespace, None)
            self.surroundings.limits.pop(namespace, None)
        if self.waiting:
            self.limits_changed[namespace] = now

    @_event
    def put_runtime_class(self, runtime_class: RuntimeClass, now: Instant) -> bool | None:
        """A RuntimeClass exists or changed."""
        return self._set_overhead(runtime_class.metadata.name, runtime_class, now)

    @_event
    def drop_runtime_class(self, name: str, now: Instant) -> bool | None:
        """A RuntimeClass is gone."""
        return self._set_overhead(name, None, now)

    def _set_overhead(self, name: str, runtime_class: RuntimeClass | None, now: Instant) -> bool | None:
        overheads = self.surroundings.overheads
        overhead = runtime_class.overhead if runtime_class is not None else None
        wanted = overhead.pod_fixed if overhead is not None else None
        if overheads.get(name) == wanted:
            return False
        if wanted is None:
            del overheads[name]
        else:
            overheads[name] = wanted
        if self.waiting:
            self.overheads_changed[name] = now
        return None

    @_event
    def put_workload(self, workload: Workload, now: Instant) -> bool | None:
        """A Workload exists or changed. Raises InvalidValue for a malformed quantity, and changes nothing.

        Whoever calls this has compared versions: the store does, and its history may go back, to that of a backup.
        """
        known = self.workloads.get(workload.metadata.key)
        same = known is not None and known.uid == workload.metadata.uid
        born = known.order[2] if known is not None and same else birth(workload)
        info = Info(workload, self.surroundings, born=born)
        key = info.key
        before = self.workloads.get(key)
        if before is not None and not _by_preemption(before, info):
            self.repeats.forget(self.queue_of(before))
        self.workloads[key] = info
        if info.finished or (info.evicted and (info.reserved or key not in self.assumed)):
            # One that is assumed may still show why it was evicted the time before.
            self.evicting.pop(key, None)
        if before is not None and (
            info.finished or before.local_queue != info.local_queue or not (info.active or info.reserved)
        ):
            self.drop_penalty(before)
        if info.finished:
            self.withdraw(key)
            self.end_nomination(key)
            self.release(key)
        elif info.reserved and workload.status.admission is not None:
            self.leave(key)
            self.hold(info, workload.status.admission)
            # One that is deactivated as it is admitted keeps its penalty until it is decided what becomes of it.
            if info.admitted and info.active and not (before is not None and before.admitted):
                self.settle_penalty(info, now)
            if before is None:
                self.recall_penalty(info, now)
            return not (before is not None and before.reserved and _same_to_others(before, info))
        elif key in self.assumed:
            return False  # the write is on its way: what is seen may be older
        else:
            if self.ledger.holder(key) is not None:
                self.release(key)
            if is_admissible(workload, self.options, self.backed):
                waiting = self.waiting.get(key)
                if before is not None:
                    self.carry_progress(before, info)
                self.wait(info, now)
                return waiting is None or waiting.order != info.order or could_help(waiting, info)
            if info.active:
                self.leave(key)
            else:
                self.withdraw(key)
        return None

    @_event
    def drop_workload(self, key: str) -> None:
        """A Workload is gone."""
        if (gone := self.workloads.get(key)) is not None:
            self.repeats.forget(self.queue_of(gone))
            self.drop_penalty(gone)
        self.withdraw(key)
        self.end_nomination(key)
        self.release(key)
        for table in (self.workloads, self.evicting):
            table.pop(key, None)

    @_event
    def note_overdue(self, now: Instant) -> bool:
        """Victims that were evicted `Options.victim_patience` ago and still hold quota are overdue: no preemptor waits
        for them any more, and what their preemptors may do instead is found by the next cycle."""
        patience = self.options.victim_patience
        if patience is None:
            return False
        late = [key for key, since in self.leaving.items() if key not in self.overdue and since + patience <= now]
        for key in late:
            info = self.workloads[key]
            evicted = info.condition(EVICTED)
            assert evicted is not None
            self.overdue[key] = Overdue(preemptor_uid(evicted.message) or "", evicted.last_transition_time)
            self.mark_retry(self.ledger.holders[key])
        return bool(late)

    def next_overdue(self) -> Instant | None:
        """When `note_overdue` will find the next victim; None if no victim is leaving, or the wait has no end."""
        patience = self.options.victim_patience
        if patience is None or len(self.leaving) == len(self.overdue):
            return None
        return min(since for key, since in self.leaving.items() if key not in self.overdue) + patience

    # Outcome of writes

    @_event
    def confirm(self, key: str, resource_version: str = "") -> bool:
        """The write of an assumed admission came back, as that version. The assumption counts until the Workload is put
        as it is then: what is put before may be older."""
        return False

    @_event
    def forget(self, key: str, now: Instant) -> None:
        """The write of an assumed admission failed: the workload returns to its place in the queue."""
        self.take_back(key, now)

    @_event
    def forget_eviction(self, key: str) -> None:
        """The write of an eviction failed: the victim may be chosen again."""
        self.evicting.pop(key, None)
        self.repeats.forget(self.cluster_queues.get(self.ledger.holders.get(key, "")))


def _by_preemption(before: Info, after: Info) -> bool:
    """Whether a workload changed only as workloads do that are let in, preempted, and active again."""
    evicted = after.condition(EVICTED) if after.evicted and not before.evicted else None
    return (
        before.workload.metadata.generation == after.workload.metadata.generation
        and list(before.workload.status.reclaimable_pods) == list(after.workload.status.reclaimable_pods)
        and not after.finished
        and (evicted is None or evicted.reason == PREEMPTED)
    )


def _same_to_others(before: Info, after: Info) -> bool:
    """Whether a workload that holds quota looks the same to those who wait for it."""
    return (
        before.usage == after.usage
        and before.order == after.order
        and before.evicted == after.evicted
        and before.admitted == after.admitted
        and before.cluster_queue == after.cluster_queue
        and pods_ready(before.workload) == pods_ready(after.workload)
    )
