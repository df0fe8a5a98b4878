"""Which field manager owns which fields of a Workload's status: the same as in Kueue.

Kueue writes a status by server-side apply, and removes a field by omitting it, which removes only fields that the same
manager applied before. So Turnstile applies as that manager too: Kueue and Turnstile can then each clear what the other
wrote (a reservation, a back-off, a check) when they take over from each other. An omitted field that another manager
owns is removed by a merge patch, which ignores ownership.
"""

from collections.abc import Mapping
from typing import Any, Final

from turnstile.api import workload as wl
from turnstile.api.meta import to_plain
from turnstile.api.patch import apply_merge_patch
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Claim
from turnstile.controllers.runtime.writes import encode, fresh

ADMISSION_MANAGER: Final = "kueue-admission"
RECLAIMABLE_MANAGER: Final = "kueue-reclaimable-pods"
REPLACEMENT_MANAGER: Final = "kueue-pod-controller"

_RECLAIMABLE: Final = "reclaimablePods"
_FIELDS: Final = (
    "admission",
    "requeueState",
    "resourceRequests",
    "accumulatedPastExecutionTimeSeconds",
    "schedulingStats",
    "nominatedClusterNames",
    "clusterName",
    "unhealthyNodes",
    "preemptionGates",
)
"""Fields that the admission manager owns whole, unlike the conditions and the admission checks, which are lists where
other managers may own entries."""
_CONDITIONS: Final = frozenset(
    {
        wl.QUOTA_RESERVED,
        wl.ADMITTED,
        wl.PODS_READY,
        wl.PODS_SCHEDULED,
        wl.FINISHED,
        wl.EVICTED,
        wl.PREEMPTED,
        wl.REQUEUED,
        wl.DEACTIVATION_TARGET,
        wl.BLOCKED_ON_PREEMPTION_GATES,
    }
)


def claim(workload: Workload, changes: Mapping[str, Any]) -> Claim | None:
    """The claim equivalent to a merge patch `changes` of the status; None if only the merge patch has the right effect.

    A new admission that replaces another needs the merge patch: an apply would merge it with fields of the old
    admission that other managers own.
    """
    if changes.keys() == {_RECLAIMABLE}:
        return _claim(workload, RECLAIMABLE_MANAGER, dict(changes))
    replaced = changes.get("admission") is not None and workload.status.admission is not None
    if replaced or _RECLAIMABLE in changes:
        return None
    before = _status(workload)
    if changes.keys() == {"conditions"}:
        changed = [each for each in changes["conditions"] if each not in before["conditions"]]
        if [each["type"] for each in changed] == [wl.WAITING_FOR_REPLACEMENT_PODS]:
            return _claim(workload, REPLACEMENT_MANAGER, {"conditions": changed})
    after = _owned(apply_merge_patch(before, changes))
    return _claim(workload, ADMISSION_MANAGER, after)


def _claim(workload: Workload, manager: str, wanted: dict[str, Any]) -> Claim:
    meta = workload.metadata
    body = {
        "apiVersion": f"{Workload.GROUP}/{Workload.VERSION}",
        "kind": Workload.KIND,
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "status": wanted,
    }

    def rest(answer: Workload) -> bytes | None:
        if manager == REPLACEMENT_MANAGER:
            return None  # this manager only ever applies the one condition, and never removes it
        status = _left_over(_status(answer), wanted, reclaimable=manager == RECLAIMABLE_MANAGER)
        if not status:
            return None
        return encode(fresh(answer.metadata, {"status": status}))

    return Claim(manager, encode(fresh(meta, body)), rest)


def _status(workload: Workload) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(workload.status)
    # The API requires a message even when it is empty.
    plain["conditions"] = [{"message": "", **to_plain(condition)} for condition in workload.status.conditions]
    return plain


def _owned(status: dict[str, Any]) -> dict[str, Any]:
    """The fields of a status that the admission manager owns."""
    owned = {name: status[name] for name in _FIELDS if status.get(name) not in (None, [], {})}
    if conditions := [each for each in status.get("conditions", ()) if each["type"] in _CONDITIONS]:
        owned["conditions"] = conditions
    if checks := status.get("admissionChecks"):
        owned["admissionChecks"] = checks
    return owned


def _left_over(found: dict[str, Any], wanted: dict[str, Any], *, reclaimable: bool) -> dict[str, Any]:
    """A merge patch that removes what a status should not have; empty if there is nothing to remove."""
    if reclaimable:
        names = {each["name"] for each in wanted[_RECLAIMABLE]}
        extra = any(each["name"] not in names for each in found.get(_RECLAIMABLE, ()))
        return {_RECLAIMABLE: wanted[_RECLAIMABLE]} if extra else {}
    patch: dict[str, Any] = {name: None for name in _FIELDS if found.get(name) and name not in wanted}
    backoff = wanted.get("requeueState")
    if backoff and (extra_keys := found["requeueState"].keys() - backoff.keys()):
        patch["requeueState"] = dict.fromkeys(extra_keys)
    kept = {each["type"] for each in wanted.get("conditions", ())}
    conditions = [each for each in found["conditions"] if each["type"] in kept or each["type"] not in _CONDITIONS]
    if len(conditions) < len(found["conditions"]):
        patch["conditions"] = conditions
    checks = {each["name"]: each for each in wanted.get("admissionChecks", ())}
    if {each["name"]: each for each in found.get("admissionChecks", ())} != checks:
        patch["admissionChecks"] = list(checks.values())
    return patch
