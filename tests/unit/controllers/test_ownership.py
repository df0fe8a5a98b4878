"""What of a Workload's status is applied as which of Kueue's field managers."""

import json
from typing import Any

import pytest

from tests.unit.controllers.worlds import ADMITTED, RESERVED, condition, workload
from turnstile.api.workload import Workload
from turnstile.controllers.status.ownership import claim

OTHER = condition("WaitingForReplacementPods", "False", "PodsReady")


def share(held: Workload, **changes: Any) -> tuple[str, dict[str, Any]]:
    """The manager of a change, and the status that it applies."""
    claimed = claim(held, changes)
    assert claimed is not None
    body = json.loads(claimed.body)
    assert (body["kind"], body["metadata"]["name"], body["metadata"]["resourceVersion"]) == ("Workload", "wl", "7")
    return claimed.manager, body["status"]


def test_all_that_the_manager_of_admissions_owns_is_applied() -> None:
    """What is not changed too, for what it leaves out would go; but nothing of other managers."""
    held = workload(
        RESERVED, ADMITTED, OTHER, admission=True, more_status={"reclaimablePods": [{"name": "main", "count": 1}]}
    )
    manager, status = share(held, requeueState={"count": 1})
    assert manager == "kueue-admission"
    assert status.keys() == {"conditions", "admission", "requeueState"}
    assert [each["type"] for each in status["conditions"]] == ["QuotaReserved", "Admitted"]


def test_what_a_change_takes_away_is_left_out() -> None:
    """A part of a field as well."""
    held = workload(
        RESERVED, admission=True, more_status={"requeueState": {"count": 1, "requeueAt": "2026-01-02T03:04:05Z"}}
    )
    _, status = share(held, admission=None, requeueState={"requeueAt": None})
    assert "admission" not in status
    assert status["requeueState"] == {"count": 1}


def test_pods_that_are_done_have_a_manager_of_their_own() -> None:
    """Together with other changes they are no one's share: then a merge patch is sent."""
    held = workload(RESERVED, admission=True)
    counts = [{"name": "main", "count": 1}]
    assert share(held, reclaimablePods=counts) == ("kueue-reclaimable-pods", {"reclaimablePods": counts})
    assert claim(held, {"reclaimablePods": counts, "clusterName": None}) is None


def test_the_wait_for_replacement_pods_has_a_manager_of_its_own() -> None:
    """Only that condition is applied, and no other condition is touched."""
    held = workload(RESERVED, admission=True)
    assert share(held, conditions=[RESERVED, OTHER]) == ("kueue-pod-controller", {"conditions": [OTHER]})
    claimed = claim(held, {"conditions": [RESERVED, OTHER]})
    assert claimed is not None
    assert claimed.rest(workload(RESERVED, ADMITTED, OTHER)) is None


def test_an_admission_that_replaces_another_is_not_applied() -> None:
    """It would be merged with what other managers hold of the old one."""
    stale = workload(admission=True)
    assert claim(stale, {"admission": {"clusterQueue": "other"}}) is None
    assert claim(workload(), {"admission": {"clusterQueue": "other"}}) is not None


@pytest.mark.parametrize(
    ("left", "rest"),
    [
        (workload(RESERVED), None),
        (workload(RESERVED, OTHER), None),
        (workload(RESERVED, ADMITTED, OTHER), {"conditions": [RESERVED, OTHER]}),
        (workload(RESERVED, admission=True), {"admission": None}),
        (
            workload(RESERVED, more_status={"admissionChecks": [{"name": "a", "state": "Ready", "message": ""}]}),
            {"admissionChecks": []},
        ),
    ],
)
def test_what_others_hold_is_taken_away_by_a_merge_patch(left: Workload, rest: dict[str, Any] | None) -> None:
    """Conditions that are none of ours are kept."""
    claimed = claim(workload(RESERVED), {"clusterName": None})
    assert claimed is not None
    found = claimed.rest(left)
    assert (json.loads(found)["status"] if found else None) == rest
