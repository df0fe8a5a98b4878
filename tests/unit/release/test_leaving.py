"""What is undone on one object when Turnstile leaves."""

from typing import Any

import msgspec
import orjson
import pytest

from turnstile.api import names
from turnstile.api.core import Job, Pod
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.release.leaving import Pending, held, is_gated, pod_released, started, without_finalizer


def pod(*gates: str, finalizers: tuple[str, ...] = (), deleted: bool = False) -> Pod:
    """A pod with these gates and finalizers."""
    plain: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "team", "resourceVersion": "7", "finalizers": list(finalizers)},
        "spec": {"schedulingGates": [{"name": each} for each in gates], "containers": []},
    }
    if deleted:
        plain["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.json.decode(orjson.dumps(plain), type=Pod)


def body(pod: Pod, pending: Pending) -> dict[str, Any]:
    """The patch that releases a pod; empty for none."""
    patch = pod_released(pod, pending)
    return orjson.loads(patch.body) if patch is not None else {}


WAITING = pod(names.ADMISSION_GATE, names.TOPOLOGY_GATE, "own", finalizers=(names.POD_FINALIZER, "own"))


def test_a_pod_keeps_gates_and_finalizers_of_others() -> None:
    """Turnstile's go, if the pod has not changed since it was read."""
    assert is_gated(WAITING)
    assert body(WAITING, Pending.START) == {
        "metadata": {"finalizers": ["own"], "resourceVersion": "7"},
        "spec": {"schedulingGates": [{"name": "own"}]},
    }
    assert body(pod("own", finalizers=("own",)), Pending.START) == {}
    assert not is_gated(pod("own"))


def test_a_pod_that_is_kept_loses_its_finalizer_only() -> None:
    """So that it can be deleted. A pod that is being deleted is not started."""
    assert body(WAITING, Pending.KEEP) == {"metadata": {"finalizers": ["own"], "resourceVersion": "7"}}
    going = pod(names.ADMISSION_GATE, finalizers=(names.POD_FINALIZER,), deleted=True)
    assert body(going, Pending.START) == {"metadata": {"finalizers": None, "resourceVersion": "7"}}


def test_the_finalizer_of_what_was_in_use() -> None:
    """None where there is none."""
    flavor = ResourceFlavor()
    assert without_finalizer(flavor) is None
    flavor.metadata.finalizers = [names.RESOURCE_IN_USE]
    patch = without_finalizer(flavor)
    assert patch is not None
    assert orjson.loads(patch.body)["metadata"]["finalizers"] is None


def job(*, suspend: bool = True, ended: bool = False) -> Job:
    """A Job."""
    conditions = [{"type": "Complete", "status": "True"}] if ended else []
    plain = {"metadata": {"name": "a"}, "spec": {"suspend": suspend}, "status": {"conditions": conditions}}
    return msgspec.json.decode(orjson.dumps(plain), type=Job)


def workload(*, active: bool = True, finished: bool = False) -> Workload:
    """A Workload."""
    conditions = [{"type": "Finished", "status": "True", "reason": "Failed", "message": ""}] if finished else []
    plain = {"metadata": {"name": "a"}, "spec": {"active": active, "podSets": []}, "status": {"conditions": conditions}}
    return msgspec.json.decode(orjson.dumps(plain), type=Workload)


@pytest.mark.parametrize(
    ("job", "workloads", "managed", "expected"),
    [
        (job(), [workload()], False, True),
        (job(suspend=False), [workload()], True, False),
        (job(ended=True), [workload()], True, False),
        (job(), [workload(active=False)], True, False),
        (job(), [workload(finished=True)], True, False),
        (job(), [], True, True),
        (job(), [], False, False),
    ],
    ids=["pending", "running", "ended", "deactivated", "finished Workload", "seen by no controller", "not managed"],
)
def test_which_jobs_wait_for_quota(job: Job, workloads: list[Workload], managed: bool, expected: bool) -> None:
    """Those that Turnstile suspended, and nothing else keeps."""
    assert held(BatchJob(), job, workloads, managed=managed) is expected


def test_a_job_is_resumed_as_its_user_wrote_it() -> None:
    """Nothing is added to its template."""
    (patch,) = started(BatchJob(), job())
    assert orjson.loads(patch.body) == {"spec": {"suspend": False}, "metadata": {"resourceVersion": ""}}
