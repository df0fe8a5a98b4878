"""Admission fair sharing: the decayed usage of LocalQueues, by which the Workloads of a ClusterQueue are ordered.

Consumption halves every half-life. A workload that was just admitted counts at once, as a penalty, until its usage
shows. Amounts are whole billionths of the base unit (cores for cpu), rounded down, as Kueue keeps them. Sources:
KEP-4136, Kueue's admissionfairsharing. Must never read a clock: the caller says how much time went by.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from turnstile.api.pods import Quantity
from turnstile.api.quantity import NANOS, canonical
from turnstile.engine.instants import Instant
from turnstile.engine.options import AdmissionFairSharing
from turnstile.engine.quota.requests import nanos

Consumed = dict[str, int]
"""Resource to billionths of its base unit."""

_MILLI: Final = NANOS // 1000


def from_amount(resource: str, amount: int) -> int:
    """The engine's amount (milli for cpu) in billionths."""
    return amount * (_MILLI if resource == "cpu" else NANOS)


def from_quantities(resources: Mapping[str, Quantity]) -> Consumed:
    """A resource list in billionths. Raises InvalidValue."""
    return {name: nanos(value) for name, value in resources.items()}


def to_quantities(consumed: Mapping[str, int]) -> dict[str, str]:
    """A resource list as the API has it."""
    return {name: canonical(f"{value}n") for name, value in consumed.items()}


def scaled(amounts: Mapping[str, int], factor: float) -> Consumed:
    """Each amount times a factor, rounded down. The factor counts as the decimal number that it prints as."""
    exact = Fraction(repr(factor))
    return {name: value * exact.numerator // exact.denominator for name, value in amounts.items()}


def alpha(elapsed: float, half_life: float) -> float:
    """How much of the old gives way to the new after `elapsed` seconds; 0 without a half-life."""
    return 0.0 if half_life == 0 else 1.0 - math.pow(0.5, elapsed / half_life)


def decayed(old: Mapping[str, int], current: Mapping[str, int], *, elapsed: float, half_life: float) -> Consumed:
    """Consumption after `elapsed` seconds of `current` usage."""
    share = alpha(elapsed, half_life)
    return added(scaled(old, 1.0 - share), scaled(current, share))


def added(left: Mapping[str, int], right: Mapping[str, int]) -> Consumed:
    """The sum by resource."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, 0) + value
    return total


def entry_penalty(requests: Mapping[str, int], sharing: AdmissionFairSharing) -> Consumed:
    """Consumption that the admission of a workload with these requests counts for; requests in billionths."""
    return scaled(requests, alpha(sharing.usage_sampling_interval, sharing.usage_half_life))


def weighted(
    consumed: Mapping[str, int], penalty: Mapping[str, int], weights: Mapping[str, float], local_queue_weight: float
) -> float:
    """The number that orders a LocalQueue: weighted sum of consumption and penalty, in base units, over the weight of
    the LocalQueue. Infinite for a weight of 0 or less."""
    if local_queue_weight <= 0:
        return math.inf
    total = 0.0
    for name in sorted({**consumed, **penalty}):
        total += weights.get(name, 1.0) * ((consumed.get(name, 0) + penalty.get(name, 0)) / NANOS)
    return total / local_queue_weight


class LocalQueueUsage:
    """Consumption of one LocalQueue. `penalties` by workload are not part of `consumed` yet; `sampled` is the time of
    the last sample, None if this process took none yet; `inherited` is true until the first sample, if another process
    wrote the consumption down: the time before that sample does not count, as in Kueue."""

    __slots__ = ("consumed", "inherited", "last_update", "penalties", "sampled", "seeded")

    def __init__(self) -> None:
        self.consumed: Consumed = {}
        self.last_update: Instant | None = None
        self.penalties: dict[str, Consumed] = {}
        self.sampled: Instant | None = None
        self.seeded = False
        self.inherited = False

    @property
    def penalty(self) -> Consumed:
        """All penalties together."""
        total: Consumed = {}
        for each in self.penalties.values():
            total = added(total, each)
        return total

    def push(self, workload: str, penalty: Consumed, now: Instant) -> None:
        """Count a workload that was just admitted; a second time replaces the first."""
        if self.last_update is None:
            self.last_update = now
        self.penalties[workload] = penalty

    def settle(self, workload: str, current: Mapping[str, int], now: Instant, half_life: float) -> None:
        """The workload runs now: its penalty becomes consumption, after what time did to the rest."""
        penalty = self.penalties.pop(workload, None)
        if penalty is None:
            return
        elapsed = max(0.0, now - self.last_update) if self.last_update is not None else 0.0
        self.consumed = added(decayed(self.consumed, current, elapsed=elapsed, half_life=half_life), penalty)
        self.last_update = now if self.last_update is None else max(now, self.last_update)

    def sample(self, current: Mapping[str, int], now: Instant, sharing: AdmissionFairSharing) -> float:
        """Let time pass, if the sampling interval is over or a penalty waits; seconds until the next sample. The first
        sample is zero of all that `current` names."""
        interval = sharing.usage_sampling_interval
        if self.last_update is None:
            self.last_update = now
        elif self.inherited:
            self.last_update = max(now, self.last_update)
        elif now - self.last_update < interval and not self.penalties:
            return min(interval, interval - (now - self.last_update))  # the clock may have been set back
        if sharing.usage_half_life == 0:
            self.consumed = {}
        else:
            elapsed = max(0.0, now - self.last_update)
            self.consumed = decayed(self.consumed, current, elapsed=elapsed, half_life=sharing.usage_half_life)
        self.inherited = False
        self.sampled, self.last_update = now, max(now, self.last_update)
        return interval
