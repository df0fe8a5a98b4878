"""Which field manager owns what of a Workload's status: the same as in Kueue.

Kueue writes a status by server-side apply, and takes a field away by leaving it out. That takes away only what the same
manager applied before. So what Turnstile writes is applied as that manager too: each can then clear what the other
wrote (a reservation, a back-off, a check), on the day when one takes over from the other. What is left out but held by
yet another manager is taken away by a merge patch, which asks nobody.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.api import workload as wl
from app.api.meta import to_plain
from app.api.patch import apply_merge_patch
from app.api.workload import Workload
from app.controllers.actions import Claim
from app.controllers.writes import encode, fresh

ADMISSION_MANAGER: Final = "kueue-admission"
RECLAIMABLE_MANAGER: Final = "kueue-reclaimable-pods"

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
"""Fields of the manager of admissions that are there or not, besides two lists with entries of others."""
_CONDITIONS: Final = frozenset(
    {
        wl.QUOTA_RESERVED,
        wl.ADMITTED,
        wl.PODS_READY,
        wl.FINISHED,
        wl.EVICTED,
        wl.PREEMPTED,
        wl.REQUEUED,
        wl.DEACTIVATION_TARGET,
        wl.BLOCKED_ON_PREEMPTION_GATES,
    }
)


def claim(workload: Workload, changes: Mapping[str, Any]) -> Claim | None:
    """The share of the status that these changes (a merge patch of it) lead to; None where only that patch will do.

    An admission that replaces another is such a case: applied, it would be merged with what others hold of the old.
    """
    if changes.keys() == {_RECLAIMABLE}:
        return _claim(workload, RECLAIMABLE_MANAGER, dict(changes))
    replaced = changes.get("admission") is not None and workload.status.admission is not None
    if replaced or _RECLAIMABLE in changes:
        return None
    after = _owned(apply_merge_patch(_status(workload), changes))
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
        status = _left_over(_status(answer), wanted, reclaimable=manager == RECLAIMABLE_MANAGER)
        if not status:
            return None
        return encode(fresh(answer.metadata, {"status": status}))

    return Claim(manager, encode(fresh(meta, body)), rest)


def _status(workload: Workload) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(workload.status)
    # The API wants a message even when it is empty.
    plain["conditions"] = [{"message": "", **to_plain(condition)} for condition in workload.status.conditions]
    return plain


def _owned(status: dict[str, Any]) -> dict[str, Any]:
    """What of a status the manager of admissions owns."""
    owned = {name: status[name] for name in _FIELDS if status.get(name) not in (None, [], {})}
    if conditions := [each for each in status.get("conditions", ()) if each["type"] in _CONDITIONS]:
        owned["conditions"] = conditions
    if checks := status.get("admissionChecks"):
        owned["admissionChecks"] = checks
    return owned


def _left_over(found: dict[str, Any], wanted: dict[str, Any], *, reclaimable: bool) -> dict[str, Any]:
    """A merge patch of what is in a status and should not be; empty if nothing is."""
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
