"""Which adapter runs a suite."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from tests.conformance import engine_assign, engine_cycles, engine_preemption
from tests.conformance.cases import Case

Adapter = Callable[[Case, dict[str, Any]], list[str]]

ADAPTERS: tuple[tuple[str, Adapter], ...] = (
    ("scheduler.TestSchedule*", engine_cycles.check),
    ("scheduler.TestLastSchedulingContext", engine_cycles.check),
    ("scheduler.preemption.TestPreemption", engine_preemption.check),
    ("scheduler.preemption.TestFairPreemption*", engine_preemption.check),
    ("scheduler.preemption.TestHierarchicalPreemptions", engine_preemption.check),
    ("scheduler.preemption.TestIssuePreemptionsSkipsDuplicate", engine_preemption.check),
    ("scheduler.preemption.TestWhenWorkloadModifiedConcurrently", engine_preemption.check),
    ("scheduler.preemption.common.TestSatisfiesPreemptionPolicy", engine_preemption.check_policy),
    ("scheduler.preemption.TestPreemptionMessage", engine_preemption.check_message),
    ("scheduler.flavorassigner.TestSearch", engine_assign.check_search),
    ("scheduler.flavorassigner.TestIsPreferred", engine_assign.check_preferred),
    ("scheduler.flavorassigner.TestAssignFlavors*", engine_assign.check),
    ("scheduler.flavorassigner.Test*FlavorIdx", engine_assign.check),
    ("scheduler.flavorassigner.TestReclaimBeforePriorityPreemption", engine_assign.check),
    ("scheduler.flavorassigner.TestIsNoFitDueToCapacityAndLimits", engine_assign.check),
    ("scheduler.flavorassigner.TestDeletedFlavors", engine_assign.check),
    ("scheduler.flavorassigner.TestHierarchical", engine_assign.check),
)


def adapter(suite: str) -> Adapter | None:
    """The first whose pattern matches."""
    return next((found for pattern, found in ADAPTERS if fnmatchcase(suite, pattern)), None)


def differences(case: Case) -> list[str]:
    """All differences of a case, over every run that was recorded."""
    check = adapter(case.suite)
    assert check is not None
    found = []
    for run in case.body.get("runs") or []:
        label = ",".join(f"{name}={on}" for name, on in (run.get("gates") or {}).items())
        try:
            found += [f"[{label}] {text}" for text in check(case, run)]
        except Exception as error:
            found.append(f"[{label}] {type(error).__name__}: {error}")
    return found
