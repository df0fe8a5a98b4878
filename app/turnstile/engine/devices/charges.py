"""The answer to the question which devices one Workload is charged for. Values only."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from turnstile.api.quantity import MAX_INT64
from turnstile.api.validation.errors import FieldError, format_errors

Counts = dict[str, int]
"""Amounts by quota resource."""

NOT_COUNTED: Final = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
"""Message of a Workload that is held while devices are not counted, in Kueue's words."""


class Problem(NamedTuple):
    """Why a Workload cannot be charged for its devices, in Kueue's words: the messages of its conditions QuotaReserved
    and Requeued."""

    message: str
    requeued: str


UNSETTLED: Final = Problem("", "")
"""Selectors of devices are still to be evaluated: it will be known in a moment."""


class Faults(Exception):
    """Raised while devices are counted: fields at fault."""

    def __init__(self, *faults: FieldError) -> None:
        super().__init__(*faults)
        self.faults = faults

    @property
    def problem(self) -> Problem:
        """The same as a problem of the Workload."""
        text = format_errors(self.faults)
        return Problem(text, text)


class Charges(NamedTuple):
    """Amounts by pod set, or why there are none."""

    counts: Mapping[str, Counts]
    """Amounts for one pod."""
    once: Mapping[str, Counts]
    """Amounts of ResourceClaims, which all pods have together. Each counts in the first pod set that names it."""
    replaced: Mapping[str, frozenset[str]]
    """Requested resources that devices of one pod are charged in place of."""
    problem: Problem | None = None


def refused(problem: Problem) -> Charges:
    """There are none, for this reason."""
    return Charges({}, {}, {}, problem)


def add(total: Counts, resource: str, amount: int) -> None:
    """Add an amount of a resource, up to the most that an amount can be."""
    total[resource] = min(total.get(resource, 0) + amount, MAX_INT64)
