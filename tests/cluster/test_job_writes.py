"""Every write that a Job's and a Pod's life takes is one that a real API server accepts, in the order decided."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.cluster.desk import Desk, desk
from turnstile.api.core import Job, Pod
from turnstile.api.errors import NotFound
from turnstile.api.meta import find_condition
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers.jobs import jobreconciler
from turnstile.controllers.runtime.actions import ReconcileResult

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

TIME = "2026-01-02T03:04:05Z"


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane) -> AsyncIterator[Desk]:
    """A desk with two flavors, one with a taint to tolerate."""
    async with desk(schema_server) as made:
        for pool in ("plain", "spot"):
            body: dict[str, Any] = {"metadata": {"name": f"{made.namespace}-{pool}"}}
            body["spec"] = {"nodeLabels": {"pool": pool}}
            if pool == "spot":
                body["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]
            await made.create(ResourceFlavor, body, namespaced=False)
        yield made


@pytest_asyncio.fixture
async def job(at: Desk) -> str:
    """The key of a Job as the webhook leaves it."""
    pod = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}],
        "restartPolicy": "Never",
        "tolerations": [{"key": "own", "operator": "Exists"}],
    }
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "template": {"spec": pod}}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    await at.create(Job, {"metadata": {"name": "train", "labels": labels}, "spec": spec})
    return f"batch/job:{at.namespace}/train"


async def run_pods(at: Desk) -> None:
    """The Job controller's write."""
    await at.patch(Job, "train", {"status": {"startTime": TIME, "active": 2, "ready": 0}}, subresource="status")


async def see_the_stop(at: Desk) -> None:
    """The Job controller's write once it has read that the Job is suspended."""
    suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": TIME}
    await at.patch(Job, "train", {"status": {"active": 0, "conditions": [suspended]}}, subresource="status")


async def test_a_job_is_queued_started_stopped_and_started_elsewhere(at: Desk, job: str) -> None:
    """The template changes hands twice and is the user's own in between."""
    assert await at.settle(job) == ["Create Workload"]
    await at.admit(f"{at.namespace}-spot")
    assert await at.settle(job) == ["Patch Job"]
    first = (await at.raw(Job, "train"))["spec"]
    assert first["suspend"] is False
    assert first["template"]["spec"]["nodeSelector"] == {"pool": "spot"}
    assert [t["key"] for t in first["template"]["spec"]["tolerations"]] == ["own", "spot"]

    await run_pods(at)
    await at.evict()
    assert await at.settle(job) == ["Patch Job"]
    assert at.workload().quota_reserved
    await see_the_stop(at)
    assert await at.settle(job) == ["Patch Job", "Patch Job", "Patch Workload"]
    stopped = await at.raw(Job, "train")
    assert stopped["spec"]["suspend"] is True
    assert "startTime" not in stopped["status"]
    assert "annotations" not in stopped["metadata"]
    assert "nodeSelector" not in stopped["spec"]["template"]["spec"]
    assert [t["key"] for t in stopped["spec"]["template"]["spec"]["tolerations"]] == ["own"]
    assert "kueue.x-k8s.io/podset" not in stopped["spec"]["template"]["metadata"]["labels"]
    assert not at.workload().quota_reserved
    requeued = find_condition(at.workload().status.conditions, "Requeued")
    assert requeued is not None
    assert requeued.status == "True"

    await at.admit(f"{at.namespace}-plain")
    assert await at.settle(job) == ["Patch Job"]
    second = (await at.raw(Job, "train"))["spec"]["template"]["spec"]
    assert second["nodeSelector"] == {"pool": "plain"}
    assert at.executor.stats.writes["Workload", "create"] == 1


async def test_defaults_of_the_api_server_do_not_set_job_and_workload_apart(at: Desk, job: str) -> None:
    """What it fills into a Job is in the Workload's copy too, in whatever order it gives the keys back."""
    await at.settle(job)
    await at.see(Job, "train")
    await at.executor.refresh(Workload, at.workload().metadata.key)
    assert await at.settle(job) == []
    assert at.workload().spec.pod_sets[0].containers_digest


