"""A Workload's status, changed in memory and written as one patch.

Every status write costs the API server about 10 ms, so a decision collects all its changes in a `StatusDraft` and
writes once, and only what differs. The patch carries the resourceVersion that the decision was made from: it replaces
the whole list of conditions, so the API server must refuse (409) a writer that has read an older list.

The patch is sent as server-side apply with Kueue's field managers (`controllers.status.ownership`), so that Kueue may
take over.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from turnstile.api import workload as wl
from turnstile.api.conditions import instant, set_condition, timestamp, truncate_message
from turnstile.api.meta import Condition, ConditionStatus, find_condition, is_true, to_plain
from turnstile.api.quantity import to_int
from turnstile.api.workload import Admission, AdmissionCheckState, PodSetRequest, RequeueState, Workload
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.status.admissionchecks import reset
from turnstile.controllers.status.ownership import claim

MAXIMUM_EXECUTION_TIME: Final = "MaximumExecutionTimeExceeded"
"""Why a Workload is deactivated that ran for as long as it may."""
_BEFORE_GRANULAR: Final = {
    "PendingEvaluation": "Pending",
    "Misconfigured": "Inadmissible",
    "Suspended": "Inadmissible",
    "UnsatisfiedAdmissionChecks": "UnsatisfiedChecks",
}
"""Granular reasons and what controllers write instead while the gate UnadmittedWorkloadsObservability is off."""


class StatusDraft:
    """Changes to the status of one Workload as it was read at `now`.

    `granular` is the gate UnadmittedWorkloadsObservability: whether a waiting Workload gets fine-grained reasons, also
    in the condition Admitted.
    """

    def __init__(self, workload: Workload, now: datetime, *, granular: bool = True) -> None:
        self.workload = workload
        self.now = now
        self.granular = granular
        self.conditions: list[Condition] = list(workload.status.conditions)
        self.checks: list[AdmissionCheckState] = list(workload.status.admission_checks)
        self._admission = workload.status.admission
        self._fields: dict[str, Any] = {}

    def set(self, kind: str, status: ConditionStatus, *, reason: str, message: str) -> None:
        """Set one condition; its transition time moves only when its status does."""
        self.conditions = set_condition(
            self.conditions,
            type=kind,
            status=status,
            reason=reason,
            message=truncate_message(message),
            now=self.now,
            observed_generation=self.workload.metadata.generation or None,
        )

    def reason(self, granular: str) -> str:
        """The reason to write for a granular reason."""
        return granular if self.granular else _BEFORE_GRANULAR.get(granular, granular)

    def remove(self, kind: str) -> None:
        """Remove one condition."""
        self.conditions = [condition for condition in self.conditions if condition.type != kind]

    def field(self, name: str, value: Any) -> None:
        """Set a field of the status by its JSON name; None removes it."""
        self._fields[name] = value

    def reserve(self, admission: Admission, *, admitted: bool) -> None:
        """Reserve quota, with Kueue's conditions; `admitted` if the Workload has no admission check to wait for."""
        queue = admission.cluster_queue
        self.set(wl.QUOTA_RESERVED, "True", reason="QuotaReserved", message=f"Quota reserved in ClusterQueue {queue}")
        for kind in (wl.EVICTED, wl.PREEMPTED, wl.BLOCKED_ON_PREEMPTION_GATES):
            past = find_condition(self.conditions, kind)
            if past is not None and past.status == "True":
                self.set(kind, "False", reason="QuotaReserved", message=f"Previously: {past.message}")
        if admitted:
            self.set(wl.ADMITTED, "True", reason="Admitted", message="The workload is admitted")
        self.remove(wl.PODS_SCHEDULED)  # it was about the pods of an earlier run
        self._admission = admission
        self.field("admission", to_plain(admission))
        if self.workload.status.resource_requests:
            self.field("resourceRequests", None)

    def place(self, admission: Admission, *, admitted: bool) -> None:
        """Give the pods of a Workload that holds quota other places; no node of these is known to have failed."""
        if admitted and not is_true(self.conditions, wl.ADMITTED):
            self.set(wl.ADMITTED, "True", reason="Admitted", message="The workload is admitted")
        self._admission = admission
        self.field("admission", to_plain(admission))
        if self.workload.status.unhealthy_nodes:
            self.field("unhealthyNodes", None)

    def unreserve(self, *, reason: str, message: str) -> None:
        """Release quota, or write why none is reserved; updates Admitted and the accumulated execution time too."""
        self.set(wl.QUOTA_RESERVED, "False", reason=self.reason(reason), message=message)
        self._admission = None
        self.sync_admitted()
        if self.workload.status.admission is not None:
            self.field("admission", None)

    def sync_admitted(self) -> bool:
        """Set Admitted from reservation, admission checks and topology requests. Returns whether the condition changed.

        A Workload without QuotaReserved and Admitted gets no condition (Kueue's SyncAdmittedCondition).
        """
        before = find_condition(self.conditions, wl.ADMITTED)
        if before is None and find_condition(self.conditions, wl.QUOTA_RESERVED) is None:
            return False
        missing = self._missing_to_be_admitted()
        was = before is not None and before.status == "True"
        if was == (missing is None) and (was or not self.granular):
            return False
        if before is not None and was and not self._at_time_limit():
            since = instant(before.last_transition_time) or self.now
            past = self.workload.status.accumulated_past_execution_time_seconds or 0
            self.field("accumulatedPastExecutionTimeSeconds", past + max(0, int((self.now - since).total_seconds())))
        reason, message = missing or ("Admitted", "The workload is admitted")
        self.set(wl.ADMITTED, "True" if missing is None else "False", reason=self.reason(reason), message=message)
        return before != find_condition(self.conditions, wl.ADMITTED)

    def _at_time_limit(self) -> bool:
        """Whether the Workload was deactivated at its maximum execution time: the time of that run is not added to the
        past, or the Workload would be deactivated again at its next admission."""
        evicted = find_condition(self.conditions, wl.EVICTED)
        return evicted is not None and evicted.status == "True" and evicted.reason.endswith(MAXIMUM_EXECUTION_TIME)

    def _missing_to_be_admitted(self) -> tuple[str, str] | None:
        unsatisfied = any(check.state != "Ready" for check in self.checks)
        if not is_true(self.conditions, wl.QUOTA_RESERVED):
            if unsatisfied and not self.granular:
                return "NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready"
            return "NoReservation", "The workload has no reservation"
        if unsatisfied:
            return "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
        assigned = self._admission.pod_set_assignments if self._admission is not None else []
        if any(given.delayed_topology_request == "Pending" for given in assigned):
            return "PendingDelayedTopologyRequests", "There are pending delayed topology requests"
        return None

    def requeue(self, until: datetime, *, counted: bool = False) -> bool:
        """Delay the next attempt to `until`, which only ever moves forward; `counted` increments the requeue count.
        Returns whether anything changed."""
        state = self.workload.status.requeue_state or RequeueState()
        count = (state.count or 0) + 1 if counted else state.count
        present = instant(state.requeue_at)
        later = present is None or until > present
        if not later and not counted:
            return False
        body: dict[str, Any] = {} if count is None else {"count": count}
        body["requeueAt"] = timestamp(until) if later else state.requeue_at
        self.field("requeueState", body)
        return True

    def finish(self, reason: str, message: str) -> None:
        """Set Finished, unless it is True already."""
        self.remove(wl.PODS_SCHEDULED)
        if not is_true(self.conditions, wl.FINISHED):
            self.set(wl.FINISHED, "True", reason=reason, message=message)

    def reclaim(self, counts: Mapping[str, int]) -> None:
        """Set the number of pods whose quota is released, by pod set."""
        if dict(counts) != {each.name: each.count for each in self.workload.status.reclaimable_pods}:
            self.field("reclaimablePods", [{"name": name, "count": counts[name]} for name in sorted(counts)])

    def requests(self, requests: list[PodSetRequest]) -> None:
        """Set the resource requests of a waiting Workload."""
        if _amounts(requests) != _amounts(self.workload.status.resource_requests):
            self.field("resourceRequests", to_plain(requests))

    def evict(self, reason: str, message: str, *, cause: str = "") -> None:
        """Set Evicted. Quota stays reserved until the job reports no active pods, as in Kueue."""
        full_reason = f"{reason}DueTo{cause}" if cause and reason == "Deactivated" else reason
        self.set(wl.EVICTED, "True", reason=full_reason, message=message)
        status = self.workload.status
        self.checks = reset(self.checks, now=self.now)
        if is_true(self.conditions, wl.BLOCKED_ON_PREEMPTION_GATES):
            self.set(wl.BLOCKED_ON_PREEMPTION_GATES, "False", reason=full_reason, message=message)
        for name, held in (
            ("clusterName", status.cluster_name),
            ("nominatedClusterNames", status.nominated_cluster_names),
            ("unhealthyNodes", status.unhealthy_nodes),
        ):
            if held:
                self.field(name, None)
        evictions = to_plain(status.scheduling_stats.evictions) if status.scheduling_stats else []
        entry = next((e for e in evictions if (e["reason"], e.get("underlyingCause", "")) == (reason, cause)), None)
        if entry is None:
            evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})
        else:
            entry["underlyingCause"] = cause
            entry["count"] = entry.get("count", 0) + 1
        for other in evictions:
            other.setdefault("underlyingCause", "")
            other.setdefault("count", 0)
        self.field("schedulingStats", {"evictions": evictions})

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._fields) or self._conditions_changed or self._checks_changed

    @property
    def _conditions_changed(self) -> bool:
        return self.conditions != list(self.workload.status.conditions)

    @property
    def _checks_changed(self) -> bool:
        return self.checks != list(self.workload.status.admission_checks)

    def patch(self) -> Patch:
        """The merge patch of all changes, refused by the API server if the Workload has changed since it was read."""
        status: dict[str, Any] = dict(self._fields)
        if self._conditions_changed:
            status["conditions"] = [condition_body(condition) for condition in self.conditions]
        if self._checks_changed:
            status["admissionChecks"] = to_plain(self.checks)
        return fresh_patch(self.workload, {"status": status}, subresource="status", claim=claim(self.workload, status))


def _amounts(requests: Iterable[PodSetRequest]) -> list[tuple[str, dict[str, int]]]:
    """Quantities as numbers, so that `1` and `1000m` are equal."""
    return [
        (each.name, {resource: to_int(resource, amount) for resource, amount in each.resources.items()})
        for each in requests
    ]


def condition_body(condition: Condition) -> dict[str, Any]:
    """A condition as the API requires it: with `message` even when empty."""
    body: dict[str, Any] = to_plain(condition)
    body.setdefault("message", "")
    return body
