"""The status patch that gives pods of a Workload that holds quota other places."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
import pytest

from tests.unit.controllers.test_node_failures import on_hosts
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import Domain, encode
from turnstile.api.workload import Admission, Workload
from turnstile.controllers.status.draft import StatusDraft

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def moved(workload: Workload, *hosts: str) -> Admission:
    """The reservation of a Workload with a pod on each of these hosts."""
    assert workload.status.admission is not None
    (given,) = workload.status.admission.pod_set_assignments
    places = encode([HOSTNAME], [Domain((host,), 1) for host in hosts])
    assigned = msgspec.structs.replace(given, topology_assignment=places, delayed_topology_request="Ready")
    return msgspec.structs.replace(workload.status.admission, pod_set_assignments=[assigned])


def patched(workload: Workload, admission: Admission, *, admitted: bool) -> dict[str, Any]:
    """The status of the patch."""
    draft = StatusDraft(workload, NOW)
    draft.place(admission, admitted=admitted)
    status: dict[str, Any] = orjson.loads(draft.patch().body)["status"]
    return status


def test_nodes_that_failed_are_not_named_any_more() -> None:
    """In the patch that has the new places; conditions stay as they are."""
    workload = on_hosts("a", "b", unhealthy=("b",))
    status = patched(workload, moved(workload, "a", "c"), admitted=True)
    assert status.keys() == {"admission", "unhealthyNodes"}
    assert status["unhealthyNodes"] is None
    (assigned,) = status["admission"]["podSetAssignments"]
    assert assigned["topologyAssignment"]["slices"][0]["valuesPerLevel"] == [{"individual": {"roots": ["a", "c"]}}]


@pytest.mark.parametrize("admitted", [True, False])
def test_places_that_were_waited_for_admit_the_workload(admitted: bool) -> None:
    """Unless another admission check is left."""
    workload = on_hosts("a")
    status = workload.status
    waiting = [each for each in status.conditions if each.type != "Admitted"]
    workload = msgspec.structs.replace(workload, status=msgspec.structs.replace(status, conditions=waiting))
    conditions = patched(workload, moved(workload, "a"), admitted=admitted).get("conditions", [])
    assert [each["type"] for each in conditions if each["type"] == "Admitted"] == ["Admitted"] * admitted
