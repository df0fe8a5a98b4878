"""Turnstile and Kueue can take a Workload over from each other: each clears what the other wrote.

Kueue writes a status by server-side apply with force, and clears a field by leaving it out. Its half is played here,
with its field managers.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from testbed import ControlPlane
from testbed.client import Api, Json, condition, resource_path
from tests.cluster.desk import Desk, desk
from tests.cluster.scenario import GROUP, Scenario
from turnstile.api.workload import Admission, PodSetAssignment, PodSetRequest, Workload
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.status.draft import StatusDraft
from turnstile.kube.gate import Rank

pytestmark = pytest.mark.cluster

TIME = "2026-01-02T03:04:05Z"
POD = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "restartPolicy": "Never"}
MANAGER = "kueue-admission"


def told(kind: str, status: str, reason: str) -> Json:
    """A condition."""
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": TIME}


def check(name: str, state: str, **more: Any) -> Json:
    """The state of an admission check."""
    return {"name": name, "state": state, "message": "", "lastTransitionTime": TIME, **more}


ADMISSION = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}],
}
RESERVED, ADMITTED = told("QuotaReserved", "True", "QuotaReserved"), told("Admitted", "True", "Admitted")
FULL = {
    "conditions": [RESERVED, ADMITTED, told("DeactivationTarget", "True", "AdmissionCheck")],
    "admission": ADMISSION,
    "admissionChecks": [
        check("a", "Ready", podSetUpdates=[{"name": "main", "labels": {"a": "b"}}]),
        check("b", "Ready"),
    ],
    "requeueState": {"count": 2, "requeueAt": TIME},
    "resourceRequests": [{"name": "main", "resources": {"cpu": "1"}}],
    "unhealthyNodes": [{"name": "n"}],
    "clusterName": "worker",
}


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane) -> AsyncIterator[Desk]:
    """A desk with a Workload of one pod."""
    async with desk(schema_server) as made:
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": {"spec": POD}}]}
        await made.create(Workload, {"metadata": {"name": "train"}, "spec": spec})
        yield made


async def applied(at: Desk, status: Json, manager: str = MANAGER) -> Json:
    """The status after Kueue, or another program, has applied this as its share."""
    body = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": "train"}, "status": status}
    value = await at.transport.patch(
        Workload, "train", at.namespace, body, type="apply", subresource="status", manager=manager
    )
    at.stores[Workload].observe(value)
    return await status_of(at)


async def status_of(at: Desk) -> Json:
    """The status as the server has it now."""
    found: Json = (await at.raw(Workload, "train")).get("status", {})
    return found


async def write(at: Desk, change: Any) -> Json:
    """The status after Turnstile has changed it."""

    def patch(workload: Workload) -> Patch:
        draft = StatusDraft(workload, at.world.now)
        change(draft)
        return draft.patch()

    await at.executor.update(Workload, f"{at.namespace}/train", patch, rank=Rank.START)
    return await status_of(at)


def given(queue: str = "cq") -> Admission:
    """An admission."""
    assignment = PodSetAssignment(name="main", flavors={"cpu": "f"}, resource_usage={"cpu": "1"}, count=1)
    return Admission(cluster_queue=queue, pod_set_assignments=[assignment])


def states(status: Json) -> dict[str, str]:
    """Status of each condition by type."""
    return {each["type"]: each["status"] for each in status.get("conditions", ())}


@pytest.mark.asyncio
async def test_kueue_clears_what_turnstile_wrote(at: Desk) -> None:
    """All of the status that Kueue's manager of admissions has a share in goes when that leaves it out."""

    def full(draft: StatusDraft) -> None:
        draft.reserve(given(), admitted=True)
        draft.set("DeactivationTarget", "True", reason="AdmissionCheck", message="")
        draft.requeue(at.world.now)
        draft.requests([PodSetRequest(name="main", resources={"cpu": "1"})])
        for name in ("unhealthyNodes", "admissionChecks"):
            draft.field(name, FULL[name])

    seen = await write(at, full)
    assert seen.keys() == FULL.keys() - {"clusterName"}
    freed = [told("QuotaReserved", "False", "PendingEvaluation"), told("Admitted", "False", "NoReservation")]
    assert await applied(at, {"conditions": freed}) == {"conditions": freed}


@pytest.mark.asyncio
async def test_kueue_changes_what_turnstile_wrote(at: Desk) -> None:
    """Another reservation, and each condition by its type."""
    await write(at, lambda draft: draft.reserve(given("old"), admitted=True))
    seen = await applied(at, {"conditions": [RESERVED, told("Evicted", "True", "Preempted")], "admission": ADMISSION})
    assert seen["admission"] == ADMISSION
    assert states(seen) == {"QuotaReserved": "True", "Evicted": "True"}


@pytest.mark.asyncio
async def test_each_manager_of_kueue_keeps_its_share(at: Desk) -> None:
    """Pods that are done are told by another one than reservations are: neither apply takes the other's away."""
    await write(at, lambda draft: draft.reserve(given(), admitted=True))
    await write(at, lambda draft: draft.reclaim({"main": 1}))
    seen = await applied(at, {"conditions": [RESERVED], "admission": ADMISSION})
    assert seen["reclaimablePods"] == [{"name": "main", "count": 1}]
    seen = await applied(at, {}, "kueue-reclaimable-pods")
    assert "reclaimablePods" not in seen
    assert seen["admission"] == ADMISSION


