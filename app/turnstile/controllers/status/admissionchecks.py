"""The rules of admission checks: which checks a Workload needs, their states, and when the Workload may retry.

Each check has a controller, of Turnstile or another project, which sets its state in `status.admissionChecks`; this
module interprets these states. Must never set the answer to a check and never read a clock. Source: Kueue's
pkg/workload (admissionchecks.go) and KEP-993.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import instant, later, set_check_state, timestamp
from turnstile.api.workload import Admission, AdmissionCheckState, CheckState
from turnstile.engine.causes import Eviction

Flavors = frozenset[str]


def covered_flavors(queue: ClusterQueue) -> dict[str, Flavors]:
    """The flavors of each check of a ClusterQueue, by check; a check that names none is for all the queue's flavors."""
    strategy = queue.spec.admission_checks_strategy
    every = _flavors_of(queue)
    return {rule.name: frozenset(rule.on_flavors) or every for rule in (strategy.admission_checks if strategy else ())}


def required(queue: ClusterQueue, admission: Admission | None) -> list[str]:
    """Names of the checks that a Workload needs, sorted.

    A Workload without flavors needs only the checks that are for every flavor of the queue.
    """
    covered = covered_flavors(queue)
    if admission is not None:
        return required_on(covered, admission)
    every = _flavors_of(queue)
    return sorted(name for name, flavors in covered.items() if flavors >= every)


def required_on(covered: Mapping[str, Flavors], admission: Admission) -> list[str]:
    """Names of the checks for any of the assigned flavors, sorted."""
    assigned = {flavor for given in admission.pod_set_assignments for flavor in given.flavors.values()}
    return sorted(name for name, flavors in covered.items() if flavors & assigned)


def _flavors_of(queue: ClusterQueue) -> Flavors:
    return frozenset(flavor.name for group in queue.spec.resource_groups for flavor in group.flavors)


def listed(states: Iterable[AdmissionCheckState], names: Iterable[str], *, now: datetime) -> list[AdmissionCheckState]:
    """A state for each name, sorted by name: the existing state, or Pending since now. Other states are dropped."""
    known = {state.name: state for state in states}
    return [
        known.get(name) or AdmissionCheckState(name=name, state="Pending", last_transition_time=timestamp(now))
        for name in sorted(names)
    ]


def reset(states: list[AdmissionCheckState], *, now: datetime) -> list[AdmissionCheckState]:
    """States after an eviction: all Pending, without pod set updates; a Retry increments the retry count."""
    for state in list(states):
        if state.state == "Pending":
            continue
        retries = state.retry_count
        again = msgspec.structs.replace(
            state,
            state="Pending",
            message=f"Reset to Pending after eviction. Previously: {state.state}",
            last_transition_time=timestamp(now),
            retry_count=(retries or 0) + 1 if state.state == "Retry" else retries,
            pod_set_updates=(),
        )
        states = set_check_state(states, again, now=now)
    return states


def settled(states: list[AdmissionCheckState], *, now: datetime) -> list[AdmissionCheckState]:
    """States of a Workload whose attempt has ended: a Retry or Rejected that was written since is about that attempt,
    and becomes Pending, as an answer that came in time did. No cycle considers the Workload before, and its check's
    controller may answer only while the Workload has quota."""
    late = [each for each in states if each.state in {"Retry", "Rejected"}]
    for state in reset(late, now=now):
        states = set_check_state(states, state, now=now)
    return states


def retry_at(states: Iterable[AdmissionCheckState]) -> datetime | None:
    """The latest time until which a check in Retry requests to wait; None if no check does."""
    return max(
        (
            later(since, state.requeue_after_seconds)
            for state in states
            if state.state == "Retry" and state.requeue_after_seconds is not None
            if (since := instant(state.last_transition_time)) is not None
        ),
        default=None,
    )


def in_state(states: Iterable[AdmissionCheckState], wanted: CheckState) -> str:
    """`AdmissionCheck in Retry state: "name" (its message)` for people; empty if no check is in that state."""
    found = [state for state in states if state.state == wanted]
    if not found:
        return ""
    answered = "; ".join(f'"{state.name}" ({state.message})' if state.message else f'"{state.name}"' for state in found)
    cause = Eviction.CHECKS_ANSWERED if len(found) > 1 else Eviction.CHECK_ANSWERED
    return cause.says(state=wanted, answers=answered)
