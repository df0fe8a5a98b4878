"""Parts of devices that count instead of whole ones: counters that they consume, and shares of their capacity.

Kueue's rules and sentences. A claim is charged for the device that costs most of those that it may get. Must never know
which device it gets.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from turnstile.api.pods import Quantity
from turnstile.api.quantity import MAX_INT64, canonical, compare, to_int
from turnstile.api.resourceslice import CapacityRange, CapacityRequestPolicy, Device, DeviceCapacity, ResourceSlice
from turnstile.api.validation.errors import OMITTED, FieldError, invalid
from turnstile.engine.devices.charges import Faults

_UNIT: Final = ""
"""The name of a resource that counts in base units."""


class Pool:
    """The slices of the newest generation of a pool, by key."""

    __slots__ = ("count", "generation", "slices")

    def __init__(self, generation: int, count: int) -> None:
        self.generation = generation
        self.count = count
        self.slices: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether all of its slices are there."""
        return len(self.slices) == self.count


def pools(slices: Iterable[tuple[str, ResourceSlice]], driver: str) -> dict[str, Pool]:
    """The pools of a driver, by name."""
    found: dict[str, Pool] = {}
    for key, each in slices:
        if each.spec.driver != driver:
            continue
        pool = each.spec.pool
        known = found.get(pool.name)
        if known is None or pool.generation > known.generation:
            known = found[pool.name] = Pool(pool.generation, pool.resource_slice_count)
        if pool.generation == known.generation:
            known.slices.append(key)
    return found


def shortage(path: str, kind: str, matched: int, count: int) -> FieldError:
    """Too few devices match."""
    detail = f"insufficient matching devices for {kind} driver: {matched} device(s) match but {count} requested"
    return FieldError(path, "InternalError", OMITTED, detail)


def _times(amount: int, count: int) -> int:
    return min(max(0, amount) * max(1, count), MAX_INT64)


def counter_charge(counter: str, devices: Sequence[Device], count: int, path: str) -> int:
    """The charge for so many of these devices by a counter. Raises Faults."""
    values = [
        to_int(_UNIT, consumed.counters[counter].value)
        for device in devices
        for consumed in device.consumes_counters
        if counter in consumed.counters
    ]
    if not values:
        detail = f'matched devices have no consumesCounters entry for counter "{counter}"'
        raise Faults(FieldError(path, "InternalError", OMITTED, detail))
    return _times(max(values), count)


def capacity_charge(name: str, devices: Sequence[Device], asked: Quantity | None, count: int, path: str) -> int:
    """The charge for so many shares of these devices by a capacity; each share is `asked`. Raises Faults."""
    capacities = [device.capacity[name] for device in devices if name in device.capacity]
    if not capacities:
        detail = f'matched devices have no capacity dimension "{name}"'
        raise Faults(FieldError(path, "InternalError", OMITTED, detail))
    shares = []
    for each in capacities:
        try:
            shares.append(share(each, asked))
        except ValueError:
            continue
    if not shares:
        detail = f'capacity request cannot be satisfied by any matched device\'s RequestPolicy for dimension "{name}"'
        raise Faults(invalid(path, None, detail))
    return _times(max(shares), count)


def share(capacity: DeviceCapacity, asked: Quantity | None) -> int:
    """The share of a device's capacity that a request gets. Raises ValueError if its policy allows none."""
    policy = capacity.request_policy or CapacityRequestPolicy()
    base = asked if asked is not None else policy.default if policy.default is not None else capacity.value
    if policy.valid_values:
        return next_value(base, policy.valid_values)
    if policy.valid_range is not None:
        return within_range(base, policy.valid_range)
    return to_int(_UNIT, base)


def next_value(base: Quantity, values: Sequence[Quantity]) -> int:
    """The first value that is not below the base. Raises ValueError."""
    for value in values:
        if compare(value, base) >= 0:
            return to_int(_UNIT, value)
    raise ValueError(f"request {canonical(base)} exceeds all valid values")


def within_range(base: Quantity, bounds: CapacityRange) -> int:
    """The base, raised to the minimum and to a whole number of steps above it. Raises ValueError beyond the maximum."""
    value = to_int(_UNIT, base)
    if bounds.min is not None:
        least = to_int(_UNIT, bounds.min)
        value = max(value, least)
        step = to_int(_UNIT, bounds.step) if bounds.step is not None else 0
        if step > 0:
            value = min(least + -(-(value - least) // step) * step, MAX_INT64)
    if bounds.max is not None and value > (most := to_int(_UNIT, bounds.max)):
        raise ValueError(f"rounded value {value} exceeds max {most}")
    return value