async def test_an_end_frees_the_quota(at: Desk, job: str) -> None:
    """The last write of a Job's life is one status patch; the finalizer is left for a quiet time."""
    await at.settle(job)
    await at.admit(f"{at.namespace}-plain")
    await at.settle(job)
    await run_pods(at)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": TIME} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    done = {"active": 0, "succeeded": 2, "completionTime": TIME, "conditions": conditions}
    await at.patch(Job, "train", {"status": done}, subresource="status")
    assert await at.settle(job) == ["Patch Workload"]
    assert at.workload().finished
    assert at.executor.waiting == 1


async def test_an_edit_while_waiting_rewrites_the_workload(at: Desk, job: str) -> None:
    """In place, and with what is to be taken out taken out."""
    await at.settle(job)
    await at.patch(
        Job, "train", {"spec": {"parallelism": 1}, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    )
    assert await at.settle(job) == ["Patch Workload"]
    assert (at.workload().spec.queue_name, at.workload().spec.pod_sets[0].count) == ("other", 1)


async def test_an_edit_with_quota_makes_another_workload(at: Desk, job: str) -> None:
    """The one that does not fit goes when its Job has stopped, finalizer first."""
    await at.settle(job)
    await at.admit(f"{at.namespace}-plain")
    await at.settle(job)
    before = at.workload()
    await at.patch(Job, "train", {"spec": {"parallelism": 1}})
    assert await at.settle(job) == ["Patch Job"]
    await see_the_stop(at)
    await at.executor.carry_out(Job, job, _decided(at, job), at.queue)
    with pytest.raises(NotFound):
        await at.see(Workload, before.metadata.name)
    at.stores[Workload].delete(before.metadata.key)
    assert (await at.raw(Job, "train"))["spec"]["suspend"] is True
    assert await at.settle(job) == ["Create Workload"]


async def test_a_pod_is_let_go_and_taken_back(at: Desk) -> None:
    """The gate is lifted with the node selector in one patch; eviction marks the pod and deletes it."""
    labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"}
    metadata = {"name": "one", "labels": labels, "finalizers": ["kueue.x-k8s.io/managed"]}
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        "automountServiceAccountToken": False,
        "serviceAccountName": "default",
    }
    await at.transport.request(
        "POST",
        f"/api/v1/namespaces/{at.namespace}/serviceaccounts",
        body=b'{"metadata":{"name":"default"}}',
    )
    await at.create(Pod, {"metadata": metadata, "spec": spec})
    key = f"pod:{at.namespace}/one"
    assert await at.settle(key) == ["Create Workload"]
    await at.admit(f"{at.namespace}-spot")
    assert await at.settle(key) == ["Patch Pod"]
    started = (await at.raw(Pod, "one"))["spec"]
    assert "schedulingGates" not in started
    assert started["nodeSelector"] == {"pool": "spot"}
    assert "spot" in [toleration["key"] for toleration in started["tolerations"]]

    await at.evict()
    decision = _decided(at, key)
    await at.executor.carry_out(Pod, key, decision, at.queue)
    gone = await at.raw(Pod, "one")
    assert gone["metadata"]["deletionTimestamp"]
    (target,) = [c for c in gone["status"]["conditions"] if c["type"] == "TerminationTarget"]
    assert target["reason"] == "WorkloadEvictedDueToPreempted"
    assert at.workload().quota_reserved
    await at.see(Pod, "one")
    await at.settle(key)
    assert at.workload().finished
    assert at.stores[Pod].get(f"{at.namespace}/one") is None
    with pytest.raises(NotFound):
        await at.see(Pod, "one")
    assert not at.workload().metadata.finalizers


def _decided(at: Desk, key: str) -> ReconcileResult:
    return jobreconciler.decide(key, at.world)