@pytest.mark.asyncio
@pytest.mark.parametrize("manager", [MANAGER, "somebody-else"])
async def test_turnstile_clears_what_kueue_wrote(at: Desk, manager: str) -> None:
    """Nothing of a reservation is left behind, whoever holds it."""
    await applied(at, FULL, manager)

    def end(draft: StatusDraft) -> None:
        draft.evict("Preempted", "")
        draft.remove("DeactivationTarget")
        draft.checks = draft.checks[:1]
        draft.field("requeueState", {"requeueAt": None})
        draft.unreserve(reason="PendingEvaluation", message="")

    seen = await write(at, end)
    assert states(seen) == {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True"}
    (left,) = seen["admissionChecks"]
    assert (left["name"], left["state"], "podSetUpdates" in left) == ("a", "Pending", False)
    assert seen["requeueState"] == {"count": 2}
    assert seen.keys() == {
        "conditions", "admissionChecks", "requeueState", "schedulingStats", "resourceRequests",
        "accumulatedPastExecutionTimeSeconds",
    }  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("manager", [MANAGER, "somebody-else"])
async def test_turnstile_changes_what_kueue_wrote(at: Desk, manager: str) -> None:
    """A reservation replaces all of an older one that was left behind, flavors of other resources too."""
    older = {"clusterQueue": "old", "podSetAssignments": [
        {"name": "main", "flavors": {"cpu": "g", "gpu": "g"}, "resourceUsage": {"cpu": "1", "gpu": "1"}, "count": 1}
    ]}  # fmt: skip
    await applied(at, {"conditions": [told("QuotaReserved", "False", "Pending")], "admission": older}, manager)
    seen = await write(at, lambda draft: draft.reserve(given(), admitted=True))
    assert seen["admission"] == ADMISSION
    assert states(seen) == {"QuotaReserved": "True", "Admitted": "True"}


@pytest.mark.asyncio
async def test_conditions_of_others_stay(at: Desk) -> None:
    """Each of them belongs to who applied it."""
    await applied(at, {"conditions": [told("WaitingForReplacementPods", "False", "PodsReady")]}, "kueue-pod-controller")
    await write(at, lambda draft: draft.reserve(given(), admitted=True))
    await write(at, lambda draft: draft.unreserve(reason="PendingEvaluation", message=""))
    seen = await applied(at, {})
    assert states(seen) == {"WaitingForReplacementPods": "False"}


@pytest.mark.asyncio
async def test_a_program_that_answers_a_check_is_not_held_up(at: Desk) -> None:
    """What it applies by force counts, and Turnstile keeps it."""
    pending = [check("a", "Pending")]
    await write(at, lambda draft: draft.field("admissionChecks", pending))
    await applied(at, {"admissionChecks": [check("a", "Ready")]}, "budget")
    seen = await write(at, lambda draft: draft.reserve(given(), admitted=True))
    assert [each["state"] for each in seen["admissionChecks"]] == ["Ready"]


def test_an_eviction_that_kueue_ends_is_followed_by_another_admission(api: Api, scenario: Scenario) -> None:
    """Kueue takes the reservation back, and the queue gives quota to the Workload again."""
    flavor = scenario.flavor("plain")
    scenario.queue("main", {flavor: {"cpu": 1}})
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": {"spec": POD}}]}
    metadata = {"name": "alone", "namespace": scenario.namespace}
    scenario.create({"apiVersion": GROUP, "kind": "Workload", "metadata": metadata, "spec": spec})
    path = resource_path(GROUP, "workloads", "alone", namespace=scenario.namespace)

    def admitted(workload: Json) -> bool:
        return condition(workload, "Admitted").get("status") == "True"

    first = api.wait_for(path, admitted, describe="admitted")
    freed = [
        told("QuotaReserved", "False", "Pending"),
        told("Admitted", "False", "NoReservation"),
        told("Evicted", "True", "Preempted"),
        told("Requeued", "True", "Preempted"),
    ]
    body = {"apiVersion": GROUP, "kind": "Workload", "metadata": metadata, "status": {"conditions": freed}}
    applied_now = api.apply(body, subresource="status", field_manager=MANAGER)
    assert "admission" not in applied_now["status"]
    again = api.wait_for(path, admitted, describe="admitted again")
    assert again["status"]["admission"] == first["status"]["admission"]
    assert condition(again, "Evicted")["status"] == "False"


def test_an_admission_without_quota_is_cleared(api: Api, scenario: Scenario) -> None:
    """Somebody left it behind; a Workload that waits shows none."""
    spec = {"queueName": "nowhere", "podSets": [{"name": "main", "count": 1, "template": {"spec": POD}}]}
    metadata = {"name": "alone", "namespace": scenario.namespace}
    scenario.create({"apiVersion": GROUP, "kind": "Workload", "metadata": metadata, "spec": spec})
    path = resource_path(GROUP, "workloads", "alone", namespace=scenario.namespace)
    api.patch(f"{path}/status", {"status": {"admission": ADMISSION}})
    api.wait_for(path, lambda w: "admission" not in w["status"], describe="no admission")
