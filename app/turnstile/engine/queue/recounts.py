"""Which waiting Workloads request something else because a LimitRange, a RuntimeClass or a kind of devices changed.

An event only says where; the Workloads are counted anew in slices of the next cycle. Must never look at quota.
"""

from collections.abc import Iterator
from typing import Final

from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.resourceclaim import ResourceClaimSpec
from turnstile.api.resourceslice import ResourceSlice
from turnstile.engine.devices.charges import UNSETTLED
from turnstile.engine.devices.claims import FIELDS
from turnstile.engine.instants import Instant
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.queue.queues import Queues
from turnstile.engine.queue.retries import Retries
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.requests import summarize
from turnstile.engine.quota.surroundings import Surroundings

COUNTING: Final = 20.0
"""Work to count what one Workload requests, and to put it in its place."""


class Recounts:
    """Workloads to be counted anew: those of namespaces, and those whose pods name RuntimeClasses."""

    __slots__ = (
        "_queues",
        "_retries",
        "_surroundings",
        "devices_changed",
        "limit_ranges",
        "limits_changed",
        "overheads_changed",
    )

    def __init__(self, surroundings: Surroundings, queues: Queues, retries: Retries) -> None:
        self._surroundings = surroundings
        self._queues = queues
        self._retries = retries
        self.limit_ranges: dict[str, dict[str, LimitRange]] = {}
        """By namespace and name."""
        self.limits_changed: dict[str, Instant] = {}
        """Namespaces whose waiting Workloads are to be counted anew, and since when."""
        self.overheads_changed: dict[str, Instant] = {}
        """RuntimeClasses whose waiting Workloads are."""
        self.devices_changed: dict[str, Instant] = {}
        """ResourceClaims and ResourceClaimTemplates (`namespace/name`) whose Workloads are, extended resources, and
        Workloads themselves (`namespace/name`); an empty name for all that have claims."""

    def put_limit_range(self, limit_range: LimitRange, now: Instant) -> bool:
        """A LimitRange exists; whether it changed."""
        namespace, name = limit_range.metadata.namespace, limit_range.metadata.name
        ranges = self.limit_ranges.get(namespace, {})
        if name in ranges and ranges[name].spec == limit_range.spec:
            return False
        self._set_limits(namespace, {**ranges, name: limit_range}, now)
        return True

    def drop_limit_range(self, key: str, now: Instant) -> None:
        """A LimitRange (`namespace/name`) is gone."""
        namespace, _, name = key.partition("/")
        ranges = {other: value for other, value in self.limit_ranges.get(namespace, {}).items() if other != name}
        self._set_limits(namespace, ranges, now)

    def _set_limits(self, namespace: str, ranges: dict[str, LimitRange], now: Instant) -> None:
        if ranges:
            self.limit_ranges[namespace] = ranges
            self._surroundings.limits[namespace] = summarize(ranges[name] for name in sorted(ranges))
        else:
            self.limit_ranges.pop(namespace, None)
            self._surroundings.limits.pop(namespace, None)
        if self._queues.waiting:
            self.limits_changed[namespace] = now

    def put_runtime_class(self, name: str, runtime_class: RuntimeClass | None, now: Instant) -> bool:
        """A RuntimeClass exists, or is gone if it is None; whether its overhead changed."""
        overheads = self._surroundings.overheads
        overhead = runtime_class.overhead if runtime_class is not None else None
        wanted = overhead.pod_fixed if overhead is not None else None
        if overheads.get(name) == wanted:
            return False
        if wanted is None:
            del overheads[name]
        else:
            overheads[name] = wanted
        if self._queues.waiting:
            self.overheads_changed[name] = now
        return True

    def put_device_class(self, name: str, given: DeviceClass | None, now: Instant) -> bool:
        """A DeviceClass exists, or is gone if it is None; whether it changes how devices count."""
        devices = self._surroundings.devices
        known = devices.classes.get(name)
        if not devices.put_class(name, given):
            return False
        backed = {each.spec.extended_resource_name or "" for each in (known, given) if each is not None}
        for resource in backed | {""}:
            self.devices_changed[resource] = now
        return True

    def put_claim(self, kind: str, key: str, given: ResourceClaimSpec | None, now: Instant) -> bool:
        """The same of a ResourceClaim or ResourceClaimTemplate."""
        if not self._surroundings.devices.put_claim(kind, key, given):
            return False
        self.devices_changed[key] = now
        return True

    def put_resource_slice(self, name: str, given: ResourceSlice | None, now: Instant) -> bool:
        """The same of a ResourceSlice."""
        if not self._surroundings.devices.put_slice(name, given):
            return False
        self.devices_changed[""] = now
        return True

    @property
    def due(self) -> bool:
        """Whether there is anything to count."""
        return bool(
            self.limits_changed
            or self.overheads_changed
            or self.devices_changed
            or self._surroundings.devices.selectors.due
        )

    def carry_out(self, pace: Pace) -> Sliced[None]:
        """Count anew what waiting Workloads request, where an event changed what decides that. No event may come in
        between; to be begun anew if it is left early."""
        while self.due:  # once more if selectors are met that no Workload had before
            yield from self._surroundings.devices.selectors.evaluating(pace)
            yield from self._count(pace)

    def _count(self, pace: Pace) -> Sliced[None]:
        limits, overheads, devices = self.limits_changed, self.overheads_changed, self.devices_changed
        queues = self._queues
        concerned: list[tuple[Info, Instant]] = []
        for info in (*queues.held.values(), *queues.waiting.values()):
            pace.left -= 0.25
            if pace.left <= 0:
                yield
                pace.renew()
            since = [limits[info.namespace]] if info.namespace in limits else []
            if overheads:
                classes = (item.template.spec.runtime_class_name for item in info.workload.spec.pod_sets)
                since += [overheads[name] for name in classes if name in overheads]
            if devices:
                since += [devices[name] for name in _devices_of(info) if name in devices]
            if since:
                concerned.append((info, max(since)))
        unsettled: dict[str, Instant] = {}
        while concerned:
            info, now = concerned.pop()  # each is freed as it is replaced, and not all at the end
            pace.left -= COUNTING
            if pace.left <= 0:
                yield
                pace.renew()
            again = Info(info.workload, self._surroundings, born=info.order[2])
            if not queues.admits(again):
                queues.leave(info.key)
                if again.problem is UNSETTLED:
                    unsettled[again.key] = now
                continue
            queues.held.pop(info.key, None)
            queues.carry_progress(info, again)
            queues.wait(again, now)
            queue = queues.of(again)
            if queue is not None and queue.pending.is_inadmissible(again):
                self._retries.mark(queue.name)  # limits may let it through now although its requests are the same
        limits.clear()
        overheads.clear()
        if "" in devices:
            self._surroundings.devices.selectors.forget_others()
        devices.clear()
        devices.update(unsettled)


def _devices_of(info: Info) -> Iterator[str]:
    """The names in `Recounts.devices_changed` that concern a Workload."""
    yield info.key
    for pod_set in info.workload.spec.pod_sets:
        spec = pod_set.template.spec
        for claim in spec.resource_claims:
            yield ""
            for field in FIELDS:
                yield f"{info.namespace}/{claim.get(field)}"
        for container in (*spec.containers, *spec.init_containers):
            if container.resources is not None:
                yield from container.resources.requests
                yield from container.resources.limits
