"""Why, as data: how well a flavor suited, what was tried, what was asked and free.

The messages are Kueue's, to the letter, because people's tools match them. `turnstile.wording` has the words for
people. Must never decide anything.

A cycle makes many thousands of these values, and none is part of a reference cycle: so the garbage collector need not
follow them (`gc=False`).
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, Literal

from msgspec import Struct

NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
TOPOLOGY_PLACEMENT_FAILED: Final = "TopologyPlacementFailed"
NO_ROOM: Final = "NoRoomOnNodes"
"""Not in Kueue."""
WAITING_FOR_PREEMPTED_WORKLOADS: Final = "WaitingForPreemptedWorkloads"
WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
PENDING_EVALUATION: Final = "PendingEvaluation"
ADMISSION_GATED: Final = "AdmissionGated"

SEVERITY: Final = {
    "": 0,
    TOPOLOGY_PLACEMENT_FAILED: 1,
    NO_ROOM: 1,
    WAITING_FOR_QUOTA: 2,
    EXCEEDS_MAX_QUOTA: 3,
    NO_MATCHING_FLAVOR: 4,
}

IN_CLUSTER_QUEUE: Final = "InClusterQueue"
IN_COHORT_RECLAMATION: Final = "InCohortReclamation"
IN_COHORT_FAIR_SHARING: Final = "InCohortFairSharing"
IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"

PREEMPTION_TEXT: Final = {
    IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    IN_COHORT_RECLAMATION: "reclamation within the cohort",
    IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


class Mode(IntEnum):
    """How a workload can be given a flavor, worst first."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3

    @property
    def text(self) -> str:
        """Kueue's spelling."""
        return _MODE_TEXT[self]


_MODE_TEXT: Final = ("NoFit", "Preempt", "DeferredFit", "Fit")


class Possibility(IntEnum):
    """How one flavor suits, in finer steps, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


POSSIBILITY_TEXT: Final = ("", "NoCandidates", "Preempt", "Reclaim", "")
MODE_OF: Final = (Mode.NO_FIT, Mode.PREEMPT, Mode.PREEMPT, Mode.PREEMPT, Mode.FIT)

RequeueReason = Literal[
    "",
    "FailedAfterNomination",
    "NamespaceMismatch",
    "PendingPreemption",
    "PendingMigration",
    "PreemptionFailed",
    "PreemptionGated",
    "NoFit",
    "PreemptionNoCandidates",
]


class Figure(Struct, frozen=True, gc=False):
    """Amounts behind one judgement: what a pod set asked of one resource in one flavor, and what there was.

    `assumed` went to earlier pod sets of the same workload; `available` counts what may be borrowed; `maximum` is what
    there would be if nothing were in use; `nominal` and `used` are the ClusterQueue's own. Engine units.
    """

    flavor: str
    resource: str
    requested: int
    assumed: int
    available: int
    maximum: int
    nominal: int
    used: int
    borrowing_limit: int | None


class Attempt(Struct, gc=False, eq=False):
    """One flavor looked at for one resource group of one pod set."""

    flavor: str
    mode: Mode = Mode.FIT
    borrow: int = 0
    possibility: Possibility = Possibility.FIT
    reasons: Sequence[str] = ()
    no_fit_reason: str = ""
    figures: Sequence[Figure] = ()

    def refuse(self, reason: str, no_fit_reason: str = "") -> None:
        """One more reason against it, and how grave it is."""
        self.reasons = [*self.reasons, reason]
        if no_fit_reason:
            self.no_fit_reason = no_fit_reason


class FlavorChoice(Struct, gc=False, eq=False):
    """The flavor one resource got. `tried_index` is where the scan ended, -1 at the last flavor."""

    flavor: str
    mode: Mode
    borrow: int
    tried_index: int = -1


def legacy(reason: str) -> str:
    """The reason of a condition that a cycle writes while the gate UnadmittedWorkloadsObservability is off."""
    return "Waiting" if reason == WAITING_FOR_PODS_READY else "Pending"


def why(pod_set: str, reasons: Iterable[str]) -> str:
    """Kueue's sentence for a pod set without flavors (or without room in them)."""
    return f"couldn't assign flavors to pod set {pod_set}: {', '.join(sorted(reasons))}"


def most_hopeful(reasons: Sequence[str]) -> str:
    """The least severe reason among the flavors of one resource group counts: any of the flavors would do."""
    return min(reasons, key=SEVERITY.__getitem__, default="")


def most_severe(reasons: Iterable[str]) -> str:
    """Over resource groups and pod sets the most severe reason counts: all of them are needed."""
    return max(reasons, key=SEVERITY.__getitem__, default="")


def considered(pod_sets: Sequence[tuple[str, Sequence[Attempt]]]) -> str:
    """`main: spot(NoFit;untolerated taint), on-demand(Fit;borrow=1)`: what an event tells of flavors that did not
    simply fit; pod sets are divided by ` | `. Empty if there is nothing to tell."""
    parts = []
    for name, attempts in pod_sets:
        tried = []
        for attempt in sorted(attempts, key=lambda attempt: attempt.flavor):
            if attempt.mode is Mode.FIT and attempt.borrow == 0:
                continue
            possibility = POSSIBILITY_TEXT[attempt.possibility]
            inside = [f"preemptionMode={possibility}" if possibility else attempt.mode.text]
            if attempt.borrow > 0:
                inside.append(f"borrow={attempt.borrow}")
            inside.extend(sorted(attempt.reasons))
            tried.append(f"{attempt.flavor}({';'.join(inside)})")
        if tried:
            parts.append(f"{name}: {', '.join(tried)}")
    return " | ".join(parts)
